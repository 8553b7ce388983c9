"""To keep others out by being many, by being slow, or by saying nothing at all."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import resource
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from rota.runtime import descriptors
from rota.runtime.descriptors import Connections, shared_out
from rota.runtime.interface import Subject
from rota.server import listener as listening
from rota.server.auth import User
from rota.server.listener import Listener
from rota.server.shares import LEAST, Seats, Shares
from rota.server.signed_tokens import SignedTokens
from rota.server.unread_answers import payer_of
from tests.attacks.conftest import API, TENANT, Deployer, deployer
from tests.server.conftest import Reply, Server, parsed, served
from tests.until import until_so

ROOM = Connections(remote=48, local=16, edge=12, handshakes=8)
RESERVE = ROOM.remote // 4
WATCH = f"{API}/{TENANT}/workerpools?watch=1"
SOON_SECONDS = 5.0
"""Far below any deadline of the server's: who gets an answer by then did not wait for one."""


@pytest.fixture
async def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    """A server that has room for few."""
    monkeypatch.setattr(descriptors, "MOST", ROOM)
    async with served(tmp_path / "home", with_controllers=False) as server:
        yield server


@pytest.fixture
async def crowd() -> AsyncIterator[list[asyncio.StreamWriter]]:
    """Connections, which are closed in the end."""
    writers: list[asyncio.StreamWriter] = []
    yield writers
    leave(writers)


def leave(crowd: list[asyncio.StreamWriter]) -> None:
    while crowd:
        writer = crowd.pop()
        writer.close()
        # Python 3.11 says so of a connection that the other side has ended already.
        with contextlib.suppress(AttributeError):
            writer.transport.abort()


async def watch(one: Deployer, crowd: list[asyncio.StreamWriter]) -> Reply:
    reader, writer = await one.server.connect()
    crowd.append(writer)
    head = f"GET {WATCH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {one.token}\r\n\r\n"
    writer.write(head.encode())
    begin = await reader.readuntil(b"\r\n\r\n")
    reply = parsed(begin)
    if reply.status != 200:
        reply.body = await reader.readexactly(int(reply.headers["content-length"]))
    return reply


async def crowded_out(one: Deployer, crowd: list[asyncio.StreamWriter]) -> tuple[int, Reply]:
    """Watch until that is refused: how many there are then, and the refusal."""
    for count in range(ROOM.remote + 1):
        reply = await watch(one, crowd)
        if reply.status != 200:
            return count, reply
    raise AssertionError("all of the room went to one credential")


async def check_served(server: Server) -> None:
    """Assert that callers with a reserved share are served."""
    async with asyncio.timeout(SOON_SECONDS):
        assert (await server.ask("GET", f"{API}/{TENANT}/workerpools")).status == 200
        assert (await server.ask("GET", f"{API}/{TENANT}/workerpools", unix=True)).status == 200
        for path in ("/readyz", "/livez"):
            assert (await server.ask("GET", path, token=None)).status == 200
            assert (await server.ask("GET", path, unix=True)).status == 200


async def test_to_keep_everybody_out_by_watching(small: Server, crowd: list[asyncio.StreamWriter]) -> None:
    viewer, other = await deployer(small, scope="viewer"), await deployer(small, "other")
    count, refused = await crowded_out(viewer, crowd)
    assert LEAST <= count <= ROOM.remote // 2
    assert (refused.status, refused.json["reason"]) == (429, "TooManyRequests")
    assert int(refused.headers["retry-after"]) > 0
    assert f"has {count} requests and watches under way" in refused.json["message"]
    await check_served(small)
    assert (await other.ask("GET", f"{API}/other/workerpools")).status == 200
    # Their share is free again when they are gone.
    leave(crowd)
    await until_so(lambda: watch(viewer, crowd), lambda reply: reply.status == 200, "a watch that is let in")


async def test_to_keep_admins_out_with_many_tokens(small: Server, crowd: list[asyncio.StreamWriter]) -> None:
    total = 0
    for number in range(6):
        wanted = {"name": f"many-{number}", "scope": "viewer", "namespace": TENANT}
        made = await small.ask("POST", "/v1/tokens", wanted)
        count, _ = await crowded_out(Deployer(small, made.json["token"]), crowd)
        total += count
    assert total <= ROOM.remote - RESERVE
    await check_served(small)
    assert (await watch(Deployer(small, small.token), crowd)).status == 200


@pytest.mark.parametrize(
    "said", ["", "GET /version HTT", "POST /v1/batch HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"]
)
async def test_to_keep_everybody_out_by_not_getting_to_the_point(
    small: Server, crowd: list[asyncio.StreamWriter], said: str
) -> None:
    for _ in range(ROOM.remote + 20):
        _, writer = await small.connect()
        writer.write(said.encode())
        crowd.append(writer)
    await check_served(small)
    viewer = await deployer(small, scope="viewer")
    assert (await viewer.ask("GET", f"{API}/{TENANT}/workerpools")).status == 200


async def test_to_block_the_edge_with_slow_requests(small: Server, crowd: list[asyncio.StreamWriter]) -> None:
    where = urlsplit((await small.ask("GET", "/v1/status")).json["edge"])
    slow = b"POST /-/hooks/default/none HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
    readers = []
    for _ in range(2 * ROOM.edge):
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        writer.write(slow)
        crowd.append(writer)
        readers.append(reader)
    async with asyncio.timeout(SOON_SECONDS):
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        crowd.append(writer)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert parsed(await reader.read(-1)).status == 200
        # Who was slowest made room.
        with contextlib.suppress(ConnectionError):
            assert parsed(await readers[0].read(-1)).status == 429


async def test_to_take_all_descriptors_without_a_word_of_tls(small: Server, crowd: list[asyncio.StreamWriter]) -> None:
    silent = []
    for _ in range(3 * ROOM.handshakes):
        reader, writer = await asyncio.open_connection("127.0.0.1", small.port)
        crowd.append(writer)
        silent.append(reader)
    await check_served(small)
    async with asyncio.timeout(SOON_SECONDS):
        for reader in silent[: ROOM.handshakes]:
            with contextlib.suppress(ConnectionError):
                assert await reader.read(-1) == b""


class Exhausted(socket.socket):
    """Has no descriptor for the next connections."""

    refusals = 0
    accepted = 0

    def accept(self) -> tuple[socket.socket, Any]:
        self.accepted += 1
        if self.refusals:
            self.refusals -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


async def test_to_have_a_listener_spin_or_end_for_want_of_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    made_room: list[bool] = []
    entered = asyncio.get_running_loop().create_future()

    class Entered(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            entered.set_result(transport)

    monkeypatch.setattr(listening, "PAUSE_SECONDS", 0.01)
    sock = Exhausted(socket.AF_INET, socket.SOCK_STREAM)
    sock.bind(("127.0.0.1", 0))
    # One more for the one that is turned away in each try.
    sock.refusals = 6
    listener = Listener(sock, Entered, tls=None, handshakes_max=4, make_room=lambda: made_room.append(True))
    _, writer = await asyncio.open_connection("127.0.0.1", sock.getsockname()[1])
    transport = await asyncio.wait_for(entered, SOON_SECONDS)
    assert made_room and sock.accepted <= 10
    transport.abort()
    writer.close()
    await listener.close()


def test_the_limit_of_descriptors_is_raised_and_what_is_run_has_the_old_one() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    code = (
        "import resource; from rota.runtime import descriptors as d;"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, (64, {hard}));"
        "print(d.raise_limit(), d.inherited()); d.restore(d.inherited());"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    wanted = descriptors.WANTED if hard == resource.RLIM_INFINITY else min(hard, descriptors.WANTED)
    assert done.stdout.split() == [str(wanted), "64", "64"]


@pytest.mark.parametrize("limit", [0, 256, 300, 1024, 4096, 65_536])
def test_connections_leave_descriptors_for_everything_else(limit: int) -> None:
    room = shared_out(limit)
    assert all(0 < one <= most for one, most in zip(room, descriptors.MOST, strict=True))
    if limit >= 1024:
        assert sum(room) + descriptors.KEPT <= limit


def test_a_share_is_never_more_than_is_left_for_all_others() -> None:
    shares = Shares(100, 20)
    while shares.has_room("a"):
        shares.take("a")
    assert shares.of("a") == 40
    while shares.has_room("b"):
        shares.take("b")
    assert shares.of("b") == 20
    for share_key in map(str, range(100)):
        while shares.has_room(share_key):
            shares.take(share_key)
    assert shares.used == 80 and shares.has_room("a", may_use_reserve=True)
    shares.give_back("a")
    assert shares.has_room("new")


async def test_to_be_served_first_by_asking_the_most() -> None:
    seats, order = Seats(1, 1, 10.0), []

    async def ask(share_key: str, *, is_admin: bool = False) -> None:
        await seats.enter(share_key, may_use_reserve=is_admin)
        order.append(share_key)
        await asyncio.sleep(0)
        seats.leave()

    await seats.enter("first")
    many = [asyncio.create_task(ask("many")) for _ in range(20)]
    await asyncio.sleep(0)
    few = [asyncio.create_task(ask("few")) for _ in range(2)]
    await asyncio.sleep(0)
    await ask("admin", is_admin=True)
    assert order == ["admin"]
    many[5].cancel()
    seats.leave()
    await asyncio.gather(*many, *few, return_exceptions=True)
    assert order[:5] == ["admin", "many", "few", "many", "few"]
    assert order.count("many") == 19 and seats.waiting == 0
    await asyncio.wait_for(seats.enter("last"), SOON_SECONDS)


async def test_who_waits_for_too_long_is_told_and_leaves_nothing() -> None:
    seats = Seats(1, 0, 0.01)
    await seats.enter("a")
    with pytest.raises(TimeoutError):
        await seats.enter("b")
    assert seats.waiting == 0
    seats.leave()
    await seats.enter("b")


def test_to_have_a_share_for_each_of_many_claims(tmp_path: Path) -> None:
    """All claims that were asked for with one token have the share of that token, together with it."""
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    key.chmod(0o600)
    tokens = SignedTokens(key, "claim")
    asking = User("mallory", "deployer", TENANT, "token-of-mallory")
    made = [tokens.of(Subject(TENANT, f"claim-{at}", f"uid-{at}"), asking.token_id) for at in range(8)]
    shares = Shares(64, 16)
    for user in (asking, *map(tokens.user, made)):
        assert user is not None
        share_key = payer_of(user).key
        assert share_key == user.share_key == asking.share_key
        while shares.has_room(share_key):
            shares.take(share_key)
    assert shares.used == 24
