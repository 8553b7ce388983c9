"""The timer of all schedules. It follows the wall clock, and notices within a second when the clock is set."""

from __future__ import annotations

import math
from collections.abc import Callable

from rota.control.schedules.heap import Heap
from rota.engine.clock import Clock, Timer

LOOK_SECONDS = 1.0
"""Pause between two looks at the wall clock, which may be set, or jump after a suspend."""
SOON_SECONDS = 2.0
STEP_BACK_SECONDS = 30.0
"""A smaller step back of the clock is ignored: schedules are due a little later."""


class Ticker:
    """Calls `due` when a name in the heap is due.

    `due` has to remove the name from the heap. `soon` is called some times in the last `SOON_SECONDS` before a name is
    due, as far as possible. `set_back` is called after the wall clock was set back.
    """

    def __init__(
        self,
        clock: Clock,
        due: Callable[[], None],
        soon: Callable[[], None],
        set_back: Callable[[], None],
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self.heap = Heap()
        self._clock = clock
        self._due = due
        self._soon = soon
        self._set_back = set_back
        self._ahead = clock.time() - clock.now()
        self._look_seconds = look_seconds if clock.can_be_set else math.inf
        self._timer: Timer | None = None
        self._at = 0.0

    def set(self, name: str, due: float | None) -> None:
        """Set the due time of a name; None: never."""
        if due is None:
            self.heap.discard(name)
        else:
            self.heap.set(name, due)
            self._wait(due)

    def go_on(self) -> None:
        """Set the timer for the next due time, after `due` has emptied the heap of what was due."""
        first = self.heap.next_due()
        if first is not None:
            self._wait(first)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, due: float) -> None:
        left = due - self._clock.time()
        if left <= 0:
            self._due()
            return
        if left <= SOON_SECONDS:
            self._soon()
        until = self._clock.now() + min(left, self._look_seconds)
        if self._timer is None or until < self._at:
            self.stop()
            self._at = until
            self._timer = self._clock.call_at(until, self._look)

    def _look(self) -> None:
        self._timer = None
        ahead = self._clock.time() - self._clock.now()
        is_set_back = ahead < self._ahead - STEP_BACK_SECONDS
        self._ahead = ahead
        self.go_on()
        if is_set_back:
            self._set_back()
