"""The body of a request that is handed over in pieces, at the pace of its reader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

HELD_BYTES_MAX = 256 * 1024
"""Received and unread bytes above which no more is read from the client."""
BYTES_PER_SECOND_MIN = 4 * 1024
"""The least rate at which a client must send."""


class Body:
    """A body to iterate over once. Raises ConnectionResetError if the client goes away before its end."""

    def __init__(self, transport: asyncio.Transport, begin: Callable[[], None]) -> None:
        """`begin` is called once, when the body is first read."""
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._begin: Callable[[], None] | None = begin
        self._pieces: list[bytes] = []
        self._held_bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self.paused = False
        """True while nothing is read from the client until this is."""
        self._lost = False
        self._discards = False
        self.is_whole = False
        """True once all of it has been received."""
        self._waits_since = 0.0  # since when the client is waited for; 0: it is not
        self._late_seconds = 0.0  # how long it was waited for beyond what its bytes may take

    @property
    def was_asked_for(self) -> bool:
        return self._begin is None

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self._begin is not None:
            begin, self._begin = self._begin, None
            begin()
        while not self._pieces:
            if self._lost:
                raise ConnectionResetError("the client went away")
            if self.is_whole:
                raise StopAsyncIteration
            self._waiter = self._loop.create_future()
            self._waits_since = self._loop.time()
            try:
                await self._waiter
            finally:
                self._waiter = None
                self._late_seconds += self._loop.time() - self._waits_since
                self._waits_since = 0.0
        piece = b"".join(self._pieces)
        self._pieces.clear()
        self._held_bytes = 0
        self._resume()
        return piece

    def late_seconds(self, now: float) -> float:
        """Return how far the client is behind the least rate; 0 if the reader is not waiting for it."""
        return self._late_seconds + now - self._waits_since if self._waits_since else 0.0

    def feed(self, data: bytes) -> None:
        if self._discards or self.is_whole:
            return
        self._pieces.append(data)
        self._held_bytes += len(data)
        self._late_seconds = max(0.0, self._late_seconds - len(data) / BYTES_PER_SECOND_MIN)
        if self._held_bytes > HELD_BYTES_MAX and not self.paused:
            self.paused = True
            self._transport.pause_reading()
        self._wake()

    def end(self) -> None:
        self.is_whole = True
        self._wake()

    def lose(self) -> None:
        self._lost = True
        self._wake()

    def discard(self) -> None:
        """Drop the rest."""
        self._discards = True
        self._pieces.clear()
        self._resume()

    def _resume(self) -> None:
        if self.paused:
            self.paused = False
            self._transport.resume_reading()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
