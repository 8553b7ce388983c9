"""The reset of an instance after a hold: nothing is left for the next holder."""

from __future__ import annotations

import pytest

from rota.api import Instance
from tests.control.claims.party import (
    WORKERS,
    Party,
    claim,
    held,
    is_clean,
    phases,
    release,
    status,
    up,
)
from tests.engine_loop.loops import World


async def uid(world: World, name: str = "p-0") -> str:
    found: str = (await world.get("Instance", name)).metadata.uid
    return found


async def idle(world: World) -> bool:
    """Return whether all instances are ready, and nobody holds any."""
    found = (await world.client.list(Instance)).items
    return bool(found) and all(
        one.spec.assignment is None and one.status is not None and one.status.phase == "Idle" for one in found
    )


async def test_one_without_a_runner_is_kept_where_the_pool_says_so(world: World, party: Party) -> None:
    await up(world, party, reset="Keep")
    before = await uid(world)
    await claim(world, "a")
    await release(world, "a")
    assert await uid(world) == before and await held(world) == {} and party.runtime.dropped == []
    await world.pass_time(5, step=1)
    assert await idle(world) and is_clean(party)


@pytest.mark.parametrize("reset", ["Clean", "Recreate"])
async def test_one_without_a_runner_is_replaced_with_its_storage(world: World, party: Party, reset: str) -> None:
    await up(world, party, reset=reset, storage={"size": "1Gi"})
    before = await uid(world)
    await claim(world, "a")
    await claim(world, "b")
    await release(world, "a")
    await world.pass_time(30, step=5)
    assert await uid(world) != before and set(party.runtime.dropped) == {"p-0"}
    assert await held(world) == {"p-0": "b"} and (await status(world, "b")).phase == "Bound"


@pytest.mark.parametrize("reset", ["Clean", "Keep"])
async def test_one_without_a_runner_stays_as_it_is_if_nobody_got_there(world: World, party: Party, reset: str) -> None:
    entries = 7
    party.entries = lambda instance: entries
    await up(world, party, reset=reset)
    before = await world.get("Instance", "p-0")
    await claim(world, "a")
    await release(world, "a")
    await claim(world, "b")
    assert await held(world) == {"p-0": "b"}
    after = await world.get("Instance", "p-0")
    assert (after.metadata.uid, after.status.runtime_id) == (before.metadata.uid, before.status.runtime_id)
    entries += 1
    await release(world, "b")
    await world.pass_time(30, step=5)
    after = await world.get("Instance", "p-0")
    assert (after.metadata.uid != before.metadata.uid) == (reset == "Clean")
    assert after.status.runtime_id != before.status.runtime_id and await idle(world) and is_clean(party)


async def test_one_that_its_holder_got_to_as_it_was_given_back_is_started_anew(world: World, party: Party) -> None:
    entries = 0
    party.entries = lambda instance: entries
    await up(world, party, reset="Keep")
    before = await world.get("Instance", "p-0")
    await claim(world, "a")
    await claim(world, "b")

    def enter() -> None:
        nonlocal entries
        if "a" not in party.ended:
            entries += 1

    party.racing.meanwhile = enter
    await release(world, "a")
    await world.pass_time(30, step=5)
    after = await world.get("Instance", "p-0")
    assert entries and after.status.runtime_id != before.status.runtime_id and await held(world) == {"p-0": "b"}


async def test_nothing_is_known_of_a_hold_that_began_before_a_restart(world: World, party: Party) -> None:
    party.entries = lambda instance: 0
    await up(world, party, reset="Keep")
    before = await world.get("Instance", "p-0")
    await claim(world, "a")
    await party.restart()
    await release(world, "a")
    await world.pass_time(30, step=5)
    assert (await world.get("Instance", "p-0")).status.runtime_id != before.status.runtime_id


async def test_one_that_was_used_is_given_to_nobody_even_after_a_restart(world: World, party: Party) -> None:
    await up(world, party)
    await claim(world, "a")
    before = await uid(world)
    await world.stop()
    # Somebody has given it back, and died before anything else was done.
    patch = {"metadata": {"annotations": {"rota.dev/used": "a"}}, "spec": {"assignment": None}}
    await world.patch("Instance", "p-0", patch)
    await world.create("Claim", "b", {"poolRef": {"name": "p"}})
    await party.restart()
    await world.pass_time(30, step=5)
    assert await uid(world) != before and await held(world) == {"p-0": "b"}


async def test_a_runner_makes_it_as_new_before_anybody_else_has_it(world: World, party: Party) -> None:
    await up(world, party, **WORKERS)
    before = await uid(world)
    await claim(world, "a")
    await claim(world, "b")
    party.is_slow = True
    await release(world, "a")
    assert await held(world) == {} and (await status(world, "b")).phase == "Waiting" and party.resets == []
    party.is_slow = False
    party.reset_done("p-0")
    await world.rest()
    assert party.resets == ["p-0"] and await held(world) == {"p-0": "b"} and await uid(world) == before


async def test_one_with_a_runner_is_replaced_where_the_pool_says_so(world: World, party: Party) -> None:
    await up(world, party, reset="Recreate", **WORKERS)
    before = await uid(world)
    await claim(world, "a")
    await release(world, "a")
    await world.pass_time(30, step=5)
    assert await uid(world) != before and await idle(world) and party.resets == []


async def test_a_hold_that_its_runner_never_heard_of_is_given_back_when_it_has(world: World, party: Party) -> None:
    await up(world, party, **WORKERS)
    party.is_deaf = True
    await claim(world, "a")
    await release(world, "a")
    assert (await phases(world)) == {"a": "Released"} and await held(world) == {"p-0": "a"}
    party.hear()
    await world.rest()
    await world.pass_time(5, step=1)
    assert await held(world) == {} and await idle(world) and party.resets == ["p-0"] and is_clean(party)


async def test_a_hold_that_ends_while_its_runner_is_away_is_given_back_when_it_returns(
    world: World, party: Party
) -> None:
    await up(world, party, **WORKERS)
    await claim(world, "a")
    await world.pass_time(5, step=1)
    party.is_away = True
    await release(world, "a")
    await world.pass_time(5, step=1)
    party.is_away = False
    party.reconnect()
    await world.rest()
    await world.pass_time(5, step=1)
    assert await held(world) == {} and await idle(world) and party.resets == ["p-0"]


# Crashes.


@pytest.mark.parametrize("seconds", [0, 5])
async def test_a_crash_ends_the_claim_with_the_reason_and_what_is_left_goes(
    world: World, party: Party, seconds: float
) -> None:
    await up(world, party)
    before = await uid(world)
    await claim(world, "a")
    await world.pass_time(seconds, step=1)
    party.runtime.die("p-0", code=7)
    await world.rest()
    found = await status(world, "a")
    assert (found.phase, found.reason) == ("Failed", "InstanceCrashed") and "exit code 7" in found.message
    await world.pass_time(60, step=5)
    assert await uid(world) != before and await held(world) == {} and await idle(world) and is_clean(party)


async def test_a_crash_of_one_that_is_not_started_again_ends_the_claim(world: World, party: Party) -> None:
    template = {"containers": [{"name": "main", "command": ["sleep"]}], "restartPolicy": "Never"}
    await up(world, party, template=template)
    await claim(world, "a")
    await world.pass_time(5, step=1)
    party.runtime.die("p-0", code=7)
    await world.rest()
    assert (await status(world, "a")).reason in ("InstanceCrashed", "InstanceLost")
    await world.pass_time(60, step=5)
    assert await held(world) == {} and await idle(world)


@pytest.mark.parametrize("reset", ["Clean", "Keep", "Recreate"])
@pytest.mark.parametrize("seconds", [0, 5])
async def test_a_runner_that_dies_ends_the_claim_and_the_instance_is_idle_again(
    world: World, party: Party, seconds: float, reset: str
) -> None:
    await up(world, party, reset=reset, **WORKERS)
    await claim(world, "a")
    await world.pass_time(seconds, step=1)
    party.runtime.die("p-0", container="worker")
    await world.rest()
    await world.pass_time(60, step=5)
    assert (await status(world, "a")).reason == "InstanceCrashed"
    assert await held(world) == {} and await idle(world) and is_clean(party)
    await claim(world, "b")
    assert (await status(world, "b")).phase == "Bound"


@pytest.mark.parametrize("seconds", [0, 5])
async def test_a_box_that_is_lost_ends_the_claim_though_the_runner_lives(
    world: World, party: Party, seconds: float
) -> None:
    await up(world, party, **WORKERS)
    await claim(world, "a")
    await world.pass_time(seconds, step=1)
    party.lose_box("p-0")
    await world.rest()
    await world.pass_time(10, step=1)
    assert (await status(world, "a")).reason == "InstanceCrashed"
    assert await held(world) == {} and await idle(world) and is_clean(party)


@pytest.mark.parametrize("reset", ["Clean", "Keep"])
async def test_what_was_begun_in_a_box_after_the_one_that_was_lost_ends_with_the_claim(
    world: World, party: Party, reset: str
) -> None:
    await up(world, party, reset=reset, **WORKERS)
    await claim(world, "a")
    await world.pass_time(5, step=1)
    before = party.runtime.runs(party.subject("p-0"))["worker"].id
    # Until the claim is over, who has it may go into the box that took the place of the lost one.
    party.lose_box("p-0")
    await world.rest()
    await world.pass_time(10, step=1)
    assert party.runtime.runs(party.subject("p-0"))["worker"].id != before
    assert await held(world) == {} and await idle(world)


async def test_a_crash_while_nobody_was_there_ends_the_claim_afterwards(world: World, party: Party) -> None:
    await up(world, party, **WORKERS)
    await claim(world, "a")
    await world.pass_time(5, step=1)
    await world.stop()
    party.runtime.die("p-0", container="worker")
    await party.restart()
    await world.pass_time(60, step=5)
    assert (await status(world, "a")).reason == "InstanceCrashed" and await held(world) == {} and await idle(world)


async def test_an_instance_that_is_deleted_ends_the_claim(world: World, party: Party) -> None:
    await up(world, party)
    await claim(world, "a")
    await world.delete("Instance", "p-0")
    await world.rest()
    assert (await status(world, "a")).reason == "InstanceLost"
    await world.pass_time(60, step=5)
    assert await held(world) == {} and await idle(world) and is_clean(party)


@pytest.mark.parametrize("reset", ["Clean", "Keep"])
async def test_one_that_is_deleted_while_somebody_has_it_leaves_nothing_to_the_next(
    world: World, party: Party, reset: str
) -> None:
    await up(world, party, reset=reset, storage={"size": "1Gi"})
    await claim(world, "a")
    await world.delete("Instance", "p-0")
    await world.rest()
    await world.pass_time(60, step=5)
    assert await idle(world) and set(party.runtime.dropped) == ({"p-0"} if reset == "Clean" else set())


async def test_whoever_serves_a_claim_is_told_when_its_instance_is_gone(world: World, party: Party) -> None:
    await up(world, party, 2)
    for name in "ab":
        await claim(world, name)
    uids = [(await world.get("Claim", name)).metadata.uid for name in "ab"]
    await release(world, "a")
    await world.delete("Instance", (await status(world, "b")).instance_name)
    await world.rest()
    assert [one for one in uids if one not in party.ended] == []
