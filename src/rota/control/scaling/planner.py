"""Decide the number of instances, and the time at which it may fall: numbers in, a number out.

The number is the most that was needed within the last `scaleDownSeconds`. For that it is enough to keep the peaks:
falling levels, each with the last moment at which so many were needed. A level that is reached again replaces all
below it, so there are never more peaks than numbers between the bounds.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from rota.api.pool import PoolScale

BATCHES = 10
"""Parts of `scaleDownSeconds`. Instances that fall idle within one part are removed together, at its end."""


class Load(NamedTuple):
    """The demand for a pool's instances."""

    waiting: int = 0
    held: int = 0
    crashing: int = 0
    """Number of instances that are not held and end soon after every start."""


class Peak(NamedTuple):
    """A number of instances, and the last moment at which so many were needed."""

    level: int
    until: float


History = tuple[Peak, ...]


class Decision(NamedTuple):
    replicas: int
    history: History
    """The argument of the next decision."""
    again_after: float | None
    """Seconds until the number may fall, if the demand stays as it is."""


def needed(scale: PoolScale, load: Load) -> int:
    """Return the number of instances that a pool needs now."""
    # A stand-in may crash as well. Other instances that are held are a reason to try one; other instances that are
    # ready are none, since a crashing one is ready now and then.
    stand_ins = min(load.crashing, load.held)
    return min(scale.max, max(scale.min, load.held + load.waiting + scale.target_idle + stand_ins))


def initial_history(there: int, now: float) -> History:
    """Return the history of a pool of which only the present number is known: all were needed until now."""
    return (Peak(there, now),)


def decide(scale: PoolScale, level: int, history: History, now: float) -> Decision:
    """Decide the number if `level` are needed now. The level of the last decision counts as needed until now."""
    if history:
        history = (*history[:-1], history[-1]._replace(until=now))
    over = [peak for peak in history if peak.level > level and _ends(scale, peak) > now]
    after = (*over, Peak(level, now))
    replicas = min(scale.max, max(scale.min, after[0].level))
    return Decision(replicas, after, _ends(scale, over[0]) - now if over else None)


def _ends(scale: PoolScale, peak: Peak) -> float:
    """Return the moment from which a peak does not count any more."""
    end = peak.until + scale.scale_down_seconds
    part = scale.scale_down_seconds / BATCHES
    # Never earlier than the end, whatever the division makes of it.
    return max(end, ceil(end / part) * part) if part else end
