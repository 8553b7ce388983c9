"""Tasks that have to wait for a worker, until that is worth writing down: most get one in a moment."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from rota.engine.clock import Clock, Timer

QUEUED_NOTICE_SECONDS = 0.25
"""For how long a task waits for a worker before that is written down."""


class Notices:
    """Calls back with those that were put here so long ago, with one timer for all of them."""

    def __init__(self, due: Callable[[list[str]], None]) -> None:
        """`due` is given the uids of those whose time has come, and finds out which of them still wait."""
        self._due = due
        self._since: deque[tuple[float, str]] = deque()
        self._known: set[str] = set()
        self._timer: Timer | None = None

    def put(self, uid: str, clock: Clock) -> None:
        """Call back about this one, once, unless it is known already."""
        if uid in self._known:
            return
        self._known.add(uid)
        self._since.append((clock.now(), uid))
        self._wait(clock)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self, clock: Clock) -> None:
        if self._timer is None and self._since:
            self._timer = clock.call_at(self._since[0][0] + QUEUED_NOTICE_SECONDS, lambda: self._ring(clock))

    def _ring(self, clock: Clock) -> None:
        self._timer = None
        now, found = clock.now(), list[str]()
        while self._since and self._since[0][0] + QUEUED_NOTICE_SECONDS <= now:
            found.append(self._since.popleft()[1])
        self._known.difference_update(found)
        self._wait(clock)
        if found:
            self._due(found)
