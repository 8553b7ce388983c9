"""WebSockets of a client that knows its server: over TLS, with its credentials, within its bounds."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path

import pytest

from rota.client import ConnectionFailed, HttpBackend
from rota.client.connection import Limits
from rota.client.credentials import Credential, Fixed
from rota.client.failures import BadAnswer, NotConnected, TooManyStreams
from rota.client.target import Target, Tls, at_url
from rota.client.websocket import Closed, WebSocket
from rota.registry import ApiError
from rota.server import tls as server_tls
from rota.server.app import refusal
from rota.server.http import Answer, Request, Response
from rota.server.http_server import HttpServer
from rota.server.upgrade import Upgrade
from tests.until import until_async, until_so
from tests.websocket.conftest import echo


class Secure:
    """A server behind TLS that wants a token."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.http = HttpServer(self._answer, refusal)
        self.good = "good"
        self.seen: list[Request] = []

    def _answer(self, request: Request) -> Answer | Awaitable[Answer]:
        self.seen.append(request)
        if request.headers.get("authorization") != f"Bearer {self.good}":
            return refusal(401, "Unauthorized")
        if not request.path.startswith("/under/ws"):
            return Response(200, b"{}")
        return Upgrade(echo, "spoken")

    async def start(self) -> None:
        context = server_tls.ensure(self.folder, ["localhost"])
        listening = socket.create_server(("127.0.0.1", 0))
        self.port = listening.getsockname()[1]
        await self.http.listen(listening, ssl=context)

    def target(self, credentials: Fixed | Renewed) -> Target:
        authority = Tls((self.folder / "ca.crt").read_text())
        url = f"https://127.0.0.1:{self.port}/under"
        return at_url(url, tls=authority, credentials=credentials, server_name="localhost")

    def client(self, token: str = "good", **limits: int) -> HttpBackend:
        return HttpBackend(self.target(Fixed(Credential(token))), limits=Limits(**limits))


class Renewed:
    """A token that is old, and then new."""

    def __init__(self) -> None:
        self._token = "old"

    async def current(self) -> Credential:
        return Credential(self._token)

    def refuse(self, credential: Credential) -> bool:
        self._token = "good"
        return True


@pytest.fixture
async def secure(tmp_path: Path) -> AsyncIterator[Secure]:
    made = Secure(tmp_path)
    await made.start()
    yield made
    await made.http.close(grace_seconds=0)
    assert not made.http.connections


async def test_messages_go_both_ways_over_tls(secure: Secure) -> None:
    backend = secure.client()
    async with backend.websocket("/ws?a=b", protocols=("other", "spoken")) as websocket:
        assert websocket.protocol == "spoken"
        for message in ("small", b"large" * 500_000):
            websocket.send(message)
            await websocket.drain()
            assert await websocket.receive() == message
    assert websocket.lost.done()
    assert (secure.seen[0].path, secure.seen[0].query) == ("/under/ws", {"a": "b"})
    await backend.close()


async def test_a_refusal_is_the_servers_own_words(secure: Secure) -> None:
    backend = secure.client("bad")
    with pytest.raises(ApiError) as refused:
        async with backend.websocket("/ws"):
            pass
    assert (refused.value.code, refused.value.message) == (401, "Unauthorized")
    await backend.close()


async def test_a_client_that_does_not_hang_up_is_cut_when_the_server_stops(secure: Secure) -> None:
    trusted = ssl.create_default_context(cafile=str(secure.folder / "ca.crt"))
    raw = socket.create_connection(("127.0.0.1", secure.port))
    with await asyncio.to_thread(trusted.wrap_socket, raw, server_hostname="localhost") as client:
        await asyncio.to_thread(client.sendall, b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        await until_async(lambda: secure.seen, "nothing has come to the server")
        # It was answered, and the server closed its side, which the client never says it has read.
        await secure.http.close(grace_seconds=0)
        assert not secure.http.connections


async def test_credentials_that_can_be_renewed_are(secure: Secure) -> None:
    backend = HttpBackend(secure.target(Renewed()))
    async with backend.websocket("/ws", protocols=("spoken",)) as websocket:
        websocket.send("in")
        assert await websocket.receive() == "in"
    assert len(secure.seen) == 2
    await backend.close()


async def test_an_ordinary_answer_where_a_websocket_was_asked_for_is_refused(secure: Secure) -> None:
    backend = secure.client()
    with pytest.raises(BadAnswer, match="no WebSocket there: it answers with status 200"):
        async with backend.websocket("/elsewhere"):
            pass
    await backend.close()


async def test_a_block_that_fails_cuts_the_connection(secure: Secure) -> None:
    backend = secure.client()
    opened: asyncio.Future[WebSocket] = asyncio.get_running_loop().create_future()

    async def fails() -> None:
        async with backend.websocket("/ws", protocols=("spoken",)) as websocket:
            opened.set_result(websocket)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await fails()
    await opened.result().lost
    await backend.close()


async def test_a_client_that_is_closed_cuts_its_websockets(secure: Secure) -> None:
    backend = secure.client()
    async with backend.websocket("/ws", protocols=("spoken",)) as websocket:
        await backend.close()
        with pytest.raises(Closed):
            await websocket.receive()
    with pytest.raises(NotConnected):
        async with backend.websocket("/ws"):
            pass


async def test_there_are_no_more_at_once_than_the_client_may_have(secure: Secure) -> None:
    backend = secure.client(streams=1)
    async with backend.websocket("/ws", protocols=("spoken",)):
        with pytest.raises(TooManyStreams):
            async with backend.websocket("/ws", protocols=("spoken",)):
                pass
    async with backend.websocket("/ws", protocols=("spoken",)):
        pass
    await backend.close()


async def test_a_server_that_is_not_there_is_told_as_for_any_request(secure: Secure) -> None:
    async def at_once(seconds: float) -> None:
        pass

    await secure.http.close(grace_seconds=0)
    backend = HttpBackend(secure.target(Fixed(Credential("good"))), sleep=at_once)
    with pytest.raises(ConnectionFailed, match="is the server running"):
        async with backend.websocket("/ws"):
            pass
    await backend.close()


async def test_one_that_is_cancelled_while_it_opens_leaves_nothing(secure: Secure) -> None:
    asked, never = asyncio.Event(), asyncio.Event()

    async def slow() -> Answer:
        asked.set()
        await never.wait()
        raise AssertionError

    secure.http.handler = lambda request: slow()
    backend = secure.client()
    opening = asyncio.create_task(backend.websocket("/ws").__aenter__())
    await asked.wait()
    opening.cancel()
    await asyncio.gather(opening, return_exceptions=True)
    await until_so(lambda: secure.http.connections, lambda there: not there, "no connections", poll_seconds=0)
    await backend.close()
