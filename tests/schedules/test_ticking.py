"""Every tick becomes one Task, at its time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from rota.api import Task
from rota.control.schedule import BATCH_SCHEDULES_MAX
from rota.control.schedules.making import SCHEDULE_LABEL, SCHEDULE_UID, task_name, task_of
from tests.engine_loop.loops import World
from tests.schedules.scene import MINUTE, START, Scene, scene_in


async def test_each_tick_becomes_a_task(scene: Scene) -> None:
    await scene.serve()
    await scene.schedule(overlap="Allow")
    await scene.passes(3 * MINUTE)
    assert await scene.ticks() == ["12:01", "12:02", "12:03"]


async def test_a_tick_fires_at_its_second_and_not_before(scene: Scene) -> None:
    await scene.serve()
    await scene.schedule()
    await scene.passes(29.9)
    assert await scene.ticks() == []
    await scene.passes(0.2)
    assert await scene.ticks() == ["12:01"]


async def test_a_task_is_marked_with_its_schedule_and_goes_with_it(scene: Scene) -> None:
    await scene.serve()
    made = await scene.schedule()
    await scene.passes(MINUTE)
    [task] = await scene.tasks()
    assert task.metadata.labels == {SCHEDULE_LABEL: "tick"}
    assert task.metadata.annotations[SCHEDULE_UID] == made.metadata.uid
    [owner] = task.metadata.owner_references
    assert (owner.kind, owner.name, owner.uid, owner.controller) == ("Schedule", "tick", made.metadata.uid, True)
    assert task.metadata.name == task_name(made, START + 30)


async def test_the_status_tells_of_the_tick_and_of_the_run(scene: Scene) -> None:
    await scene.serve()
    await scene.schedule()
    assert (await scene.status()).next_run_time == _at(12, 1)
    await scene.passes(30)
    [task] = await scene.tasks()
    status = await scene.status()
    assert (status.last_scheduled_time, status.next_run_time) == (_at(12, 1), _at(12, 2))
    assert (status.run_count, status.skipped_count, status.active) == (1, 0, [task.metadata.name])
    await scene.end(phase="Failed", reason="Failed", message="no such file\nmore")
    await scene.passes(2)
    status = await scene.status()
    assert (status.last_started_time, status.last_completed_time) == (_at(12, 1), _at(12, 1))
    assert (status.last_error, status.active) == ("Failed: no such file", [])


async def test_a_run_that_failed_before_it_started_is_the_last_one_too(scene: Scene) -> None:
    await scene.serve()
    await scene.schedule()
    await scene.passes(30)
    await scene.end(phase="Failed", reason="NoRunner", message="no worker", startTime=None)
    await scene.passes(2)
    status = await scene.status()
    assert (status.run_count, status.last_started_time) == (1, _at(12, 1))


async def test_an_error_is_told_until_a_run_succeeds(scene: Scene) -> None:
    await scene.serve()
    await scene.schedule()
    await scene.passes(MINUTE)
    await scene.end(phase="Failed", reason="Failed")
    await scene.passes(MINUTE)
    assert (await scene.status()).last_error == "Failed"
    await scene.end()
    await scene.passes(MINUTE)
    assert (await scene.status()).last_error is None


async def test_a_tick_costs_one_commit_and_a_run_one_more_status() -> None:
    async with scene_in("store") as scene:
        await scene.serve()
        await scene.schedule()
        before = scene.world.registry.store.revision
        await scene.passes(30)
        assert scene.world.registry.store.revision - before == 2
        await scene.end()
        ended = scene.world.registry.store.revision
        await scene.passes(20)
        assert scene.world.registry.store.revision - ended == 1


async def test_a_function_is_called_with_the_payload_and_with_its_schedule(scene: Scene) -> None:
    await scene.world.create("Function", "f", {"entrypoint": "m:f", "source": {"inline": "x"}})
    await scene.serve()
    made = await scene.schedule(target={"functionRef": {"name": "f"}}, payload={"size": 3})
    await scene.passes(MINUTE)
    [task] = await scene.tasks()
    assert task.spec.function is not None and task.spec.function.name == "f"
    told = {
        "name": "tick",
        "uid": made.metadata.uid,
        "runId": task.metadata.name,
        "scheduledTime": "2026-01-05T12:01:00Z",
    }
    assert task.spec.function.payload == {"size": 3, "schedule": told}
    assert task.metadata.labels == {"rota.dev/schedule": "tick", "rota.dev/function": "f"}


async def test_many_that_tick_at_once_are_all_fired_by_one_timer(scene: Scene) -> None:
    await scene.serve()
    count = 2 * BATCH_SCHEDULES_MAX + 1
    for number in range(count):
        await scene.schedule(f"s{number}")
    await scene.passes(MINUTE, 10)
    assert await scene.ticks() == ["12:01"] * count


async def test_one_that_cannot_fire_keeps_none_beside_it_from_firing(scene: Scene) -> None:
    await scene.serve()
    first = await scene.schedule("first")
    await scene.schedule("second")
    await scene.world.create("Task", task_name(first, START + 30), {"command": ["x"], "workerPoolRef": {"name": "p"}})
    await scene.passes(29)
    await scene.passes(1)
    made = [task for task in await _of(scene.world) if SCHEDULE_UID in task.metadata.annotations]
    assert [task.metadata.labels[SCHEDULE_LABEL] for task in made] == ["second"]
    status = await scene.status("first")
    assert status.last_error.endswith("is not of this schedule: delete it")
    assert (status.run_count, status.skipped_count, status.next_run_time) == (0, 1, _at(12, 2))
    assert await scene.ready("first") == ("False", "InvalidTask")
    await scene.passes(MINUTE)
    assert await scene.ready("first") == ("True", "Scheduled")


@pytest.mark.parametrize("atomic", [True, False])
async def test_a_tick_whose_task_is_there_already_is_written_down_and_not_made_again(
    scene: Scene, atomic: bool
) -> None:
    made = await scene.schedule()
    name = task_name(made, START + 30)
    await scene.client.create(task_of(made, START + 30, name))
    await scene.serve(atomic=atomic)
    await scene.passes(31)
    status = await scene.status()
    assert await scene.ticks() == ["12:01"]
    assert (status.last_scheduled_time, status.run_count, status.active) == (_at(12, 1), 1, [name])


async def test_without_atomic_commits_it_is_the_same(scene: Scene) -> None:
    await scene.serve(atomic=False)
    await scene.schedule(overlap="Allow")
    await scene.passes(3 * MINUTE)
    status = await scene.status()
    assert await scene.ticks() == ["12:01", "12:02", "12:03"]
    assert (status.run_count, status.last_scheduled_time) == (3, _at(12, 3))


async def _of(world: World) -> list[Any]:
    kind: Any = Task
    found: list[Any] = (await world.client.list(kind)).items
    return found


def _at(hour: int, minute: int) -> datetime:
    return datetime(2026, 1, 5, hour, minute, tzinfo=UTC)
