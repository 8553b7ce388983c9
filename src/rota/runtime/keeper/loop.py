"""A single-threaded event loop of descriptors, signals and timers."""

from __future__ import annotations

import heapq
import itertools
import os
import selectors
import signal
import time
from collections.abc import Callable

Action = Callable[[], None]


class Loop:
    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._times: list[tuple[float, int, Action]] = []
        self._numbers = itertools.count()
        self._signals: dict[int, Action] = {}
        self._received: set[int] = set()
        wake, self._wake_write = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(self._wake_write, False)
        # Python writes a byte here for every signal, so that a signal just before the wait ends the wait.
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self.watch(wake, lambda: _empty(wake))

    def watch(self, descriptor: int, readable: Action, writable: Action | None = None) -> None:
        """Call `readable` or `writable` when the descriptor is. Replaces an earlier registration."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if writable else 0)
        actions = (readable, writable)
        if descriptor in self._selector.get_map():
            self._selector.modify(descriptor, events, actions)
        else:
            self._selector.register(descriptor, events, actions)

    def unwatch(self, descriptor: int) -> None:
        self._selector.unregister(descriptor)

    def after(self, seconds: float, action: Action) -> None:
        heapq.heappush(self._times, (time.monotonic() + seconds, next(self._numbers), action))

    def on_signal(self, number: int, action: Action) -> None:
        """Call an action for a signal, from the loop and never in the middle of another action."""
        self._signals[number] = action
        signal.signal(number, lambda received, _: self._received.add(received))

    def run_once(self) -> None:
        wait = max(0.0, self._times[0][0] - time.monotonic()) if self._times else None
        for key, events in self._selector.select(wait):
            readable, writable = key.data
            if events & selectors.EVENT_READ and self._is_current(key):
                readable()
            if events & selectors.EVENT_WRITE and writable and self._is_current(key):
                writable()
        while self._received:
            self._signals[self._received.pop()]()
        now = time.monotonic()
        while self._times and self._times[0][0] <= now:
            heapq.heappop(self._times)[2]()

    def _is_current(self, key: selectors.SelectorKey) -> bool:
        """Report whether a registration is in place: an earlier action may have closed and reused its descriptor."""
        current = self._selector.get_map().get(key.fd)
        return current is not None and current.data is key.data


def _empty(descriptor: int) -> None:
    try:
        while os.read(descriptor, 4096):
            pass
    except BlockingIOError:
        pass
