"""Faults of systems like this one that do not happen here."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import msgspec
import pytest

from rota.api import Instance
from rota.control.claims.lifecycle import time_of
from rota.control.holds.executor import WAIT_SECONDS_MAX
from rota.control.holds.members import PoolKey
from rota.registry import ApiError
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
from tests.until import until_async

CONFLICT = ApiError(409, "Conflict", "somebody was faster")
POOL = PoolKey("default", "p")


async def test_one_that_has_to_try_again_keeps_its_place_and_does_not_spin(world: World, party: Party) -> None:
    await up(world, party, reset="Keep")
    await claim(world, "before", holder="x")
    for name in "abc":
        await claim(world, name, holder="x", waitSeconds=1000)
    before = world.registry.store.revision
    # It is given back by somebody else, and wanted by the first of those who wait.
    party.racing.failures = [CONFLICT] * 2
    await world.patch("Instance", "p-0", {"spec": {"assignment": None}})
    await settles(world, lambda: is_bound(world, "a"))
    assert (await phases(world)) == {"before": "Failed", "a": "Bound", "b": "Waiting", "c": "Waiting"}
    assert world.registry.store.revision - before <= 10 and party.racing.failures == []


async def test_an_instance_that_comes_is_given_at_once_by_no_clock_at_all(world: World, party: Party) -> None:
    """Nothing waits for a cache, and nothing looks every so often: not a moment passes here."""
    await up(world, party, reset="Keep")
    await claim(world, "a")
    await claim(world, "b")
    now = world.clock.time()
    await release(world, "a")
    assert await is_bound(world, "b") and world.clock.time() == now
    assert (await status(world, "b")).bound_time.timestamp() == pytest.approx(now, abs=1e-6)


async def test_one_whose_time_to_wait_is_over_is_never_queued_again(world: World, party: Party) -> None:
    await up(world, party, reset="Keep")
    await claim(world, "a")
    await claim(world, "b", waitSeconds=10)
    await world.pass_time(10.1)
    assert (await status(world, "b")).reason == "WaitTimeout" and party.executor.ledgers[POOL].depth == 0
    await party.restart()
    await release(world, "a")
    assert await held(world) == {} and (await status(world, "b")).reason == "WaitTimeout"
    assert party.executor.ledgers[POOL].depth == 0


async def test_one_whose_time_is_over_while_a_race_is_lost_is_answered_once(world: World, party: Party) -> None:
    await up(world, party, reset="Keep")
    await claim(world, "a")
    await claim(world, "b", waitSeconds=10)
    await world.pass_time(9.99)
    await world.patch("Claim", "a", {"spec": {"release": True}})
    world.clock.advance(1)
    party.racing.failures = [CONFLICT]
    await world.rest()
    await settles(world, lambda: _is_settled(world, "b"))
    assert (await phases(world))["b"] in ("Bound", "Failed")
    assert (await held(world) == {"p-0": "b"}) == ((await phases(world))["b"] == "Bound")


async def _is_settled(world: World, name: str) -> bool:
    return bool((await status(world, name)).phase != "Waiting")


async def test_the_status_of_an_instance_being_written_makes_nobody_lose_it(
    world: World, party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    await up(world, party, reset="Keep")
    lost: list[int] = []
    monkeypatch.setattr(party.claims.counting, "not_bound", lambda claim, code: lost.append(code))
    asking = asyncio.create_task(party.claims.callers.open(a_claim("a"), may_wait=True))
    beats = 0
    while not asking.done():
        beats += 1
        status = {"startTime": time_of(beats).isoformat()}
        await world.patch("Instance", "p-0", {"status": status}, subresource="status")
    assert await held(world) == {"p-0": "a"} and lost == [] and beats > 0


async def test_nobody_is_given_what_another_one_is_just_being_given(world: World, party: Party) -> None:
    """A decision has no time to live: it stands until it is known what came of it."""
    await up(world, party, 2, reset="Keep")
    party.racing.is_slow = True
    wanted = [a_claim(f"c{i}", wait_seconds=80_000, lease_seconds=80_000) for i in range(4)]
    asking = [asyncio.create_task(party.claims.callers.open(one, may_wait=True)) for one in wanted]
    for _ in range(30):
        await asyncio.sleep(0)
        world.clock.advance(10)
    party.racing.is_slow = False
    await world.rest()
    done = [task for task in asking if task.done()]
    taken = await held(world)
    assert len(done) == 2 and len(set(taken.values())) == 2
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)


@pytest.mark.parametrize("trouble", ["deleting", "used", "not ready", "too many", "resetting", "of before"])
async def test_what_is_not_ready_or_about_to_go_is_given_to_nobody(world: World, party: Party, trouble: str) -> None:
    await up(world, party, reset="Keep", **WORKERS)
    uid = (await world.get("Instance", "p-0")).metadata.uid
    party.is_slow = True
    match trouble:
        case "deleting":
            await world.patch("Instance", "p-0", {"metadata": {"finalizers": ["example.com/stay", "rota.dev/runtime"]}})
            await world.delete("Instance", "p-0")
        case "used":
            await world.patch("Instance", "p-0", {"metadata": {"annotations": {"rota.dev/used": "x"}}})
        case "not ready":
            party.is_away = True
            party.runtime.die("p-0", container="worker")
        case "too many":
            await world.patch("WorkerPool", "p", {"spec": {"replicas": 0}})
        case "resetting":
            party.lose_box("p-0")
        case "of before":
            worker = {"type": "shell", "env": [{"name": "NEW", "value": "1"}]}
            await world.patch("WorkerPool", "p", {"spec": {"worker": worker}})
    await world.rest()
    asking = asyncio.create_task(party.claims.callers.open(a_claim("a"), may_wait=True))
    await world.rest()
    found = (await world.client.list(Instance)).items
    assert [one for one in found if one.spec.assignment is not None and one.metadata.uid == uid] == []
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


async def test_one_that_is_draining_cannot_be_had(world: World, party: Party) -> None:
    await up(world, party)
    member = next(iter(party.executor.members.values()))
    assert member.opened
    annotations = {**member.instance.metadata.annotations, "rota.dev/draining": time_of(0).isoformat()}
    metadata = msgspec.structs.replace(member.instance.metadata, annotations=annotations)
    member.instance = msgspec.structs.replace(member.instance, metadata=metadata)
    assert not member.opened
    asking = asyncio.create_task(party.claims.callers.open(a_claim("a"), may_wait=True))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert await held(world) == {}, "though the queue was not told so"
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


async def test_an_instance_that_is_asked_to_go_at_the_very_moment_is_not_given(world: World, party: Party) -> None:
    await up(world, party, reset="Keep")
    member = next(iter(party.executor.members.values()))
    assert member.opened
    await world.patch("Instance", "p-0", {"metadata": {"finalizers": ["example.com/stay", "rota.dev/runtime"]}})
    await world.rest()
    deleting = asyncio.create_task(world.delete("Instance", "p-0"))
    asking = asyncio.create_task(party.claims.callers.open(a_claim("a"), may_wait=True))
    await deleting
    await world.rest()
    going = await world.get("Instance", "p-0")
    if going.spec.assignment is not None:
        # It was given before it was asked to go: then whoever has it is told.
        found = await answer_of(world, asking)
        await settles(world, lambda: _is_lost(world, "a"))
        assert found is not None
    else:
        assert not asking.done()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


async def _is_lost(world: World, name: str) -> bool:
    return bool((await status(world, name)).reason == "InstanceLost")


async def test_a_cancel_while_it_is_written_down_orphans_nothing(world: World, party: Party) -> None:
    await up(world, party, reset="Keep")
    party.racing.is_slow = True
    asking = asyncio.create_task(party.claims.callers.open(a_claim("a"), may_wait=True))
    await until_async(lambda: held(world), "nobody holds an instance", poll_seconds=0)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    party.racing.is_slow = False
    await settles(world, lambda: _is_free(world, party))
    await claim(world, "b")
    await settles(world, lambda: is_bound(world, "b"))


async def _is_free(world: World, party: Party) -> bool:
    return await held(world) == {} and is_clean(party)


async def test_no_more_wait_than_may(world: World, party: Party) -> None:
    await up(world, party, queue={"limit": 3})
    for i in range(10):
        await claim(world, f"c{i}")
    found = list((await phases(world)).values())
    assert (found.count("Bound"), found.count("Waiting"), found.count("Failed")) == (1, 3, 6)
    assert party.executor.ledgers[POOL].depth == 3


async def test_a_restart_fails_nobody_who_waits(world: World, party: Party) -> None:
    await up(world, party, reset="Keep")
    for name in "abcd":
        await claim(world, name, holder="x", waitSeconds=1000)
    await party.restart()
    assert await phases(world) == {"a": "Bound", "b": "Waiting", "c": "Waiting", "d": "Waiting"}
    for ends, follows in ("ab", "bc", "cd"):
        await release(world, ends)
        assert await is_bound(world, follows)


async def test_claims_that_came_while_nobody_led_are_served_in_the_order_in_which_they_came(
    world: World, party: Party
) -> None:
    await up(world, party)
    await claim(world, "first")
    await world.stop()
    names = ["c9", "c10", "c2", "c1"]
    for name in names:
        await world.create("Claim", name, {"poolRef": {"name": "p"}, "waitSeconds": 1000})
    await party.restart()
    order: list[str] = []
    for _ in names:
        [who] = (await held(world)).values()
        await release(world, who)
        await world.rest()
        order += (await held(world)).values()
    assert order == names


async def test_nothing_is_kept_of_a_pool_that_is_gone(world: World, party: Party) -> None:
    await up(world, party, 2)
    for i in range(5):
        await claim(world, f"c{i}")
    await world.delete("WorkerPool", "p")
    await world.pass_time(60, step=5)
    executor = party.executor
    assert (executor.ledgers, executor.members, executor._of, executor._by_name, executor._depths, executor._paces) == (
        {},
        {},
        {},
        {},
        {},
        {},
    )
    assert is_clean(party)


async def test_one_who_asks_for_much_keeps_nobody_else_from_having_some(world: World, party: Party) -> None:
    await up(world, party, 2, reset="Keep")
    for i in range(10):
        await claim(world, f"greedy{i}", holder="greedy", waitSeconds=1000)
    await claim(world, "modest", holder="modest", waitSeconds=1000)
    await release(world, "greedy0")
    assert await is_bound(world, "modest")


async def test_one_that_is_urgent_goes_first(world: World, party: Party) -> None:
    await up(world, party, reset="Keep")
    await claim(world, "a")
    await claim(world, "b", waitSeconds=1000)
    await claim(world, "urgent", priority=1, waitSeconds=1000)
    await release(world, "a")
    assert await is_bound(world, "urgent")


async def test_how_long_it_may_take_is_said_by_how_often_one_was_had_lately(world: World, party: Party) -> None:
    await up(world, party, reset="Keep")
    executor = party.executor
    assert executor.wait_estimate(POOL) == WAIT_SECONDS_MAX, "nothing is known"
    # Ten in ten seconds, and nobody waits: about a second.
    now = world.clock.now()
    paces = executor._paces.setdefault(POOL, deque(maxlen=64))
    paces.extend(now - 10.0 + i for i in range(10))
    assert executor.wait_estimate(POOL) == pytest.approx(1.0)
    await claim(world, "a")
    paces.clear()
    paces.extend(now - 10.0 + i for i in range(10))
    for i in range(4):
        await claim(world, f"c{i}")
    assert executor.wait_estimate(POOL) == pytest.approx(5.0)
    paces.clear()
    paces.append(now - 1e6)
    assert executor.wait_estimate(POOL) == WAIT_SECONDS_MAX


@pytest.mark.parametrize("reset", ["Clean", "Recreate"])
@pytest.mark.parametrize("kind", [{}, WORKERS])
async def test_nothing_of_the_last_holder_is_there_for_the_next(
    world: World, party: Party, kind: dict[str, Any], reset: str
) -> None:
    await up(world, party, reset=reset, **kind)
    options = {} if kind else {"env": [{"name": "SECRET", "value": "a's"}]}
    await claim(world, "a", labels={"whose": "a"}, annotations={"whose": "a"}, **options)
    await claim(world, "b", waitSeconds=1000)
    first = await world.get("Instance", "p-0")
    await release(world, "a")
    await world.pass_time(60, step=5)
    second = await world.get("Instance", "p-0")
    assert await held(world) == {"p-0": "b"}
    assert second.metadata.uid != first.metadata.uid or party.resets == ["p-0"]
    assert "whose" not in second.metadata.labels and "whose" not in second.metadata.annotations
    assert "SECRET" not in party.runtime.orders[-1].env and "env" not in second.spec.assignment.options
