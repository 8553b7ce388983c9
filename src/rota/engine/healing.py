"""When a parked node is looked at again without having been woken: the safety net under lost events."""

from __future__ import annotations

from rota.engine import chance

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
    return seconds * chance.uniform(1.0 - JITTER, 1.0 + JITTER)


class Slots:
    """So many a second, evenly spaced; each is given away once."""

    def __init__(self, per_second: float) -> None:
        self._pause = 1.0 / per_second
        self._next = 0.0

    def reserve(self, now: float) -> float:
        """When the next one is."""
        slot = max(now, self._next)
        self._next = slot + self._pause
        return slot
