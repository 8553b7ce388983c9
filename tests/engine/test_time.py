"""Time on the way to the fixpoint, and nodes that are forgotten on it."""

from __future__ import annotations

import asyncio

import pytest

from rota.engine import (
    DONE,
    NO_CASCADE,
    Done,
    Outcome,
    RealClock,
    RequeueAfter,
    Scheduler,
    VirtualClock,
)
from tests.engine.bodies import assert_nothing_left, body_for, run, said, soon

pytestmark = pytest.mark.timeout(30)

BUDGET = 32
CYCLE = "Failed: dependency cycle detected: "
NOT_FOUND = "Failed: dependency not found: "
FAILED = "Failed: dependencies failed: "


# Time.


async def test_time_that_was_asked_for_passes_on_the_virtual_clock() -> None:
    times: list[float] = []

    def body(id_: str, level: int) -> Outcome:
        times.append(scheduler.clock.now())
        return RequeueAfter(3600) if len(times) < 3 else DONE

    scheduler = Scheduler(body, clock=VirtualClock())
    assert (await run(scheduler, "a")).level == NO_CASCADE
    assert times == [0, 3600, 7200]


async def test_nothing_is_escalated_while_a_node_sleeps() -> None:
    bodies = body_for({"a": "b"})
    decide = bodies.decide

    def sleeps(id_: str, level: int) -> Outcome:
        if id_ == "b":
            return RequeueAfter(60) if bodies.runs("b") == 1 else DONE
        return decide(id_, level)

    bodies.decide = sleeps  # type: ignore[method-assign]
    scheduler = bodies.on()
    assert (await run(scheduler, "a", "b")).level == NO_CASCADE
    assert said(scheduler) == {"a": "Ready", "b": "Ready"}


async def test_the_fixpoint_does_not_wait_for_another_look() -> None:
    scheduler = Scheduler(lambda id_, level: Done(again_after=60), clock=VirtualClock())
    await run(scheduler, "a")
    assert scheduler.clock.now() == 0


async def test_a_sleeper_comes_due_on_the_real_clock_while_another_body_runs() -> None:
    over = asyncio.Event()
    ran = 0

    async def body(id_: str, level: int) -> Outcome:
        nonlocal ran
        if id_ == "long":
            await over.wait()
            return DONE
        ran += 1
        if ran == 1:
            return RequeueAfter(0.001)
        over.set()
        return DONE

    scheduler = Scheduler(body, clock=RealClock())
    await run(scheduler, "long", "sleeper")
    assert said(scheduler) == {"long": "Ready", "sleeper": "Ready"}


async def test_a_node_forgotten_while_it_waits_for_its_slot_is_not_run() -> None:
    bodies = body_for({"a": "", "b": ""})
    scheduler = bodies.on()
    scheduler.seed(["a", "b"])
    scheduler.forget("a")
    await soon(scheduler.run())
    assert bodies.order() == ["b"]
    assert_nothing_left(scheduler)


async def test_a_node_seeded_anew_while_the_run_of_a_forgotten_one_ends_is_not_lost() -> None:
    ran = 0

    async def body(id_: str, level: int) -> Outcome:
        nonlocal ran
        ran += 1
        if ran == 1:
            scheduler.forget("a")
            scheduler.seed(["a"])
        return DONE

    scheduler = Scheduler(body)
    await run(scheduler, "a")
    assert ran == 2
