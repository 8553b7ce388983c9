"""How fast a node may go: back-off after errors, and a brake for what runs again and again."""

from __future__ import annotations

import random

BACKOFF_SECONDS_FIRST = 0.1
BACKOFF_SECONDS_MAX = 300.0

SPIN_WINDOW_SECONDS = 10.0
SPIN_RUNS_MAX = 200
"""Runs of one node in a window; beyond that it is slowed down."""
SPIN_PAUSE_SECONDS_FIRST = 0.2
SPIN_PAUSE_SECONDS_MAX = 30.0
SPIN_QUIET_SECONDS = SPIN_PAUSE_SECONDS_MAX + SPIN_WINDOW_SECONDS
"""Without a run for so long, a node has come to rest."""


class Backoff:
    """Pauses that double with each failure in a row of a node, with jitter."""

    def __init__(self) -> None:
        self._failures: dict[str, int] = {}

    def failed(self, id_: str) -> float:
        """The pause after one more failure."""
        count = self._failures.get(id_, 0)
        self._failures[id_] = count + 1
        pause: float = min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_FIRST * 2 ** min(count, 20))
        return pause * random.uniform(0.5, 1.0)

    def succeeded(self, id_: str) -> None:
        self._failures.pop(id_, None)

    def failures(self, id_: str) -> int:
        """How often a node has failed in a row."""
        return self._failures.get(id_, 0)


class Brake:
    """Counts the runs of each node in a window. One that runs too often pauses before each run, longer each time."""

    def __init__(self) -> None:
        self._windows: dict[str, tuple[float, int]] = {}
        self._slowed: dict[str, tuple[float, float]] = {}  # from when it may run, and the pause before that
        self._swept = 0.0

    def pause(self, id_: str, now: float) -> float:
        """Called before each run: 0, or the seconds that it has to wait first."""
        if id_ in self._slowed:
            allowed_at, pause = self._slowed[id_]
            if now < allowed_at:
                return allowed_at - now
            if now - allowed_at < SPIN_WINDOW_SECONDS:
                pause = min(SPIN_PAUSE_SECONDS_MAX, pause * 2)
                self._slowed[id_] = (now + pause, pause)
                return 0.0
            del self._slowed[id_]
        began, count = self._windows.get(id_, (now, 0))
        if now - began >= SPIN_WINDOW_SECONDS:
            began, count = now, 0
            self._sweep(now)
        if count < SPIN_RUNS_MAX:
            self._windows[id_] = (began, count + 1)
            return 0.0
        del self._windows[id_]
        self._slowed[id_] = (now + SPIN_PAUSE_SECONDS_FIRST, SPIN_PAUSE_SECONDS_FIRST)
        return SPIN_PAUSE_SECONDS_FIRST

    def is_slowed(self, id_: str) -> bool:
        return id_ in self._slowed

    def forget(self, id_: str) -> None:
        self._windows.pop(id_, None)
        self._slowed.pop(id_, None)

    def _sweep(self, now: float) -> None:
        """Forget the windows of nodes that have come to rest."""
        if now - self._swept >= SPIN_WINDOW_SECONDS:
            self._swept = now
            for id_ in [id_ for id_, (began, _) in self._windows.items() if now - began >= SPIN_WINDOW_SECONDS]:
                del self._windows[id_]
