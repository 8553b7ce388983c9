"""A world in which a loop can run."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.engine_loop.loops import World, world_in


@pytest.fixture(params=["store", "cached"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    async with world_in(request.param) as made:
        yield made


@pytest.fixture
async def planned() -> AsyncIterator[World]:
    """A world for runs to the fixpoint."""
    async with world_in("store") as made:
        yield made
