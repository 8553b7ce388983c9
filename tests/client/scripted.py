"""A server that does what a test tells it to, on a real socket: also what no server should."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from rota.client.connection import Limits
from rota.client.credentials import Credential, Credentials, Fixed
from rota.client.http import HttpBackend
from rota.client.target import Tls, at_url


@dataclass
class Exchange:
    """One request, and the connection that it came on."""

    number: int
    """The number of the connection, from 0."""
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def begin_chunks(self) -> None:
        await self.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")

    async def gone(self) -> None:
        """Wait until the client closes the connection."""
        while await self.reader.read(65536):
            pass


Act = Callable[[Exchange], Awaitable[None]]
"""An act of the server on a request. The connection stays open after it, unless the act closes it."""


def answer(status: int = 200, body: Any = None, **headers: str) -> Act:
    """Answer properly. A body that is not bytes becomes JSON."""
    content = body if isinstance(body, bytes) else msgspec.json.encode({} if body is None else body)
    lines = {"Content-Type": "application/json", "Content-Length": str(len(content))}
    lines |= {name.replace("_", "-").title(): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())

    async def act(exchange: Exchange) -> None:
        await exchange.send(f"HTTP/1.1 {status} Said\r\n{head}\r\n".encode() + content)

    return act


def status(code: int, reason: str, message: str = "no", **headers: str) -> Act:
    """Refuse, as an API server does."""
    return answer(code, {"kind": "Status", "code": code, "reason": reason, "message": message}, **headers)


def say(data: bytes) -> Act:
    """Say just that, and leave the connection open."""

    async def act(exchange: Exchange) -> None:
        await exchange.send(data)

    return act


def cut(data: bytes = b"") -> Act:
    """Say just that, and close."""

    async def act(exchange: Exchange) -> None:
        await exchange.send(data)
        exchange.writer.close()

    return act


async def silence(exchange: Exchange) -> None:
    """Say nothing, for as long as the client waits."""
    await exchange.gone()


def watch(*chunks: bytes, ends: bool = True) -> Act:
    """Stream chunks; then end in good order, or cut the connection."""

    async def act(exchange: Exchange) -> None:
        await exchange.begin_chunks()
        for data in chunks:
            await exchange.chunk(data)
        if ends:
            await exchange.send(b"0\r\n\r\n")
        else:
            exchange.writer.close()

    return act


class Server:
    """Answers the requests, on whatever connection they come, with the acts in their order."""

    def __init__(self, acts: tuple[Act, ...]) -> None:
        self._acts = deque(acts)
        self._tasks: set[asyncio.Task[None]] = set()
        self.seen: list[Exchange] = []
        self.connections = 0
        self.authority = ""
        self.port = 0

    @property
    def requests(self) -> list[tuple[str, str]]:
        return [(exchange.method, exchange.path) for exchange in self.seen]

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        number = self.connections
        self.connections += 1
        try:
            while not writer.is_closing():
                exchange = await self._read(number, reader, writer)
                if exchange is None:
                    break
                self.seen.append(exchange)
                await (self._acts.popleft() if self._acts else status(500, "Unscripted"))(exchange)
        except ConnectionError:
            pass
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _read(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Exchange | None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
        except asyncio.IncompleteReadError:
            return None
        first, *lines = head.strip().split("\r\n")
        headers = {line.split(": ", 1)[0].lower(): line.split(": ", 1)[1] for line in lines}
        method, path, _ = first.split(" ")
        length = int(headers.get("content-length", "0"))
        body = b"" if "x-unread" in headers else await reader.readexactly(length)
        return Exchange(number, method, path, headers, body, reader, writer)

    async def stop(self) -> None:
        for task in (*self._tasks,):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def serving(
    *acts: Act, tls: ssl.SSLContext | None = None, port: int = 0, host: str = "127.0.0.1"
) -> AsyncIterator[Server]:
    server = Server(acts)
    listening = await asyncio.start_server(server.connected, host, port, ssl=tls, limit=1 << 20)
    server.port = listening.sockets[0].getsockname()[1]
    server.authority = f"[{host}]:{server.port}" if ":" in host else f"{host}:{server.port}"
    try:
        yield server
    finally:
        listening.close()
        await server.stop()
        await listening.wait_closed()


class Naps:
    """Takes the place of sleeping: notes how long it would have been."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


@asynccontextmanager
async def client_of(
    server: Server,
    *,
    naps: Naps | None = None,
    credentials: Credentials | None = None,
    tls: Tls | None = None,
    server_name: str = "",
    **limits: Any,
) -> AsyncIterator[HttpBackend]:
    """A client of a scripted server, closed in the end."""
    url = f"{'https' if tls else 'http'}://{server.authority or f'127.0.0.1:{server.port}'}"
    shown = credentials or Fixed(Credential())
    target = at_url(url, tls=tls or Tls(), credentials=shown, server_name=server_name)
    backend = HttpBackend(target, limits=Limits(**limits), sleep=naps or Naps())
    try:
        yield backend
    finally:
        await backend.close()
