"""Bodies that are sent as they are made, on the same connections as all else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from rota.client.credentials import Credential
from rota.client.failures import ConnectionCut, TimedOut
from rota.client.heads import authority, head
from rota.client.pool import Endpoint
from rota.registry import ApiError
from tests.client.scripted import Exchange, answer, client_of, cut, serving, silence, status

TYPE = "application/octet-stream"
PATIENCE_SECONDS = 30.0


async def pieces(*data: bytes) -> AsyncIterator[bytes]:
    for piece in data:
        yield piece


class Endless:
    """A body that is made for as long as it is taken."""

    def __init__(self) -> None:
        self.taken = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            self.taken += 1
            yield bytes(65536)


class Taking:
    """A server that wants a body, and keeps it as it came."""

    def __init__(self) -> None:
        self.came = b""

    async def __call__(self, exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        self.came = await exchange.reader.readuntil(b"0\r\n\r\n")
        await answer(200, {})(exchange)


async def wants(exchange: Exchange) -> None:
    """Want a body, and then no more of it."""
    await exchange.send(b"HTTP/1.1 100 Continue\r\n\r\n")
    await exchange.reader.read(1)
    await status(413, "RequestEntityTooLarge", "enough")(exchange)


async def wants_and_hangs(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 100 Continue\r\n\r\n")
    await asyncio.get_running_loop().create_future()


async def test_a_body_is_sent_in_pieces_once_the_server_wants_it() -> None:
    taking = Taking()
    async with serving(taking) as server, client_of(server) as backend:
        await backend.upload("/a", pieces(b"one", b"", b"three"), TYPE)
    assert taking.came == b"3\r\none\r\n5\r\nthree\r\n0\r\n\r\n"
    (seen,) = server.seen
    said = {name: seen.headers[name] for name in ("content-type", "transfer-encoding", "expect")}
    assert said == {"content-type": TYPE, "transfer-encoding": "chunked", "expect": "100-continue"}
    assert (seen.method, "content-length" in seen.headers) == ("PUT", False)


async def test_a_connection_that_has_carried_a_body_carries_the_next_request() -> None:
    async with serving(Taking(), answer(200, {})) as server, client_of(server) as backend:
        await backend.upload("/a", pieces(b"one"), TYPE)
        await backend.raw("GET", "/b")
        assert server.connections == 1


async def test_a_body_that_is_not_wanted_is_not_made() -> None:
    body = Endless()
    async with serving(status(403, "Forbidden"), answer(200, {})) as server, client_of(server) as backend:
        with pytest.raises(ApiError) as refused:
            await backend.upload("/a", aiter(body), TYPE)
        assert (refused.value.code, body.taken) == (403, 0)
        await backend.raw("GET", "/b")
        assert server.connections == 2, "what is left of the body would be taken for the next request"


async def test_an_answer_ends_a_body_that_is_not_all_there() -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        async with serving(wants, answer(200, {})) as server, client_of(server) as backend:
            with pytest.raises(ApiError, match="enough"):
                await backend.upload("/a", aiter(Endless()), TYPE)
            await backend.raw("GET", "/b")
            assert server.connections == 2


async def test_a_body_that_cannot_be_made_is_told_and_not_ended_as_if_it_were_whole() -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"one"
        raise ValueError("it became shorter")

    taking = Taking()
    async with serving(taking) as server, client_of(server) as backend:
        with pytest.raises(ValueError, match="shorter"):
            await backend.upload("/a", broken(), TYPE)
    assert taking.came == b""


async def test_a_server_that_takes_nothing_is_given_up() -> None:
    async with serving(wants_and_hangs) as server, client_of(server, take_seconds=0.05) as backend:
        with pytest.raises(TimedOut, match="took nothing"):
            await backend.upload("/a", aiter(Endless()), TYPE)


async def test_a_server_that_has_all_and_says_nothing_is_given_up() -> None:
    async with serving(wants_and_hangs) as server, client_of(server, answer_seconds=0.05) as backend:
        with pytest.raises(TimedOut, match="said nothing"):
            await backend.upload("/a", pieces(b"one"), TYPE)


async def test_a_server_that_does_not_say_whether_it_wants_a_body_is_given_up() -> None:
    async with serving(silence) as server, client_of(server, read_seconds=0.05) as backend:
        with pytest.raises(TimedOut):
            await backend.upload("/a", pieces(b"one"), TYPE)
        assert len(server.seen) == 1


async def test_a_body_whose_connection_was_cut_is_never_sent_again() -> None:
    async with serving(cut(b"HTTP/1.1 100 Continue\r\n\r\n"), Taking()) as server, client_of(server) as backend:
        with pytest.raises(ConnectionCut):
            await backend.upload("/a", aiter(Endless()), TYPE)
        assert len(server.seen) == 1


class Renewed:
    """Has another token once the first was refused."""

    def __init__(self) -> None:
        self._token = "old"

    async def current(self) -> Credential:
        return Credential(self._token)

    def refuse(self, credential: Credential) -> bool:
        self._token = "new"
        return True


async def test_a_token_that_is_refused_before_the_body_is_sent_is_renewed() -> None:
    taking = Taking()
    acts = (status(401, "Unauthorized"), taking)
    async with serving(*acts) as server, client_of(server, credentials=Renewed()) as backend:
        await backend.upload("/a", pieces(b"one"), TYPE)
    assert [seen.headers["authorization"] for seen in server.seen] == ["Bearer old", "Bearer new"]
    assert taking.came == b"3\r\none\r\n0\r\n\r\n"


def test_an_ipv6_address_is_in_brackets_wherever_it_is_said() -> None:
    assert Endpoint("", "::1", 6443).authority == authority("::1", 6443) == "[::1]:6443"
    assert Endpoint("", "a.example", 80).authority == "a.example:80" and authority("::1", 0) == "[::1]"
    assert Endpoint("", socket_path="/run/rota.sock").authority == "localhost"


@pytest.mark.parametrize(
    ("method", "target", "headers"),
    [
        ("GET", "/a b", {}),
        ("GET", "a", {}),
        ("GET", "/a\r\nX: y", {}),
        ("GET\r\n", "/", {}),
        ("GET", "/", {"X": "a\r\nY: b"}),
        ("GET", "/", {"X: y\r\nZ": "a"}),
    ],
)
def test_a_head_is_one_head(method: str, target: str, headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"is no request|not printable"):
        head(method, target, headers.items())
