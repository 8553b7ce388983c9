"""The autoscaler of functions. Pure: the time is an argument."""

from __future__ import annotations

from typing import NamedTuple


class WorkerCount(NamedTuple):
    workers: int
    again_after: float | None = None
    """Seconds until the number may fall, if the load stays as it is."""


class FunctionAutoscaler:
    """Keeps the time at which each number of workers was last needed."""

    def __init__(self) -> None:
        self._needed: list[float] = []

    def observe(self, load: int, concurrency: int, most: int, now: float) -> int:
        """Take the number of calls that run or wait. Returns the number of workers that they need."""
        needed = min(most, -(-load // concurrency))
        self._note(needed, now)
        return needed

    def found(self, workers: int, now: float) -> None:
        """Count existing workers as needed until now, since their past is unknown."""
        self._needed += [now] * (workers - len(self._needed))

    def wanted(
        self, load: int, concurrency: int, least: int, most: int, idle_seconds: float, now: float
    ) -> WorkerCount:
        needed = self.observe(load, concurrency, most, now)
        self._needed = [time for time in self._needed if now - time < idle_seconds]
        count = min(most, max(least, needed, len(self._needed)))
        if count <= max(least, needed):
            return WorkerCount(count)
        # The times fall from first to last: the last worker was needed least recently.
        return WorkerCount(count, max(0.0, self._needed[-1] + idle_seconds - now))

    def _note(self, needed: int, now: float) -> None:
        self._needed[:needed] = [now] * needed
