"""Finished Tasks go when there are more than the schedule keeps; the newest tick's stays."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rota.api.function import History
from rota.control.schedules.runs import Run, too_many
from tests.schedules.scene import MINUTE, Scene


async def test_so_many_are_kept_as_the_schedule_says(scene: Scene) -> None:
    await scene.serve()
    await scene.schedule(history={"succeeded": 2, "failed": 1})
    for number in range(8):
        await scene.passes(MINUTE)
        await scene.end(phase="Failed" if number % 2 else "Succeeded")
    await scene.passes(10)
    assert await scene.ticks() == ["12:05", "12:07", "12:08"]
    assert (await scene.status()).run_count == 8


async def test_the_task_of_the_newest_tick_stays_even_where_none_is_kept(scene: Scene) -> None:
    await scene.serve()
    await scene.schedule(history={"succeeded": 0, "failed": 0})
    for _ in range(3):
        await scene.passes(MINUTE)
        await scene.end()
    await scene.passes(10)
    assert await scene.ticks() == ["12:03"]


async def test_fewer_are_kept_when_the_schedule_says_so_later(scene: Scene) -> None:
    await scene.serve()
    await scene.schedule()
    for _ in range(4):
        await scene.passes(MINUTE)
        await scene.end()
    await scene.patch(history={"succeeded": 1})
    assert await scene.ticks() == ["12:04"]


RUNS = st.lists(
    st.builds(
        lambda tick, manual, phase: Run(f"r{tick}{manual}", "u", tick, manual=manual, phase=phase),
        st.integers(0, 50),
        st.booleans(),
        st.sampled_from(["", "Succeeded", "Failed", "Cancelled"]),
    ),
    unique_by=lambda run: run.name,
)


@given(RUNS, st.integers(0, 5), st.integers(0, 5), st.integers(0, 50))
def test_what_goes_is_over_older_than_the_newest_tick_and_beyond_what_is_kept(
    runs: list[Run], succeeded: int, failed: int, newest: int
) -> None:
    gone = too_many(runs, History(succeeded=succeeded, failed=failed), newest)
    assert all(run.phase for run in gone)
    assert all(run.manual or run.tick < newest for run in gone)
    for kept, which in ((succeeded, ["Succeeded"]), (failed, ["Failed", "Cancelled"])):
        over = sorted((run for run in runs if run.phase in which), key=lambda run: (run.tick, run.name))
        assert not {run.name for run in gone} & {run.name for run in over[len(over) - kept :]}
        left = [run for run in over if run not in gone]
        assert len(left) <= max(kept, kept + sum(run.tick >= newest and not run.manual for run in over))
