"""Claims: who gets an instance, when, and for how long."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from rota.api import Claim
from rota.api.pool import ClaimStatus
from rota.control.claims.lifecycle import over, time_of
from rota.control.holds.handover import HandOver, Written
from rota.registry import ApiError
from tests.control.claims.party import (
    WORKERS,
    Party,
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
from tests.engine_loop.loops import START, World
from tests.until import until_so


async def test_a_claim_is_bound_at_once_and_says_to_what(world: World, party: Party) -> None:
    await up(world, party)
    now = world.clock.time()
    await claim(world, "a", leaseSeconds=60)
    found = await status(world, "a")
    assert (found.phase, found.instance_name) == ("Bound", "p-0") and await held(world) == {"p-0": "a"}
    assert found.expires_at.timestamp() == found.bound_time.timestamp() + 60 == pytest.approx(now + 60, abs=0.01)


async def test_claims_wait_their_turn_in_the_order_in_which_they_came(world: World, party: Party) -> None:
    await up(world, party)
    for name in "abc":
        await claim(world, name, holder="x")
    assert await phases(world) == {"a": "Bound", "b": "Waiting", "c": "Waiting"}
    assert (await status(world, "b")).arrival < (await status(world, "c")).arrival
    await release(world, "a")
    await world.pass_time(60, step=5)
    assert await phases(world) == {"a": "Released", "b": "Bound", "c": "Waiting"}
    await release(world, "b")
    await world.pass_time(60, step=5)
    assert await phases(world) == {"a": "Released", "b": "Released", "c": "Bound"}


async def test_priority_goes_first_then_who_has_least_then_who_came_first(world: World, party: Party) -> None:
    await up(world, party, 2, reset="Keep")
    await claim(world, "x0", holder="x")
    await claim(world, "y0", holder="y")
    for name, holder, priority in (("x1", "x", 0), ("z1", "z", 0), ("z2", "z", 0), ("x9", "x", 1)):
        await claim(world, name, holder=holder, priority=priority)
    order: list[str] = []
    for ends in ("y0", "x9", "x0", "z1"):
        before = await held(world)
        await release(world, ends)
        order += sorted(set((await held(world)).values()) - set(before.values()))
    assert order == ["x9", "z1", "x1", "z2"]


async def test_a_claim_that_is_not_served_in_time_is_told_so_at_its_deadline(world: World, party: Party) -> None:
    await up(world, party)
    await claim(world, "a")
    await claim(world, "b", waitSeconds=10)
    arrival = (await status(world, "b")).arrival.timestamp()
    await world.pass_time(9.99)
    assert (await status(world, "b")).phase == "Waiting"
    await world.pass_time(0.011)
    found = await status(world, "b")
    assert (found.phase, found.reason) == ("Failed", "WaitTimeout") and "WorkerPool/p" in found.message
    assert found.end_time.timestamp() == pytest.approx(arrival + 10, abs=0.02)
    await release(world, "a")
    await world.pass_time(30, step=5)
    assert await held(world) == {}, "it is not served afterwards"


async def test_the_time_to_wait_is_the_pools_unless_a_claim_says_it(world: World, party: Party) -> None:
    await up(world, party, queue={"defaultWaitSeconds": 7})
    await claim(world, "a")
    await claim(world, "b")
    await world.pass_time(6.9)
    assert (await status(world, "b")).phase == "Waiting"
    await world.pass_time(0.2)
    assert (await status(world, "b")).reason == "WaitTimeout"


async def test_one_that_does_not_want_to_wait_gets_what_is_free_or_nothing(world: World, party: Party) -> None:
    await up(world, party)
    await claim(world, "a", waitSeconds=0)
    await claim(world, "b", waitSeconds=0)
    assert await phases(world) == {"a": "Bound", "b": "Failed"}
    assert (await status(world, "b")).reason == "WaitTimeout"


async def test_a_queue_that_is_full_takes_nobody_more_and_says_so(world: World, party: Party) -> None:
    await up(world, party, queue={"limit": 2})
    for name in "abcd":
        await claim(world, name)
    assert await phases(world) == {"a": "Bound", "b": "Waiting", "c": "Waiting", "d": "Failed"}
    found = await status(world, "d")
    assert found.reason == "QueueFull" and "2 wait for WorkerPool/p" in found.message


async def test_a_queue_in_which_nobody_may_wait_serves_from_what_is_free(world: World, party: Party) -> None:
    await up(world, party, queue={"limit": 0})
    await claim(world, "a")
    await claim(world, "b")
    assert await phases(world) == {"a": "Bound", "b": "Failed"} and (await status(world, "b")).reason == "QueueFull"


async def test_an_unknown_pool_is_waited_for_and_soon_said(world: World, party: Party) -> None:
    await up(world, party)
    await claim(world, "a", poolRef={"name": "later"}, waitSeconds=100)
    assert (await world.condition("Claim", "a", "ResolvedRefs"))[:2] == ("False", "DependencyNotReady")  # type: ignore[index]
    await world.pass_time(10, step=1)
    assert (await world.condition("Claim", "a", "ResolvedRefs"))[:2] == ("False", "DependencyNotFound")  # type: ignore[index]
    template = {"containers": [{"name": "main", "command": ["sleep"]}]}
    await world.create("WorkerPool", "later", {"template": template, "replicas": 1})
    await world.rest()
    await world.pass_time(30, step=5)
    assert (await status(world, "a")).phase == "Bound"
    await claim(world, "b", poolRef={"name": "never"}, waitSeconds=10)
    await world.pass_time(11)
    assert (await status(world, "b")).reason == "WaitTimeout"


async def test_a_pool_that_goes_takes_its_waiters_and_its_queue_with_it(world: World, party: Party) -> None:
    await up(world, party)
    for name in "abc":
        await claim(world, name)
    await world.delete("WorkerPool", "p")
    await world.rest()
    await world.pass_time(60, step=5)
    assert await phases(world) == {"a": "Failed", "b": "Failed", "c": "Failed"}
    assert {(await status(world, name)).reason for name in "bc"} == {"PoolDeleted"}
    assert (await status(world, "a")).reason == "InstanceLost"
    assert party.executor.ledgers == {} and party.executor.members == {} and is_clean(party)


# Leases.


async def test_a_lease_ends_exactly_when_it_does_and_not_when_the_time_to_wait_would(
    world: World, party: Party
) -> None:
    await up(world, party, reset="Keep")
    await claim(world, "first")
    await claim(world, "a", waitSeconds=1000, leaseSeconds=10)
    await release(world, "first")
    bound = (await status(world, "a")).bound_time.timestamp()
    await world.pass_time(bound + 9.99 - world.clock.time())
    assert (await status(world, "a")).phase == "Bound"
    await world.pass_time(0.02)
    found = await status(world, "a")
    assert (found.phase, found.reason) == ("Expired", "LeaseExpired") and await held(world) == {}


async def test_a_lease_that_is_renewed_begins_anew(world: World, party: Party) -> None:
    await up(world, party)
    await claim(world, "a", leaseSeconds=10)
    for _ in range(3):
        await world.pass_time(8)
        now = world.clock.time()
        await world.patch("Claim", "a", {"spec": {"renewTime": _time(now)}})
        await world.rest()
        assert (await status(world, "a")).expires_at.timestamp() == pytest.approx(now + 10, abs=0.001)
    await world.pass_time(9.9)
    assert (await status(world, "a")).phase == "Bound"
    await world.pass_time(0.2)
    assert (await status(world, "a")).phase == "Expired"


async def test_a_renewal_that_is_yet_to_come_renews_nothing(world: World, party: Party) -> None:
    await up(world, party)
    await claim(world, "a", leaseSeconds=10)
    await world.patch("Claim", "a", {"spec": {"renewTime": _time(world.clock.time() + 1_000_000)}})
    await world.rest()
    await world.pass_time(10.1)
    assert (await status(world, "a")).phase == "Expired"


async def test_a_lease_that_is_made_shorter_or_longer_ends_then(world: World, party: Party) -> None:
    await up(world, party, 2)
    await claim(world, "a", leaseSeconds=100)
    await claim(world, "b", leaseSeconds=100)
    await world.patch("Claim", "a", {"spec": {"leaseSeconds": 10}})
    await world.patch("Claim", "b", {"spec": {"leaseSeconds": 1000}})
    await world.rest()
    await world.pass_time(11)
    assert await phases(world) == {"a": "Expired", "b": "Bound"}
    await world.pass_time(200, step=50)
    assert (await status(world, "b")).phase == "Bound"


async def test_a_lease_goes_on_over_a_restart_and_ends_exactly(world: World, party: Party) -> None:
    await up(world, party, **WORKERS)
    await claim(world, "a", leaseSeconds=100)
    await world.pass_time(50)
    await party.restart()
    await world.pass_time(49.9)
    assert (await status(world, "a")).phase == "Bound"
    await world.pass_time(0.2)
    assert (await status(world, "a")).phase == "Expired"
    await world.pass_time(5, step=1)
    assert await held(world) == {} and party.resets == ["p-0"]


async def test_a_lease_that_ended_while_nobody_was_there_is_over_at_once(world: World, party: Party) -> None:
    await up(world, party)
    await claim(world, "a", leaseSeconds=10)
    await world.stop()
    world.clock.advance(60)
    await party.restart()
    assert (await status(world, "a")).phase == "Expired" and await held(world) == {}


# Restarts.


async def test_after_a_restart_the_queue_is_the_same_in_the_same_order(world: World, party: Party) -> None:
    await up(world, party, reset="Keep")
    names = ["first", *(f"c{i}" for i in range(20))]
    for name in names:
        await world.create("Claim", name, {"poolRef": {"name": "p"}, "holder": "x", "waitSeconds": 5000})
    await world.rest()
    order = []
    for _ in names:
        await party.restart()
        [bound] = [name for name, phase in (await phases(world)).items() if phase == "Bound"]
        order.append(bound)
        await release(world, bound)
    assert order == names


async def test_who_comes_after_a_restart_comes_later_whatever_the_clock_says(world: World, party: Party) -> None:
    await up(world, party, reset="Keep")
    await claim(world, "first", holder="x")
    await claim(world, "early", holder="x", waitSeconds=5000)
    await party.restart()
    await claim(world, "late", holder="x", waitSeconds=5000)
    await release(world, "first")
    assert (await phases(world))["early"] == "Bound" and (await phases(world))["late"] == "Waiting"


async def test_arrivals_are_told_apart_by_what_is_written_down_of_them(world: World, party: Party) -> None:
    await up(world, party)
    arrivals = [party.claims.arrivals.next() for _ in range(1000)]
    written = [time_of(one) for one in arrivals]
    assert sorted(set(written)) == written and [one.timestamp() for one in written] == arrivals


# What is over.


async def test_what_is_over_is_kept_for_ten_minutes_and_then_gone(world: World, party: Party) -> None:
    await up(world, party)
    await claim(world, "a", leaseSeconds=86_400)
    await release(world, "a")
    await world.pass_time(599)
    assert await phases(world) == {"a": "Released"}
    await world.pass_time(2)
    assert await phases(world) == {} and is_clean(party)


async def test_one_that_is_deleted_gives_back_what_it_has_or_waits_for(world: World, party: Party) -> None:
    await up(world, party, reset="Keep")
    for name in "abc":
        await claim(world, name)
    await world.delete("Claim", "b")
    await world.delete("Claim", "a")
    await world.rest()
    assert await held(world) == {"p-0": "c"} and await phases(world) == {"c": "Bound"}
    await world.delete("Claim", "c")
    await world.rest()
    assert await held(world) == {} and is_clean(party)


async def test_one_that_is_deleted_and_kept_by_a_finalizer_gives_back_at_once(world: World, party: Party) -> None:
    await up(world, party, reset="Keep")
    await world.create("Claim", "a", {"poolRef": {"name": "p"}}, finalizers=["example.com/mine"])
    await world.rest()
    await world.delete("Claim", "a")
    await world.rest()
    assert await held(world) == {}
    await claim(world, "b")
    assert (await status(world, "b")).phase == "Bound"


async def test_one_that_is_released_before_it_has_one_is_over(world: World, party: Party) -> None:
    await up(world, party)
    await claim(world, "a")
    await claim(world, "b")
    await release(world, "b")
    assert (await phases(world))["b"] == "Released"
    await release(world, "a")
    await world.pass_time(30, step=5)
    assert await held(world) == {} and is_clean(party)


async def test_a_name_can_be_claimed_anew_when_it_was_deleted(world: World, party: Party) -> None:
    await up(world, party, reset="Keep")
    for _ in range(3):
        await claim(world, "a")
        uid = (await world.get("Claim", "a")).metadata.uid
        assert (await status(world, "a")).phase == "Bound"
        await world.delete("Claim", "a")
        await world.create("Claim", "a", {"poolRef": {"name": "p"}})
        await world.rest()
        assert (await world.get("Claim", "a")).metadata.uid != uid
        await settles(world, lambda: is_bound(world, "a"))
        assert await held(world) == {"p-0": "a"}
        await world.delete("Claim", "a")
        await world.rest()


async def test_the_oldest_go_when_too_many_are_kept(
    world: World, party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.control.claims.ended.FULL", 8)
    monkeypatch.setattr("rota.control.claims.ended.REMOVED_TOGETHER", 3)
    await up(world, party, reset="Keep")
    for i in range(12):
        await claim(world, f"c{i:02}")
        await release(world, f"c{i:02}")
        await world.pass_time(1)
    kept = sorted(await phases(world))
    assert len(kept) < 8 and kept == [f"c{i:02}" for i in range(12)][-len(kept) :]


async def test_a_cycle_takes_no_more_writes_than_it_must(world: World, party: Party) -> None:
    """One write at most for each: the claim is made, has an instance, has none any more.

    And two to start what runs anew, which is marked until that is done.
    """
    await up(world, party, reset="Keep")
    before = world.registry.store.revision
    for i in range(5):
        await claim(world, f"c{i}")
        await release(world, f"c{i}")
    assert len((await world.client.list(Claim)).items) == 5 and world.clock.time() > START
    assert world.registry.store.revision - before <= 5 * 8


def _time(seconds: float) -> str:
    return time_of(seconds).isoformat()


@pytest.mark.parametrize("in_between", [True, False])
async def test_an_instance_is_given_back_although_two_end_its_claim_at_once(
    world: World, party: Party, monkeypatch: pytest.MonkeyPatch, in_between: bool
) -> None:
    """Its holder releases it while a controller finds it crashed: one of the two comes too late."""
    await up(world, party, reset="Keep")
    await claim(world, "a")
    claiming, found = party.claims, await world.get("Claim", "a")
    begun, conflicts = asyncio.Event(), asyncio.Event()
    written = claiming.executor.writes.write

    async def too_late(turn: HandOver) -> Written:
        monkeypatch.setattr(claiming.executor.writes, "write", written)
        begun.set()
        await conflicts.wait()
        raise ApiError(409, "Conflict", "the object has been modified")

    monkeypatch.setattr(claiming.executor.writes, "write", too_late)
    now = world.clock.time()
    crashed = asyncio.create_task(claiming.end(found, over(found.status or ClaimStatus(), "Failed", now)))
    await begun.wait()
    status_then = over(found.status or ClaimStatus(), "Released", now)
    released = await world.client.update_status(msgspec.structs.replace(found, status=status_then))
    if in_between:
        claiming.forget(released)
    conflicts.set()
    with pytest.raises(ApiError):
        await crashed

    async def still_held() -> dict[str, str]:
        await world.pass_time(0.01)
        return await held(world)

    await until_so(still_held, lambda holds: not holds, "nobody holds an instance", poll_seconds=0)
    assert (await phases(world))["a"] == "Released"
