"""Parked nodes are looked at again, in case an event was lost."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from itertools import pairwise

import pytest

from rota.engine import DONE, Blocked, Outcome, Scheduler, VirtualClock
from tests.engine.bodies import serving, settle

pytestmark = pytest.mark.timeout(10)

JITTER = 0.2
TIERS = ((60, 1), (300, 15), (600, 60), (10**9, 300))
RELOOKS_PER_SECOND = 200


async def test_a_parked_node_is_looked_at_again_ever_less_often() -> None:
    clock = VirtualClock()
    times: list[float] = []

    def body(id_: str, level: int) -> Outcome:
        times.append(clock.now())
        return Blocked(("x",))

    scheduler = Scheduler(body, clock=clock, live=True)
    async with serving(scheduler):
        scheduler.arrive("a")
        await settle()
        while clock.now() < 3_000:
            seen = scheduler.view.get("a")
            assert seen is not None and seen.due is not None
            clock.advance_to(seen.due)
            await settle()
    pauses: dict[int, list[float]] = {}
    for before, after in pairwise(times):
        tier = next(pause for until, pause in TIERS if before < until)
        pauses.setdefault(tier, []).append(after - before)
    assert list(pauses) == [1, 15, 60, 300]
    for tier, seen_pauses in pauses.items():
        assert all(tier * (1 - JITTER) <= pause <= tier * (1 + JITTER) for pause in seen_pauses), tier
    assert len(set(pauses[1])) > 10, "there is no jitter"


async def test_a_new_wait_is_looked_at_often_again() -> None:
    clock = VirtualClock()
    on = "x"
    scheduler = Scheduler(lambda id_, level: Blocked((on,)), clock=clock, live=True)
    async with serving(scheduler):
        scheduler.arrive("a", "1")
        await settle()
        for _ in range(700):
            clock.advance(1)
            await settle()
        on = "y"
        scheduler.arrive("a", "2")
        await settle()
        seen = scheduler.view.get("a")
        assert seen is not None and seen.due is not None
        assert seen.since == clock.now()
        assert seen.due - clock.now() <= 1 + JITTER


async def test_a_wake_that_changes_nothing_does_not_begin_a_new_wait() -> None:
    clock = VirtualClock()
    scheduler = Scheduler(lambda id_, level: Blocked(("x",)), clock=clock, live=True)
    async with serving(scheduler):
        scheduler.arrive("a", "1")
        await settle()
        clock.advance(400)
        scheduler.status("x", "Ready")
        await settle()
        seen = scheduler.view.get("a")
        assert seen is not None and seen.due is not None
        assert seen.since == 0
        assert seen.due - clock.now() >= 60 * (1 - JITTER)


async def test_a_node_that_runs_late_after_a_lost_event_ends() -> None:
    clock = VirtualClock()
    there = False
    scheduler = Scheduler(lambda id_, level: DONE if there else Blocked(("x",)), clock=clock, live=True)
    async with serving(scheduler):
        scheduler.arrive("a")
        await settle()
        there = True
        clock.advance(1 + JITTER)
        await settle()
        assert len(scheduler.view) == 0


async def test_no_more_than_so_many_are_looked_at_again_in_a_second() -> None:
    clock = VirtualClock()
    times: list[float] = []

    def body(id_: str, level: int) -> Outcome:
        times.append(clock.now())
        return Blocked(("x",))

    scheduler = Scheduler(body, clock=clock, live=True)
    async with serving(scheduler):
        for number in range(1_000):
            scheduler.arrive(f"n{number}")
        while scheduler.view.runnable():
            await settle()
        times.clear()
        seconds = 5
        for _ in range(seconds * 200):
            clock.advance(0.005)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
    # What was not used in the first second may be used at once, and no more.
    assert len(times) <= RELOOKS_PER_SECOND * (seconds + 1)
    assert len(times) >= RELOOKS_PER_SECOND * (seconds - 2)


async def test_each_of_many_parked_nodes_gets_its_turn_to_be_looked_at() -> None:
    clock = VirtualClock()
    ran: Counter[str] = Counter()

    def body(id_: str, level: int) -> Outcome:
        ran[id_] += 1
        return Blocked(("x",))

    scheduler = Scheduler(body, clock=clock, live=True)
    async with serving(scheduler):
        for number in range(600):
            scheduler.arrive(f"n{number}")
        while scheduler.view.runnable():
            await settle()
        for _ in range(1_000):
            clock.advance(0.01)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
    assert min(ran.values()) >= 3


async def test_those_that_have_to_wait_for_their_look_cost_nothing_meanwhile() -> None:
    clock = VirtualClock()
    scheduler = Scheduler(lambda id_, level: Blocked(("x",)), clock=clock, live=True)
    async with serving(scheduler):
        for number in range(10_000):
            scheduler.arrive(f"n{number}")
        while scheduler.view.queued().get(None):
            await settle()
        began = time.process_time()
        for _ in range(2 * 200):
            clock.advance(0.005)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        # 400 looks. Were all the others put off at each of them, these would be millions of steps.
        assert time.process_time() - began < 1.5
