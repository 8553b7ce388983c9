"""A server with WebSockets on a Unix socket, in the test's own event loop: Python's own, and uvloop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import uvloop

from rota.client.upgrading import connect_unix
from rota.client.websocket import WebSocket
from rota.server.http import Answer, Request, Response
from rota.server.http_server import HttpServer
from rota.server.upgrade import Upgrade


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


class Site:
    """A server that answers one path with a WebSocket, and all others with a word."""

    def __init__(self, socket: Path) -> None:
        self.socket = str(socket)
        self.http = HttpServer(self._answer, lambda code, message: Response(code, message.encode(), "text/plain"))
        self.upgrade = Upgrade(echo)
        self.requests: list[Request] = []
        self.later = False
        """Answer in a task instead of at once."""

    def serves(self, serve: Callable[[WebSocket], Awaitable[None]], **more: Any) -> None:
        self.upgrade = Upgrade(serve, **more)

    def _answer(self, request: Request) -> Answer | Awaitable[Answer]:
        self.requests.append(request)
        if request.path != "/ws":
            return Response(200, b"hello", "text/plain")
        return self._eventually() if self.later else self.upgrade

    async def _eventually(self) -> Answer:
        await asyncio.sleep(0)
        return self.upgrade

    async def connect(self, **more: Any) -> WebSocket:
        return await connect_unix(self.socket, "/ws", **more)

    async def raw(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(self.socket)


async def echo(websocket: WebSocket) -> None:
    async for message in websocket:
        websocket.send(message)
        await websocket.drain()


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    made = Site(tmp_path / "socket")
    await made.http.listen_unix(made.socket)
    yield made
    await made.http.close(grace_seconds=0)
    assert not made.http.connections
