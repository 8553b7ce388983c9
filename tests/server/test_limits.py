"""Requests beyond the limits, and their answers."""

from __future__ import annotations

import asyncio
import random
import ssl

import pytest

from rota.server import app, http_connection, http_input, http_parsing, http_server
from tests.server.conftest import POOLS, Server, parsed, pool
from tests.until import until_so


async def healthy(server: Server) -> None:
    assert (await server.ask("GET", POOLS)).status == 200


async def test_a_body_that_is_too_large_is_refused_before_it_is_read(server: Server) -> None:
    head = f"POST {POOLS} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {http_server.BODY_BYTES_MAX + 1}\r\n\r\n"
    assert (await server.raw(head.encode())).status == 413
    await healthy(server)


async def test_a_chunked_body_that_grows_too_large_is_refused(server: Server) -> None:
    reader, writer = await server.connect()
    head = f"POST {POOLS} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\n"
    writer.write(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
    chunk = b"%x\r\n%b\r\n" % (64 * 1024, b" " * 64 * 1024)
    sent = 0
    while sent <= http_server.BODY_BYTES_MAX + 128 * 1024 and not writer.is_closing():
        writer.write(chunk)
        sent += 64 * 1024
        await asyncio.sleep(0)
    assert parsed(await reader.read(-1)).status == 413
    writer.close()
    await healthy(server)


async def test_a_head_that_is_too_large_is_refused(server: Server) -> None:
    many = "".join(f"X-{i}: {'y' * 1000}\r\n" for i in range(100))
    assert (await server.raw(f"GET / HTTP/1.1\r\nHost: localhost\r\n{many}\r\n".encode())).status == 431
    endless = b"GET / HTTP/1.1\r\nX-Long: " + b"z" * (http_parsing.HEAD_BYTES_MAX + 1)
    assert (await server.raw(endless)).status == 431
    await healthy(server)


async def test_a_slow_sender_is_given_up(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_input, "REQUEST_SECONDS_MAX", 0.0)
    reader, writer = await server.connect()
    writer.write(b"GET /version HTTP/1.1\r\nHost: loc")
    assert parsed(await asyncio.wait_for(reader.read(-1), 10)).status == 408
    writer.close()


async def test_an_idle_connection_is_closed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "IDLE_SECONDS_MAX", 0.0)
    reader, writer = await server.connect()
    assert await asyncio.wait_for(reader.read(-1), 10) == b""
    writer.close()


async def test_a_watcher_that_does_not_read_is_cut_off(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "STALLED_SECONDS_MAX", 0.0)
    reader, writer = await server.connect(unix=True)
    writer.write(f"GET {POOLS}?watch=1 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    big = {"name": "a", "annotations": {"a": "x" * 200_000}}
    await server.ask("POST", POOLS, pool("a", replicas=0) | {"metadata": big})
    for i in range(20):
        patch = {"metadata": {"annotations": {"i": str(i)}}}
        merge = {"Content-Type": "application/merge-patch+json"}
        await server.ask("PATCH", f"{POOLS}/a", patch, headers=merge)

    async def connections() -> int:
        return int((await server.ask("GET", "/v1/status")).json["connections"])

    await until_so(connections, lambda count: count <= 1, "one connection")
    writer.transport.abort()
    await healthy(server)


async def test_too_many_connections_are_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "LOCAL_CONNECTIONS_MAX", 2)
    held = [await server.connect(unix=True) for _ in range(2)]
    await asyncio.sleep(0)
    reader, writer = await server.connect(unix=True)
    assert parsed(await reader.read(-1)).status == 429
    for _, other in [*held, (reader, writer)]:
        other.close()
    monkeypatch.undo()
    await healthy(server)


async def test_where_there_is_no_room_those_that_are_idle_make_some(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "LOCAL_CONNECTIONS_MAX", 2)
    monkeypatch.setattr(http_server, "CROWDED_IDLE_SECONDS_MAX", 0.0)
    held = [await server.connect(unix=True) for _ in range(2)]
    for reader, writer in held:
        assert await asyncio.wait_for(reader.read(-1), 10) == b""
        writer.close()
    await healthy(server)


async def test_too_many_requests_of_one_credential_are_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "REQUESTS_PER_USER_MAX", 0)
    refused = await server.ask("GET", POOLS)
    assert (refused.status, refused.json["reason"]) == (429, "TooManyRequests")


async def test_requests_in_one_write_are_answered_in_order(server: Server) -> None:
    one = f"GET /version HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\n\r\n"
    two = (
        f"GET {POOLS} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\nConnection: close\r\n\r\n"
    )
    reader, writer = await server.connect()
    writer.write((one * 30 + two).encode())
    data = await reader.read(-1)
    assert data.count(b"HTTP/1.1 200 OK") == 31
    assert data.rindex(b"WorkerPoolList") > data.rindex(b"gitVersion")
    writer.close()


async def test_a_client_that_expects_it_is_told_to_go_on(server: Server) -> None:
    reader, writer = await server.connect(unix=True)
    writer.write(
        f"POST {POOLS} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nExpect: 100-continue\r\n"
        "Connection: close\r\n\r\n".encode()
    )
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"{}")
    assert parsed(await reader.read(-1)).status == 400
    writer.close()


GARBAGE = [
    b"",
    b"\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    b"GET / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03",
    bytes(range(256)) * 20,
    "GET /ü HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(),
    b"GET /%ff%fe?%00=%zz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /" + b"a/" * 5000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
]


@pytest.mark.parametrize("data", GARBAGE, ids=range(len(GARBAGE)))
async def test_garbage_leaves_the_server_healthy(server: Server, data: bytes) -> None:
    reader, writer = await server.connect(unix=True)
    writer.write(data)
    writer.write_eof()
    answer = await asyncio.wait_for(reader.read(-1), 10)
    assert not answer or parsed(answer).status < 500
    writer.close()
    await healthy(server)


async def test_random_bytes_and_half_open_connections_leave_the_server_healthy(server: Server) -> None:
    chance = random.Random(7)
    proper = f"POST {POOLS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 40\r\n\r\n"
    whole = proper.encode() + b'{"apiVersion":"rota.dev/v1alpha1","kind":1}'
    for _ in range(150):
        data = bytearray(whole[: chance.randrange(len(whole) + 1)])
        for _ in range(chance.randrange(6)):
            if data:
                data[chance.randrange(len(data))] = chance.randrange(256)
        reader, writer = await server.connect(unix=True)
        writer.write(bytes(data))
        if chance.random() < 0.5:
            writer.transport.abort()
            continue
        writer.write_eof()
        answer = await asyncio.wait_for(reader.read(-1), 10)
        assert not answer or parsed(answer).status < 500, bytes(data)
        writer.close()
    await healthy(server)


async def test_plain_http_on_the_tls_port_leaves_the_server_healthy(server: Server) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    assert b"200" not in await asyncio.wait_for(reader.read(-1), 10)
    writer.close()
    await healthy(server)


async def test_the_certificate_is_for_this_host_and_from_the_own_ca(server: Server) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        await asyncio.open_connection("127.0.0.1", server.port, ssl=ssl.create_default_context())
    await healthy(server)
