"""The autoscaler of placements: the number of instances in a city by their CPU use.

- *Up at once.* As many instances as bring the average down to the target.
- *Down late.* Never fewer than were needed at any moment of the last `DOWN_SECONDS`.
- *Steady.* Within a tenth of the target nothing changes.
- *Careful.* Instances without a measurement count as idle when more are needed, and as busy when fewer are. If less
  than half of them were measured, nothing changes.

Never: reads a clock or an object.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import NamedTuple

from rota.api.pool import PoolScale
from rota.api.workload import PlacementScale
from rota.client import Key
from rota.control.scaling.planner import Decision, History, decide, initial_history

DEAD_ZONE_PART = 10
"""A deviation from the target that is smaller than this part of it changes nothing."""
DOWN_SECONDS = 60
MEASURED_MIN = 0.5


class Measured(NamedTuple):
    """The size and the CPU use of one deployment."""

    replicas: int
    """The wanted number of instances."""
    ready: int
    percent: int | None
    """The average CPU use of the ready instances; None: not measured."""


def needed(target: int, deployments: Iterable[Measured]) -> int:
    """Return the number of instances that have an average use of `target` percent now."""
    everyone = list(deployments)
    current = sum(one.replicas for one in everyone)
    measured = [(min(one.ready, one.replicas), one.percent) for one in everyone if one.percent is not None]
    count = sum(ready for ready, _ in measured)
    if count == 0 or count < current * MEASURED_MIN:
        return current
    total = sum(ready * percent for ready, percent in measured)
    if abs(total - count * target) * DEAD_ZONE_PART <= count * target:
        return current
    use = total / target
    if use > count:
        return max(ceil(use), current)
    return min(ceil(use + current - count), current)


class PlacementAutoscaler:
    """Keeps the history of needed numbers, by placement and city."""

    def __init__(self) -> None:
        self._history: dict[tuple[Key, str, str], History] = {}

    def forget(self, workload: Key) -> None:
        for one in [one for one in self._history if one[0] == workload]:
            del self._history[one]

    def decide(
        self, workload: Key, placement: str, city: str, scale: PlacementScale, there: Iterable[Measured], now: float
    ) -> Decision:
        """Decide the number of instances, and the time at which it may fall."""
        id_ = (workload, placement, city)
        target = scale.metric.cpu_percent if scale.metric is not None else None
        if target is None or scale.max is None:
            self._history.pop(id_, None)
            return Decision(scale.min, (), None)
        everyone = list(there)
        bounds = PoolScale(min=scale.min, max=scale.max, target_idle=0, scale_down_seconds=DOWN_SECONDS)
        # After a restart all instances that are there count as needed until now.
        history = self._history.get(id_) or initial_history(sum(one.replicas for one in everyone), now)
        decision = decide(bounds, needed(target, everyone), history, now)
        self._history[id_] = decision.history
        return decision
