"""The calls that are sent again and those that never are; and the errors of refusals."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from rota.api import ConfigMap
from rota.client import Operation
from rota.client.credentials import Credential
from rota.client.failures import BadAnswer, ConnectionCut, TimedOut, Unreachable
from rota.client.http import HttpBackend
from rota.client.requests import RETRY_AFTER_SECONDS_MAX, TRIES_MAX
from rota.registry import Answer, ApiError, ListOptions, WatchOptions
from tests.client.scripted import Exchange, Naps, Server, answer, client_of, cut, say, serving, silence, status, watch

KIND = ConfigMap.api
OBJECT = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "resourceVersion": "7"}}
ROTA = answer(200, {"rotaVersion": "1"})
Call = Callable[[HttpBackend], Awaitable[object]]


async def first_batch(backend: HttpBackend) -> object:
    return await anext(backend.watch(KIND, "default", WatchOptions()), None)


READS: dict[str, Call] = {
    "get": lambda b: b.get(KIND, "default", "a"),
    "list": lambda b: b.list(KIND, "default", ListOptions()),
    "watch": first_batch,
}
WRITES: dict[str, Call] = {
    "create": lambda b: b.write([Operation("create", KIND, "default", body=OBJECT)]),
    "update": lambda b: b.write([Operation("update", KIND, "default", "a", OBJECT)]),
    "patch": lambda b: b.write([Operation("patch", KIND, "default", "a", {})]),
    "apply": lambda b: b.write([Operation("apply", KIND, "default", "a", OBJECT)]),
    "delete": lambda b: b.write([Operation("delete", KIND, "default", "a")]),
    "delete_collection": lambda b: b.write([Operation("delete_collection", KIND, "default")]),
}
reads = pytest.mark.parametrize("call", READS.values(), ids=READS)
writes = pytest.mark.parametrize("call", WRITES.values(), ids=WRITES)
calls = pytest.mark.parametrize("call", (READS | WRITES).values(), ids=READS | WRITES)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


# The connection.


@calls
async def test_a_server_that_is_not_there_is_tried_a_few_times_and_named(call: Call) -> None:
    nobody, naps = Server(()), Naps()
    nobody.port = free_port()
    async with client_of(nobody, naps=naps) as backend:
        with pytest.raises(Unreachable, match=rf"cannot connect to http://127.0.0.1:{nobody.port}: .*; is the server"):
            await call(backend)
    assert len(naps.seconds) == TRIES_MAX - 1


async def test_a_write_is_sent_once_when_the_server_comes_while_the_client_tries() -> None:
    port = free_port()
    async with AsyncExitStack() as stack:
        started: list[Server] = []

        class Meanwhile(Naps):
            async def __call__(self, seconds: float) -> None:
                if not started:
                    started.append(await stack.enter_async_context(serving(answer(201, OBJECT), port=port)))

        nobody = Server(())
        nobody.port = port
        async with client_of(nobody, naps=Meanwhile()) as backend:
            (created,) = await backend.write([Operation("create", KIND, "default", body=OBJECT)])
        assert isinstance(created, Answer) and created.revision == 7
        assert len(started[0].seen) == 1


@reads
async def test_a_read_whose_connection_was_cut_is_sent_again(call: Call) -> None:
    half = cut(b"HTTP/1.1 200 OK\r\nContent-")
    async with serving(cut(), half, watch(b'{"type":"ADDED","object":{}}\n')) as server, client_of(server) as backend:
        await call(backend)
        assert len(server.seen) == 3


@writes
async def test_a_write_whose_connection_was_cut_is_never_sent_again(call: Call) -> None:
    async with serving(cut(), answer(200, OBJECT)) as server, client_of(server) as backend:
        with pytest.raises(ConnectionCut):
            await call(backend)
        assert len(server.seen) == 1


async def test_a_batch_whose_connection_was_cut_is_never_sent_again() -> None:
    operations = [Operation("create", KIND, "default", body=OBJECT)] * 2
    async with serving(ROTA, cut(), answer(200, {"objects": []})) as server, client_of(server) as backend:
        with pytest.raises(ConnectionCut):
            await backend.write(operations)
        assert server.requests == [("GET", "/version"), ("POST", "/v1/batch")]


@pytest.mark.parametrize("call", [READS["get"], WRITES["create"]], ids=["get", "create"])
async def test_what_timed_out_is_not_sent_again(call: Call) -> None:
    async with serving(silence) as server, client_of(server, read_seconds=0.05) as backend:
        with pytest.raises(TimedOut):
            await call(backend)
        assert len(server.seen) == 1


@calls
async def test_what_is_answered_with_nonsense_is_not_sent_again(call: Call) -> None:
    async with serving(say(b"nonsense\r\n\r\n")) as server, client_of(server) as backend:
        with pytest.raises(BadAnswer):
            await call(backend)
        assert len(server.seen) == 1


# A server that has no time.


@calls
@pytest.mark.parametrize("code", [429, 503])
async def test_a_server_that_says_when_to_come_again_is_obeyed(call: Call, code: int) -> None:
    busy = status(code, "Busy", retry_after="3")
    naps = Naps()
    done = watch(b'{"type":"ADDED","object":{}}\n')
    async with serving(busy, busy, done) as server, client_of(server, naps=naps) as backend:
        await call(backend)
        assert naps.seconds == [3, 3]
        assert len(server.seen) == 3


async def test_a_server_that_is_always_busy_is_not_asked_for_ever() -> None:
    busy = status(429, "TooManyRequests", retry_after="1")
    async with serving(*[busy] * 20) as server, client_of(server) as backend:
        with pytest.raises(ApiError) as caught:
            await backend.get(KIND, "default", "a")
        assert (caught.value.code, caught.value.reason) == (429, "TooManyRequests")
        assert len(server.seen) == TRIES_MAX


@pytest.mark.parametrize(
    "headers", [{}, {"retry_after": str(int(RETRY_AFTER_SECONDS_MAX) + 1)}, {"retry_after": "soon"}], ids=str
)
async def test_a_server_that_does_not_say_when_or_too_late_is_not_waited_for(headers: dict[str, str]) -> None:
    async with serving(status(503, "ServiceUnavailable", **headers)) as server, client_of(server) as backend:
        with pytest.raises(ApiError, match="no"):
            await backend.get(KIND, "default", "a")
        assert len(server.seen) == 1


# Credentials.


class Changing:
    """Has a new token whenever one was refused."""

    def __init__(self) -> None:
        self.number = 1

    async def current(self) -> Credential:
        return Credential(f"token-{self.number}")

    def refuse(self, credential: Credential) -> bool:
        self.number += 1
        return True


@calls
async def test_credentials_that_are_refused_are_renewed_once(call: Call) -> None:
    done = watch(b'{"type":"ADDED","object":{}}\n')
    async with (
        serving(status(401, "Unauthorized"), done) as server,
        client_of(server, credentials=Changing()) as backend,
    ):
        await call(backend)
        assert [exchange.headers["authorization"] for exchange in server.seen] == ["Bearer token-1", "Bearer token-2"]


async def test_credentials_that_are_refused_again_are_given_up() -> None:
    no = status(401, "Unauthorized")
    async with serving(no, no, no) as server, client_of(server, credentials=Changing()) as backend:
        with pytest.raises(ApiError) as caught:
            await backend.get(KIND, "default", "a")
        assert caught.value.code == 401
        assert len(server.seen) == 2


async def test_credentials_that_cannot_change_are_not_tried_twice() -> None:
    async with serving(status(401, "Unauthorized")) as server, client_of(server) as backend:
        with pytest.raises(ApiError):
            await backend.get(KIND, "default", "a")
        assert len(server.seen) == 1


# Refusals.


async def test_a_refusal_is_told_in_the_servers_words() -> None:
    details = {"name": "a", "kind": "configmaps", "causes": [{"reason": "R", "message": "m", "field": "f"}]}
    said = {"kind": "Status", "code": 422, "reason": "Invalid", "message": "it is invalid", "details": details}
    async with serving(answer(422, said)) as server, client_of(server) as backend:
        with pytest.raises(ApiError) as caught:
            await backend.get(KIND, "default", "a")
    error = caught.value
    assert (error.code, error.reason, error.message, error.details) == (422, "Invalid", "it is invalid", details)


@pytest.mark.parametrize(
    ("code", "body", "reason", "message"),
    [
        (404, b"404 page not found\n", "NotFound", "the server answered 404: 404 page not found"),
        (502, b"<html>\n<h1>Bad  Gateway</h1>", "BadGateway", "the server answered 502: <html> <h1>Bad Gateway</h1>"),
        (403, b"", "Forbidden", "the server answered 403 and did not say why"),
        (500, b'{"error": "x"}', "InternalError", 'the server answered 500: {"error": "x"}'),
        (418, b"\xff" * 10_000, "Unknown", None),
    ],
)
async def test_a_refusal_that_is_no_status_is_told_with_what_it_says(
    code: int, body: bytes, reason: str, message: str | None
) -> None:
    async with serving(answer(code, body, content_type="text/html")) as server, client_of(server) as backend:
        with pytest.raises(ApiError) as caught:
            await backend.get(KIND, "default", "a")
    assert (caught.value.code, caught.value.reason) == (code, reason)
    assert caught.value.message == message if message else len(caught.value.message) < 1000


async def test_a_redirection_is_not_followed_with_credentials() -> None:
    elsewhere = answer(302, b"", location="https://elsewhere/login")
    async with serving(elsewhere) as server, client_of(server, credentials=Changing()) as backend:
        with pytest.raises(ApiError, match="refers to 'https://elsewhere/login'"):
            await backend.get(KIND, "default", "a")
        assert len(server.seen) == 1


@calls
async def test_a_page_where_an_object_should_be_is_told_as_such(call: Call) -> None:
    page = answer(200, b"<html>please log in</html>\n", content_type="text/html")
    async with serving(page) as server, client_of(server) as backend:
        with pytest.raises(ApiError, match="please log in") as caught:
            await call(backend)
        assert caught.value.code == 502


async def test_a_request_that_would_become_another_one_is_not_sent() -> None:
    async with serving() as server, client_of(server) as backend:
        for path in ("there", "/there HTTP/1.1\r\nX: y", "/thére"):
            with pytest.raises(ValueError):
                await backend.raw("GET", path)
        with pytest.raises(ValueError):
            await backend.raw("GET", "/", headers={"X": "y\r\nZ: z"})
        for name in ("", ".", "..", "a/status", "a%2Fstatus"):
            with pytest.raises(ApiError) as caught:
                await backend.get(KIND, "default", name)
            assert caught.value.code == 400
        with pytest.raises(ApiError):
            await backend.get(KIND, "", "a")
        assert not server.seen


async def test_many_requests_at_once_are_each_answered_with_their_own() -> None:
    async def echo(exchange: Exchange) -> None:
        await answer(200, {"metadata": {"name": exchange.path}})(exchange)

    async with serving(*[echo] * 200) as server, client_of(server, connections=8) as backend:
        answers = await asyncio.gather(*(backend.raw("GET", f"/{i}") for i in range(200)))
        assert [a.body for a in answers] == [b'{"metadata":{"name":"/%d"}}' % i for i in range(200)]
        assert server.connections <= 8
