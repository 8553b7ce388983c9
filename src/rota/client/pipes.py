"""Read and write pipes without blocking the event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from rota.trees.bounds import PIECE_BYTES


class Pipe:
    """One end of a pipe. One task uses it at a time."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()

    async def read(self) -> bytes:
        """Read what has arrived; empty at the end."""
        while True:
            try:
                return os.read(self._descriptor, PIECE_BYTES)
            except BlockingIOError:
                await self._ready(self._loop.add_reader, self._loop.remove_reader)

    async def write(self, data: bytes) -> None:
        """Return when all of it is written. Raises BrokenPipeError."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                await self._ready(self._loop.add_writer, self._loop.remove_writer)

    async def _ready(self, watch: Callable[..., None], unwatch: Callable[[int], object]) -> None:
        waiting: asyncio.Future[None] = self._loop.create_future()
        watch(self._descriptor, _wake, waiting)
        try:
            await waiting
        finally:
            unwatch(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
