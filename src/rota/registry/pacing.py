"""Long work on the event loop, which gives way to everybody else."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from weakref import WeakKeyDictionary

FREE_SECONDS = 0.002
"""Work that is over sooner does not wait for anybody. Most is."""
SLICE_SECONDS = 0.01
"""Then it goes on for so long at a time."""

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
