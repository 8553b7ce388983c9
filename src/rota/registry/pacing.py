"""Time slices for long work on the event loop, so that other work can run in between."""

from __future__ import annotations

import asyncio
import math
import time
from types import TracebackType
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

FREE_SECONDS = 0.002
"""Seconds that work may take before it is sliced. Most work takes less."""
SLICE_SECONDS = 0.01
"""Length of a slice of a read."""

WRITING_SLICE_SECONDS = 0.005
"""Length of a slice of a caller's batch. It is short, because another write may wait for a slice at each of its steps.
"""
OWN_SLICE_SECONDS = 0.02
"""Length of a slice of a batch of the server itself."""

_unsliced: WeakSet[asyncio.AbstractEventLoop] = WeakSet()
_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


def never_slice(loop: asyncio.AbstractEventLoop) -> None:
    """Disable slicing on an event loop, so that the order of work does not depend on the speed of the machine."""
    _unsliced.add(loop)


def _slice_end(seconds: float) -> float:
    """Return the time at which a slice of this length ends if it begins now."""
    return math.inf if asyncio.get_running_loop() in _unsliced else time.monotonic() + seconds


class Pace:
    """A pace for one piece of work: await it between two steps, in an `async with`.

    Only one long piece runs at a time.
    """

    def __init__(self) -> None:
        self._until = _slice_end(FREE_SECONDS)
        self._lock: asyncio.Lock | None = None

    async def __aenter__(self) -> Pace:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.rest()

    async def __call__(self) -> None:
        if time.monotonic() < self._until:
            return
        if self._lock is None:
            lock = _locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())
            await lock.acquire()
            self._lock = lock
        await asyncio.sleep(0)
        self._until = _slice_end(SLICE_SECONDS)

    def rest(self) -> None:
        """Let others run: call it before waiting for something else."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None


class _Batches:
    """The long batches of one event loop."""

    def __init__(self) -> None:
        self.slice = asyncio.Lock()
        """The lock of the batch whose slice is running."""
        self.queues: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By caller, the lock of its batch that is under way."""


_batches: WeakKeyDictionary[asyncio.AbstractEventLoop, _Batches] = WeakKeyDictionary()


class Slices:
    """Slices for one batch: await it between two operations, in an `async with`.

    Only one slice of all long batches runs at a time. Each caller has one long batch under way and gets one slice in
    each round, however many batches it has waiting: sending many neither delays other callers nor keeps many decisions
    in memory. Batches without a caller are the server's own; they only yield to other work.
    """

    def __init__(self, caller: str = "") -> None:
        self._caller = caller
        self._until = _slice_end(FREE_SECONDS if caller else OWN_SLICE_SECONDS)
        self._queue: asyncio.Lock | None = None
        self._slice: asyncio.Lock | None = None

    async def __aenter__(self) -> Slices:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.rest()
        if self._queue is not None:
            self._queue.release()
            self._queue = None

    @property
    def is_over(self) -> bool:
        """Report whether the slice is used up: then await it."""
        return time.monotonic() >= self._until

    async def __call__(self) -> None:
        self.rest()
        if self._caller:
            batches = _batches.setdefault(asyncio.get_running_loop(), _Batches())
            if self._queue is None:
                queue = batches.queues.setdefault(self._caller, asyncio.Lock())
                await queue.acquire()
                self._queue = queue
            await asyncio.sleep(0)
            await batches.slice.acquire()
            self._slice = batches.slice
        else:
            await asyncio.sleep(0)
        self._until = _slice_end(WRITING_SLICE_SECONDS if self._caller else OWN_SLICE_SECONDS)

    def rest(self) -> None:
        """Let others run: call it before waiting for something else."""
        if self._slice is not None:
            self._slice.release()
            self._slice = None
