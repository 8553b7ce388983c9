"""Load for `bench.functions`: a fixed number of HTTP requests in flight, over connections that stay open."""

from __future__ import annotations

import asyncio
import time

from bench.tasks_window import Load, Window

PATIENCE_SECONDS = 60.0


class Connection:
    """A connection that sends one request after the other."""

    def __init__(self, port: int, path: str) -> None:
        self._port = port
        self._request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    async def ask(self) -> tuple[int, bytes]:
        """Send a request. Returns the status and the body of the answer."""
        self._writer.write(self._request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next(int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:"))
        return int(lines[0].split()[1]), await self._reader.readexactly(length)

    def close(self) -> None:
        self._writer.close()


async def load(port: int, path: str, in_flight: int, seconds: float) -> Load:
    """Send as many requests as the server answers in this time. Each answer must have the status 200."""
    window = Window(seconds)
    connections = [Connection(port, path) for _ in range(in_flight)]
    await asyncio.gather(*(one.open() for one in connections))

    async def go_on(connection: Connection) -> None:
        while window.is_open():
            began = time.perf_counter()
            status, body = await connection.ask()
            assert status == 200, (status, body)
            took = time.perf_counter() - began
            window.over(running=took, result=took)

    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(*map(go_on, connections))
    finally:
        for one in connections:
            one.close()
    return window.load()


async def once(port: int, path: str) -> float:
    """Return the milliseconds of one request on a new connection, without the time to connect."""
    connection = Connection(port, path)
    await connection.open()
    began = time.perf_counter()
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            status, body = await connection.ask()
    finally:
        connection.close()
    assert status == 200, (status, body)
    return (time.perf_counter() - began) * 1e3
