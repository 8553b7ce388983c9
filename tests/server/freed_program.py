"""Makes connections of each sort, and ends when each is freed without the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from rota.client.websocket import handshake
from rota.client.websocket.connection import WebSocket
from rota.server.http import Answer, Response, Stream
from rota.server.http_connection import Connection
from rota.server.http_server import HttpServer
from rota.server.upgrade import Upgrade
from tests.until import until_async

PATIENCE_SECONDS = 10.0


async def main(folder: Path) -> None:
    async def later() -> Response:
        await asyncio.sleep(0)
        return Response(200, b"later")

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"more"
            await asyncio.sleep(0.01)

    async def listen(websocket: WebSocket) -> None:
        await websocket.receive()

    answers: dict[str, Callable[[], Answer | Awaitable[Answer]]] = {
        "/now": lambda: Response(200, b"now"),
        "/later": later,
        "/endless": lambda: Stream(endless()),
        "/websocket": lambda: Upgrade(listen, ""),
    }
    http = HttpServer(lambda request: answers[request.path](), lambda code, text: Response(code, text.encode()))
    path = str(folder / "socket")
    await http.listen_unix(path)
    try:
        for target in answers:
            await _is_freed(http, path, target)
    finally:
        await http.close()


async def _is_freed(http: HttpServer, path: str, target: str) -> None:
    reader, writer = await asyncio.open_unix_connection(path)
    upgrade = ""
    if target == "/websocket":
        upgrade = f"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: {handshake.VERSION}\r\n"
        upgrade += "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    writer.write(f"GET {target} HTTP/1.1\r\nHost: here\r\n{upgrade}\r\n".encode())
    await until_async(lambda: bool(http.connections))
    gc.collect()
    gc.disable()
    try:
        connection: weakref.ref[Connection] = weakref.ref(next(iter(http.connections)))
        assert await asyncio.wait_for(reader.read(100), PATIENCE_SECONDS)
        writer.close()
        await writer.wait_closed()
        await until_async(lambda: connection() is None)
    finally:
        gc.enable()


asyncio.run(main(Path(sys.argv[1])))
