"""Numbers in, a number out: how many there should be, and when that may be fewer.

The number is the most that was needed within the last `scaleDownSeconds`. For that it is enough to keep the peaks:
falling levels, each with the last moment at which so many were needed. A level that is reached again wipes out all
below it, so there are never more peaks than numbers between the bounds.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from rota.api.pool import PoolScale

BATCHES = 10
"""Parts of `scaleDownSeconds`. What falls idle within one of them goes together, at its end: late, but in one go."""


class Load(NamedTuple):
    """What a pool has to do, and to do it with."""

    waiting: int = 0
    held: int = 0
    crashing: int = 0
    """Not held, and ending soon after every start."""


class Peak(NamedTuple):
    """So many were needed, for the last time at this moment."""

    level: int
    until: float


Past = tuple[Peak, ...]


class Decision(NamedTuple):
    """How many there should be."""

    replicas: int
    past: Past
    """To be handed in the next time."""
    again_after: float | None
    """In how many seconds there may be fewer, though nothing changes until then."""


def needed(scale: PoolScale, load: Load) -> int:
    """How many a pool needs now."""
    # Whether another would do better than one that crashes is not known. That others are at work is a reason to think
    # so; that others are ready is none, as what keeps crashing is ready now and then.
    stand_ins = min(load.crashing, load.held)
    return min(scale.max, max(scale.min, load.held + load.waiting + scale.target_idle + stand_ins))


def began(there: int, now: float) -> Past:
    """The past of a pool of which nothing is known but how many instances it has: they were needed until now."""
    return (Peak(there, now),)


def decide(scale: PoolScale, level: int, past: Past, now: float) -> Decision:
    """How many there should be when so many are needed now. What was needed the last time was so until now."""
    if past:
        past = (*past[:-1], past[-1]._replace(until=now))
    over = [peak for peak in past if peak.level > level and _ends(scale, peak) > now]
    after = (*over, Peak(level, now))
    replicas = min(scale.max, max(scale.min, after[0].level))
    return Decision(replicas, after, _ends(scale, over[0]) - now if over else None)


def _ends(scale: PoolScale, peak: Peak) -> float:
    """From when on a peak does not count any more."""
    end = peak.until + scale.scale_down_seconds
    part = scale.scale_down_seconds / BATCHES
    # Never earlier than the end, whatever the division makes of it.
    return max(end, ceil(end / part) * part) if part else end
