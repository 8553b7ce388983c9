"""Servers on this machine that answer, or do not, as a test wants."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator


class Server:
    """Takes what is sent and gives one answer; None: none at all."""

    def __init__(self, answer: bytes | None) -> None:
        self._answer = answer
        self.asked: list[bytes] = []
        self.port = 0
        self._end = asyncio.Event()
        self._serving: set[asyncio.Task[None] | None] = set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.add(asyncio.current_task())
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                self.asked.append(await reader.readuntil(b"\r\n\r\n"))
                if self._answer is None:
                    await self._end.wait()
                else:
                    writer.write(self._answer)
                    await writer.drain()
        finally:
            writer.close()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[Server]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield self
            self._end.set()
            await asyncio.gather(*(task for task in self._serving if task is not None))


@contextlib.contextmanager
def a_port_without_anybody() -> Iterator[int]:
    """A port that is taken, so that nobody else gets it, but at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]
