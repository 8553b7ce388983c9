"""On a server without atomic commits, a process may end between making a Task and writing that down."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from rota.api import Task
from rota.api.cron import cron
from rota.client import Client
from rota.client.backend import Written
from rota.control.schedules.finalizers import FINALIZER
from rota.control.schedules.firing import Firing
from rota.control.schedules.runs import ScheduleRuns
from rota.registry import Operation
from rota.registry.errors import unavailable
from tests.schedules.scene import MINUTE, OneByOne, Scene, restarted, scene_in


class DiesAfterMaking(OneByOne):
    """A connection that makes Tasks, but over which nothing can be written of them."""

    async def write(self, operations: Sequence[Operation], *, atomic: bool = True) -> Written:
        if any(o.verb == "amend" or (o.verb, o.subresource) == ("update", "status") for o in operations):
            raise unavailable("the process has ended")
        return await super().write(operations, atomic=atomic)


async def ends_in_between(scene: Scene) -> Task:
    """A tick whose Task was made, by a process that ended before it was written down."""
    async with restarted(scene) as there:
        await there.serve(client=Client(DiesAfterMaking(there.world.registry), manager="controllers"))
        await there.passes(MINUTE)
        (task,) = await there.tasks()
    assert (await scene.status()).run_count == 0
    return task


async def a_schedule(scene: Scene) -> None:
    await scene.serve(atomic=False)
    await scene.schedule()


async def test_a_tick_is_not_fired_again_when_its_task_is_deleted_before_it_is_written_down(scene: Scene) -> None:
    await a_schedule(scene)
    task = await ends_in_between(scene)
    await scene.client.delete(Task.api, task.metadata.name)
    async with restarted(scene) as again:
        await again.serve(atomic=False)
        await again.world.rest()
        status = await again.status()
        assert (status.run_count, status.skipped_count) == (1, 0)
        assert await again.tasks() == [], "it is gone, and stays so"
        await again.passes(MINUTE)
        assert await again.ticks() == ["12:02"]


async def test_a_task_that_was_not_written_down_is_found_and_let_go(scene: Scene) -> None:
    await a_schedule(scene)
    task = await ends_in_between(scene)
    assert task.metadata.finalizers == [FINALIZER]
    async with restarted(scene) as again:
        await again.serve(atomic=False)
        await again.world.rest()
        (found,) = await again.tasks()
        assert found.metadata.uid == task.metadata.uid and found.metadata.finalizers == []
        assert (await again.status()).run_count == 1


async def test_a_task_that_is_written_down_can_be_deleted(scene: Scene) -> None:
    await a_schedule(scene)
    await scene.passes(MINUTE)
    (task,) = await scene.tasks()
    assert task.metadata.finalizers == []
    await scene.delete(task)
    assert await scene.tasks() == []


async def test_the_tasks_of_a_schedule_that_is_gone_are_let_go(scene: Scene) -> None:
    await a_schedule(scene)
    await ends_in_between(scene)
    await scene.world.delete("Schedule", "tick")
    async with restarted(scene) as again:
        await again.serve(atomic=False)
        await again.world.rest()
        assert await again.tasks() == []


async def test_one_who_is_behind_does_not_make_again_what_was_written_down_and_deleted() -> None:
    async with scene_in("store") as scene:
        await a_schedule(scene)
        old = await scene.get()
        await scene.passes(MINUTE)
        (task,) = await scene.tasks()
        await scene.delete(task)
        context: Any = SimpleNamespace(client=Client(OneByOne(scene.world.registry)), clock=scene.clock)
        firing = Firing(context, ScheduleRuns(), lambda schedule: cron(schedule.spec.cron))
        await firing.fire_one(old)
        assert await scene.tasks() == []


async def test_with_atomic_commits_no_task_needs_to_be_kept(scene: Scene) -> None:
    await scene.serve()
    await scene.schedule()
    await scene.passes(MINUTE)
    assert [task.metadata.finalizers for task in await scene.tasks()] == [[]]
