"""Probes over time: what is followed, what is told, what is left."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from rota.runtime.probes import probes as module
from tests.probes.probing import START, World, a_container, a_run, asking, settle, subject

EVERY_TEN = asking(period_seconds=10, failure_threshold=3, timeout_seconds=2)


async def test_a_container_without_probes_is_ready_while_it_runs() -> None:
    async with World() as world:
        assert world.probes.ready(subject(), "main") == (False, "container main is not running")
        world.follow(a_container())
        assert world.probes.ready(subject(), "main") == (True, "")
        world.follow(a_container(), a_run(code=1))
        assert not world.ready()
        assert world.must_restart() is None


async def test_it_is_ready_after_the_first_probe_that_passes() -> None:
    async with World() as world:
        world.follow(a_container(readiness=EVERY_TEN))
        assert world.why() == "container main is not ready: its probe has not been made yet"
        await world.pass_(1)
        assert world.ready()
        assert world.told == ["agents-0"]
        assert world.commands.calls == [("agents-0", "main", ("check",), 2)]


async def test_it_is_unready_after_as_many_failures_as_the_threshold_says_and_ready_again_after_one_success() -> None:
    async with World() as world:
        world.follow(a_container(readiness=EVERY_TEN))
        await world.pass_(1)
        world.commands.codes["agents-0"] = 3
        await world.pass_(20)
        assert world.ready()
        await world.pass_(10)
        assert world.why() == "container main is not ready: the command exited with code 3"
        world.commands.codes["agents-0"] = 0
        await world.pass_(10)
        assert world.ready()
        assert len(world.told) == 3


async def test_only_a_verdict_that_changes_is_told() -> None:
    async with World() as world:
        world.follow(a_container(readiness=EVERY_TEN, liveness=EVERY_TEN))
        await world.pass_(600)
        assert len(world.commands.calls) >= 118
        assert world.told == ["agents-0"]


async def test_what_never_was_ready_is_told_once_when_its_failures_count() -> None:
    async with World() as world:
        world.commands.codes["agents-0"] = 1
        world.follow(a_container(readiness=EVERY_TEN))
        await world.pass_(11)
        assert (world.told, world.why()) == ([], "container main is not ready: the command exited with code 1")
        await world.pass_(600)
        assert world.told == ["agents-0"]


async def test_who_no_longer_listens_is_told_nothing() -> None:
    async with World() as world:
        world.stop_listening()
        world.follow(a_container(readiness=EVERY_TEN))
        await world.pass_(1)
        assert world.ready() and world.told == []


async def test_a_container_that_is_not_alive_must_be_restarted_and_its_next_run_is_judged_anew() -> None:
    async with World() as world:
        container = a_container(liveness=EVERY_TEN)
        world.follow(container)
        assert world.must_restart() is None
        world.commands.codes["agents-0"] = 9
        await world.pass_(31)
        assert world.must_restart() == "container main is not alive: the command exited with code 9"
        assert world.ready(), "it has no readiness probe"
        world.follow(container, a_run(1, START + 31))
        assert world.must_restart() is None
        await world.pass_(15)
        assert world.must_restart() is None, "the failures of the last run are not its own"


async def test_to_follow_again_changes_nothing() -> None:
    async with World() as world:
        for _ in range(100):
            world.follow(a_container(readiness=EVERY_TEN))
            await world.pass_(0.1)
        assert len(world.commands.calls) == 1
        assert world.ready()


async def test_a_changed_probe_is_begun_anew() -> None:
    async with World() as world:
        world.follow(a_container(readiness=EVERY_TEN))
        await world.pass_(1)
        world.follow(a_container(readiness=asking("other")))
        assert not world.ready()
        await world.pass_(1)
        assert [argv for _, _, argv, _ in world.commands.calls] == [("check",), ("other",)]


async def test_a_server_that_was_away_does_not_make_ready_runs_unready() -> None:
    async with World(lambda: 0.5) as world:
        world.follow(a_container(readiness=EVERY_TEN), a_run(started=START - 3600), was_ready=True)
        assert world.ready()
        await world.pass_(4)
        assert world.commands.calls == [], "spread over the period, for nobody waits for it"
        await world.pass_(2)
        assert len(world.commands.calls) == 1
        assert world.told == []


async def test_the_initial_delay_is_counted_from_the_start_of_the_run() -> None:
    async with World() as world:
        world.follow(a_container(readiness=asking(initial_delay_seconds=30)), a_run(started=START - 20))
        await world.pass_(9)
        assert world.commands.calls == []
        await world.pass_(1)
        assert len(world.commands.calls) == 1


async def test_what_takes_longer_than_its_period_is_not_begun_twice() -> None:
    async with World() as world:
        world.commands.hang = True
        world.follow(a_container(readiness=asking(period_seconds=1, timeout_seconds=3600)))
        await world.pass_(60)
        assert len(world.commands.calls) == 1
        world.commands.go_on()
        await settle()
        await world.pass_(1)
        assert len(world.commands.calls) == 2


async def test_one_probe_of_a_container_is_made_at_a_time() -> None:
    async with World() as world:
        world.commands.hang = True
        slow = asking(timeout_seconds=60)
        world.follow(a_container(readiness=slow, liveness=slow))
        await world.pass_(5)
        assert len(world.commands.calls) == 1
        world.commands.go_on()
        await settle()
        assert len(world.commands.calls) == 2
        assert world.commands.running_max == 1


async def test_a_command_that_could_not_be_run_is_no_fault_of_the_container() -> None:
    async with World() as world:
        world.follow(a_container(readiness=EVERY_TEN, liveness=EVERY_TEN))
        await world.pass_(1)
        world.commands.codes["agents-0"] = ConnectionError("the keeper is away")
        await world.pass_(600)
        assert world.ready() and world.must_restart() is None
        world.follow(a_container(readiness=EVERY_TEN), a_run(1))
        await world.pass_(1)
        assert world.why().endswith("the command could not be run: the keeper is away")


async def test_a_command_that_takes_too_long_has_failed() -> None:
    async with World() as world:
        world.commands.codes["agents-0"] = TimeoutError()
        world.follow(a_container(readiness=EVERY_TEN))
        await world.pass_(1)
        assert world.why().endswith("the command took longer than 2 s")


async def test_a_command_that_is_not_ended_in_time_is_given_up() -> None:
    async with World() as world:
        world.commands.hang = True
        world.follow(a_container(readiness=EVERY_TEN))
        await world.pass_(8)
        assert world.why().endswith("the command could not be ended in time")
        assert world.commands.running == []


async def test_what_is_forgotten_is_probed_no_more_and_its_command_is_ended() -> None:
    async with World() as world:
        world.commands.hang = True
        world.follow(a_container(readiness=EVERY_TEN, liveness=EVERY_TEN))
        await world.pass_(1)
        assert world.commands.running == ["agents-0"]
        world.probes.forget(subject())
        await world.pass_(60)
        assert world.commands.running == [] and len(world.commands.calls) == 1
        assert not world.ready()


async def test_a_run_that_ended_is_probed_no_more() -> None:
    async with World() as world:
        world.follow(a_container(readiness=EVERY_TEN))
        await world.pass_(1)
        world.follow(a_container(readiness=EVERY_TEN), a_run(code=0))
        await world.pass_(60)
        assert len(world.commands.calls) == 1
        assert not world.ready()


async def test_a_result_that_comes_after_the_end_of_its_run_is_nobodys() -> None:
    async with World() as world:
        world.commands.hang = True
        world.follow(a_container(readiness=EVERY_TEN))
        await world.pass_(1)
        world.commands.go_on()
        world.commands.hang = True
        world.follow(a_container(readiness=EVERY_TEN), a_run(1, started=START + 1))
        await settle()
        assert world.told == [] and not world.ready()


async def test_a_bounded_number_of_commands_runs_at_once_and_the_others_wait_their_turn() -> None:
    async with World() as world:
        world.commands.hang = True
        each = 2 * module.COMMANDS_AT_ONCE_MAX // module.NAMESPACES_AT_ONCE_MIN
        everyone = [subject(f"i-{n}", f"space-{s}") for s in range(module.NAMESPACES_AT_ONCE_MIN) for n in range(each)]
        for one in everyone:
            world.follow(a_container(readiness=asking(timeout_seconds=60)), one=one)
        await world.pass_(1)
        assert len(world.commands.running) == module.COMMANDS_AT_ONCE_MAX
        world.commands.go_on()
        await settle()
        assert all(world.ready(one) for one in everyone)
        assert world.commands.running_max == module.COMMANDS_AT_ONCE_MAX


async def test_probes_that_hang_do_not_hold_up_those_of_another_namespace() -> None:
    async with World() as world:
        world.commands.hang = True
        for n in range(100):
            world.follow(a_container(readiness=asking(timeout_seconds=3600)), one=subject(f"i-{n}", "slow"))
        await world.pass_(1)
        world.commands.hang = False
        world.follow(a_container(readiness=EVERY_TEN), one=subject("other", "quick"))
        await world.pass_(1)
        assert world.ready(subject("other", "quick"))


async def test_what_waits_for_its_turn_and_is_forgotten_is_never_begun() -> None:
    async with World() as world:
        world.commands.hang = True
        everyone = [subject(f"i-{n}") for n in range(100)]
        for one in everyone:
            world.follow(a_container(readiness=asking(timeout_seconds=60)), one=one)
        await world.pass_(1)
        begun = len(world.commands.calls)
        for one in everyone:
            world.probes.forget(one)
        await settle()
        assert len(world.commands.calls) == begun < 100


async def test_the_probes_of_a_thousand_are_spread() -> None:
    async with World(random.Random(7).random) as world:
        for n in range(1000):
            world.follow(a_container(liveness=EVERY_TEN), one=subject(f"i-{n}"))
        assert len(asyncio.all_tasks()) == 1, "only timers"
        await world.pass_(10, step=0.1)
        assert len(world.commands.calls) == 1000
        assert max(Counter(world.commands.times).values()) < 30, "of ten in a tenth of a second, on average"


async def test_nothing_begins_after_the_end() -> None:
    world = World()
    world.commands.hang = True
    world.follow(a_container(readiness=EVERY_TEN))
    await world.pass_(1)
    await world.probes.close()
    assert world.commands.running == []
    world.follow(a_container(readiness=EVERY_TEN), a_run(1))
    await world.pass_(60)
    assert len(world.commands.calls) == 1
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("times", [1, 3])
async def test_containers_of_one_instance_are_judged_each_on_its_own(times: int) -> None:
    async with World() as world:
        for _ in range(times):
            world.follow(a_container(readiness=EVERY_TEN))
            world.follow(a_container(readiness=asking(initial_delay_seconds=60), name="beside"))
        await world.pass_(1)
        assert world.ready()
        assert not world.probes.ready(subject(), "beside")[0]
