"""The messages for somebody who asks why a task waits, or how it ended."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rota.engine import ControlLoop, Objects
from rota.server.auth import User
from rota.server.why import why
from tests.control.running.fake import FakeRuntime
from tests.control.tasks.crew import Crew
from tests.engine_loop.loops import World

ADMIN = User("admin", "admin")


class Leading:
    """The controllers of this process, as a server has them."""

    leader = "tests"

    def __init__(self, world: World) -> None:
        self.loop: ControlLoop | None = world.loop
        self.objects: Objects = world.objects


@pytest.fixture
async def crew(world: World) -> Crew:
    return Crew(world, FakeRuntime(world.clock))


async def up(world: World, crew: Crew, replicas: int) -> None:
    await world.create("WorkerPool", "p", {"worker": {"type": "shell"}, "replicas": replicas})
    await world.serve(*crew.controllers())


async def make(world: World, *names: str, **spec: Any) -> None:
    for name in names:
        await world.create("Task", name, {"command": ["run", name], "workerPoolRef": {"name": "p"}, **spec})
        await world.rest()


async def message(world: World, name: str) -> str:
    said: str = (await world.get("Task", name)).status.message
    return said


async def told(world: World, name: str) -> Any:
    return json.loads(bytes((await why(Leading(world), ADMIN, "tasks", "default", name)).body))


async def test_one_in_the_queue_is_told_who_has_the_workers_and_who_is_before_it(world: World, crew: Crew) -> None:
    await up(world, crew, 2)
    await make(world, "a", "b", "c", "d", "e")
    await world.pass_time(1, step=0.25)
    step = (await told(world, "e"))["step"]
    assert (step["reason"], step["message"]) == (
        "Queued",
        "waits for a worker of WorkerPool/p: 2 of 2 busy (task a, task b), 2 before it",
    )
    assert (await told(world, "c"))["step"]["message"].endswith("(task a, task b), it is next")


async def test_the_place_in_the_queue_is_the_one_of_this_moment(world: World, crew: Crew) -> None:
    await up(world, crew, 1)
    await make(world, "a", "b", "c")
    await world.pass_time(1, step=0.25)
    crew.finish("p-0")
    await world.rest()
    assert (await told(world, "c"))["step"]["message"] == (
        "waits for a worker of WorkerPool/p: 1 of 1 busy (task b), it is next"
    )


async def test_that_a_pool_has_no_worker_is_said_with_what_to_do(world: World, crew: Crew) -> None:
    await up(world, crew, 0)
    await make(world, "a", "b")
    await world.pass_time(1, step=0.25)
    answer = await told(world, "b")
    assert answer["step"]["message"] == "waits for a worker of WorkerPool/p, which has none, 1 before it"
    assert answer["advice"] == "give WorkerPool/p a worker: `rota scale workerpool/p --replicas=1`"


async def test_of_many_who_have_workers_a_few_are_named(world: World, crew: Crew) -> None:
    await up(world, crew, 7)
    await make(world, *"abcdefgh")
    await world.pass_time(1, step=0.25)
    assert (await told(world, "h"))["step"]["message"] == (
        "waits for a worker of WorkerPool/p:"
        " 7 of 7 busy (task a, task b, task c, task d, task e and 2 more), it is next"
    )


async def test_one_that_waits_for_a_branch_names_who_has_it(world: World, crew: Crew) -> None:
    await up(world, crew, 3)
    await make(world, "a", "b", "c", branch="main")
    assert await message(world, "b") == await message(world, "c") == "branch main is held by Task/a"
    assert (await told(world, "c"))["step"]["message"] == "branch main is held by Task/a, 1 more before it"
    crew.finish("p-0")
    await world.rest()
    assert await message(world, "c") == (await told(world, "c"))["step"]["message"] == "branch main is held by Task/b"


async def test_one_that_failed_is_told_to_be_looked_at_and_run_once_more(world: World, crew: Crew) -> None:
    await up(world, crew, 1)
    await make(world, "a")
    crew.finish("p-0", "Failed", exit_code=3, message="first line\nlast line")
    await world.rest()
    answer = await told(world, "a")
    assert answer["over"] and answer["step"]["message"] == "first line\nlast line"
    assert answer["advice"] == ("see what it wrote: `rota logs task/a`; then run it once more: `rota retry task/a`")


async def test_one_that_failed_before_it_began_has_no_log_to_look_at(world: World, crew: Crew) -> None:
    await up(world, crew, 1)
    await world.create("Task", "a", {"prompt": "fix it", "workerPoolRef": {"name": "p"}})
    await world.rest()
    assert (await told(world, "a"))["advice"] == (
        "put right what it says, and run it once more: `rota retry task/a`; if it is the task itself that is wrong,"
        " make it anew (`rota delete task/a`, then `rota apply -f FILE`)"
    )


# Circles.


async def in_a_ring(world: World, *names: str) -> None:
    for name, after in zip(names, (*names[1:], names[0]), strict=True):
        await make(world, name, dependsOn=[after])


@pytest.mark.parametrize("names", ["ab", "abc", "abcde"])
async def test_all_that_wait_in_a_ring_say_so_and_name_it(world: World, crew: Crew, names: str) -> None:
    await up(world, crew, 1)
    await in_a_ring(world, *names)
    for name in names:
        status = (await world.get("Task", name)).status
        assert (status.phase, status.reason) == ("Waiting", "DependencyCycle"), name
        assert all(f"Task/{other}" in status.message for other in names)
    answer = await told(world, names[0])
    assert answer["root"]["verdict"] == "Cycle"
    assert answer["advice"].startswith("break the circle " + " → ".join(f"Task/{name}" for name in (*names, names[0])))


async def test_one_that_waits_for_a_ring_is_told_of_it(world: World, crew: Crew) -> None:
    await up(world, crew, 1)
    await in_a_ring(world, "a", "b")
    await make(world, "c", dependsOn=["a"])
    answer = await told(world, "c")
    assert answer["root"]["verdict"] == "Cycle" and answer["advice"].startswith("break the circle Task/a → Task/b")


async def test_a_ring_is_broken_by_making_one_of_its_tasks_anew(world: World, crew: Crew) -> None:
    await up(world, crew, 1)
    await in_a_ring(world, "a", "b", "c")
    await world.delete("Task", "c")
    await world.rest()
    reasons = [(await world.get("Task", name)).status.reason for name in "ab"]
    assert reasons == ["DependencyNotReady", "DependencyNotReady"], "nobody says any more that there is a ring"
    await make(world, "c")
    for name in "cba":
        assert crew.running() == {"p-0": f"run {name}"}
        crew.finish("p-0")
        await world.rest()
    assert (await world.get("Task", "a")).status.phase == "Succeeded"


async def test_a_cancelled_task_of_a_ring_ends_the_others(world: World, crew: Crew) -> None:
    await up(world, crew, 1)
    await in_a_ring(world, "a", "b", "c")
    await world.patch("Task", "b", {"spec": {"cancel": True}})
    await world.rest()
    phases = {name: (await world.get("Task", name)).status.phase for name in "abc"}
    assert phases == {"a": "Failed", "b": "Cancelled", "c": "Failed"}
