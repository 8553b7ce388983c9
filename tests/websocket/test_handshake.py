"""The opening of a WebSocket: what asks for one, and what does not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from rota.client import upgrading
from rota.client.failures import BadAnswer, ConnectionCut, NoServer, TimedOut
from rota.client.upgrading import Refused, connect_unix
from rota.client.websocket import WebSocket, handshake
from rota.server.http import Request
from tests.websocket.conftest import Site, echo

PROPER = {
    "Connection": "keep-alive, Upgrade",
    "Upgrade": "WebSocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


def head(method: str = "GET", path: str = "/ws", **changes: str | None) -> bytes:
    said = PROPER | {name.replace("_", "-"): value for name, value in changes.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in said.items() if value is not None)
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n".encode()


def test_a_key_is_accepted_as_in_the_example_of_the_standard() -> None:
    assert handshake.acceptance("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


async def test_what_comes_with_the_request_is_not_lost(site: Site) -> None:
    for site.later in (False, True):
        reader, writer = await site.raw()
        writer.write(head() + bytes.fromhex("818500000000") + b"hello")
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 101 ")
        assert await reader.readexactly(7) == b"\x81\x05hello"
        writer.close()


async def test_what_comes_before_the_answer_is_not_lost(site: Site) -> None:
    site.later = True
    reader, writer = await site.raw()
    first, second = head() + b"\x81", bytes.fromhex("8500000000") + b"hello"
    writer.write(first)
    await asyncio.sleep(0)
    writer.write(second)
    await reader.readuntil(b"\r\n\r\n")
    assert await reader.readexactly(7) == b"\x81\x05hello"
    writer.close()


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (head(Upgrade=None), 426),
        (head(Connection="close"), 426),
        (head(Upgrade="h2c"), 426),
        (head("POST"), 426),
        (head(Sec_WebSocket_Version="8"), 426),
        (head(Sec_WebSocket_Version=None), 426),
        (head(Sec_WebSocket_Key=None), 400),
        (head(Sec_WebSocket_Key="c2hvcnQ="), 400),
        (head(Sec_WebSocket_Key="dGhlIHNhbXBsZSBub25jZQ=!"), 400),
        (head(Content_Length="5") + b"hello", 400),
        (head(Transfer_Encoding="chunked") + b"0\r\n\r\n", 400),
    ],
    ids=range(11),
)
async def test_a_request_that_does_not_ask_properly_is_refused(site: Site, request_head: bytes, status: int) -> None:
    reader, writer = await site.raw()
    writer.write(request_head)
    answer = await reader.read(-1)
    assert answer.count(b"HTTP/1.1") == 1
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer
    assert status == 400 or b"\r\nUpgrade: websocket\r\n" in answer
    writer.close()


async def test_who_asks_for_it_where_there_is_none_gets_an_ordinary_answer(site: Site) -> None:
    reader, writer = await site.raw()
    writer.write(head(path="/other") + b"GET /ws HTTP/1.1\r\n\r\n")
    answer = await reader.read(-1)
    assert answer.startswith(b"HTTP/1.1 200 OK") and answer.endswith(b"hello")
    assert b"Connection: close" in answer
    assert [request.path for request in site.requests] == ["/other"]
    writer.close()


async def test_a_client_that_goes_on_for_long_before_the_answer_is_refused(site: Site) -> None:
    asked, never = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        asked.set()
        await never.wait()

    def handler(request: Request) -> Awaitable[None]:
        return slow()

    site.http.handler = handler  # type: ignore[assignment]
    reader, writer = await site.raw()
    writer.write(head())
    await asked.wait()
    writer.write(b"x" * 100_000)
    assert (await reader.read(-1)).startswith(b"HTTP/1.1 400 ")
    writer.close()


async def test_requests_before_it_on_the_same_connection_are_answered_first(site: Site) -> None:
    reader, writer = await site.raw()
    writer.write(b"GET /other HTTP/1.1\r\nHost: localhost\r\n\r\n" + head())
    first = await reader.readuntil(b"\r\n\r\nhello")
    assert first.startswith(b"HTTP/1.1 200 ")
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
    writer.close()


async def test_both_know_the_protocol_that_was_chosen(site: Site) -> None:
    seen: list[str] = []

    async def serve(websocket: WebSocket) -> None:
        seen.append(websocket.protocol)

    site.serves(serve, protocol="two")
    websocket = await site.connect(protocols=("one", "two"))
    await websocket.lost
    assert websocket.protocol == "two" == seen[0]
    assert handshake.offered(site.requests[0].headers) == ["one", "two"]


@pytest.mark.parametrize(("chosen", "offered"), [("", ("one",)), ("three", ("one", "two")), ("one", ())])
async def test_a_server_that_speaks_none_of_the_protocols_is_refused(
    site: Site, chosen: str, offered: tuple[str, ...]
) -> None:
    site.serves(echo, protocol=chosen)
    with pytest.raises(BadAnswer, match="it was offered"):
        await site.connect(protocols=offered)


async def test_another_answer_is_told_with_its_status_and_words(site: Site) -> None:
    site.http.handler = lambda request: site.http.refusal(403, "not you")
    with pytest.raises(Refused, match="not you") as refused:
        await site.connect()
    assert (refused.value.status, refused.value.body) == (403, b"not you")


async def test_without_a_server_one_is_told_how_to_start_it(tmp_path: Path) -> None:
    with pytest.raises(NoServer, match="rota start"):
        await connect_unix(str(tmp_path / "none"), "/ws")


def answering(data: bytes) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        if not data.startswith(b"..."):
            writer.close()

    return answer


SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", ConnectionCut),
        (b"SSH-2.0-OpenSSH_9.2\r\n", BadAnswer),
        (SWITCH + b"Upgrade: h2c\r\n\r\n", BadAnswer),
        (SWITCH + b"Upgrade: websocket\r\nSec-WebSocket-Accept: wrong\r\n\r\n", BadAnswer),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", Refused),
        (b"HTTP/1.1 400 Bad\r\nContent-Length: 9000000\r\n\r\n" + b"x" * 2_000_000, BadAnswer),
    ],
    ids=range(6),
)
async def test_what_is_no_proper_answer_is_refused(tmp_path: Path, data: bytes, kind: type[Exception]) -> None:
    path = str(tmp_path / "socket")
    async with await asyncio.start_unix_server(answering(data), path):
        with pytest.raises(kind):
            await connect_unix(path, "/ws")


async def test_a_server_that_says_nothing_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrading, "OPEN_SECONDS_MAX", 0.05)
    path = str(tmp_path / "socket")
    left: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        left.set_result(await reader.read(-1))
        writer.close()

    async with await asyncio.start_unix_server(silent, path):
        with pytest.raises(TimedOut):
            await connect_unix(path, "/ws")
        assert await left == b""


@pytest.mark.parametrize("headers", [{"X": "a\r\nY: b"}, {"X\n": "a"}])
async def test_a_header_cannot_smuggle_in_another(site: Site, headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="not printable ASCII"):
        await site.connect(headers=headers)
