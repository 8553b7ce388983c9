"""The end of a command is reported once, before or after it is asked for, and is not kept for ever."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import msgspec
import pytest

from rota.runtime.keeper import connection
from rota.runtime.keeper.connection import Connection
from rota.runtime.keeper.messages import ExecExited, ExitRecord, KeeperGone
from tests.until import until_async

PATIENCE_SECONDS = 30.0


class Pair:
    """A connection, and the keeper's end of it."""

    def __init__(self) -> None:
        ours, self.theirs = socket.socketpair()
        ours.setblocking(False)
        self.connection = Connection(ours)

    def tell(self, name: str, code: int = 0) -> None:
        event = ExecExited(exec=name, exit=ExitRecord(time=0.0, code=code))
        self.theirs.sendall(msgspec.json.encode(event) + b"\n")


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    made = Pair()
    yield made
    made.theirs.close()
    await until_async(lambda: not made.connection.is_open)


async def test_an_end_is_told_whether_it_comes_before_or_after_it_is_asked_for(pair: Pair) -> None:
    early = pair.connection.exit_of("early")
    pair.tell("early", 1)
    pair.tell("late", 2)
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert (await early).code == 1
        await until_async(lambda: "late" in pair.connection._unclaimed)
        assert (await pair.connection.exit_of("late")).code == 2
    assert not pair.connection._execs and not pair.connection._unclaimed


async def test_of_ends_that_nobody_asks_for_the_last_ones_are_kept(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "UNCLAIMED_EXITS_MAX", 3)
    for number in range(10):
        pair.tell(str(number))
    await until_async(lambda: list(pair.connection._unclaimed) == ["7", "8", "9"])


async def test_who_has_given_up_on_an_end_does_not_cut_the_others_off(pair: Pair) -> None:
    given_up, waiting = pair.connection.exit_of("given-up"), pair.connection.exit_of("waiting")
    given_up.cancel()
    pair.tell("given-up")
    pair.tell("waiting")
    async with asyncio.timeout(PATIENCE_SECONDS):
        await waiting
    assert pair.connection.is_open and not pair.connection._execs


async def test_an_end_that_is_asked_for_when_the_keeper_is_gone_is_not_waited_for(pair: Pair) -> None:
    pair.theirs.close()
    await until_async(lambda: not pair.connection.is_open)
    with pytest.raises(KeeperGone):
        await pair.connection.exit_of("any")
