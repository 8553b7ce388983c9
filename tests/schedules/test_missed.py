"""Ticks that came due while no server was there to fire them."""

from __future__ import annotations

from typing import Any

import pytest

from rota.control.schedules.ticks import CATCH_UP_TICKS_MAX
from tests.schedules.scene import MINUTE, Scene, restarted, scene_in

HOUR = 3600
YEAR = 365 * 24 * HOUR


async def down(scene: Scene, seconds: float) -> None:
    """The process is not there for a while."""
    await scene.world.stop()
    scene.clock.advance(seconds)


@pytest.mark.parametrize(
    ("spec", "made"),
    [
        ({"catchUp": "None"}, []),
        ({"catchUp": "Last"}, ["12:09"]),
        ({"catchUp": "All", "overlap": "Allow"}, [f"12:0{minute}" for minute in range(1, 10)]),
        ({"catchUp": "All", "overlap": "Allow", "catchUpWithinSeconds": 140}, ["12:08", "12:09"]),
        ({"catchUp": "All", "overlap": "Replace"}, ["12:09"]),
        ({"catchUp": "Last", "catchUpWithinSeconds": 20}, []),
    ],
)
async def test_missed_ticks_are_made_up_for_as_the_schedule_says(spec: dict[str, Any], made: list[str]) -> None:
    async with scene_in("store") as scene:
        await scene.serve()
        await scene.schedule(**spec)
        await down(scene, 9 * MINUTE)
        async with restarted(scene) as again:
            await again.serve()
            assert await again.ticks() == made
            status = await again.status()
            assert (status.run_count, status.skipped_count) == (len(made), 9 - len(made))


async def test_a_tick_that_is_a_little_late_was_not_missed() -> None:
    async with scene_in("store") as scene:
        await scene.serve()
        await scene.schedule(catchUp="None")
        await down(scene, 30 + 9)
        async with restarted(scene) as again:
            await again.serve()
            assert await again.ticks() == ["12:01"]


async def test_those_that_must_not_overlap_are_made_up_for_one_after_the_other() -> None:
    async with scene_in("store") as scene:
        await scene.serve()
        await scene.schedule(catchUp="All", overlap="Skip")
        await down(scene, 3 * MINUTE)
        async with restarted(scene) as again:
            await again.serve()
            seen = []
            for _ in range(3):
                seen.append(await again.ticks())
                await again.end()
            assert seen == [["12:01"], ["12:01", "12:02"], ["12:01", "12:02", "12:03"]]
            await again.passes(MINUTE)
            assert (await again.ticks())[-1] == "12:04"
            assert (await again.status()).skipped_count == 0


async def test_a_year_of_missed_minutes_makes_no_more_tasks_than_the_bound() -> None:
    async with scene_in("store") as scene:
        await scene.serve()
        await scene.schedule(catchUp="All", overlap="Allow", catchUpWithinSeconds=YEAR)
        await down(scene, YEAR)
        async with restarted(scene) as again:
            await again.serve()
            made = await again.moments()
            assert len(made) == CATCH_UP_TICKS_MAX
            assert made[-1] == int(again.clock.time()) - 30
            assert made == [made[-1] - 60 * back for back in reversed(range(CATCH_UP_TICKS_MAX))]


async def test_one_made_while_nobody_was_there_counts_from_its_creation() -> None:
    async with scene_in("store") as scene:
        await scene.schedule(catchUp="All", overlap="Allow")
        scene.clock.advance(2 * MINUTE)
        await scene.serve()
        assert await scene.ticks() == ["12:01", "12:02"]


async def test_what_was_fired_before_the_end_is_not_fired_again_after_it() -> None:
    async with scene_in("store") as scene:
        await scene.serve()
        await scene.schedule(catchUp="All", overlap="Allow")
        await scene.passes(2 * MINUTE)
        for task in await scene.tasks():
            await scene.end(task)
            await scene.delete(task)
        async with restarted(scene) as again:
            await again.serve()
            assert await again.ticks() == []
            await again.passes(MINUTE)
            assert await again.ticks() == ["12:03"]


async def test_a_restart_writes_nothing_when_nothing_is_due() -> None:
    async with scene_in("store") as scene:
        await scene.serve()
        await scene.schedule()
        await scene.passes(MINUTE)
        await scene.end()
        await scene.passes(10)
        before = scene.world.registry.store.revision
        async with restarted(scene) as again:
            await again.serve()
            assert again.world.registry.store.revision == before
