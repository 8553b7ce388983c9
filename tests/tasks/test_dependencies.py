"""A task that has ended is not gone before those that wait for it know how it ended; and then it is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from rota.api import Task
from rota.control.task import CONCURRENCY
from tests.control.running.fake import FakeRuntime
from tests.control.tasks.crew import Crew
from tests.engine_loop.loops import World, world_in

CROWD = 2 * CONCURRENCY
"""So many that not all are looked at at once."""


@pytest.fixture(params=["store", "cached"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    async with world_in(request.param) as made:
        yield made


@pytest.fixture
async def crew(world: World) -> Crew:
    made = Crew(world, FakeRuntime(world.clock))
    await world.create("WorkerPool", "p", {"worker": {"type": "shell"}, "replicas": 1})
    await world.serve(*made.controllers())
    return made


async def make(world: World, name: str, **spec: Any) -> None:
    await world.create("Task", name, {"command": [name], "workerPoolRef": {"name": "p"}, **spec})


async def names(world: World) -> list[str]:
    return sorted(one.metadata.name for one in (await world.client.list(Task)).items)


async def test_one_whose_time_is_up_stays_for_one_that_was_made_while_nobody_looked(world: World, crew: Crew) -> None:
    await make(world, "a", ttlSecondsAfterFinished=2)
    await world.rest()
    crew.finish("p-0", outputs={"k": "v"})
    await world.rest()
    await world.stop()
    for number in range(CROWD):
        await make(world, f"b-{number}", dependsOn=["never"])
    await make(world, "c", dependsOn=["a"])
    world.clock.advance(3)
    await world.serve(*crew.controllers())
    crew.reconnect()
    await world.pass_time(3, step=0.5)
    assert crew.running() == {"p-0": "c"} and "a" not in await names(world)


@pytest.mark.parametrize("ttl", [0, 1])
async def test_one_that_was_waited_for_is_gone_when_its_time_is_up(world: World, crew: Crew, ttl: int) -> None:
    await make(world, "a", ttlSecondsAfterFinished=ttl)
    await world.rest()
    await make(world, "b", dependsOn=["a"])
    await world.rest()
    crew.finish("p-0")
    await world.pass_time(3, step=0.5)
    assert crew.running() == {"p-0": "b"} and await names(world) == ["b"]


async def test_one_that_is_deleted_while_it_is_waited_for_is_gone_when_its_end_is_known(
    world: World, crew: Crew
) -> None:
    await make(world, "a")
    await world.rest()
    await make(world, "b", dependsOn=["a", "c"])
    await world.rest()
    crew.finish("p-0")
    await world.rest()
    await world.delete("Task", "a")
    await world.rest()
    assert await names(world) == ["b"]


async def test_one_that_is_deleted_before_it_is_over_is_gone_though_others_wait_for_it(
    world: World, crew: Crew
) -> None:
    await make(world, "a")
    await world.rest()
    await make(world, "b", dependsOn=["a"])
    await world.rest()
    await world.delete("Task", "a")
    await world.rest()
    assert await names(world) == ["b"] and crew.running() == {}
    await make(world, "a")
    await world.rest()
    crew.finish("p-0")
    await world.rest()
    assert crew.running() == {"p-0": "b"}
