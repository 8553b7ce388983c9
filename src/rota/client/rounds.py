"""Rounds in which connections of one event loop process input, so that nothing else waits for all of them."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from typing import Protocol

STEPS_PER_TURN_MAX = 8
"""Steps of all connections together in one turn of the event loop."""


class Steps(Protocol):
    """A connection with input to process."""

    def take_step(self) -> bool:
        """Process some of it. Returns whether there is more."""


class Rounds:
    """Lets each waiting connection of an event loop take one step after the other."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # A weak reference, since the table below lives as long as its loop does.
        self._loop = weakref.ref(loop)
        self._waiting: deque[Steps] = deque()
        self._is_scheduled = False

    @staticmethod
    def of(loop: asyncio.AbstractEventLoop) -> Rounds:
        if loop not in _rounds:
            _rounds[loop] = Rounds(loop)
        return _rounds[loop]

    def wait(self, one: Steps) -> None:
        self._waiting.append(one)
        self._schedule()

    def _schedule(self) -> None:
        loop = self._loop()
        if loop is not None and not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._take)

    def _take(self) -> None:
        self._is_scheduled = False
        try:
            for _ in range(min(len(self._waiting), STEPS_PER_TURN_MAX)):
                one = self._waiting.popleft()
                if one.take_step():
                    self._waiting.append(one)
        finally:
            # A fault in one of them stops no other.
            if self._waiting:
                self._schedule()


_rounds: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Rounds] = weakref.WeakKeyDictionary()
