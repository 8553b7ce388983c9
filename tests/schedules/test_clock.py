"""The wall clock is set, or the machine was suspended: no tick twice, and it is noticed within a second."""

from __future__ import annotations

from rota.control.schedules.statuses import CLOCK_BEHIND_SECONDS
from rota.control.schedules.ticker import LOOK_SECONDS
from tests.schedules.scene import MINUTE, Scene

HOUR = 3600


async def test_a_suspended_machine_makes_up_for_what_it_slept_through_within_a_second(scene: Scene) -> None:
    await scene.serve()
    await scene.schedule(cron="0 * * * *", catchUpWithinSeconds=6 * HOUR)
    scene.clock.sleep(5 * HOUR)
    await scene.passes(LOOK_SECONDS + 0.01)
    assert await scene.ticks() == ["17:00"]
    assert (await scene.status()).skipped_count == 4


async def test_a_clock_that_is_set_forward_is_noticed_within_a_second(scene: Scene) -> None:
    await scene.serve()
    await scene.schedule(cron="0 13 * * *")
    scene.clock.step(3575)
    await scene.passes(LOOK_SECONDS + 0.01)
    assert await scene.ticks() == ["13:00"]


async def test_a_clock_that_is_set_back_fires_nothing_twice(scene: Scene) -> None:
    await scene.serve()
    await scene.schedule(overlap="Allow")
    await scene.passes(3 * MINUTE)
    assert await scene.ticks() == ["12:01", "12:02", "12:03"]
    scene.clock.step(-2 * MINUTE)
    await scene.passes(2 * MINUTE)
    assert await scene.ticks() == ["12:01", "12:02", "12:03"]
    await scene.passes(MINUTE)
    assert await scene.ticks() == ["12:01", "12:02", "12:03", "12:04"]


async def test_one_that_is_silent_because_the_clock_went_back_says_so(scene: Scene) -> None:
    await scene.serve()
    await scene.schedule()
    await scene.passes(MINUTE)
    scene.clock.step(-HOUR)
    await scene.passes(LOOK_SECONDS + 0.01)
    assert await scene.ready() == ("False", "ClockBehind")
    await scene.passes(HOUR - CLOCK_BEHIND_SECONDS)
    await scene.passes(2 * MINUTE)
    assert await scene.ready() == ("True", "Scheduled")


async def test_a_clock_that_jumps_forth_and_back_fires_each_tick_at_most_once(scene: Scene) -> None:
    await scene.serve()
    await scene.schedule(overlap="Allow")
    for step in (HOUR, -HOUR, 2 * HOUR, -30 * MINUTE, 90, -90):
        scene.clock.step(step)
        await scene.passes(2 * MINUTE)
    made = await scene.moments()
    assert made == sorted(set(made))
    assert len(made) == (await scene.status()).run_count


async def test_a_stand_still_of_the_process_longer_than_a_tick_loses_none_that_is_promised(scene: Scene) -> None:
    await scene.serve()
    await scene.schedule(catchUp="All", overlap="Allow")
    await scene.passes(5 * MINUTE, 5 * MINUTE)
    assert await scene.ticks() == ["12:01", "12:02", "12:03", "12:04", "12:05"]
