"""How many workers a function needs. Pure: the time is told."""

from __future__ import annotations

from typing import NamedTuple


class Wanted(NamedTuple):
    """How many there are to be, and in how many seconds that may be fewer, though nothing changes until then."""

    workers: int
    again_after: float | None = None


class Scale:
    """Remembers when each worker was last needed: the third is needed whenever three are."""

    def __init__(self) -> None:
        self._needed: list[float] = []

    def observe(self, load: int, concurrency: int, most: int, now: float) -> int:
        """So many calls are under way or wait. Returns how many workers that takes."""
        needed = min(most, -(-load // concurrency))
        self._note(needed, now)
        return needed

    def found(self, workers: int, now: float) -> None:
        """There are so many, and it is not known since when they are not needed."""
        self._needed += [now] * (workers - len(self._needed))

    def wanted(self, load: int, concurrency: int, least: int, most: int, idle_seconds: float, now: float) -> Wanted:
        needed = self.observe(load, concurrency, most, now)
        self._needed = [time for time in self._needed if now - time < idle_seconds]
        count = min(most, max(least, needed, len(self._needed)))
        if count <= max(least, needed):
            return Wanted(count)
        # They are in the order in which they go: the last one was needed least.
        return Wanted(count, max(0.0, self._needed[-1] + idle_seconds - now))

    def _note(self, needed: int, now: float) -> None:
        self._needed[:needed] = [now] * needed
