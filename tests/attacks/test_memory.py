"""To fill the memory of the server: with what is sent and never ends, and with what is asked for and never read."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rota.api import Secret
from rota.registry import Registry
from rota.registry.options import WatchOptions
from rota.registry.reading import INITIAL_PAGE_BYTES
from rota.server import http_connection, http_parsing, objects
from rota.server import main as server_main
from rota.server.memory import MIB, Answers, Memory, Payer, payer_at
from rota.server.shares import Shares
from rota.store import MemoryStore
from rota.store.watch import WATCH_BATCH_BYTES_MAX
from tests.attacks.conftest import API, TENANT, Deployer, deployer
from tests.server.conftest import Reply, Server, parsed, pool, served
from tests.until import until_so

SOON_SECONDS = 10.0
BODIES, ANSWERS = 16 * MIB, 24 * MIB
CONFIG = f"/api/v1/namespaces/{TENANT}/configmaps"
Open = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
def memories(monkeypatch: pytest.MonkeyPatch) -> list[Memory]:
    """Make the memories of the API's and the edge's server small, and return them."""
    made: list[Memory] = []

    def small(*_: int, **__: int) -> Memory:
        made.append(Memory(BODIES, ANSWERS, bodies_reserved=4 * MIB, answers_reserved=4 * MIB))
        return made[-1]

    monkeypatch.setattr(server_main, "Memory", small)
    return made


@pytest.fixture
async def small(tmp_path: Path, memories: list[Memory]) -> AsyncIterator[Server]:
    async with served(tmp_path / "home", with_controllers=False) as server:
        yield server


@pytest.fixture
async def opened() -> AsyncIterator[list[Open]]:
    connections: list[Open] = []
    yield connections
    leave(connections)


async def until_unused(room: Shares | Answers) -> None:
    await until_so(lambda: room.used, lambda used: not used, "no bytes in use")


def leave(connections: list[Open]) -> None:
    while connections:
        writer = connections.pop()[1]
        writer.close()
        writer.transport.abort()


async def begin(server: Server, opened: list[Open], token: str, *, sent: int, whole: int = 3 * MIB) -> Open:
    """Send a part of a body."""
    reader, writer = await server.connect()
    opened.append((reader, writer))
    known = f"Authorization: Bearer {token}\r\n" if token else ""
    head = f"POST {CONFIG} HTTP/1.1\r\nHost: localhost\r\n{known}Content-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {whole}\r\n\r\n".encode() + b" " * sent)
    await writer.drain()
    return reader, writer


async def answer(reader: asyncio.StreamReader) -> Reply:
    async with asyncio.timeout(SOON_SECONDS):
        head = parsed(await reader.readuntil(b"\r\n\r\n"))
        head.body = await reader.readexactly(int(head.headers["content-length"]))
        return head


@pytest.mark.parametrize("who", ["nobody", "forged", "viewer", "neighbour"])
async def test_to_have_a_body_kept_without_a_right_to_send_it(small: Server, opened: list[Open], who: str) -> None:
    token = {"nobody": "", "forged": "rota-forged"}.get(who)
    if token is None:
        made = await deployer(small, scope="viewer") if who == "viewer" else await deployer(small, "other")
        token = made.token
    # It is answered although most of it has yet to come, and nothing of it was kept.
    reader, _ = await begin(small, opened, token, sent=64 * 1024)
    assert (await answer(reader)).status == (401 if who in ("nobody", "forged") else 403)


async def test_to_fill_the_memory_with_bodies_that_never_end(
    small: Server, opened: list[Open], memories: list[Memory]
) -> None:
    await deployer(small)
    attacker, other = await deployer(small), await deployer(small, "other")
    bodies = memories[0].bodies
    readers = [(await begin(small, opened, attacker.token, sent=2 * MIB))[0] for _ in range(2 * BODIES // (2 * MIB))]
    answered = [asyncio.create_task(reader.readuntil(b"\r\n\r\n")) for reader in readers]
    half = len(readers) // 2
    await until_so(lambda: sum(task.done() for task in answered), lambda done: done >= half, f"{half} answers")
    assert bodies.used <= BODIES // 2
    assert all(parsed(task.result()).status == 429 for task in answered if task.done())
    # Nobody else is kept from sending what they may.
    note = {"metadata": {"name": "large"}, "data": {"text": "x" * MIB}}
    assert (await other.ask("POST", CONFIG.replace(TENANT, "other"), note)).status == 201
    assert (await small.ask("POST", CONFIG.replace(TENANT, "other"), note)).status == 409
    leave(opened)
    await until_unused(bodies)
    for task in answered:
        task.cancel()
    await asyncio.gather(*answered, return_exceptions=True)
    assert (await attacker.ask("POST", CONFIG, note)).status == 201
    assert not bodies.used


async def test_to_fill_the_memory_with_bodies_in_a_row(small: Server, memories: list[Memory]) -> None:
    """Requests of one connection that come faster than they are answered."""
    attacker = await deployer(small)
    reader, writer = await small.connect()
    body = b'{"metadata": {"name": "x"}, "data": {"text": "%b"}}' % (b"x" * 900_000)
    head = f"PUT {CONFIG}/none HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {attacker.token}\r\n"
    one = f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    most = 0
    with contextlib.suppress(ConnectionError):
        for _ in range(BODIES // len(body) + 4):
            writer.write(one)
            await writer.drain()
            most = max(most, memories[0].bodies.used)
    assert most <= BODIES
    first = await answer(reader)
    assert first.status in (400, 404, 429)
    writer.transport.abort()
    await until_unused(memories[0].bodies)


async def fill(server: Server, count: int) -> None:
    note = {"data": {"text": "x" * MIB}}
    for number in range(count):
        made = await server.ask("POST", CONFIG, note | {"metadata": {"name": f"large-{number}"}})
        assert made.status == 201


async def ask_and_look_away(one: Deployer, opened: list[Open], path: str) -> Reply:
    """The head of an answer of which no more is read."""
    # The kernel takes little of it.
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", one.server.port))
    reader, writer = await asyncio.open_connection(sock=sock, ssl=one.server.tls, server_hostname="127.0.0.1")
    opened.append((reader, writer))
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {one.token}\r\n\r\n".encode())
    async with asyncio.timeout(SOON_SECONDS):
        reply = parsed(await reader.readuntil(b"\r\n\r\n"))
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    return reply


async def test_to_fill_the_memory_with_lists_that_are_not_read(
    small: Server, opened: list[Open], memories: list[Memory], monkeypatch: pytest.MonkeyPatch
) -> None:
    viewer, other = await deployer(small, scope="viewer"), await deployer(small)
    await fill(small, 4)
    answers = memories[0].answers
    replies = [await ask_and_look_away(viewer, opened, CONFIG) for _ in range(2 * ANSWERS // (4 * MIB))]
    assert {reply.status for reply in replies} == {200, 429}
    refused = next(reply for reply in replies if reply.status == 429)
    assert int(refused.headers["retry-after"]) > 0
    assert answers.used <= (ANSWERS - answers.reserve) // 2 + 4 * MIB
    # All others are served, an admin among them.
    for asks in (other, Deployer(small, small.token)):
        listed = await asks.ask("GET", CONFIG)
        assert (listed.status, len(listed.json["items"])) == (200, 4)
    # And not for long.
    monkeypatch.setattr(http_connection, "STALLED_SECONDS_MAX", 0.0)
    await until_unused(answers)
    assert (await viewer.ask("GET", CONFIG)).status == 200


async def test_to_fill_the_memory_with_watches_that_are_not_read(
    small: Server, opened: list[Open], memories: list[Memory], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "ROOM_SECONDS_MAX", 0.05)
    viewer, other = await deployer(small, scope="viewer"), await deployer(small)
    await fill(small, 8)  # The kernel takes some of them.
    answers, share = memories[0].answers, (ANSWERS - 4 * MIB) // 2
    for _ in range(share // MIB + 6):
        await ask_and_look_away(viewer, opened, f"{CONFIG}?watch=1")
        assert answers.used <= share + MIB
    # For the others there was no room: they have ended.
    await until_so(
        lambda: answers.used, lambda used: MIB < used <= share, f"more than a MiB, and at most {share} bytes"
    )
    for asks in (other, Deployer(small, small.token)):
        assert len((await asks.ask("GET", f"{CONFIG}?limit=2")).json["items"]) == 2
    monkeypatch.setattr(http_connection, "STALLED_SECONDS_MAX", 0.0)
    await until_unused(answers)


async def lines(reader: asyncio.StreamReader, count: int) -> list[bytes]:
    """So many lines of a chunked answer."""
    text = b""
    async with asyncio.timeout(SOON_SECONDS):
        while text.count(b"\n") < count:
            size = int(await reader.readline(), 16)
            text += await reader.readexactly(size)
            await reader.readexactly(2)
    return text.splitlines()


async def test_large_events_of_a_watch_come_whole(small: Server, opened: list[Open], memories: list[Memory]) -> None:
    viewer = await deployer(small, scope="viewer")
    await fill(small, 3)
    reader, writer = await small.connect()
    opened.append((reader, writer))
    head = f"HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {viewer.token}\r\n\r\n"
    writer.write(f"GET {CONFIG}?watch=1 {head}".encode())
    await reader.readuntil(b"\r\n\r\n")
    await fill_more(small)
    names = [json.loads(line)["object"]["metadata"]["name"] for line in await lines(reader, 4)]
    assert names == ["large-0", "large-1", "large-2", "large-9"]
    await until_unused(memories[0].answers)


async def fill_more(server: Server) -> None:
    note = {"metadata": {"name": "large-9"}, "data": {"text": "x" * MIB}}
    assert (await server.ask("POST", CONFIG, note)).status == 201


async def test_whoever_waits_for_room_gets_it_in_turn_or_not_at_all() -> None:
    answers = Answers(32 * MIB, 0)
    one, other = Payer("one"), Payer("other")
    assert await answers.wait(one, 16 * MIB, 1.0)
    assert not await answers.wait(one, MIB, 0.0)
    first, second = (asyncio.create_task(answers.wait(one, 8 * MIB, SOON_SECONDS)) for _ in range(2))
    await asyncio.sleep(0)
    assert await answers.wait(other, MIB, 0.0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    answers.give_back("one", 16 * MIB)
    assert await second
    assert (answers.of("one"), answers.used) == (8 * MIB, 9 * MIB)
    # One that is given room in the moment in which it is cancelled gives it back.
    third = asyncio.create_task(answers.wait(one, 15 * MIB, SOON_SECONDS))
    await asyncio.sleep(0)
    answers.give_back("one", answers.of("one"))
    third.cancel()
    await asyncio.gather(third, return_exceptions=True)
    assert (answers.of("one"), answers.used) == (0, MIB)


async def test_to_have_all_of_a_watch_kept_without_reading_it() -> None:
    store = MemoryStore()
    registry = Registry(store)
    await registry.start()
    for number in range(20):
        secret = {"metadata": {"name": f"s-{number:02}"}, "stringData": {"text": "x" * 100_000}}
        await registry.create(Secret.api, "default", secret)
    watch = registry.watch(Secret.api, "default", WatchOptions())
    first = await anext(watch)
    assert sum(len(event.object) for event in first) <= INITIAL_PAGE_BYTES + 200_000
    # What changes while it is not read is told as a change: the state is that of the beginning.
    await registry.delete(Secret.api, "default", "s-19")
    await registry.create(Secret.api, "default", {"metadata": {"name": "s-99"}})
    seen = [(event.type, event.object) for event in first]
    while len(seen) < 22:
        seen += [(event.type, event.object) for event in await anext(watch)]
    names = [(type_, value.partition(b'"name":"')[2][:4].decode()) for type_, value in seen]
    assert names == [*(("ADDED", f"s-{n:02}") for n in range(20)), ("DELETED", "s-19"), ("ADDED", "s-99")]
    # Who falls behind gets what it missed in parts.
    for number in range(30):
        await registry.create(
            Secret.api, "default", {"metadata": {"name": f"t-{number}"}, "stringData": {"text": "x" * 100_000}}
        )
    behind = await anext(watch)
    assert sum(len(event.object) for event in behind) <= WATCH_BATCH_BYTES_MAX + 200_000
    await watch.aclose()  # type: ignore[attr-defined]
    await store.close()


@pytest.mark.parametrize("name", ["X-Same", "Accept"])
async def test_to_keep_the_server_busy_with_a_header_that_comes_again(bare: Server, name: str) -> None:
    head = "GET /version HTTP/1.1\r\nHost: localhost\r\n"
    many = f"{name}: a\r\n" * (http_parsing.HEAD_BYTES_MAX // 16)
    assert (await bare.raw(f"{head}{many}\r\n".encode())).status == 431
    few = f"{name}: */*\r\n" * 3
    assert (await bare.raw(f"{head}{few}Connection: close\r\n\r\n".encode())).status == 401


def test_who_has_a_network_of_addresses_has_one_share() -> None:
    assert payer_at(("2001:db8::1", 1, 0, 0)) == payer_at(("2001:db8::ffff:1", 2, 0, 0))
    assert payer_at(("2001:db8::1", 1, 0, 0)) != payer_at(("2001:db8:0:1::1", 1, 0, 0))
    assert payer_at(("10.0.0.1", 1)) != payer_at(("10.0.0.2", 1))


async def test_a_large_answer_is_whole_and_the_next_one_follows_it(small: Server) -> None:
    await deployer(small)
    await fill(small, 2)
    reader, writer = await small.connect()
    head = f"HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {small.token}\r\n\r\n"
    asked = (f"GET {CONFIG} {head}", f"HEAD {CONFIG} {head}", f"GET {CONFIG}/large-1 {head}", f"GET /version {head}")
    writer.write("".join(asked).encode())
    listed = await answer(reader)
    assert len(listed.json["items"]) == 2
    async with asyncio.timeout(SOON_SECONDS):
        assert parsed(await reader.readuntil(b"\r\n\r\n")).headers["content-length"] == str(len(listed.body))
    assert (await answer(reader)).json["metadata"]["name"] == "large-1"
    assert (await answer(reader)).status == 200
    writer.close()
    assert (await small.ask("POST", f"{API}/{TENANT}/workerpools", pool("p"))).status == 201
