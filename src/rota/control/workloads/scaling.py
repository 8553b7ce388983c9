"""How many instances of a placement a city has, by the use of their CPUs.

- *Up at once.* As many as it takes to bring the average down to the target.
- *Down late.* Never fewer than were needed at any moment of the last `DOWN_SECONDS`.
- *Steady.* Within a tenth of the target nothing changes.
- *Careful.* Instances that were not measured count as idle when there should be more, and as busy when there should be
  fewer. Where less than half of them were measured, nothing changes.

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
"""Within so small a part of the target nothing changes."""
DOWN_SECONDS = 60
MEASURED_MIN = 0.5


class Measured(NamedTuple):
    """What is known of the instances of one deployment."""

    replicas: int
    """How many it is to have."""
    ready: int
    percent: int | None
    """Average use of the CPUs of those that are ready."""


def needed(target: int, deployments: Iterable[Measured]) -> int:
    """Return how many instances it takes now for an average use of `target` percent."""
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


class Scaling:
    """Remembers, for each placement in each city, what was needed of late."""

    def __init__(self) -> None:
        self._past: dict[tuple[Key, str, str], History] = {}

    def forget(self, workload: Key) -> None:
        for one in [one for one in self._past if one[0] == workload]:
            del self._past[one]

    def decide(
        self, workload: Key, placement: str, city: str, scale: PlacementScale, there: Iterable[Measured], now: float
    ) -> Decision:
        """Return how many there should be, and when that may be fewer."""
        id_ = (workload, placement, city)
        target = scale.metric.cpu_percent if scale.metric is not None else None
        if target is None or scale.max is None:
            self._past.pop(id_, None)
            return Decision(scale.min, (), None)
        everyone = list(there)
        bounds = PoolScale(min=scale.min, max=scale.max, target_idle=0, scale_down_seconds=DOWN_SECONDS)
        # After a restart everything that is there was needed until now.
        history = self._past.get(id_) or initial_history(sum(one.replicas for one in everyone), now)
        decision = decide(bounds, needed(target, everyone), history, now)
        self._past[id_] = decision.history
        return decision
