"""A way to a server that a test can cut, or stop from passing anything on: a network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

PIECE_BYTES = 65536


class Wire:
    """Passes bytes on between a socket of its own and that of a server."""

    def __init__(self, path: Path, server: Path) -> None:
        self.path = path
        self.server = server
        self.requests = 0
        """Connections that were made."""
        self.said = b""
        """All that the server said."""
        self._passing = asyncio.Event()
        self._passing.set()
        self._ways: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._listening: asyncio.AbstractServer | None = None

    async def open(self) -> None:
        self._listening = await asyncio.start_unix_server(self._connected, str(self.path))

    def cut(self) -> None:
        """Cut all connections that there are. Others can be made."""
        for writer in self._writers:
            writer.transport.abort()

    def freeze(self) -> None:
        """Pass nothing on, and say nothing of it."""
        self._passing.clear()

    def thaw(self) -> None:
        """Let new connections pass. Those that were frozen stay frozen."""
        for way in self._ways:
            way.cancel()
        self._passing.set()

    async def close(self) -> None:
        assert self._listening is not None
        self._listening.close()
        for way in (*self._ways,):
            way.cancel()
        await asyncio.gather(*self._ways, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.requests += 1
        self._writers.add(writer)
        try:
            theirs, to_them = await asyncio.open_unix_connection(str(self.server))
        except OSError:
            writer.transport.abort()
            return
        self._writers.add(to_them)
        for way in (self._pass(reader, to_them), self._pass(theirs, writer, is_said=True)):
            task = asyncio.ensure_future(way)
            self._ways.add(task)
            task.add_done_callback(self._ways.discard)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_said: bool = False) -> None:
        try:
            while data := await reader.read(PIECE_BYTES):
                await self._passing.wait()
                if is_said:
                    self.said += data
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.transport.abort()


@asynccontextmanager
async def wired(path: Path, server: Path) -> AsyncIterator[Wire]:
    wire = Wire(path, server)
    await wire.open()
    try:
        yield wire
    finally:
        await wire.close()
