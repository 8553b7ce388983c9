"""Requests for an instance of a cell go through its hub and back, at the pace of the slower side, and end together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rota.api import Cell
from rota.client import channels
from rota.client.failures import ConnectionCut
from rota.client.http import HttpBackend
from rota.client.target import Target
from rota.client.websocket import Closed, WebSocket
from rota.registry import ApiError
from rota.server import cell_tunnel, hub_tunnel
from rota.server.auth import User
from rota.server.files import BYTES
from rota.server.http import Answer, Request, Response, Stream
from rota.server.log_streams import TEXT
from rota.server.upgrade import Upgrade
from tests.tunnel.both import CELL, NAME, Both, exit_status, refused
from tests.until import until_async

LOGS = f"/v1/logs/default/{NAME}"
FILES = f"/v1/instances/default/{NAME}/files?path=/a"
EXEC = channels.path("default", NAME, ["run", "it"], stdin=True)
MIB = 1024 * 1024


def stream(*chunks: bytes, type_: str = TEXT) -> Stream:
    async def produced() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    return Stream(produced(), type_)


def command(serve: Any) -> Any:
    """Answer with a command that does this with its WebSocket."""
    return lambda request, user: Upgrade(serve, channels.PROTOCOL)


async def body_of(request: Request) -> bytes:
    assert request.pieces is not None
    return b"".join([piece async for piece in request.pieces])


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def nothing(channel: int, data: bytes) -> None:
    """Show nothing."""


# There and back.


async def test_a_log_comes_through_the_hub(both: Both) -> None:
    both.connect()
    await both.connected()
    both.serve = lambda request, user: stream(b"one\n", b"two\n" * 50_000)
    reply = await both.server.ask("GET", f"{LOGS}?tail=7&container=main", headers={"X-Secret": "s"})
    assert (reply.status, reply.body) == (200, b"one\n" + b"two\n" * 50_000)
    [(request, user)] = both.asked
    assert (request.method, request.path, request.query_text) == ("GET", LOGS, "tail=7&container=main")
    # The cell is told who asks, and gets none of their credentials.
    assert (user.name, user.scope, user.namespace) == ("rota-admin", "hub", "default")
    assert not request.headers.keys() & {"authorization", "x-secret", "host"}
    await until_async(lambda: _none(both))


async def _none(both: Both) -> bool:
    return await both.sessions() == 0


async def upload(target: Target, path: str, body: AsyncIterator[bytes]) -> None:
    backend = HttpBackend(target)
    try:
        await backend.upload(path, body, BYTES)
    finally:
        await backend.close()


async def test_a_file_goes_up_and_comes_down_byte_for_byte(both: Both) -> None:
    both.connect()
    await both.connected()
    sent = [bytes([number]) * 700_001 for number in range(5)]
    kept: list[bytes] = []

    async def put(request: Request, user: User) -> Answer:
        kept.append(await body_of(request))
        return Response(200, b'{"size": 1}')

    both.serve = put
    await upload(both.target(both.server.token), FILES, pieces(*sent))
    assert kept == [b"".join(sent)]
    headers = (("Rota-Mode", "0644"), ("Set-Cookie", "no"))
    both.serve = lambda request, user: Stream(pieces(*sent), BYTES, headers=headers)
    reply = await both.server.ask("GET", FILES)
    assert reply.body == kept[0] and reply.headers["rota-mode"] == "0644" and "set-cookie" not in reply.headers
    assert [(one["verb"], one["subresource"], one["code"]) for one in both.audited(at_hub=True)[-2:]] == [
        ("update", "files", 200),
        ("get", "files", 200),
    ]


async def test_a_body_that_is_not_wanted_is_not_sent(both: Both) -> None:
    both.connect()
    await both.connected()
    taken = 0

    def refuse(request: Request, user: User) -> Answer:
        raise ApiError(413, "RequestEntityTooLarge", "it is too large", details={"name": "/a", "kind": "files"})

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield bytes(65536)

    both.serve = refuse
    error = await refused(upload(both.target(both.server.token), FILES, endless()))
    assert (error.code, str(error), taken) == (413, "it is too large", 0)


async def test_a_command_has_its_streams_and_its_exit_code(both: Both) -> None:
    both.connect()
    await both.connected()
    came: list[bytes] = []

    async def run(websocket: WebSocket) -> None:
        websocket.send(b"\x01")
        while (message := await websocket.receive()) != b"\xff\x00":
            assert isinstance(message, bytes)
            came.append(message)
            if message[0] == 0:
                websocket.send(b"\x01" + message[1:])
                await websocket.drain()
        websocket.send(b"\x02bad\n")
        websocket.send(exit_status(7))
        await websocket.close()

    both.serve = command(run)
    shown = {1: b"", 2: b""}

    async def show(channel: int, data: bytes) -> None:
        shown[channel] += data

    async with both.as_().websocket(EXEC, protocols=(channels.PROTOCOL,)) as websocket:
        channels.resize(websocket, 101, 33)
        # Larger than one message of the tunnel: it is divided.
        websocket.send(b"\x00" + b"x" * 300_000)
        code = await channels.carry(websocket, show, pieces(b"y" * 200_000))
    assert (code, shown[2]) == (7, b"bad\n")
    assert shown[1] == b"x" * 300_000 + b"y" * 200_000
    assert came[0] == b'\x04{"Width":101,"Height":33}'
    [(request, _)] = both.asked
    assert "command=run&command=it" in request.query_text
    assert both.audited(at_hub=True)[-1]["code"] == 101
    # What was run is written down on neither side.
    assert "run" not in both.audit_path.read_text()
    await until_async(lambda: _none(both))


class End:
    """One end of a WebSocket that has got this, and whose other end is gone once it is received."""

    def __init__(self, *came: bytes, closed: Closed | None = None) -> None:
        self.came = [*came]
        self.closed = closed
        self.sent: list[bytes] = []
        self.close_code = 0

    async def receive(self) -> bytes:
        await asyncio.sleep(0)
        if self.came:
            return self.came.pop(0)
        if self.closed is None:
            await asyncio.Event().wait()
        raise Closed(1000)

    def send(self, message: bytes) -> None:
        if self.closed is not None:
            raise Closed(1000)
        self.sent.append(message)

    async def drain(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def close(self, code: int, reason: str = "", **more: Any) -> None:
        self.close_code = code


async def test_a_command_that_ends_before_its_input_is_told_of_whole() -> None:
    """As of `yes | rota exec -i box -- head`: what is typed for nobody takes nothing from what was said."""
    said = [b"\x01one", b"\x01two", exit_status(7)]
    user, cell = End(*[b"\x00yes"] * 100), End(*said, closed=Closed(1000))
    carried: list[int] = []
    session: Any = SimpleNamespace(sent=carried.append, received=carried.append)
    await hub_tunnel._relay(session, cast(Any, user), cast(Any, cell))
    assert (user.sent, user.close_code) == (said, 1000)


async def test_a_refusal_of_the_cell_is_told_as_it_is(both: Both) -> None:
    both.connect()
    await both.connected()

    def refuse(request: Request, user: User) -> Answer:
        raise ApiError(409, "Conflict", "it is not running", details={"name": NAME, "kind": "instances"})

    both.serve = refuse
    assert await both.code(LOGS) == (409, "it is not running")
    async with contextlib.AsyncExitStack() as stack:
        opening = stack.enter_async_context(both.as_().websocket(EXEC, protocols=(channels.PROTOCOL,)))
        error = await refused(opening)
    assert (error.code, str(error), error.details) == (
        409,
        "it is not running",
        {"name": NAME, "kind": "instances"},
    )


# Cuts.


async def test_a_command_ends_on_both_sides_when_the_tunnel_breaks(both: Both) -> None:
    both.connect()
    await both.connected()
    ended = asyncio.Event()

    async def run(websocket: WebSocket) -> None:
        websocket.send(b"\x01begun")
        try:
            await websocket.receive()
        finally:
            ended.set()

    both.serve = command(run)
    async with both.as_().websocket(EXEC, protocols=(channels.PROTOCOL,)) as websocket:
        assert await websocket.receive() == b"\x01begun"
        await both.cut()
        assert ended.is_set()
        async with asyncio.timeout(5):
            with pytest.raises(ConnectionCut, match='the connection to cell "ber-1" in ber was cut'):
                await channels.carry(websocket, nothing)
    await until_async(lambda: _none(both))


async def test_a_stream_that_is_cut_does_not_look_whole(both: Both) -> None:
    both.connect()
    await both.connected()

    async def some() -> AsyncIterator[bytes]:
        yield b"begun"
        await asyncio.Event().wait()

    both.serve = lambda request, user: Stream(some(), BYTES)
    async with both.as_().stream("GET", FILES) as coming:
        iterator = coming.__aiter__()
        assert await anext(iterator) == b"begun"
        await both.cut()
        with pytest.raises(ConnectionCut):
            await anext(iterator)


@pytest.mark.parametrize("what", ["exec", "files"])
async def test_what_runs_in_the_cell_ends_when_who_asked_goes(both: Both, what: str) -> None:
    both.connect()
    await both.connected()
    begun, ended = asyncio.Event(), asyncio.Event()

    async def some() -> AsyncIterator[bytes]:
        try:
            yield b"begun"
            begun.set()
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def run(websocket: WebSocket) -> None:
        websocket.send(b"\x01")
        begun.set()
        try:
            await websocket.receive()
        finally:
            ended.set()

    both.serve = command(run) if what == "exec" else lambda request, user: Stream(some(), BYTES)
    if what == "exec":
        with contextlib.suppress(RuntimeError):
            async with both.as_().websocket(EXEC, protocols=(channels.PROTOCOL,)):
                await begun.wait()
                raise RuntimeError("the user is gone")
    else:
        async with both.as_().stream("GET", FILES) as coming:
            assert await anext(coming.__aiter__()) == b"begun"
            await begun.wait()
    async with asyncio.timeout(5):
        await ended.wait()
    await until_async(lambda: _none(both))


async def test_a_cell_that_is_back_is_reached_again(both: Both) -> None:
    both.connect()
    await both.connected()
    await both.cut()
    await until_async(lambda: _is(both, 503))
    both.connect(boot=2)
    await until_async(lambda: _is(both, 200))


async def _is(both: Both, code: int) -> bool:
    return (await both.code(LOGS))[0] == code


async def test_a_later_start_of_a_cell_takes_the_place_of_an_earlier_one(both: Both) -> None:
    first = both.connect(boot=5)
    await both.connected()
    trouble_of_first = both.trouble
    second = both.connect(boot=6)

    async def is_taken_over() -> bool:
        return await _is(both, 200) and both.answered_by == 6

    await until_async(is_taken_over)
    # The first tries again, and is refused: what is asked goes to the second alone.
    both.trouble = trouble_of_first
    await both.troubled("a later start of ber-1 is connected")
    assert await is_taken_over()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert await is_taken_over() and not second.done()


# Cells that are not there.


async def test_a_cell_that_is_away_is_named_with_its_city_and_since_when(both: Both) -> None:
    await both.know(CELL, lastHeartbeatTime="2026-01-02T03:04:05Z")
    code, message = await both.code(LOGS)
    assert code == 503
    assert message.startswith('cell "ber-1" in ber is not connected: its last report was at 2026-01-02T03:04:05Z, ')
    assert (await both.code(FILES))[0] == 503
    async with contextlib.AsyncExitStack() as stack:
        error = await refused(stack.enter_async_context(both.as_().websocket(EXEC, protocols=(channels.PROTOCOL,))))
    assert error.code == 503 and "its last report was at" in str(error)
    assert both.audited(at_hub=True)[-1]["code"] == 503


async def test_a_cell_of_an_older_version_is_said_to_be_one(both: Both) -> None:
    await both.know(CELL, version="0.0.9")
    code, message = await both.code(LOGS)
    assert code == 503 and "runs Rota 0.0.9, which does not let its hub reach instances: upgrade it" in message


async def test_a_cell_that_was_removed(both: Both) -> None:
    await both.hub.delete(Cell, CELL)
    assert await both.code(LOGS) == (503, 'cell "ber-1" does not exist here any more')


async def test_another_hub_than_the_own_is_answered_nothing(both: Both) -> None:
    await both.belong("another")
    both.connect()
    await both.troubled("another hub answers than the one that this cell belongs to")
    assert (await both.code(LOGS))[0] == 503
    assert not both.asked


async def test_another_home_under_the_name_of_a_cell_is_not_asked(both: Both) -> None:
    await both.know(CELL, identity="another")
    both.connect()
    await both.troubled("this is not the home that has joined as ber-1")
    assert (await both.code(LOGS))[0] == 503
    assert not both.asked


# Bounds.


async def test_a_cell_that_does_not_answer_is_waited_for_so_long(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_tunnel, "OPEN_SECONDS_MAX", 0.1)

    async def hang(self: Any, *arguments: Any) -> None:
        await asyncio.Event().wait()

    both.connect()
    await both.connected()
    monkeypatch.setattr(cell_tunnel.Tunnel, "_answer", hang)
    code, message = await both.code(LOGS)
    assert code == 504 and 'cell "ber-1" in ber did not answer within 0.1 s' in message
    assert await both.sessions() == 0


async def _idle() -> AsyncIterator[bytes]:
    yield b"begun"
    await asyncio.Event().wait()


async def test_each_credential_and_each_cell_has_so_many_requests(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    both.connect()
    await both.connected()
    monkeypatch.setattr(hub_tunnel, "SESSIONS_OF_CREDENTIAL_MAX", 2)
    both.serve = lambda request, user: Stream(_idle(), TEXT)
    both.tokens["viewer"] = viewer = await both.token("viewer", "viewer")
    backend = both.as_(viewer)
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(backend.stream("GET", LOGS))
        code, message = await both.code(LOGS, viewer)
        assert code == 429 and "2 requests to cells are under way with this credential" in message
        # Nobody else is kept out by that.
        await stack.enter_async_context(both.as_().stream("GET", LOGS))
    await until_async(lambda: _none(both))


async def test_a_cell_is_shared_by_those_who_ask(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    both.connect()
    await both.connected()
    monkeypatch.setattr(hub_tunnel, "SESSIONS_OF_CELL_MAX", 10)
    monkeypatch.setattr(hub_tunnel, "SESSIONS_OF_CELL_RESERVED", 1)
    both.serve = lambda request, user: Stream(_idle(), TEXT)
    token = await both.token("other", "viewer")
    one, other = both.as_(await both.token("one", "viewer")), both.as_(token)
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(8):
            await stack.enter_async_context(one.stream("GET", LOGS))
        await stack.enter_async_context(other.stream("GET", LOGS))
        code, message = await both.code(LOGS, token)
        assert code == 429 and '9 requests to cell "ber-1" are under way, 1 of them yours' in message
        await stack.enter_async_context(both.as_().stream("GET", LOGS))  # An admin's has the reserve.
    await until_async(lambda: _none(both))


async def test_a_cell_does_not_take_more_than_it_can(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    both.connect()
    await both.connected()
    monkeypatch.setattr(cell_tunnel, "SERVED_MAX", 0)
    assert await both.code(LOGS) == (429, "0 requests of the hub are under way in this cell")


async def settled(count: Callable[[], int]) -> int:
    """Wait until it is not counted any further. Returns the count."""
    last = -1

    def stands_still() -> int:
        nonlocal last
        before, last = last, count()
        assert last < 64 * MIB, "it goes on and on"
        return last if last == before else 0

    # Nothing says that no more comes: it has come to an end when nothing has come for a quarter of a second.
    return int(await until_async(stands_still, lambda: f"{last} so far", poll_seconds=0.25))


async def test_who_does_not_read_makes_the_cell_wait(both: Both) -> None:
    """An endless file has no more in flight than the buffers of two connections and of the tunnel hold."""
    both.connect()
    await both.connected()
    produced = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal produced
        while True:
            produced += 65536
            yield bytes(65536)

    both.serve = lambda request, user: Stream(endless(), BYTES)
    _, writer = await both.server.connect()
    head = f"GET {FILES} HTTP/1.1\r\nHost: 127.0.0.1:{both.server.port}\r\n"
    writer.write(f"{head}Authorization: Bearer {both.server.token}\r\n\r\n".encode())
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    await settled(lambda: produced)
    writer.transport.abort()
    await until_async(lambda: _none(both))


async def test_a_cell_that_does_not_take_a_file_makes_who_sends_it_wait(both: Both) -> None:
    both.connect()
    await both.connected()
    sent = 0

    async def hang(request: Request, user: User) -> Answer:
        assert request.pieces is not None
        await anext(aiter(request.pieces))
        await asyncio.Event().wait()
        raise AssertionError

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 65536
            yield bytes(65536)

    both.serve = hang
    sending = asyncio.create_task(upload(both.target(both.server.token), FILES, endless()))
    await settled(lambda: sent)
    await both.cut()
    async with asyncio.timeout(5):
        error = await refused(sending)
    assert error.code == 503 and "was cut before it answered. Whether it has begun is not known" in str(error)
    await until_async(lambda: _none(both))


async def test_either_end_of_a_command_makes_the_other_wait(both: Both) -> None:
    both.connect()
    await both.connected()
    came, went = 0, 0

    async def run(websocket: WebSocket) -> None:
        nonlocal came
        while True:
            websocket.send(b"\x01" + bytes(65536))
            came += 65536
            await websocket.drain()

    both.serve = command(run)
    async with both.as_().websocket(EXEC, protocols=(channels.PROTOCOL,)) as websocket:

        async def feed() -> None:
            nonlocal went
            while True:
                websocket.send(b"\x00" + bytes(65536))
                went += 65536
                await websocket.drain()

        feeding = asyncio.create_task(feed())
        # Neither receives.
        await settled(lambda: came)
        await settled(lambda: went)
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
        websocket.abort()
    await until_async(lambda: _none(both))
