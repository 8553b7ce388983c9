"""Pools that scale by the tasks that wait for them, with runners in memory."""

from __future__ import annotations

from typing import Any

import pytest

from rota.api import Instance, Task
from tests.control.running.fake import FakeRuntime
from tests.control.tasks.crew import Crew
from tests.engine_loop.loops import World

WINDOW = 60


@pytest.fixture
async def crew(world: World) -> Crew:
    return Crew(world, FakeRuntime(world.clock))


async def up(world: World, crew: Crew, **scale: Any) -> None:
    bounds = {"min": 0, "max": 4, "targetIdle": 0, "scaleDownSeconds": WINDOW, **scale}
    await world.create("WorkerPool", "p", {"worker": {"type": "shell"}, "scale": bounds})
    await world.serve(*crew.controllers())


async def tasks(world: World, *names: str) -> None:
    for name in names:
        await world.create("Task", name, {"command": ["run", name], "workerPoolRef": {"name": "p"}})
    await world.rest()


async def phases(world: World) -> list[str]:
    return sorted(str(one.status.phase) for one in (await world.client.list(Task)).items if one.status is not None)


async def there(world: World) -> list[str]:
    return sorted(one.metadata.name for one in (await world.client.list(Instance)).items)


async def test_tasks_that_wait_for_a_pool_of_none_get_a_worker_each(world: World, crew: Crew) -> None:
    await up(world, crew)
    await tasks(world, "a", "b", "c")
    assert sorted(crew.running().values()) == ["run a", "run b", "run c"] and world.clock.now() == 0


async def test_beyond_the_most_tasks_wait_and_then_all_are_run(world: World, crew: Crew) -> None:
    await up(world, crew, max=2)
    await tasks(world, "a", "b", "c", "d", "e")
    assert await there(world) == ["p-0", "p-1"]
    while crew.running():
        crew.finish(next(iter(crew.running())))
        await world.rest()
    assert await phases(world) == ["Succeeded"] * 5 and await there(world) == ["p-0", "p-1"]


async def test_a_task_that_takes_long_keeps_its_worker_and_no_other(world: World, crew: Crew) -> None:
    await up(world, crew)
    await tasks(world, "a", "b", "c")
    [long] = [name for name, what in crew.running().items() if what == "run c"]
    for name in [one for one in crew.running() if one != long]:
        crew.finish(name)
    await world.rest()
    await world.pass_time(1.1 * WINDOW + 3, step=1)
    assert await there(world) == [long] and crew.running() == {long: "run c"}
    crew.finish(long)
    await world.rest()
    await world.pass_time(1.1 * WINDOW + 3, step=1)
    assert await there(world) == [] and await phases(world) == ["Succeeded"] * 3


async def test_tasks_that_waited_before_a_restart_make_it_grow_after_it(world: World, crew: Crew) -> None:
    await up(world, crew, max=1)
    await tasks(world, "a", "b", "c")
    await world.pass_time(2, step=0.5)
    await world.stop()
    await world.patch("WorkerPool", "p", {"spec": {"scale": {"max": 3}}})
    await world.serve(*crew.controllers())
    crew.reconnect()
    await world.rest()
    assert len(crew.running()) == 3


async def test_a_task_that_is_cancelled_while_it_waits_counts_no_more(world: World, crew: Crew) -> None:
    await up(world, crew, max=1)
    await tasks(world, "a", "b")
    await world.patch("Task", "b", {"spec": {"cancel": True}})
    await world.rest()
    await world.pass_time(2, step=0.5)
    status = (await world.get("WorkerPool", "p")).status
    assert (status.waiting, status.condition("ScalingLimited").status) == (0, "False")
