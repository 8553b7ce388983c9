"""Launches of many schedules are prepared before they are due; what happens in between still counts."""

from __future__ import annotations

from typing import Any

from rota.control.schedule import Schedules
from rota.control.schedules.heap import Heap
from rota.control.schedules.making import SCHEDULE_NAME, task_name, task_of
from rota.control.schedules.prepared import READY_MIN
from tests.schedules.scene import MINUTE, START, Scene

MANY = READY_MIN + 5
FIRST = START + 30
LAST_SECOND = 29.5
"""Until half a second before the first tick."""


async def prepared(scene: Scene, **spec: Any) -> Schedules:
    """Many schedules, half a second before they are due."""
    controller = await scene.serve()
    for number in range(MANY):
        await scene.schedule(f"s{number:02}", **spec)
    await scene.passes(LAST_SECOND, 0.5)
    return controller


def ready(controller: Schedules) -> int:
    assert controller._prepared is not None
    return len(controller._prepared)


async def fired(scene: Scene) -> list[str]:
    """Return the schedules of which there are Tasks."""
    return sorted(task.metadata.annotations[SCHEDULE_NAME] for task in await scene.tasks())


async def test_many_are_ready_before_they_are_due_and_fire_once_each(scene: Scene) -> None:
    controller = await prepared(scene)
    assert ready(controller) == MANY and await scene.tasks() == []
    await scene.passes(1, 0.5)
    assert await fired(scene) == [f"s{number:02}" for number in range(MANY)]
    assert ready(controller) == 0
    await scene.passes(MINUTE, 0.5)
    status = await scene.status("s00")
    assert (status.run_count, status.skipped_count, len(status.active)) == (1, 1, 1)


async def test_what_was_made_ready_says_that_it_was_made_at_its_tick(scene: Scene) -> None:
    await prepared(scene)
    await scene.passes(1, 0.5)
    assert {int(task.metadata.creation_timestamp.timestamp()) for task in await scene.tasks()} == {FIRST}  # type: ignore[union-attr]


async def test_few_are_not_made_ready(scene: Scene) -> None:
    controller = await scene.serve()
    await scene.schedule()
    await scene.passes(LAST_SECOND, 0.5)
    assert ready(controller) == 0
    await scene.passes(1, 0.5)
    assert await scene.ticks() == ["12:01"]


async def test_one_that_is_paused_in_the_last_moment_does_not_fire(scene: Scene) -> None:
    await prepared(scene)
    await scene.patch("s03", enabled=False)
    await scene.passes(1, 0.5)
    assert await fired(scene) == [f"s{number:02}" for number in range(MANY) if number != 3]


async def test_a_run_that_ends_in_the_last_moment_makes_room_for_the_next(scene: Scene) -> None:
    await prepared(scene, overlap="Skip")
    await scene.passes(MINUTE, 0.5)
    (first, *_) = await scene.tasks()
    await scene.end(first)
    await scene.passes(1, 0.5)
    counts = {name: (await scene.status(name)).run_count for name in ("s00", "s01", "s02")}
    own = first.metadata.annotations[SCHEDULE_NAME]
    assert {name for name, count in counts.items() if count == 2} == {own} & set(counts)
    assert len(await scene.tasks()) == MANY + 1


async def test_a_task_that_another_process_has_made_is_not_made_again(scene: Scene) -> None:
    await prepared(scene)
    schedule = await scene.get("s04")
    name = task_name(schedule, FIRST)
    await scene.client.create(task_of(schedule, FIRST, name))
    await scene.passes(1, 0.5)
    assert await fired(scene) == [f"s{number:02}" for number in range(MANY)]
    assert (await scene.status("s04")).run_count == 1


def test_a_heap_tells_what_is_due_by_a_moment_and_keeps_it() -> None:
    heap = Heap()
    for number in range(50):
        heap.set(str(number), float(number))
    heap.set("3", 100.0)
    heap.discard("4")
    assert sorted(heap.due_by(9.0, 100)) == [(float(n), str(n)) for n in range(10) if n not in (3, 4)]
    assert len(heap.due_by(40.0, 7)) == 7 and len(heap) == 49
