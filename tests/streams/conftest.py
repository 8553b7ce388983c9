"""A server, and a client whose way to it can be cut. What takes minutes takes a moment here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rota.cli import patience
from rota.cli.log_following import log_pieces
from rota.cli.patience import Patience
from rota.client import Client, frames
from rota.client.connection import Limits
from rota.client.http import HttpBackend
from rota.client.target import find
from rota.server import heartbeats
from tests.functions.conftest import town  # noqa: F401 - the same server
from tests.server.conftest import Server, served
from tests.streams.wire import Wire, wired
from tests.until import until_async

BEAT_SECONDS = 0.05
ANSWER_SECONDS = 0.5
"""The patience of a client with a server that gives no sign of an answer."""
PATIENCE_SECONDS = 30.0


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "HEARTBEAT_SECONDS", BEAT_SECONDS)
    monkeypatch.setattr(heartbeats, "SECONDS", BEAT_SECONDS)
    monkeypatch.setattr(patience, "PAUSE_SECONDS_MAX", 0.2)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with served(tmp_path / "home") as running:
        yield running


@pytest.fixture
async def wire(tmp_path: Path, server: Server) -> AsyncIterator[Wire]:
    async with wired(tmp_path / "wire", server.socket) as made:
        yield made


def client_on(wire: Wire, home: Path) -> Client:
    target = find(home, None, None)
    endpoint = replace(target.endpoint, socket_path=str(wire.path))
    return Client(HttpBackend(replace(target, endpoint=endpoint), limits=Limits(read_seconds=ANSWER_SECONDS)))


@pytest.fixture
async def client(wire: Wire, server: Server) -> AsyncIterator[Client]:
    made = client_on(wire, server.home)
    yield made
    await made.close()


class Followed:
    """The text that has come from a stream."""

    def __init__(self, coming: AsyncGenerator[bytes, None]) -> None:
        self.text = b""
        self._coming = coming
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for piece in self._coming:
            self.text += piece

    async def until(self, text: bytes) -> None:
        await until_async(lambda: text in self.text or self._reading.done())
        if self._reading.done():
            self._reading.result()
        assert text in self.text, self.text

    async def end(self) -> bytes:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._reading
        return self.text

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        await self._coming.aclose()


def followed(client: Client, path: str, **asked: Any) -> Followed:
    """A log, as `rota logs -f` follows it."""
    patience = Patience(seconds_max=PATIENCE_SECONDS)
    return Followed(log_pieces(client, path, {"follow": "true", **asked}, patience))


async def until_silent(wire: Wire, seconds: float) -> None:
    """Returns when nothing but heartbeats came for so long."""
    beat = frames.encoded(frames.Frame(frames.HEARTBEAT))
    enough = wire.said.count(beat) + round(seconds / BEAT_SECONDS)
    await until_async(lambda: wire.said.count(beat) >= enough)
