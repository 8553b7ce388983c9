"""A run with a lease ends when the lease does, whoever is there."""

from __future__ import annotations

import time

import pytest

from rota.runtime.keeper import child
from rota.runtime.keeper.child import Lease
from rota.runtime.keeper.client import KeeperError
from tests.runtime.homes import Home, exit_of, gone

LONG_SECONDS = 3600.0


async def test_what_nobody_extends_ends_without_a_server(any_home: Home) -> None:
    async with any_home.keeper() as keeper:
        started = await any_home.start(keeper, "a", "sleep 1000", lease_seconds=0.2)
    # Nobody is connected any more.
    await gone(started.pid)
    async with any_home.keeper() as keeper:
        record = await exit_of(keeper, "a")
        assert record.exit is not None and record.exit.reason == "LeaseEnded"


async def test_what_is_extended_goes_on(any_home: Home) -> None:
    async with any_home.keeper() as keeper:
        await any_home.start(keeper, "kept", "sleep 1000", lease_seconds=LONG_SECONDS)
        await any_home.start(keeper, "free", "sleep 1000")
        await any_home.start(keeper, "ended", "sleep 1000", lease_seconds=LONG_SECONDS)
        await keeper.extend({"kept": LONG_SECONDS, "unknown": 1.0, "ended": 0.0})
        await exit_of(keeper, "ended")
        assert {one.key: one.is_running for one in await keeper.list()} == {"kept": True, "free": True, "ended": False}


async def test_a_lease_is_given_to_what_runs_and_taken_away(any_home: Home) -> None:
    async with any_home.keeper() as keeper:
        await any_home.start(keeper, "leased", "sleep 1000", lease_seconds=LONG_SECONDS)
        await any_home.start(keeper, "free", "sleep 1000")
        await any_home.start(keeper, "lifted", "sleep 1000", lease_seconds=0.5)
        await keeper.extend({"lifted": None})
        # Only what has none.
        await keeper.extend({"leased": 0.0, "free": 0.0}, unleased=True)
        await exit_of(keeper, "free")
        assert {one.key: one.is_running for one in await keeper.list()} == {
            "leased": True,
            "free": False,
            "lifted": True,
        }
        await keeper.extend({"lifted": 0.0})
        await exit_of(keeper, "lifted")


async def test_a_lease_is_no_time_or_more(home: Home) -> None:
    async with home.keeper() as keeper:
        with pytest.raises(KeeperError, match="from 0 to"):
            await home.start(keeper, "a", "true", lease_seconds=-1.0)
        with pytest.raises(KeeperError, match="from 0 to"):
            await keeper.extend({"a": -1.0})


@pytest.mark.parametrize("clock", ["uptime", "wall"])
def test_it_ends_by_the_clock_that_has_advanced_more(clock: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that was suspended, and one whose clock was set back while it was."""
    now = {"uptime": 1000.0, "wall": 50_000.0}
    monkeypatch.setattr(time, "clock_gettime", lambda _: now["uptime"])
    monkeypatch.setattr(time, "time", lambda: now["wall"])
    held = Lease(60)
    now[clock] += 59
    assert not held.has_ended
    now[clock] += 2
    now["wall" if clock == "uptime" else "uptime"] -= 3600
    assert held.has_ended
    assert not Lease(60).has_ended


def test_the_clock_counts_while_the_machine_is_suspended() -> None:
    assert getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC) == child._UPTIME
