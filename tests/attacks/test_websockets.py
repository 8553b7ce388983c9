"""To fill the memory of the server, or to keep it busy, by a WebSocket."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator

import pytest

from rota.client.websocket import WebSocket, framing
from rota.client.websocket.connection import CONTROLS_PER_SECOND_MAX, FRAMES_AT_ONCE_MAX, FRAMES_PER_TURN_MAX
from rota.client.websocket.framing import FRAGMENTS_FREE, Framing, Violation
from rota.server.http import Response
from rota.server.http_server import HttpServer
from rota.server.memory import MIB, Memory, Payer
from rota.server.upgrade import Upgrade
from tests.until import until_async

SOON_SECONDS = 10.0
KEY = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
MASK = b"\x80\x00\x00\x00\x00"
"""The rest of a frame without content, after its opcode: masked, with a mask that changes nothing."""
Open = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Site:
    """A server of WebSockets over TCP. Who asks says who they are by a header."""

    def __init__(self) -> None:
        self.memory = Memory(16 * MIB, bodies_reserved=4 * MIB)
        self.received: list[str | bytes] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.http = HttpServer(
            lambda request: Upgrade(self._serve),
            lambda code, message: Response(code, message.encode()),
            memory=self.memory,
            payer=lambda request: Payer(request.headers["x-who"]),
        )
        self.opened: list[Open] = []
        self.port = 0

    async def start(self) -> None:
        sock = socket.create_server(("127.0.0.1", 0))
        self.port = sock.getsockname()[1]
        await self.http.listen(sock)

    async def _serve(self, websocket: WebSocket) -> None:
        while True:
            await self.gate.wait()
            self.received.append(await websocket.receive())

    async def open(self, who: str = "attacker") -> Open:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.opened.append((reader, writer))
        upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n"
        writer.write(f"GET / HTTP/1.1\r\nHost: localhost\r\nX-Who: {who}\r\n{upgrade}{KEY}\r\n".encode())
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        return reader, writer


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    await made.start()
    yield made
    for _, writer in made.opened:
        writer.transport.abort()
        writer.close()
    await made.http.close(grace_seconds=0)
    assert not made.memory.bodies.used


async def code(reader: asyncio.StreamReader) -> int:
    """With which a WebSocket is closed."""
    async with asyncio.timeout(SOON_SECONDS):
        while True:
            opcode, length = await reader.readexactly(2)
            payload = await reader.readexactly(length)
            if opcode & 0x0F == framing.CLOSE:
                return int.from_bytes(payload[:2], "big")


def half(size: int, *, fragments: bool) -> bytes:
    """Most of a message."""
    if not fragments:
        return b"\x82\xff" + struct.pack(">Q", size + 1000) + bytes(4) + bytes(size)
    piece = b"\xfe\xff\xff" + bytes(4) + bytes(0xFFFF)
    return b"\x02" + piece + (b"\x00" + piece) * (size // 0xFFFF - 1)


@pytest.mark.parametrize("fragments", [False, True], ids=["frame", "fragments"])
async def test_to_fill_the_memory_with_halves_of_messages(site: Site, fragments: bool) -> None:
    bodies = site.memory.bodies
    size, share = 2 * MIB, (16 - 4) * MIB // 2
    readers = []
    for _ in range(6):
        reader, writer = await site.open()
        readers.append(reader)
        writer.write(half(size, fragments=fragments))
        assert bodies.used <= share
    first = [asyncio.create_task(code(reader)) for reader in readers]
    done, _ = await asyncio.wait(first, timeout=SOON_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    assert {task.result() for task in done} == {framing.TRY_LATER}
    assert bodies.used <= share
    # Nobody else is kept from sending.
    _, writer = await site.open("other")
    writer.write(b"\x82\xff" + struct.pack(">Q", MIB) + bytes(4) + bytes(MIB))
    await until_async(lambda: bytes(MIB) in site.received, seconds=SOON_SECONDS)
    for task in first:
        task.cancel()
    await asyncio.gather(*first, return_exceptions=True)


async def test_what_is_not_taken_counts_and_what_is_taken_does_not(site: Site) -> None:
    site.gate.clear()
    _, writer = await site.open()
    writer.write(b"\x82\xff" + struct.pack(">Q", MIB) + bytes(4) + bytes(MIB))
    await until_async(lambda: site.memory.bodies.used == MIB, seconds=SOON_SECONDS)
    site.gate.set()
    await until_async(lambda: site.memory.bodies.used == 0, seconds=SOON_SECONDS)
    await until_async(lambda: site.received == [bytes(MIB)], seconds=SOON_SECONDS)


def test_to_keep_the_server_busy_with_fragments_of_nothing() -> None:
    server = Framing("server")
    server.feed(b"\x02" + MASK + (b"\x00" + MASK) * (FRAGMENTS_FREE - 1))
    assert server.take() is None
    server.feed(b"\x00" + MASK)
    with pytest.raises(Violation) as violation:
        server.take()
    assert violation.value.code == framing.POLICY


def test_a_message_may_have_as_many_fragments_as_it_has_use_for() -> None:
    server, pieces = Framing("server"), 3 * FRAGMENTS_FREE
    piece = b"\xfe\x00\x80" + bytes(4) + b"x" * 128
    for _ in range(2):
        server.feed(b"\x02" + piece + (b"\x00" + piece) * pieces + b"\x80" + piece)
        assert server.take() == b"x" * 128 * (pieces + 2)


@pytest.mark.parametrize("opcode", [b"\x89", b"\x8a"], ids=["ping", "pong"])
async def test_to_keep_the_server_busy_with_pings(site: Site, opcode: bytes) -> None:
    reader, writer = await site.open()
    writer.write((opcode + MASK) * (3 * CONTROLS_PER_SECOND_MAX))
    assert await code(reader) == framing.POLICY


async def test_to_keep_everybody_waiting_for_many_small_messages(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them come, in order, and others go on in between."""
    most, taken, turn = [0], [0], [0]
    happened = WebSocket._handle

    def counted(self: WebSocket, event: framing.Event) -> None:
        taken[0] += 1
        most[0] = max(most[0], taken[0])
        happened(self, event)

    async def turns() -> None:
        while True:
            await asyncio.sleep(0)
            taken[0] = 0
            turn[0] += 1

    monkeypatch.setattr(WebSocket, "_handle", counted)
    others = asyncio.create_task(turns())
    count = 20_000
    _, writer = await site.open()
    writer.write(b"".join(b"\x82\x84" + bytes(4) + struct.pack(">I", i) for i in range(count)))
    await until_async(lambda: len(site.received) == count, seconds=SOON_SECONDS)
    others.cancel()
    assert site.received == [struct.pack(">I", i) for i in range(count)]
    assert most[0] <= 2 * FRAMES_PER_TURN_MAX


@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "leaves"])
@pytest.mark.parametrize("fragments", [1, 1000])
async def test_to_keep_everybody_waiting_by_many_frames_on_many_connections(
    site: Site, monkeypatch: pytest.MonkeyPatch, fragments: int, *, leaves: bool
) -> None:
    """However many connections have frames that wait, and however many frames a message has."""
    connections, count = 20, 10_000 // fragments
    most, taken = [0], [0]
    frame = Framing._frame

    def counted(self: Framing) -> tuple[bool, int, bytes] | None:
        taken[0] += 1
        most[0] = max(most[0], taken[0])
        return frame(self)

    async def turns() -> None:
        while True:
            await asyncio.sleep(0)
            taken[0] = 0

    monkeypatch.setattr(Framing, "_frame", counted)
    others = asyncio.create_task(turns())
    opened = [(await site.open())[1] for _ in range(connections)]
    first = b"\x02" if fragments > 1 else b"\x82"
    middle, last = b"\x00" + MASK, b"\x80" + MASK
    message = first + MASK + (middle * (fragments - 2) + last if fragments > 1 else b"")
    for writer in opened:
        writer.write(message * count)
    if leaves:
        for writer in opened:
            writer.close()
    await until_async(lambda: len(site.received) == connections * count, lambda: len(site.received))
    others.cancel()
    # Each looks once more, and finds no whole frame.
    assert most[0] <= 2 * (FRAMES_PER_TURN_MAX + connections * (FRAMES_AT_ONCE_MAX + 1))
