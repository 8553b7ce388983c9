"""The grace of a shutdown, and keepers that are not started."""

from __future__ import annotations

import asyncio
import time

import pytest

from rota.runtime import sandbox
from rota.runtime.interface import Order, Subject
from rota.runtime.keeper import protocol
from rota.runtime.keeper.client import Keeper, KeeperError, dial
from rota.runtime.local import LocalRuntime
from tests.runtime.homes import Home, told
from tests.until import until_async

STUBBORN = "trap '' TERM; echo up > {fifo}; while :; do sleep 0.1; done"

SECONDS_MAX = 30


async def test_who_only_looks_starts_no_keeper(home: Home) -> None:
    with pytest.raises(KeeperError, match="NotRunning"):
        await Keeper.existing(home.path).shutdown()
    assert not (home.path / "keeper").exists()


async def test_who_only_looks_finds_the_keeper_that_runs(home: Home) -> None:
    async with home.keeper() as keeper, Keeper.existing(home.path) as other:
        assert other.hello == keeper.hello


async def test_a_shutdown_that_says_no_grace_gives_what_another_has_allowed(home: Home) -> None:
    fifo = home.fifo()
    async with home.keeper() as keeper, Keeper.existing(home.path) as other:
        await home.start(keeper, "a", STUBBORN.format(fifo=fifo))
        await told(fifo)
        await other.set_shutdown_grace(0)
        began = time.monotonic()
        await keeper.shutdown()
        assert time.monotonic() - began < protocol.STOP_GRACE_SECONDS


async def test_what_was_allowed_ends_with_who_allowed_it(home: Home) -> None:
    fifo = home.fifo()
    async with home.keeper() as keeper:
        await home.start(keeper, "a", STUBBORN.format(fifo=fifo))
        await told(fifo)
        async with Keeper.existing(home.path) as other:
            await other.set_shutdown_grace(0)
        began = time.monotonic()
        await keeper.shutdown()
        assert time.monotonic() - began > protocol.STOP_GRACE_SECONDS - 0.1


async def test_a_keeper_that_nobody_waited_for_ends_with_its_server(home: Home) -> None:
    keeper = home.keeper()
    async with LocalRuntime(home.path, keeper=keeper) as runtime:
        starting = asyncio.create_task(keeper.list())
        begun = (home.path / "keeper").exists
        await until_async(lambda: starting.done() or begun(), "no keeper is being started", poll_seconds=0)
        assert starting.cancel()
        await runtime.shutdown()
    assert await keeper.was_launched()
    assert dial(home.path) is None


async def test_the_program_of_a_sandbox_is_asked_to_end_and_not_the_proxy_beside_it(any_home: Home) -> None:
    if not sandbox.available().ok:
        pytest.skip(sandbox.available().why_not)
    script = "trap 'exit 7' TERM; echo up; while :; do sleep 0.01; done"
    subject = Subject("default", "one", "u1")
    order = Order(subject, "main", 0, ("sh", "-c", script), {}, network="egress")
    async with LocalRuntime(any_home.path, keeper=any_home.keeper()) as runtime:
        await runtime.start(order)
        log = runtime.archive._instance_log(subject, "main")
        await until_async(lambda: log.exists() and "up" in log.read_text(), "its log does not say that it is up")
        await runtime.end(subject, "main", SECONDS_MAX)
        ended = await until_async(lambda: runtime.runs(subject)["main"].exit, lambda: runtime.runs(subject))
        assert ended.code == 7
        await runtime.stop(subject, 0)
