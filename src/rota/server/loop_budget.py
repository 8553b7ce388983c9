"""A budget of time for requests in one turn of the event loop, so that many at once do not stop everything else.

Requests that arrive together are begun in the same turn of the loop, and answers that wait for the same commit go on in
the same one. Each alone takes little time; hundreds of them would keep everything else waiting for their sum. So the
time that requests take in one turn is counted. When it is used up, the others wait for a later turn, those of
different keys one after the other.
"""

from __future__ import annotations

import asyncio
import types
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Generator
from time import perf_counter
from typing import Any, TypeVar

TURN_SECONDS_MAX = 0.005
"""Time of all requests together in one turn of the event loop, after which no further one goes on in it."""
GRANTS_MAX = 4
"""Waiting steps that go on in a turn, if those before them took little time."""
LONG_TURNS = 4
"""Multiple of TURN_SECONDS_MAX above which a turn is followed by a pause of the waiting requests."""
PAUSE_PART = 0.125
PAUSE_SECONDS_MAX = 0.05
"""Time without waiting requests after a turn that took too long, as a part of that turn: handshakes, for instance,
take several turns."""

T = TypeVar("T")


class LoopBudget:
    """Counts the time of requests, and queues further ones fairly. A key stands for a credential or a tenant."""

    def __init__(self, turn_seconds_max: float = TURN_SECONDS_MAX) -> None:
        self._turn_seconds_max = turn_seconds_max
        self._spent = 0.0  # in this turn of the loop
        self._is_scheduled = False
        self._granted = 0  # steps that may go on, and have not yet
        self._early: deque[asyncio.Future[None]] = deque()  # granted for a turn that was over before they went on
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @property
    def waiting(self) -> int:
        return len(self._early) + sum(map(len, self._waiting.values()))

    def may_go(self, key: str) -> bool:
        """Report whether a step may be taken at once."""
        return self._spent < self._turn_seconds_max and key not in self._waiting

    def take(self, step: Callable[[], T]) -> T:
        """Take a step now, and count its time."""
        began = perf_counter()
        try:
            return step()
        finally:
            self._count(perf_counter() - began)

    async def wait(self, key: str) -> None:
        """Wait for a turn. The step must follow at once."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.setdefault(key, deque()).append(turn)
        self._schedule(loop)
        while True:
            try:
                await turn
            except BaseException:
                self._leave(key, turn)
                raise
            self._granted -= 1
            if self._spent < self._turn_seconds_max:
                return
            turn = loop.create_future()
            self._early.append(turn)
            self._schedule(loop)

    async def steps(self, key: str, work: Awaitable[T]) -> T:
        """Do some work, of which each step waits for its turn."""
        return await self._steps(key, work.__await__())

    @types.coroutine
    def _steps(self, key: str, work: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        try:
            while True:
                try:
                    if not self.may_go(key):
                        yield from self.wait(key).__await__()
                except asyncio.CancelledError as cancelled:
                    step = _thrown(work, cancelled)
                else:
                    step = _sent(work)
                try:
                    awaited = self.take(step)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]
                # An error of what the work awaits is its own, and is raised at once.
                while True:
                    try:
                        yield awaited
                        break
                    except BaseException as error:
                        try:
                            awaited = self.take(_thrown(work, error))
                        except StopIteration as end:
                            return end.value  # type: ignore[no-any-return]
        finally:
            work.close()

    def _count(self, seconds: float) -> None:
        self._spent += seconds
        if not self._is_scheduled:
            self._schedule(asyncio.get_running_loop())

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            # It runs in the next turn, before what arrives in that.
            loop.call_soon(self._next, loop)

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin a turn, and let waiting steps go on in it."""
        spent, self._spent = self._spent, 0.0
        self._is_scheduled = False
        if not self._early and not self._waiting:
            return
        self._is_scheduled = True
        if spent > LONG_TURNS * self._turn_seconds_max:
            loop.call_later(min(spent * PAUSE_PART, PAUSE_SECONDS_MAX), self._next, loop)
            return
        if self._granted <= 0:
            for _ in range(GRANTS_MAX if spent < self._turn_seconds_max else 1):
                self._grant()
        loop.call_soon(self._next, loop)

    def _grant(self) -> None:
        """Let the first of those who wait go on: those of different keys one after the other."""
        while self._early or self._waiting:
            if self._early:
                turn = self._early.popleft()
            else:
                key, queue = self._waiting.popitem(last=False)
                turn = queue.popleft()
                if queue:
                    self._waiting[key] = queue
            if not turn.done():
                self._granted += 1
                turn.set_result(None)
                return

    def _leave(self, key: str, turn: asyncio.Future[None]) -> None:
        """Forget a step whose request is cancelled."""
        if turn.done() and not turn.cancelled():
            self._granted -= 1
        elif turn in self._early:
            self._early.remove(turn)
        elif turn in (queue := self._waiting.get(key, deque())):
            queue.remove(turn)
            if not queue:
                del self._waiting[key]


def _sent(work: Generator[Any, Any, Any]) -> Callable[[], Any]:
    return lambda: work.send(None)


def _thrown(work: Generator[Any, Any, Any], error: BaseException) -> Callable[[], Any]:
    return lambda: work.throw(error)
