"""A server at an address of IPv6 is reached and named in the same way by every form of request."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from rota.client.heads import authority
from rota.client.http import HttpBackend
from rota.registry import ApiError
from tests.client.scripted import answer, client_of, serving, status

Send = Callable[[HttpBackend], Awaitable[object]]


async def request(backend: HttpBackend) -> None:
    await backend.raw("GET", "/version")


async def stream(backend: HttpBackend) -> None:
    async with backend.stream("GET", "/watch") as pieces:
        assert [piece async for piece in pieces] == [b"{}"]


async def upload(backend: HttpBackend) -> None:
    await backend.upload("/v1/blobs/a", _body(), "application/octet-stream")


async def websocket(backend: HttpBackend) -> None:
    with pytest.raises(ApiError, match="no"):
        async with backend.websocket("/v1/exec/default/a"):
            pass


async def _body() -> AsyncIterator[bytes]:
    yield b"content"


@pytest.fixture(autouse=True)
def loopback() -> None:
    try:
        with socket.socket(socket.AF_INET6) as trial:
            trial.bind(("::1", 0))
    except OSError as error:
        pytest.skip(f"this machine has no IPv6: {error}")


@pytest.mark.parametrize("send", [request, stream, upload, websocket])
async def test_the_header_host_has_the_address_in_brackets(send: Send) -> None:
    said = status(403, "Forbidden") if send is websocket else answer()
    async with serving(said, host="::1") as server, client_of(server) as backend:
        await send(backend)
    assert [exchange.headers["host"] for exchange in server.seen] == [f"[::1]:{server.port}"]


async def test_an_address_without_its_port_is_in_brackets_too() -> None:
    assert [authority("::1", 0), authority("::1", 443), authority("name", 443)] == ["[::1]", "[::1]:443", "name:443"]
