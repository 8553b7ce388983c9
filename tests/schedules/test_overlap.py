"""A tick comes while the last run still runs."""

from __future__ import annotations

from rota.api.cron import cron
from rota.api.function import ACTIVE_MAX
from rota.control.schedules.planner import plan
from rota.control.schedules.runs import Run
from tests.schedules.scene import MINUTE, Scene
from tests.schedules.subjects import schedule


async def test_skip_passes_the_tick_over_and_counts_it(scene: Scene) -> None:
    await scene.serve()
    await scene.schedule(overlap="Skip")
    await scene.passes(3 * MINUTE)
    assert await scene.ticks() == ["12:01"]
    assert (await scene.status()).skipped_count == 2
    await scene.end()
    await scene.passes(MINUTE)
    assert await scene.ticks() == ["12:01", "12:04"]


async def test_a_tick_that_was_passed_over_is_not_made_up_for_later(scene: Scene) -> None:
    await scene.serve()
    await scene.schedule(overlap="Skip", catchUp="All")
    await scene.passes(2 * MINUTE)
    await scene.end()
    assert await scene.ticks() == ["12:01"]


async def test_allow_lets_them_run_beside_each_other(scene: Scene) -> None:
    await scene.serve()
    await scene.schedule(overlap="Allow")
    await scene.passes(2 * MINUTE)
    assert len((await scene.status()).active) == 2


async def test_replace_cancels_what_runs(scene: Scene) -> None:
    await scene.serve()
    await scene.schedule(overlap="Replace")
    await scene.passes(2 * MINUTE)
    assert [task.spec.cancel for task in await scene.tasks()] == [True, False]


async def test_replace_is_not_kept_from_firing_by_a_task_that_is_just_gone(scene: Scene) -> None:
    await scene.serve()
    await scene.schedule(overlap="Replace")
    await scene.passes(MINUTE)
    [task] = await scene.tasks()
    await scene.client.delete(task.api, task.metadata.name)
    await scene.passes(MINUTE)
    assert await scene.ticks() == ["12:02"]


def test_there_are_never_more_runs_under_way_than_the_bound() -> None:
    subject = schedule(overlap="Allow", created=0)
    runs = [Run(f"r{number}", "", -number, manual=False, phase="") for number in range(ACTIVE_MAX)]
    found = plan(subject, cron("* * * * *"), runs, 65.0)
    assert (found.fire, found.skipped, found.next_tick) == ((), 1, 120)
