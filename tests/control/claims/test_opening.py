"""Asking for a claim and waiting for the answer: whoever goes before it comes leaves nothing behind."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota.api import Claim
from rota.client import Key
from rota.control.claims.callers import RETURN_SECONDS_MAX
from rota.registry import ApiError
from tests.amount import amount
from tests.control.claims.party import (
    WORKERS,
    Party,
    a_claim,
    answer_of,
    claim,
    held,
    is_bound,
    is_clean,
    phases,
    release,
    settles,
    status,
    up,
)
from tests.engine_loop.loops import World

TURNS_MAX = 60
"""After so many turns of the event loop a claim is settled in any case."""
ANSWERED_MAX = amount(3, TURNS_MAX)
"""Times that whoever goes has its answer already: each later instant is as the one before."""
CONFLICT = ApiError(409, "Conflict", "somebody was faster")


def phase(found: Claim | None) -> str | None:
    return found.status.phase if found is not None and found.status is not None else None


def opening(party: Party, name: str, **spec: Any) -> asyncio.Task[Claim | None]:
    return asyncio.create_task(party.claims.callers.open(a_claim(name, **spec), may_wait=True))


async def awaiting(world: World, party: Party, name: str) -> asyncio.Task[Claim | None]:
    """Somebody who asks for a claim that is there."""
    found = await world.get("Claim", name)
    return asyncio.create_task(party.claims.callers.wait_for(found))


async def over(world: World) -> bool:
    return all(one in ("Released", "Failed", "Expired") for one in (await phases(world)).values())


async def nothing_left(world: World, party: Party) -> bool:
    return await held(world) == {} and await over(world) and is_clean(party)


async def test_one_that_is_free_is_had_at_once(world: World, party: Party) -> None:
    await up(world, party)
    found = await answer_of(world, party.claims.callers.open(a_claim("a"), may_wait=True))
    assert phase(found) == "Bound" and await held(world) == {"p-0": "a"}
    await world.rest()
    await release(world, "a")
    await world.pass_time(30, step=5)
    assert is_clean(party)


async def test_one_that_may_not_wait_is_told_so_and_nothing_is_made(world: World, party: Party) -> None:
    await up(world, party)
    await claim(world, "a")
    before = world.registry.store.revision
    assert await party.claims.callers.open(a_claim("b"), may_wait=False) is None
    assert world.registry.store.revision == before and await phases(world) == {"a": "Bound"}
    await release(world, "a")
    await world.pass_time(30, step=5)
    assert is_clean(party)


async def test_one_that_has_to_wait_is_told_when_it_has_one(world: World, party: Party) -> None:
    await up(world, party, reset="Keep")
    await claim(world, "a")
    asking = opening(party, "b")
    await world.rest()
    assert not asking.done() and (await phases(world))["b"] == "Waiting"
    await release(world, "a")
    assert phase(await answer_of(world, asking)) == "Bound"


async def test_one_that_is_not_served_in_time_is_told_when_its_time_is_over(world: World, party: Party) -> None:
    await up(world, party)
    await claim(world, "a")
    asking = opening(party, "b", wait_seconds=10)
    await world.rest()
    await world.pass_time(9.9)
    assert not asking.done()
    await world.pass_time(0.2)
    found = await answer_of(world, asking)
    assert found is not None and found.status is not None and found.status.reason == "WaitTimeout"


async def test_those_who_ask_together_are_served_in_the_order_in_which_they_asked(world: World, party: Party) -> None:
    await up(world, party, reset="Keep")
    names = [f"c{i}" for i in range(8)]
    asking = {name: opening(party, name, holder="x") for name in names}
    order = []
    for _ in names:
        await world.rest()
        [done] = [name for name, task in asking.items() if task.done() and name not in order]
        order.append(done)
        await release(world, done)
    assert order == names and all(phase(task.result()) == "Bound" for task in asking.values())


async def test_a_name_that_is_taken_is_told_to_who_asked_and_to_nobody_else(world: World, party: Party) -> None:
    await up(world, party, 2)
    await claim(world, "busy")
    await claim(world, "busy2")
    first = opening(party, "a")
    await world.rest()
    second = opening(party, "a")
    await world.rest()
    with pytest.raises(ApiError, match="already exists"):
        await answer_of(world, second)
    assert not first.done()
    await release(world, "busy")
    await world.pass_time(30, step=5)
    assert phase(await answer_of(world, first)) == "Bound"
    assert len([one for one in (await held(world)).values() if one == "a"]) == 1


async def test_a_name_that_is_taken_costs_nobody_an_instance(world: World, party: Party) -> None:
    await up(world, party, 2)
    await claim(world, "a")
    with pytest.raises(ApiError, match="already exists"):
        await answer_of(world, party.claims.callers.open(a_claim("a"), may_wait=True))
    await world.rest()
    assert await held(world) == {"p-0": "a"}
    await claim(world, "b")
    assert (await status(world, "b")).phase == "Bound", "nothing is benched by it"


async def test_what_is_no_claim_is_told_to_who_asked_and_costs_nobody_an_instance(world: World, party: Party) -> None:
    await up(world, party)
    for wrong in (a_claim("No Name"), a_claim("a", lease_seconds=0), a_claim("a", priority=10**12)):
        with pytest.raises(ApiError) as told:
            await answer_of(world, party.claims.callers.open(wrong, may_wait=True))
        assert told.value.code == 422
    assert await phases(world) == {} and is_clean(party)
    assert phase(await answer_of(world, party.claims.callers.open(a_claim("b"), may_wait=True))) == "Bound"


async def test_a_race_that_is_lost_costs_no_place_and_no_answer(world: World, party: Party) -> None:
    await up(world, party, reset="Keep")
    party.racing.failures = [CONFLICT] * 3
    first = opening(party, "a", holder="x")
    second = opening(party, "b", holder="x")
    found = await answer_of(world, first)
    await world.rest()
    assert phase(found) == "Bound" and not second.done()
    await release(world, "a")
    assert phase(await answer_of(world, second)) == "Bound"


async def test_the_server_being_out_of_order_for_a_moment_is_no_answer(world: World, party: Party) -> None:
    await up(world, party)
    party.racing.failures = [ApiError(500, "InternalError", "the disk is full")]
    asking = opening(party, "a")
    assert phase(await answer_of(world, asking)) == "Bound" and await held(world) == {"p-0": "a"}


# Who goes before the answer comes.


@pytest.mark.parametrize("is_slow", [False, True])
@pytest.mark.parametrize("kind", [{}, WORKERS])
async def test_whoever_goes_at_any_instant_leaves_nothing_behind(
    world: World, party: Party, is_slow: bool, kind: dict[str, Any]
) -> None:
    await up(world, party, reset="Keep", **kind)
    for turns in range(TURNS_MAX):
        party.racing.is_slow = is_slow
        asking = opening(party, f"c{turns}")
        for _ in range(turns):
            await asyncio.sleep(0)
        if asking.done():
            break
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await world.rest()
        await settles(world, lambda: nothing_left(world, party))
    assert turns < TURNS_MAX - 1, "in the end somebody was answered"
    await claim(world, "next")
    await release(world, f"c{turns}")
    assert await is_bound(world, "next")


@pytest.mark.parametrize("is_slow", [False, True])
async def test_whoever_goes_while_the_instance_comes_leaves_it_to_the_next(
    world: World, party: Party, is_slow: bool
) -> None:
    await up(world, party, reset="Keep")
    answered = 0
    for turns in range(TURNS_MAX):
        await claim(world, f"before{turns}")
        asking = opening(party, f"c{turns}")
        after = opening(party, f"after{turns}")
        await world.rest()
        party.racing.is_slow = is_slow
        await world.patch("Claim", f"before{turns}", {"spec": {"release": True}})
        for _ in range(turns):
            await asyncio.sleep(0)
        answered += not asking.cancel()
        found = (await asyncio.gather(asking, return_exceptions=True))[0]
        if not isinstance(found, BaseException):
            await release(world, f"c{turns}")
        assert phase(await answer_of(world, after)) == "Bound"
        await world.rest()
        party.racing.is_slow = False
        await release(world, f"after{turns}")
        await settles(world, lambda: nothing_left(world, party))
        if answered == ANSWERED_MAX:
            break


async def test_whoever_goes_while_a_race_is_lost_leaves_nothing_behind(world: World, party: Party) -> None:
    await up(world, party, reset="Keep")
    for turns in range(TURNS_MAX):
        party.racing.failures = [CONFLICT]
        asking = opening(party, "same")
        for _ in range(turns):
            await asyncio.sleep(0)
        asking.cancel()
        found = (await asyncio.gather(asking, return_exceptions=True))[0]
        party.racing.failures = []
        if not isinstance(found, BaseException):
            # The race was run again meanwhile, and won: it has its answer.
            await release(world, "same")
        await settles(world, lambda: nothing_left(world, party))
        assert party.claims.callers.unstored_claim(Key("default", "same")) is None
        if "same" in await phases(world):
            await world.delete("Claim", "same")
            await world.rest()
    assert phase(await answer_of(world, opening(party, "same"))) == "Bound"


async def test_one_that_somebody_else_waits_for_as_well_stays(world: World, party: Party) -> None:
    await up(world, party, reset="Keep")
    await claim(world, "before")
    first = opening(party, "a")
    await world.rest()
    second = await awaiting(world, party, "a")
    await asyncio.sleep(0)
    first.cancel()
    await world.rest()
    assert (await phases(world))["a"] == "Waiting"
    await release(world, "before")
    assert phase(await answer_of(world, second)) == "Bound"


async def test_when_the_last_one_who_waits_for_it_goes_it_goes(world: World, party: Party) -> None:
    await up(world, party, reset="Keep")
    await claim(world, "before")
    first = opening(party, "a")
    await world.rest()
    others = [await awaiting(world, party, "a") for _ in range(2)]
    await asyncio.sleep(0)
    for task in (others[0], first, others[1]):
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await world.rest()
    assert "a" not in await phases(world)
    await release(world, "before")
    await settles(world, lambda: nothing_left(world, party))


async def test_one_that_was_not_made_by_who_asks_is_not_taken_away_by_it(world: World, party: Party) -> None:
    await up(world, party)
    await claim(world, "before")
    await claim(world, "a")
    asking = await awaiting(world, party, "a")
    await asyncio.sleep(0)
    asking.cancel()
    await world.rest()
    assert (await phases(world))["a"] == "Waiting"


async def test_a_server_that_stops_fails_nobody_who_waits(world: World, party: Party) -> None:
    await up(world, party, reset="Keep")
    await claim(world, "before")
    asking = [opening(party, name, holder="x", wait_seconds=1000) for name in "abc"]
    await world.rest()
    await world.stop()
    for task in asking:
        with pytest.raises(ApiError) as told:
            await answer_of(world, task)
        assert told.value.code == 503
    await party.restart()
    assert {(await phases(world))[name] for name in "abc"} == {"Waiting"}
    again = await awaiting(world, party, "a")
    await release(world, "before")
    assert phase(await answer_of(world, again)) == "Bound", "it has its place, and its name"


async def test_before_anything_is_known_nobody_is_served_and_told_so(world: World, party: Party) -> None:
    party.controllers()
    with pytest.raises(ApiError) as told:
        await party.claims.callers.open(a_claim("a"), may_wait=True)
    assert told.value.code == 503


# Across a restart.


async def test_a_claim_whose_maker_is_gone_is_not_bound_after_a_restart(world: World, party: Party) -> None:
    await up(world, party, reset="Keep")
    await claim(world, "before")
    asking = opening(party, "gone")
    await world.rest()
    await party.restart()
    assert isinstance((await asyncio.gather(asking, return_exceptions=True))[0], ApiError)
    await release(world, "before")
    assert await phases(world) == {"before": "Released", "gone": "Waiting"} and await held(world) == {}
    # Others do not wait for it.
    assert phase(await answer_of(world, opening(party, "next"))) == "Bound"
    await world.pass_time(RETURN_SECONDS_MAX + 5, step=5)
    assert await phases(world) == {"before": "Released", "next": "Bound"}
    await release(world, "next")
    await settles(world, lambda: nothing_left(world, party))


async def test_a_maker_who_comes_back_after_a_restart_has_the_place_that_was_theirs(world: World, party: Party) -> None:
    await up(world, party, reset="Keep", queue={"limit": 2})
    await claim(world, "before")
    for name in ("first", "second"):
        opening(party, name).add_done_callback(lambda task: task.exception())
        await world.rest()
    await party.restart()
    later = [opening(party, name) for name in ("third", "fourth")]
    await world.rest()
    await world.pass_time(RETURN_SECONDS_MAX - 10, step=5)
    back = [await awaiting(world, party, name) for name in ("second", "first")]
    await world.rest()
    for name, task in (("before", back[1]), ("first", back[0]), ("second", later[0]), ("third", later[1])):
        await release(world, name)
        assert phase(await answer_of(world, task)) == "Bound", name
    await release(world, "fourth")
    await settles(world, lambda: nothing_left(world, party))


async def test_who_asks_for_a_bound_claim_before_its_instance_is_known_again_gets_it(
    world: World, party: Party
) -> None:
    await up(world, party, reset="Keep")
    await claim(world, "held")
    (member,) = party.claims.executor.members.values()
    # As right after a restart: the claim was looked at, and who asks for it finds no instance yet.
    asking = await awaiting(world, party, "held")
    await world.rest()
    assert not asking.done()
    party.claims.executor.update(member)
    assert phase(await answer_of(world, asking)) == "Bound"
    await release(world, "held")
    await settles(world, lambda: nothing_left(world, party))


async def test_a_maker_who_comes_back_and_leaves_again_leaves_nothing(world: World, party: Party) -> None:
    await up(world, party, reset="Keep")
    await claim(world, "before")
    opening(party, "a").add_done_callback(lambda task: task.exception())
    await world.rest()
    await party.restart()
    back = await awaiting(world, party, "a")
    await world.rest()
    back.cancel()
    await world.rest()
    assert await phases(world) == {"before": "Bound"}
    await release(world, "before")
    await settles(world, lambda: nothing_left(world, party))


@pytest.mark.parametrize("is_attended", [True, False])
async def test_a_claim_whose_time_to_wait_was_over_before_the_restart_is_not_bound(
    world: World, party: Party, is_attended: bool
) -> None:
    await up(world, party, reset="Keep")
    await claim(world, "before")
    if is_attended:
        opening(party, "late", wait_seconds=10).add_done_callback(lambda task: task.exception())
    else:
        await claim(world, "late", waitSeconds=10)
    await world.rest()
    await world.stop()
    await world.client.patch(Claim, "before", {"spec": {"release": True}})
    world.clock.advance(20)
    await party.up()
    party.reconnect()
    await world.pass_time(5, step=1)
    found = await status(world, "late")
    assert (found.phase, found.reason) == ("Failed", "WaitTimeout") and await held(world) == {}


async def test_a_claim_that_nobody_ever_waited_for_on_a_connection_is_bound_after_a_restart(
    world: World, party: Party
) -> None:
    await up(world, party, reset="Keep")
    for name in ("before", "a"):
        await claim(world, name)
    await party.restart()
    await release(world, "before")
    assert await is_bound(world, "a")
