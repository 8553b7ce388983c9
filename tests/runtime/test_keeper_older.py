"""Leases with a keeper that an earlier Rota has started, and that goes on under this one."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from rota.runtime.interface import Order, Refused, Subject
from rota.runtime.keeper.client import KeeperError
from rota.runtime.keeper.leases import LIFTED_SECONDS, Leases
from rota.runtime.keeper.messages import Hello
from rota.runtime.local import LocalRuntime
from tests.runtime.homes import Home, exit_of

ROOT = Path(__file__).parents[2]


def begin(home: Home, age: str) -> None:
    """Start the keeper of an earlier version."""
    argv = [sys.executable, "-m", "tests.runtime.older_keeper", age, str(home.path), *home.options]
    subprocess.run(argv, check=True, capture_output=True, cwd=ROOT)


@pytest.mark.parametrize("age", ["leaseless", "extending"])
async def test_an_earlier_keeper_is_not_trusted_with_a_new_lease(home: Home, age: str) -> None:
    begin(home, age)
    async with home.keeper() as keeper:
        with pytest.raises(KeeperError, match="earlier Rota") as refused:
            await home.start(keeper, "a", "sleep 1000", lease_seconds=3600.0)
        assert refused.value.reason == "TooOld"
        assert await keeper.list() == []
        await home.start(keeper, "free", "sleep 1000")
        # It would say that it has done it, and do nothing or something else.
        with pytest.raises(KeeperError, match="earlier Rota"):
            await keeper.extend({"free": 3600.0}, unleased=True)


async def test_a_server_says_why_it_starts_nothing_under_an_earlier_keeper(home: Home) -> None:
    begin(home, "leaseless")
    order = Order(Subject("default", "one", "u1"), "main", 0, ("sleep", "1000"), {}, isolation="none")
    async with LocalRuntime(home.path, keeper=home.keeper()) as runtime:
        with pytest.raises(Refused, match="`rota stop`, then `rota start`") as refused:
            await runtime.start(msgspec.structs.replace(order, lease_seconds=3600.0))
        assert refused.value.reason == "KeeperTooOld"
        assert not [one for one in runtime.runs(order.subject).values() if one.exit is None]
        await runtime.start(order)
        await runtime.extend({order.subject: None})
        await runtime.stop(order.subject, 0)


async def test_lifting_is_done_where_there_are_no_leases_and_setting_one_is_refused(home: Home) -> None:
    begin(home, "leaseless")
    async with home.keeper() as keeper:
        await home.start(keeper, "a", "sleep 1000")
        await keeper.extend({"a": None})
        with pytest.raises(KeeperError, match="earlier Rota"):
            await keeper.extend({"a": 3600.0})
        assert [one.is_running for one in await keeper.list()] == [True]


async def test_what_an_earlier_keeper_has_leased_is_extended_lifted_and_ended(home: Home) -> None:
    begin(home, "extending")
    async with home.keeper() as keeper:
        # As the earlier server did.
        for key in ("extended", "lifted", "left"):
            await keeper._ask("start", {**_fields(home, key), "lease_seconds": 3600.0}, dict)
        await keeper.extend({"extended": 3600.0, "lifted": None, "left": 0.0})
        await exit_of(keeper, "left")
        assert {one.key for one in await keeper.list() if one.is_running} == {"extended", "lifted"}
        await keeper.extend({"extended": 0.0})
        await exit_of(keeper, "extended")
        assert {one.key for one in await keeper.list() if one.is_running} == {"lifted"}


def _fields(home: Home, key: str) -> dict[str, object]:
    return {
        "key": key,
        "run": "1",
        "argv": ["sleep", "1000"],
        "env": {"MARK": home.mark, "PATH": "/usr/bin:/bin"},
        "cwd": "/",
        "log": {"path_prefix": str(home.path / key)},
        "limits": {},
        "unmet": [],
    }


async def test_a_lease_that_cannot_be_lifted_is_extended_again_and_again() -> None:
    asked: asyncio.Queue[Mapping[str, float | None]] = asyncio.Queue()

    async def extend(leases: Mapping[str, float | None], unleased: bool) -> None:
        asked.put_nowait(dict(leases))

    earlier = Hello(version=1, pid=1, pid_start=1, started=0.0, tree="cgroup")
    leasing = Leases(extend, again_seconds=0.001)
    try:
        await leasing.extend(earlier, {"a": None, "b": 5.0, "c": None}, unleased=False)
        assert await asked.get() == {"a": LIFTED_SECONDS, "b": 5.0, "c": LIFTED_SECONDS}
        async with asyncio.timeout(20):
            for _ in range(2):
                assert await asked.get() == {"a": LIFTED_SECONDS, "c": LIFTED_SECONDS}
            # One that has a lease again ends with it, and one that is gone is forgotten.
            await leasing.extend(earlier, {"a": 5.0}, unleased=False)
            leasing.forget("c")
            while await asked.get() != {}:
                pass
    finally:
        await leasing.close()
