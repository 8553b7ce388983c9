"""What is measured of any subject: tasks that are over within a while, once it is under way."""

from __future__ import annotations

import math
import time
from typing import NamedTuple

WARM_SECONDS = 0.1
"""From the first that is over to those that count: some are slow to wake up."""
SAMPLES_MIN = 5
"""The while is longer for what is slower."""


class Load(NamedTuple):
    """In milliseconds from the call that submits, in order."""

    per_second: float
    until_assigned: list[float]
    """Until it is written down that it has a worker; empty where there is no such thing."""
    until_running: list[float]
    until_result: list[float]


class Window:
    """Tell it of every task that is over; go on while it is open."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since = self._until = math.inf
        self._assigned: list[float] = []
        self._running: list[float] = []
        self._result: list[float] = []

    def is_open(self) -> bool:
        return time.perf_counter() < self._until or len(self._result) < SAMPLES_MIN

    def over(self, *, running: float, result: float, assigned: float | None = None) -> None:
        """In seconds from the call that submitted it."""
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
