"""When a parked node is looked at again without having been woken: the safety net under lost events."""

from __future__ import annotations

import random

RELOOKS_PER_SECOND_MAX = 200
"""Of all nodes together."""
JITTER = 0.2
TIERS = ((60.0, 1.0), (300.0, 15.0), (600.0, 60.0))
"""Up to how many seconds of waiting a node is looked at how often."""
SLOWEST_SECONDS = 300.0


def relook_seconds(waited: float) -> float:
    """The pause before a node that has waited so long is looked at again, before jitter."""
    for until, pause in TIERS:
        if waited < until:
            return pause
    return SLOWEST_SECONDS


def jittered(seconds: float) -> float:
    return seconds * random.uniform(1.0 - JITTER, 1.0 + JITTER)


class Allowance:
    """So many a second, and as many at once."""

    def __init__(self, per_second: float, now: float) -> None:
        self._per_second = per_second
        self._left = per_second
        self._since = now

    def take(self, now: float) -> float:
        """0 if there is one left, which is then used up; else the seconds until there will be one."""
        self._left = min(self._per_second, self._left + (now - self._since) * self._per_second)
        self._since = now
        if self._left >= 1.0:
            self._left -= 1.0
            return 0.0
        return (1.0 - self._left) / self._per_second
