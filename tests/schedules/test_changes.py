"""A schedule is paused, edited, deleted, or cannot be what it says."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rota.api import Cell
from rota.registry import ApiError
from tests.schedules.scene import MINUTE, Scene, restarted, scene_in


async def test_one_that_is_paused_does_not_tick_and_says_so(scene: Scene) -> None:
    await scene.serve()
    await scene.schedule(enabled=False)
    await scene.passes(3 * MINUTE)
    assert await scene.ticks() == []
    assert await scene.ready() == ("True", "Paused")
    assert (await scene.status()).next_run_time is None


async def test_ticks_of_a_pause_are_not_made_up_for(scene: Scene) -> None:
    await scene.serve()
    await scene.schedule(catchUp="All", overlap="Allow")
    await scene.passes(MINUTE)
    await scene.patch(enabled=False)
    await scene.passes(5 * MINUTE)
    await scene.patch(enabled=True)
    assert await scene.ticks() == ["12:01"]
    await scene.passes(MINUTE)
    assert await scene.ticks() == ["12:01", "12:07"]


async def test_ticks_of_a_pause_that_ended_while_nobody_was_there_are_not_made_up_for() -> None:
    async with scene_in("store") as scene:
        await scene.serve()
        await scene.schedule(catchUp="All", overlap="Allow", enabled=False)
        await scene.world.stop()
        await scene.world.patch("Schedule", "tick", {"spec": {"enabled": True}})
        scene.clock.advance(5 * MINUTE)
        async with restarted(scene) as again:
            await again.serve()
            assert await again.ticks() == []
            await again.passes(MINUTE)
            assert await again.ticks() == ["12:06"]


async def test_ticks_of_the_former_cron_do_not_fire(scene: Scene) -> None:
    await scene.serve()
    await scene.schedule(cron="5 * * * *")
    await scene.patch(cron="10 * * * *")
    assert (await scene.status()).next_run_time == datetime(2026, 1, 5, 12, 10, tzinfo=UTC)
    await scene.passes(9 * MINUTE)
    assert await scene.ticks() == []
    await scene.passes(MINUTE)
    assert await scene.ticks() == ["12:10"]


async def test_ticks_that_the_new_cron_would_have_had_do_not_fire(scene: Scene) -> None:
    await scene.serve()
    await scene.schedule(cron="0 13 * * *", catchUp="All", overlap="Allow")
    await scene.passes(5 * MINUTE)
    await scene.patch(cron="* * * * *")
    assert await scene.ticks() == []


async def test_a_change_of_something_else_loses_no_tick_that_was_missed() -> None:
    async with scene_in("store") as scene:
        await scene.serve()
        await scene.schedule(catchUp="All", overlap="Allow")
        await scene.world.stop()
        scene.clock.advance(2 * MINUTE)
        await scene.world.patch("Schedule", "tick", {"spec": {"history": {"failed": 3}}})
        async with restarted(scene) as again:
            await again.serve()
            assert await again.ticks() == ["12:01", "12:02"]


async def test_one_that_is_deleted_ticks_no_more(scene: Scene) -> None:
    await scene.serve()
    await scene.schedule()
    await scene.world.delete("Schedule", "tick")
    await scene.passes(2 * MINUTE)
    assert await scene.ticks() == []


async def test_a_namesake_of_one_that_was_deleted_has_ticks_of_its_own(scene: Scene) -> None:
    await scene.serve()
    await scene.schedule()
    await scene.passes(30)
    await scene.world.delete("Schedule", "tick")
    await scene.world.rest()
    await scene.schedule()
    await scene.passes(MINUTE)
    assert (await scene.status()).run_count == 1


async def test_without_its_pool_it_waits_and_then_makes_up_for_the_last_tick(scene: Scene) -> None:
    await scene.serve()
    await scene.schedule(target={"taskTemplate": {"command": ["true"], "workerPoolRef": {"name": "other"}}})
    await scene.passes(3 * MINUTE)
    assert await scene.ticks() == []
    status, reason = await scene.ready()
    assert (status, reason) == ("False", "DependencyNotFound")
    await scene.pool("other")
    await scene.passes(1)
    assert await scene.ticks() == ["12:03"]
    assert await scene.ready() == ("True", "Scheduled")


async def test_one_whose_pool_goes_away_ticks_no_more(scene: Scene) -> None:
    await scene.serve()
    await scene.schedule()
    await scene.world.delete("WorkerPool", "pool")
    await scene.passes(2 * MINUTE)
    assert await scene.ticks() == []


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"cron": "61 * * * *"}, "spec.cron"),
        ({"cron": "0 0 30 2 *"}, "spec.cron"),
        ({"timeZone": "X/Y"}, "spec.timeZone"),
    ],
)
async def test_a_time_that_means_nothing_is_refused(scene: Scene, wrong: dict[str, str], field: str) -> None:
    with pytest.raises(ApiError) as refused:
        await scene.schedule(**wrong)
    assert (refused.value.code, refused.value.causes[0]["field"]) == (422, field)
    await scene.schedule()
    with pytest.raises(ApiError):
        await scene.patch(**wrong)


async def test_a_cron_that_a_cluster_took_is_told_and_can_be_mended(scene: Scene) -> None:
    await scene.serve()
    await scene.took(cron="5-1 * * * *")
    assert await scene.ready() == ("False", "InvalidSchedule")
    found = await scene.world.condition("Schedule", "tick", "Ready")
    assert found is not None
    assert found[2].startswith('spec.cron: Invalid value: "5-1 * * * *": minute 5-1 goes backwards')
    await scene.passes(5 * MINUTE)
    await scene.patch(cron="* * * * *", catchUp="All")
    assert await scene.ready() == ("True", "Scheduled")
    assert await scene.ticks() == []
    await scene.passes(MINUTE)
    assert await scene.ticks() == ["12:06"]


async def test_a_day_that_never_comes_is_told_where_a_cluster_took_it(scene: Scene) -> None:
    await scene.serve()
    await scene.took(cron="0 0 */31 2 MON#5")
    found = await scene.world.condition("Schedule", "tick", "Ready")
    assert found is not None and found[1] == "InvalidSchedule" and "never ticks" in found[2]


async def test_a_time_zone_that_is_none_is_told_where_a_cluster_took_it(scene: Scene) -> None:
    await scene.serve()
    await scene.took(timeZone="Europe/Atlantis")
    found = await scene.world.condition("Schedule", "tick", "Ready")
    assert found is not None and found[1] == "InvalidSchedule"
    assert found[2].startswith('spec.timeZone: Invalid value: "Europe/Atlantis": it is no time zone; write an IANA')


async def test_the_city_at_hand_is_the_servers_choice(scene: Scene) -> None:
    await scene.serve()
    await scene.schedule()
    assert (await scene.status()).region == "local"


async def test_what_names_other_cities_does_not_run_here_whatever_cells_there_are(scene: Scene) -> None:
    await scene.serve()
    await scene.world.create("Cell", "one", {"cityCode": "fra"})
    reported = {"conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "observedGeneration": 1}]}
    await scene.world.client.patch(Cell, "one", {"status": reported}, subresource="status")
    await scene.schedule(regions=["ams", "fra"])
    await scene.passes(2 * MINUTE)
    assert await scene.ready() == ("False", "RegionNotServed") and await scene.ticks() == []
    await scene.world.patch("Schedule", "tick", {"spec": {"regions": ["ams", "local"]}})
    await scene.passes(MINUTE)
    assert await scene.ready() == ("True", "Scheduled") and (await scene.status()).region == "local"


async def test_one_with_a_long_name_has_tasks_with_names_that_fit(scene: Scene) -> None:
    await scene.serve()
    await scene.schedule("n" * 200)
    await scene.passes(MINUTE)
    [task] = await scene.tasks()
    assert len(task.metadata.name) <= 63
    assert all(len(value) <= 63 for value in task.metadata.labels.values())
