"""One wake against one body, at every instant that there is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from rota.engine import DONE, NO_CASCADE, Blocked, Failed, Outcome, Scheduler
from tests.engine.bodies import HeldScheduler, assert_nothing_left, said, settle, soon

pytestmark = pytest.mark.timeout(30)

AWAITS = 4
"""The number of times that the body awaits."""
INSTANTS = 16
"""Turns of the loop from before the start of the run to after the parking of the body."""
WAKES = ["data", "data without content", "ready", "failed", "node"]


class Waiter:
    """Its body waits for `x`, which it looks for once: after so many of its awaits."""

    def __init__(self, looks_after: int, *, every: bool = False, blames: bool = False) -> None:
        self.there = False
        self.looks_after = looks_after
        self.every = every
        self.blames = blames
        self.slot = asyncio.Event()
        self.scheduler = HeldScheduler(self.body, concurrency=1)
        self.order: list[str] = []

    def body(self, id_: str, level: int) -> Outcome | Awaitable[Outcome]:
        return self.wait() if id_ == "a" else self.occupy() if id_ == "0" else DONE

    async def occupy(self) -> Outcome:
        await self.slot.wait()
        return DONE

    async def wait(self) -> Outcome:
        seen = False
        for turn in range(AWAITS + 1):
            if turn == self.looks_after:
                seen = self.there
            if turn < AWAITS:
                await asyncio.sleep(0)
        if seen:
            return DONE
        return Failed(("x",)) if self.blames else Blocked(("x",), every=self.every)

    def wake(self, how: str) -> None:
        self.there = True
        if how == "node":
            self.scheduler.arrive("x", "1")
        elif how.startswith("data"):
            self.scheduler.arrive("x", "1" if how == "data" else None, runnable=False)
        else:
            self.scheduler.status("x", "Ready" if how == "ready" else "Failed")

    async def woken_at(self, instant: int, how: str, *, frees_slot_at: int | None = None) -> None:
        """Runs to the end, with the wake and nothing else, and must find what it waited for without a drain."""
        self.scheduler.seed(["a"] if frees_slot_at is None else ["0", "a"])
        with self.scheduler.hold():
            running = asyncio.create_task(self.scheduler.run())
            for turn in range(INSTANTS):
                if turn == frees_slot_at:
                    self.slot.set()
                if turn == instant:
                    self.wake(how)
                await asyncio.sleep(0)
        assert (await soon(running)).level == NO_CASCADE
        assert said(self.scheduler)["a"] == "Ready"
        assert_nothing_left(self.scheduler)


@pytest.mark.parametrize("how", WAKES)
@pytest.mark.parametrize("every", [False, True])
async def test_a_wake_at_any_instant_of_the_run_is_not_lost(how: str, every: bool) -> None:
    for instant in range(INSTANTS):
        for looks_after in range(AWAITS + 1):
            await Waiter(looks_after, every=every).woken_at(instant, how)


@pytest.mark.parametrize("how", WAKES)
async def test_a_wake_while_the_body_waits_for_its_slot_is_not_lost(how: str) -> None:
    for instant in range(INSTANTS):
        for frees_slot_at in range(INSTANTS // 2):
            await Waiter(0).woken_at(instant, how, frees_slot_at=frees_slot_at)


@pytest.mark.parametrize("how", ["data", "data without content", "ready", "node"])
async def test_what_turns_ready_at_any_instant_is_not_lost_on_a_body_that_fails_for_want_of_it(how: str) -> None:
    for instant in range(INSTANTS):
        for looks_after in range(AWAITS + 1):
            await Waiter(looks_after, blames=True).woken_at(instant, how)


@pytest.mark.parametrize("how", WAKES)
async def test_a_wake_between_the_end_of_a_body_and_its_parking_is_not_lost(how: str) -> None:
    for turns in range(3):
        answers: list[asyncio.Future[Outcome]] = []

        def body(
            id_: str, level: int, answers: list[asyncio.Future[Outcome]] = answers
        ) -> Outcome | Awaitable[Outcome]:
            if id_ == "x":
                return DONE
            answers.append(asyncio.get_running_loop().create_future())
            return answers[-1]

        scheduler = HeldScheduler(body)
        scheduler.seed(["a"])
        running = asyncio.create_task(scheduler.run())
        await settle()
        with scheduler.hold():
            answers[0].set_result(Blocked(("x",)))
            for _ in range(turns):
                await asyncio.sleep(0)
            if how == "node":
                scheduler.arrive("x")
            elif how.startswith("data"):
                scheduler.arrive("x", "1" if how == "data" else None, runnable=False)
            else:
                scheduler.status("x", "Ready" if how == "ready" else "Failed")
            await settle()
        assert len(answers) == 2
        answers[1].set_result(DONE)
        assert (await soon(running)).level == NO_CASCADE


async def test_a_wake_by_the_body_itself_is_not_lost() -> None:
    ran = 0

    def body(id_: str, level: int) -> Outcome:
        nonlocal ran
        ran += 1
        if ran == 1:
            scheduler.arrive("x", "1", runnable=False)
        return Blocked(("x",)) if ran == 1 else DONE

    scheduler = Scheduler(body)
    scheduler.seed(["a"])
    assert (await soon(scheduler.run())).level == NO_CASCADE
    assert ran == 2


@pytest.mark.parametrize("after_how_many", [0, 1, 2, 3])
async def test_a_wake_is_not_lost_among_very_many_others(after_how_many: int) -> None:
    # More ids than are noted one by one.
    looked, go_on = asyncio.Event(), asyncio.Event()
    ran = 0

    async def body(id_: str, level: int) -> Outcome:
        nonlocal ran
        ran += 1
        if ran == 1:
            looked.set()
            await go_on.wait()
            return Blocked(("x",))
        return DONE

    scheduler = Scheduler(body)
    scheduler.seed(["a"])
    running = asyncio.create_task(scheduler.run())
    await soon(looked.wait())
    for part in range(3):
        if part == after_how_many:
            scheduler.arrive("x", runnable=False)
        for number in range(40_000):
            scheduler.arrive(f"other{part}/{number}", runnable=False)
    if after_how_many == 3:
        scheduler.arrive("x", runnable=False)
    go_on.set()
    assert (await soon(running)).level == NO_CASCADE
    assert ran == 2
