"""For ever: wakes, time, the end of it, and never twice at once."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from rota.engine import DONE, Blocked, Done, Outcome, RequeueAfter, Scheduler, VirtualClock
from tests.engine.bodies import assert_nothing_left, serving, settle, soon

pytestmark = pytest.mark.timeout(10)


# Wakes.


async def test_serve_goes_on_when_nothing_is_left_to_do() -> None:
    ran: list[str] = []

    def body(id_: str, level: int) -> Outcome:
        ran.append(id_)
        return DONE

    scheduler = Scheduler(body, clock=VirtualClock(), live=True)
    async with serving(scheduler):
        for id_ in "abc":
            scheduler.arrive(id_)
            await settle()
    assert ran == ["a", "b", "c"]


async def test_a_parked_node_runs_when_what_it_waits_for_comes() -> None:
    there: set[str] = set()
    ended: list[str] = []

    def body(id_: str, level: int) -> Outcome:
        if "x" not in there:
            return Blocked(("x",))
        ended.append(id_)
        return DONE

    scheduler = Scheduler(body, clock=VirtualClock(), live=True)
    async with serving(scheduler):
        scheduler.arrive("a")
        await settle()
        assert [seen.on for seen in scheduler.view.parked()] == [("x",)]
        there.add("x")
        scheduler.status("x", "Ready")
        await settle()
        assert ended == ["a"]
        assert_nothing_left(scheduler)


async def test_nothing_is_escalated_and_there_is_no_budget() -> None:
    levels: Counter[int] = Counter()

    def body(id_: str, level: int) -> Outcome:
        levels[level] += 1
        return Blocked(("a",))

    scheduler = Scheduler(body, clock=VirtualClock(), live=True, budget=2)
    async with serving(scheduler):
        for content in range(20):
            scheduler.arrive("a", content)
            await settle()
        assert levels == {0: 20}
        assert [seen.state for seen in scheduler.view] == ["parked"]


async def test_a_seed_whose_need_came_before_is_looked_at_now_and_then() -> None:
    ran: list[str] = []

    def body(id_: str, level: int) -> Outcome:
        ran.append(id_)
        return DONE

    clock = VirtualClock()
    scheduler = Scheduler(body, clock=clock, live=True)
    async with serving(scheduler):
        scheduler.arrive("b")
        await settle()
        scheduler.seed(["a"], after=lambda id_: ("b",))
        for _ in range(10):
            await settle()
            clock.advance(1.0)
        await settle()
        assert ran == ["b", "a"]


# Time.


async def test_a_node_that_asked_for_more_time_runs_when_it_is_over() -> None:
    clock = VirtualClock()
    times: list[float] = []

    def body(id_: str, level: int) -> Outcome:
        times.append(clock.now())
        return RequeueAfter(5) if len(times) < 3 else DONE

    scheduler = Scheduler(body, clock=clock, live=True)
    async with serving(scheduler):
        scheduler.arrive("a")
        for _ in range(12):
            await settle()
            clock.advance(1)
        await settle()
        assert times == [0, 5, 10]
        assert_nothing_left(scheduler)


async def test_a_node_that_asked_for_more_time_runs_at_once_when_it_changes_and_not_again_when_the_time_is_over() -> (
    None
):
    clock = VirtualClock()
    times: list[float] = []

    def body(id_: str, level: int) -> Outcome:
        times.append(clock.now())
        return RequeueAfter(5) if len(times) == 1 else DONE

    scheduler = Scheduler(body, clock=clock, live=True)
    async with serving(scheduler):
        scheduler.arrive("a", "1")
        await settle()
        clock.advance(2)
        scheduler.arrive("a", "2")
        for _ in range(10):
            await settle()
            clock.advance(1)
        await settle()
        assert times == [0, 2]


async def test_a_node_that_is_done_is_looked_at_again_after_the_time_that_it_said() -> None:
    clock = VirtualClock()
    times: list[float] = []

    def body(id_: str, level: int) -> Outcome:
        times.append(clock.now())
        return Done(again_after=60)

    scheduler = Scheduler(body, clock=clock, live=True)
    async with serving(scheduler):
        scheduler.arrive("a")
        for _ in range(5):
            await settle()
            clock.advance(30)
        await settle()
        assert times == [0, 60, 120]


async def test_the_earliest_of_many_timers_comes_first() -> None:
    clock = VirtualClock()
    times: dict[str, float] = {}

    def body(id_: str, level: int) -> Outcome:
        if id_ in times:
            times[id_] = clock.now()
            return DONE
        times[id_] = 0.0
        return RequeueAfter(float(id_))

    scheduler = Scheduler(body, clock=clock, live=True)
    async with serving(scheduler):
        for seconds in (30, 10, 20):
            scheduler.arrive(str(seconds))
            await settle()
        for _ in range(40):
            clock.advance(1)
            await settle()
        assert times == {"10": 10, "20": 20, "30": 30}


async def test_forgotten_nodes_leave_no_timers() -> None:
    clock = VirtualClock()
    scheduler = Scheduler(lambda id_, level: RequeueAfter(1e6), clock=clock, live=True)
    async with serving(scheduler):
        for number in range(5_000):
            scheduler.arrive(f"n{number}")
        while scheduler.view.runnable():
            await settle()
        for number in range(5_000):
            scheduler.forget(f"n{number}")
        scheduler.arrive("last")
        await settle()
        seen = scheduler.view.get("last")
        assert len(scheduler.view) == 1 and seen is not None and seen.state == "sleeping"
        assert len(scheduler._core._timers) < 2_000


# The end of it.


async def test_stop_waits_for_bodies_and_starts_no_more() -> None:
    go_on = asyncio.Event()
    ended: list[str] = []

    async def body(id_: str, level: int) -> Outcome:
        await go_on.wait()
        ended.append(id_)
        scheduler.arrive("later")
        return DONE

    scheduler = Scheduler(body, live=True)
    serve = asyncio.create_task(scheduler.serve())
    scheduler.arrive("a")
    await settle()
    stop = asyncio.create_task(scheduler.stop())
    await settle()
    assert not stop.done() and not serve.done()
    go_on.set()
    await soon(stop)
    await soon(serve)
    await settle()
    assert ended == ["a"]


async def test_cancel_cancels_bodies() -> None:
    cancelled: list[str] = []

    async def body(id_: str, level: int) -> Outcome:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(id_)
            raise
        return DONE

    scheduler = Scheduler(body, live=True)
    serve = asyncio.create_task(scheduler.serve())
    scheduler.arrive("a")
    await settle()
    await soon(scheduler.cancel())
    await soon(serve)
    assert cancelled == ["a"]
    assert scheduler.view.running() == []


async def test_what_is_stopped_can_serve_again_and_takes_up_where_it_was() -> None:
    clock = VirtualClock()
    there = False
    ran: list[float] = []

    def body(id_: str, level: int) -> Outcome:
        ran.append(clock.now())
        return DONE if there else Blocked(("x",))

    scheduler = Scheduler(body, clock=clock, live=True)
    async with serving(scheduler):
        scheduler.arrive("a")
        await settle()
    there = True
    clock.advance(5)
    await settle()
    assert ran == [0]
    async with serving(scheduler):
        assert ran == [0, 5]


@pytest.mark.parametrize("how", ["stop", "cancel"])
async def test_serving_that_is_ended_before_its_first_turn_ends(how: str) -> None:
    scheduler = Scheduler(lambda id_, level: DONE, live=True)
    serve = asyncio.create_task(scheduler.serve())
    await getattr(scheduler, how)()
    await soon(serve)


# Never twice at once.


@pytest.mark.parametrize("content", [None, "1"])
async def test_a_node_forgotten_while_it_runs_that_comes_anew_never_runs_twice_at_once(content: str | None) -> None:
    under_way = most = ran = 0
    go_on = asyncio.Event()

    async def body(id_: str, level: int) -> Outcome:
        nonlocal under_way, most, ran
        ran += 1
        under_way += 1
        most = max(most, under_way)
        await go_on.wait()
        under_way -= 1
        return DONE

    scheduler = Scheduler(body, live=True)
    async with serving(scheduler):
        scheduler.arrive("a", content)
        await settle()
        for _ in range(3):
            scheduler.forget("a")
            scheduler.arrive("a", content)
            await settle()
        go_on.set()
        await settle()
        assert (most, ran) == (1, 2)
        scheduler.forget("a")
        assert len(scheduler.view) == 0


async def test_a_node_forgotten_while_it_runs_is_gone_when_it_has_run() -> None:
    go_on = asyncio.Event()
    ran = 0

    async def body(id_: str, level: int) -> Outcome:
        nonlocal ran
        ran += 1
        scheduler.arrive("a", ran)
        await go_on.wait()
        return Blocked(("x",))

    scheduler = Scheduler(body, live=True)
    async with serving(scheduler):
        scheduler.arrive("a")
        await settle()
        scheduler.forget("a")
        go_on.set()
        await settle()
        assert len(scheduler.view) == 0 and ran == 1
        assert_nothing_left(scheduler)
