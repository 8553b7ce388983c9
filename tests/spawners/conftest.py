"""An issue tracker, and a world in which spawners are looked at."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.engine_loop.loops import World, world_in
from tests.spawners.tracker import Tracker, tracker


@pytest.fixture
async def github() -> AsyncIterator[Tracker]:
    async with tracker() as made:
        yield made


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with world_in("store") as made:
        yield made
