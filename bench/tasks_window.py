"""A window of time in which finished tasks count, for every subject of a benchmark."""

from __future__ import annotations

import math
import time
from typing import NamedTuple

WARM_SECONDS = 0.1
"""Time from the first finished task until tasks count, because some subjects are slow at first."""
SAMPLES_MIN = 5
"""A window is open until it has this number of tasks, even beyond its time."""


class Load(NamedTuple):
    """Measurements of a window: sorted milliseconds since the submission."""

    per_second: float
    until_assigned: list[float]
    """Until the assignment to a worker is stored; empty for subjects without one."""
    until_running: list[float]
    until_result: list[float]


class Window:
    """Collects finished tasks. Record each with `over`, and go on while `is_open`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since = self._until = math.inf
        self._assigned: list[float] = []
        self._running: list[float] = []
        self._result: list[float] = []

    def is_open(self) -> bool:
        return time.perf_counter() < self._until or len(self._result) < SAMPLES_MIN

    def over(self, *, running: float, result: float, assigned: float | None = None) -> None:
        """Record a finished task. Times are seconds since its submission."""
        now = time.perf_counter()
        if self._since == math.inf:
            self._since = now + WARM_SECONDS
            self._until = self._since + self._seconds
        if now < self._since or not self.is_open():
            return
        self._until = max(self._until, now)
        self._running.append(running * 1e3)
        self._result.append(result * 1e3)
        if assigned is not None:
            self._assigned.append(assigned * 1e3)

    def load(self) -> Load:
        per_second = len(self._result) / (self._until - self._since)
        return Load(per_second, sorted(self._assigned), sorted(self._running), sorted(self._result))


def p50(values: list[float]) -> float | None:
    return values[len(values) // 2] if values else None


def p99(values: list[float]) -> float | None:
    return values[int(len(values) * 0.99)] if values else None
