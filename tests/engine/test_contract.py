"""The contract of the package, a test a bullet."""

from __future__ import annotations

import asyncio

import pytest

from rota.engine import CASCADE, DONE, FORCE, Blocked, Failed, Outcome, RequeueAfter, Scheduler, VirtualClock
from tests.engine.bodies import Bodies, HeldScheduler, assert_nothing_left, body_for, run, said, serving, settle, soon

pytestmark = pytest.mark.timeout(30)


async def test_dependency_driven() -> None:
    bodies = body_for({"a": "b x", "b": ""})
    scheduler = bodies.on()
    scheduler.seed(["a", "b"])
    with scheduler.hold():
        running = asyncio.create_task(scheduler.run())
        for _ in range(5):
            await settle()
        assert bodies.order() == ["a", "b", "a"]
        bodies.put("x")
    await soon(running)
    assert bodies.order() == ["a", "b", "a", "a"]
    assert said(scheduler) == {"a": "Ready", "b": "Ready"}


async def test_never_twice_at_once() -> None:
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

    scheduler = Scheduler(body)
    scheduler.seed(["a"])
    running = asyncio.create_task(scheduler.run())
    for content in range(5):
        # While it is queued, then while it runs.
        scheduler.arrive("a", content)
        await asyncio.sleep(0)
    await settle()
    go_on.set()
    await soon(running)
    assert (most, ran) == (1, 2)


async def test_no_lost_wake_up() -> None:
    # Every instant has its own test elsewhere: here, the one that is easiest to lose.
    answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    answers: list[Outcome | asyncio.Future[Outcome]] = [DONE, answer]
    scheduler = HeldScheduler(lambda id_, level: answers.pop())
    scheduler.seed(["a"])
    with scheduler.hold():
        running = asyncio.create_task(scheduler.run())
        await settle()
        answer.set_result(Blocked(("x",)))
        scheduler.arrive("x", runnable=False)
    assert (await soon(running)).level == 0
    assert said(scheduler) == {"a": "Ready"}


async def test_fair_and_bounded() -> None:
    order: list[str] = []
    under_way = most = 0

    async def body(id_: str, level: int) -> Outcome:
        nonlocal under_way, most
        order.append(id_[0])
        under_way += 1
        most = max(most, under_way)
        await settle()
        under_way -= 1
        return DONE

    scheduler = Scheduler(body, lane_of=lambda id_: id_[0], lane_limit=lambda lane: 1)
    await run(scheduler, *(f"{lane}{number}" for lane in "abc" for number in range(4)))
    assert most == 3
    assert order == list("abc" * 4)


async def test_always_an_outcome() -> None:
    async def body(id_: str, level: int) -> Outcome:
        if id_ == "raises":
            raise ValueError
        if id_ == "is cancelled":
            raise asyncio.CancelledError
        await asyncio.Event().wait()
        return DONE

    scheduler = Scheduler(body, timeout_seconds=0.01)
    await run(scheduler, "raises", "is cancelled", "takes too long")
    assert [type(seen.outcome) for seen in scheduler.view] == [Failed] * 3
    assert_nothing_left(scheduler)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_structural_end() -> None:
    bodies = body_for({"a": "b", "b": "a", "c": "missing"})
    scheduler = bodies.on()
    assert (await run(scheduler, *"abc")).level == FORCE
    assert bodies.ran[3:] == [("c", CASCADE), ("a", FORCE), ("b", FORCE)]
    assert scheduler.clock.now() == 0
    assert_nothing_left(scheduler)


async def test_for_ever() -> None:
    clock = VirtualClock()
    ran = 0

    def body(id_: str, level: int) -> Outcome:
        nonlocal ran
        ran += 1
        return RequeueAfter(1) if id_ == "spins" else Blocked(("lost",))

    scheduler = Scheduler(body, clock=clock, live=True)
    async with serving(scheduler):
        scheduler.arrive("spins")
        scheduler.arrive("parked")
        for _ in range(100):
            await settle()
            clock.advance(1.2)
        assert ran > 150
        assert {seen.level for seen in scheduler.view} == {0}


async def test_stingy() -> None:
    class Waits(Bodies):
        def decide(self, id_: str, level: int) -> Outcome:
            return DONE if "x" in self.data else Blocked(("x",))

    bodies = Waits({})
    scheduler = bodies.on(live=True)
    async with serving(scheduler):
        scheduler.arrive("a")
        scheduler.arrive("unwatched", "1", runnable=False)
        await settle()
        assert [seen.id for seen in scheduler.view] == ["a"]
        bodies.put("x", "1")
        await settle()
        assert len(scheduler.view) == 0
        assert_nothing_left(scheduler)
