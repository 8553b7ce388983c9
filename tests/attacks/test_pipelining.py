"""To keep the server busy, or to fill its memory, by many requests or small pieces that are sent at once."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path

import pytest

from rota.client.rounds import STEPS_PER_TURN_MAX
from rota.server.http import Answer, Request, Response
from rota.server.http_input import PARSED_STEP_BYTES, REQUEST_SECONDS_MAX
from rota.server.http_parsing import RequestParser
from rota.server.http_server import HttpServer
from rota.server.memory import MIB, Memory
from rota.server.request_body import Body
from tests.until import until_async

MANY = 5000
SOON_SECONDS = 60.0
SERVER = [tracemalloc.Filter(inclusive=True, filename_pattern="*/http_*.py")]
ALIVE_MAX = 200
"""Requests that are parsed, of all that one connection has sent."""


class Site:
    """A server that answers at once; `/wait` when its gate is open. It counts the answers of each turn of the loop."""

    def __init__(self, socket: Path) -> None:
        self.socket = str(socket)
        self.memory = Memory(2 * MIB, bodies_reserved=0)
        self.http = HttpServer(
            self._answer, refused, memory=self.memory, streams_body=lambda target: target == b"/upload"
        )
        self.gate = asyncio.Event()
        self.answered: Counter[int] = Counter()
        self.is_waiting = False
        self.turn = 0
        self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._count)

    def _count(self) -> None:
        self.turn += 1
        self._loop.call_soon(self._count)

    def _answer(self, request: Request) -> Answer | Awaitable[Answer]:
        self.answered[self.turn] += 1
        if request.pieces is not None:
            return self._take(request.pieces)
        if request.method == "POST":
            return Response(200, b"%d" % len(request.body), "text/plain")
        return self._wait() if request.path == "/wait" else Response(200, request.path.encode(), "text/plain")

    async def _wait(self) -> Answer:
        self.is_waiting = True
        await self.gate.wait()
        return Response(200, b"waited", "text/plain")

    async def _take(self, pieces: Body) -> Answer:
        return Response(200, b"%d" % sum([len(one) async for one in pieces]), "text/plain")

    async def send(self, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_unix_connection(self.socket)
        writer.write(data)
        return reader, writer


def refused(code: int, message: str) -> Response:
    return Response(code, message.encode(), "text/plain")


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    made = Site(tmp_path / "socket")
    await made.http.listen_unix(made.socket)
    yield made
    await made.http.close(grace_seconds=0)
    assert not made.http.connections and not made.memory.bodies.used


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\n\r\n".encode()


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
    return int(head.split()[1]), await reader.readexactly(length)


async def test_to_keep_everybody_waiting_by_requests_that_are_sent_at_once(site: Site) -> None:
    reader, writer = await site.send(b"".join(get(f"/{i}") for i in range(MANY)))
    async with asyncio.timeout(SOON_SECONDS):
        assert [await answer(reader) for _ in range(MANY)] == [(200, f"/{i}".encode()) for i in range(MANY)]
    # One when they arrive, and one that has waited.
    assert max(site.answered.values()) <= 2
    writer.close()


async def test_to_fill_the_memory_with_requests_behind_one_that_waits(site: Site) -> None:
    reader, writer = await site.send(get("/wait") + get("/next") * MANY)
    await until_async(lambda: site.memory.bodies.used > 0)
    gc.collect()
    assert sum(isinstance(one, Request) for one in gc.get_objects()) < ALIVE_MAX
    site.gate.set()
    async with asyncio.timeout(SOON_SECONDS):
        assert await answer(reader) == (200, b"waited")
        assert {await answer(reader) for _ in range(MANY)} == {(200, b"/next")}
    await until_async(lambda: site.memory.bodies.used == 0)
    writer.close()


async def test_to_fill_the_memory_with_what_nobody_has_parsed(site: Site) -> None:
    """Unparsed input of many connections is counted. A client without room for it gets a 429 after its answers."""
    opened = [await site.send(get("/wait") + get("/next") * MANY) for _ in range(60)]
    await until_async(lambda: site.memory.bodies.used > MIB)
    most = site.memory.bodies.used
    site.gate.set()
    async with asyncio.timeout(SOON_SECONDS):
        everything = await asyncio.gather(*(all_of(reader) for reader, _ in opened))
    assert most <= 2 * MIB
    assert all(one[0] == (200, b"waited") for one in everything)
    assert {code for one in everything for code, _ in one} == {200, 429}
    for _, writer in opened:
        writer.close()


async def all_of(reader: asyncio.StreamReader) -> list[tuple[int, bytes]]:
    out: list[tuple[int, bytes]] = []
    while len(out) <= MANY and (not out or out[-1][0] == 200):
        out.append(await answer(reader))
    return out


@pytest.mark.parametrize("target", ["POST /", "PUT /upload"])
async def test_to_keep_everybody_waiting_by_bodies_in_small_pieces_on_many_connections(
    site: Site, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    connections, count, pieces, on_body = 5, 50_000, Counter[int](), RequestParser.on_body

    def counted(self: RequestParser, body: bytes) -> None:
        pieces[site.turn] += 1
        on_body(self, body)

    monkeypatch.setattr(RequestParser, "on_body", counted)
    chunk = b"1\r\na\r\n"
    head = f"{target} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    body = head + chunk * count + b"0\r\n\r\n"
    opened = [await site.send(body) for _ in range(connections)]
    async with asyncio.timeout(SOON_SECONDS):
        said = await asyncio.gather(*(answer(reader) for reader, _ in opened))
    assert said == [(200, b"%d" % count)] * connections
    assert max(pieces.values()) <= 2 * (STEPS_PER_TURN_MAX + connections) * PARSED_STEP_BYTES // len(chunk)
    for _, writer in opened:
        writer.close()


async def test_to_have_a_body_take_more_memory_than_it_counts_for(site: Site) -> None:
    """Pieces are put together as they come: each alone would take ten times its size."""
    half = b"2\r\nab\r\n" * 200_000
    tracemalloc.start()
    try:
        reader, writer = await site.send(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
        for start in range(0, len(half), 70_000):
            writer.write(half[start : start + 70_000])
            await writer.drain()
        await until_async(lambda: site.memory.bodies.used >= 300_000)
        del half
        used = sum(one.size for one in tracemalloc.take_snapshot().filter_traces(SERVER).statistics("filename"))
    finally:
        tracemalloc.stop()
    assert used < 4 * MIB
    writer.write(b"0\r\n\r\n")
    async with asyncio.timeout(SOON_SECONDS):
        assert await answer(reader) == (200, b"400000")
    writer.close()


async def test_what_is_no_request_is_refused_after_those_before_it(site: Site) -> None:
    reader, writer = await site.send(b"".join(get(f"/{i}") for i in range(20)) + b"rubbish\r\n\r\n" + get("/after"))
    async with asyncio.timeout(SOON_SECONDS):
        said = [await answer(reader) for _ in range(21)]
        assert await reader.read() == b""
    assert said[:20] == [(200, f"/{i}".encode()) for i in range(20)]
    assert said[20][0] == 400
    writer.close()


async def test_who_has_sent_all_requests_and_says_so_gets_all_answers(site: Site) -> None:
    reader, writer = await site.send(b"".join(get(f"/{i}") for i in range(MANY)))
    writer.write_eof()
    async with asyncio.timeout(SOON_SECONDS):
        assert [await answer(reader) for _ in range(MANY)] == [(200, f"/{i}".encode()) for i in range(MANY)]
        assert await reader.read() == b""
    writer.close()


async def test_what_is_no_request_does_not_get_the_answer_of_one_that_waits(site: Site) -> None:
    reader, writer = await site.send(get("/wait") + b"rubbish\r\n\r\n" + get("/after"))
    await until_async(lambda: site.is_waiting)
    site.gate.set()
    async with asyncio.timeout(SOON_SECONDS):
        assert await answer(reader) == (200, b"waited")
        assert (await answer(reader))[0] == 400
        assert await reader.read() == b""
    writer.close()


async def test_what_arrives_too_late_does_not_get_the_answer_of_one_that_waits(site: Site) -> None:
    reader, writer = await site.send(get("/wait") + b"GET /half")
    await until_async(lambda: site.is_waiting)
    (connection,) = site.http.connections
    connection.check_time(asyncio.get_running_loop().time() + 2 * REQUEST_SECONDS_MAX, idle_seconds_max=0.0)
    site.gate.set()
    async with asyncio.timeout(SOON_SECONDS):
        assert await answer(reader) == (200, b"waited")
        assert (await answer(reader))[0] == 408
        assert await reader.read() == b""
    writer.close()


async def test_an_upload_that_is_not_valid_is_refused_while_it_is_read(site: Site) -> None:
    head = b"PUT /upload HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    reader, writer = await site.send(head + b"2\r\nab\r\n" + b"rubbish\r\n")
    async with asyncio.timeout(SOON_SECONDS):
        assert (await answer(reader))[0] == 400
        assert await reader.read() == b""
    writer.close()
