"""Containers as children of the keeper: what is promised of those holds for them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rota.runtime.keeper.client import Keeper, KeeperError, LogSpec
from tests.runtime.homes import Home, exit_of, gone
from tests.runtime_container.conftest import SECONDS_MAX, Host

FOR_EVER = "trap 'echo asked; exit 5' TERM; while :; do sleep 0.01; done"


@pytest.fixture(params=["cgroup", "sweep"])
async def home(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Home]:
    home = Home(tmp_path / "home", tree=request.param)
    home.path.mkdir()
    try:
        async with home.keeper():
            pass
    except KeeperError as error:
        pytest.skip(str(error))
    yield home
    async with home.keeper() as keeper:
        assert keeper.hello is not None
        await keeper.shutdown(grace_seconds=0)
        await asyncio.wait_for(gone(keeper.hello.pid), SECONDS_MAX)


async def start(keeper: Keeper, home: Home, host: Host, script: str) -> None:
    """Returns when the container says that it runs."""
    fifo = home.path / "box"
    fifo.mkdir()
    os.mkfifo(fifo / "runs", 0o666)
    os.chmod(fifo / "runs", 0o666)
    order = host.order("/bin/sh", "-c", f"echo > /box/runs; {script}", env={"TOKEN": "secret"})
    made = host.command(order, volumes=[(fifo, "/box")])
    await keeper.start("web", "1", made.argv, env=made.env, cwd="/", log=LogSpec(str(home.path / "web")))
    await asyncio.wait_for(asyncio.to_thread((fifo / "runs").read_text), SECONDS_MAX)


async def test_its_output_is_logged_and_its_exit_recorded(home: Home, host: Host) -> None:
    async with home.keeper() as keeper:
        await start(keeper, home, host, "echo out; echo err >&2; exit 7")
        record = await exit_of(keeper, "web")
        assert record.exit is not None and record.exit.code == 7
    assert sorted(home.log("web").read_text().split()) == ["err", "out"]


async def test_it_is_asked_to_end_before_it_is_made_to(home: Home, host: Host) -> None:
    async with home.keeper() as keeper:
        await start(keeper, home, host, FOR_EVER)
        assert await host.engine.ask_to_end(host.name)
        record = await exit_of(keeper, "web")
        assert record.exit is not None and record.exit.code == 5
    assert home.log("web").read_text() == "asked\n"
    assert not await host.engine.ask_to_end(host.name)


async def test_it_goes_on_while_no_server_is_there(home: Home, host: Host) -> None:
    async with home.keeper() as keeper:
        await start(keeper, home, host, FOR_EVER)
    async with home.keeper() as keeper:
        (record,) = await keeper.list()
        assert record.is_running and await host.engine.listed(host.label) == [host.name]


async def test_what_a_killed_keeper_leaves_is_found_and_removed(home: Home, host: Host) -> None:
    async with home.keeper() as keeper:
        assert keeper.hello is not None
        await start(keeper, home, host, FOR_EVER)
        os.kill(keeper.hello.pid, signal.SIGKILL)
        await gone(keeper.hello.pid)
    for name in await host.engine.listed(host.label):
        await host.engine.remove(name)
    assert await host.engine.listed(host.label) == []


async def test_one_that_cannot_start_says_why_in_its_log(home: Home, host: Host) -> None:
    made = host.command(host.order("nosuch"))
    async with home.keeper() as keeper:
        await keeper.start("web", "1", made.argv, env=made.env, cwd="/", log=LogSpec(str(home.path / "web")))
        record = await exit_of(keeper, "web")
        assert record.exit is not None and record.exit.code == 127
    assert '"nosuch"' in home.log("web").read_text()
