"""Homes whose keepers, children and cgroups are all gone after the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rota.runtime.keeper.client import KeeperError
from tests.runtime.homes import Home, gone


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    home = Home(tmp_path)
    yield home
    await cleaned(home)


@pytest.fixture(params=["cgroup", "namespace", "sweep"])
async def any_home(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Home]:
    home = Home(tmp_path, tree=request.param)
    try:
        async with home.keeper():
            pass
    except KeeperError as error:
        pytest.skip(str(error))
    yield home
    await cleaned(home)


async def cleaned(home: Home) -> None:
    async with home.keeper() as keeper:
        assert keeper.hello is not None
        await keeper.shutdown(grace_seconds=0)
        await asyncio.wait_for(gone(keeper.hello.pid), 20)
    assert home.processes() == []
    assert home.groups() == []
