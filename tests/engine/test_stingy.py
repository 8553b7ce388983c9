"""The memory of nodes that have ended, and of data that nobody waits for."""

from __future__ import annotations

import pytest

from rota.engine import DONE, Blocked, Done, Failed, Outcome, Scheduler, VirtualClock
from tests.engine.bodies import assert_nothing_left, serving, settle

pytestmark = pytest.mark.timeout(10)


async def test_ended_nodes_are_forgotten() -> None:
    outcomes: dict[str, Outcome] = {"a": DONE, "b": Failed(), "c": Done("Skipped")}
    scheduler = Scheduler(lambda id_, level: outcomes[id_], clock=VirtualClock(), live=True)
    async with serving(scheduler):
        for id_ in outcomes:
            scheduler.arrive(id_)
        await settle()
        assert len(scheduler.view) == 0


async def test_ended_nodes_that_can_recover_are_kept_until_they_have() -> None:
    ready = False
    scheduler = Scheduler(lambda id_, level: DONE if ready else Failed(("x",)), clock=VirtualClock(), live=True)
    async with serving(scheduler):
        scheduler.arrive("a")
        await settle()
        assert scheduler.view.failed_because_of("x") == ["a"]
        ready = True
        scheduler.status("x", "Ready")
        await settle()
        assert len(scheduler.view) == 0
        assert not scheduler._core.recovering


async def test_a_node_whose_content_was_given_is_kept_and_does_not_run_for_nothing() -> None:
    ran = 0

    def body(id_: str, level: int) -> Outcome:
        nonlocal ran
        ran += 1
        return DONE

    scheduler = Scheduler(body, clock=VirtualClock(), live=True)
    async with serving(scheduler):
        for content in ("1", "1", "2", "2"):
            scheduler.arrive("a", content)
            await settle()
        assert ran == 2
        scheduler.forget("a")
        assert len(scheduler.view) == 0


async def test_ten_thousand_ended_nodes_leave_nothing() -> None:
    there: set[str] = set()

    def body(id_: str, level: int) -> Outcome:
        return DONE if id_ in there else Blocked((f"data/{id_}", "other"))

    clock = VirtualClock()
    scheduler = Scheduler(body, clock=clock, live=True, lane_of=lambda id_: int(id_) % 3)
    async with serving(scheduler):
        for number in range(10_000):
            scheduler.arrive(str(number))
        while scheduler.view.runnable():
            await settle()
        assert len(scheduler.view.parked()) == 10_000
        for number in range(10_000):
            there.add(str(number))
            scheduler.arrive(f"data/{number}", "1", runnable=False)
        while scheduler.view.runnable():
            await settle()
        assert len(scheduler.view) == 0
        clock.advance(10)
        await settle()
        core = scheduler._core
        kept = {name: value for name, value in vars(core).items() if isinstance(value, dict | list | set) and value}
        assert kept.keys() <= {"lanes"}
        assert_nothing_left(scheduler)


async def test_data_that_nobody_waits_for_leaves_no_trace() -> None:
    scheduler = Scheduler(lambda id_, level: DONE, clock=VirtualClock(), live=True)
    async with serving(scheduler):
        for number in range(1_000):
            scheduler.arrive(f"data/{number}", number, runnable=False)
            scheduler.status(f"data/{number}", "Ready")
        await settle()
        kept = {
            name: value for name, value in vars(scheduler._core).items() if isinstance(value, dict | list) and value
        }
        assert kept == {}
