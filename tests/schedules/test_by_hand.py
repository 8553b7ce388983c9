"""A run that a person asks for is a run: it is counted, once, whatever is killed meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

from rota.api import Task
from rota.api.function import ACTIVE_MAX, ScheduleStatus
from rota.client import Client, LocalBackend
from rota.client.backend import Written
from rota.control.schedules.making import COUNTED, MANUAL, manual_name, task_of
from rota.control.schedules.runs import ACTIVE_PENDING_MAX, Run, with_runs
from rota.registry import Operation
from rota.registry.errors import unavailable
from tests.schedules.scene import MINUTE, Scene, restarted


async def run(scene: Scene, nonce: str = "n") -> str:
    """As `rota schedule run` does."""
    schedule = await scene.get()
    name = manual_name(schedule, nonce)
    await scene.client.create(task_of(schedule, int(scene.clock.time()), name, MANUAL))
    if scene.world.serving is not None:
        await scene.world.rest()
    return name


async def test_a_run_by_hand_is_counted_beside_the_ticks(scene: Scene) -> None:
    await scene.serve()
    await scene.schedule(overlap="Allow")
    name = await run(scene)
    status = await scene.status()
    assert (status.run_count, status.active, status.last_scheduled_time) == (1, [name], None)
    await scene.passes(MINUTE)
    assert (await scene.status()).run_count == 2
    await scene.end()
    await scene.passes(10)
    status = await scene.status()
    assert (status.run_count, status.active, status.skipped_count) == (2, [], 0)


async def test_one_that_is_over_before_it_is_looked_at_is_counted_and_then_goes(scene: Scene) -> None:
    await scene.schedule(cron="@yearly", history={"succeeded": 0})
    name = await run(scene)
    await scene.world.set_status("Task", name, phase="Succeeded")
    await scene.serve()
    await scene.world.rest()
    await scene.passes(10)
    status = await scene.status()
    assert (status.run_count, status.active, await scene.tasks()) == (1, [], [])


async def test_of_a_schedule_that_is_paused_they_are_counted_too(scene: Scene) -> None:
    await scene.serve()
    await scene.schedule(enabled=False)
    await run(scene)
    assert (await scene.status()).run_count == 1


class NotesNothing(LocalBackend):
    """A connection of a process that ends after it has counted a run, and before it has noted that on the Task."""

    async def write(self, operations: Sequence[Operation], *, atomic: bool = True) -> Written:
        if any((o.verb, o.kind) == ("patch", Task.api) for o in operations):
            raise unavailable("the process has ended")
        return await super().write(operations, atomic=atomic)


async def test_none_is_counted_twice_when_the_process_ends_in_between(scene: Scene) -> None:
    await scene.schedule(cron="@yearly")
    async with restarted(scene) as there:
        await there.serve(client=Client(NotesNothing(there.world.registry), manager="controllers"))
        name = await run(there)
        await there.end()
        status = await there.status()
        assert (status.run_count, status.active) == (1, [name])
    async with restarted(scene) as again:
        await again.serve()
        await again.world.rest()
        await again.passes(10)
        (task,) = await again.tasks()
        status = await again.status()
        assert COUNTED in task.metadata.annotations and (status.run_count, status.active) == (1, [])


async def test_one_that_is_deleted_at_once_leaves_nothing_in_the_status(scene: Scene) -> None:
    await scene.serve()
    await scene.schedule(cron="@yearly")
    await run(scene)
    (task,) = await scene.tasks()
    await scene.delete(task)
    await scene.passes(10)
    status = await scene.status()
    assert (status.run_count, status.active) == (1, [])


def test_however_many_there_are_at_once_each_is_counted_once() -> None:
    runs = {
        f"r{number}": Run(f"r{number}", "u", number, manual=True, phase="", is_counted=False)
        for number in range(2 * ACTIVE_MAX)
    }
    status, rounds = ScheduleStatus(), 0
    while any(not run.is_counted for run in runs.values()):
        status = with_runs(status, runs.values())
        assert len(status.active) <= ACTIVE_MAX
        for name in status.active:
            runs[name] = runs[name]._replace(is_counted=True)
        rounds += 1
    assert status.run_count == 2 * ACTIVE_MAX and rounds == 2 * ACTIVE_MAX // ACTIVE_PENDING_MAX
