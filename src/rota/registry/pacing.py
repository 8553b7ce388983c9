"""Long work on the event loop, which gives way to everybody else."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from weakref import WeakKeyDictionary, WeakValueDictionary

FREE_SECONDS = 0.002
"""Work that is over sooner does not wait for anybody. Most is."""
SLICE_SECONDS = 0.01
"""Then it goes on for so long at a time."""

WRITING_SLICE_SECONDS = 0.005
"""A batch goes on for so long at a time: what others write has several steps, and each may come behind such a one."""
OWN_SLICE_SECONDS = 0.02
"""One of the server's own."""

_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


class Pace:
    """Await it between two steps of one piece of work, in an `async with`. Of all that take long, one is at work."""

    def __init__(self) -> None:
        self._until = time.monotonic() + FREE_SECONDS
        self._turn: asyncio.Lock | None = None

    async def __aenter__(self) -> Pace:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.rest()

    async def __call__(self) -> None:
        if time.monotonic() < self._until:
            return
        if self._turn is None:
            turn = _turns.setdefault(asyncio.get_running_loop(), asyncio.Lock())
            await turn.acquire()
            self._turn = turn
        await asyncio.sleep(0)
        self._until = time.monotonic() + SLICE_SECONDS

    def rest(self) -> None:
        """Let others go on with theirs, before something is waited for."""
        if self._turn is not None:
            self._turn.release()
            self._turn = None


class _Batches:
    """The batches of one event loop that take long."""

    def __init__(self) -> None:
        self.slice = asyncio.Lock()
        """Held by the one that is at work."""
        self.lines: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """For each party, held by the batch of it that is under way."""


_batches: WeakKeyDictionary[asyncio.AbstractEventLoop, _Batches] = WeakKeyDictionary()


class Slices:
    """Await it between two operations of a batch, in an `async with`.

    Of all batches that take long one slice is at work at a time. Each party has one such batch under way, and has its
    slice in turn, however many others it has waiting: so nobody keeps others waiting by sending many, nor has what is
    decided of many kept in memory. Those of no party, which are the server's own, only give way.
    """

    def __init__(self, party: str = "") -> None:
        self._party = party
        self._until = time.monotonic() + (FREE_SECONDS if party else OWN_SLICE_SECONDS)
        self._line: asyncio.Lock | None = None
        self._slice: asyncio.Lock | None = None

    async def __aenter__(self) -> Slices:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.rest()
        if self._line is not None:
            self._line.release()
            self._line = None

    @property
    def is_over(self) -> bool:
        """Report whether this slice is over: then await it."""
        return time.monotonic() >= self._until

    async def __call__(self) -> None:
        self.rest()
        if self._party:
            batches = _batches.setdefault(asyncio.get_running_loop(), _Batches())
            if self._line is None:
                line = batches.lines.setdefault(self._party, asyncio.Lock())
                await line.acquire()
                self._line = line
            await asyncio.sleep(0)
            await batches.slice.acquire()
            self._slice = batches.slice
        else:
            await asyncio.sleep(0)
        self._until = time.monotonic() + (WRITING_SLICE_SECONDS if self._party else OWN_SLICE_SECONDS)

    def rest(self) -> None:
        """Let others go on with theirs, before something is waited for."""
        if self._slice is not None:
            self._slice.release()
            self._slice = None
