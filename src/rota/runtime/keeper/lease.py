"""For how long something may run unless that is extended, whatever becomes of who would extend it."""

from __future__ import annotations

import time

_UPTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Goes on while the machine is suspended."""
LEASE_ENDED = "LeaseEnded"
"""Why something was ended whose lease nobody has extended."""


class Lease:
    """It ends by the clock of the machine or by that of the wall, whichever has advanced more."""

    def __init__(self, seconds: float) -> None:
        """`seconds`: it is good for so long from now."""
        self._seconds = seconds
        self._began = (time.clock_gettime(_UPTIME), time.time())

    @property
    def has_ended(self) -> bool:
        uptime, wall = self._began
        return max(time.clock_gettime(_UPTIME) - uptime, time.time() - wall) >= self._seconds
