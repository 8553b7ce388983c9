"""The budget of nodes on the way to one fixpoint, and the error of a run that exceeds it."""

from __future__ import annotations

import pytest

from rota.engine import DONE, Done, NotConverged, Outcome, Scheduler, VirtualClock
from tests.engine.bodies import run, said, soon

pytestmark = pytest.mark.timeout(60)

BUDGET = 32


async def test_a_node_that_wakes_itself_for_ever_is_the_error_of_the_run() -> None:
    def body(id_: str, level: int) -> Outcome:
        scheduler.arrive(id_)
        return DONE

    scheduler = Scheduler(body, clock=VirtualClock())
    error = (await run(scheduler, "loop")).error
    assert isinstance(error, NotConverged)
    assert str(error) == f"loop did not converge: it was run {1 + BUDGET} times, and was to run again"


async def test_the_error_of_a_body_comes_before_that_of_a_node_that_does_not_converge() -> None:
    def body(id_: str, level: int) -> Outcome:
        if id_ == "broken":
            raise ValueError("broken")
        scheduler.arrive(id_)
        return DONE

    scheduler = Scheduler(body, clock=VirtualClock())
    assert isinstance((await run(scheduler, "loop", "broken")).error, ValueError)


async def test_each_run_has_a_budget_of_its_own() -> None:
    scheduler = Scheduler(lambda id_, level: Done("Pending"), clock=VirtualClock())
    for number in range(3 * BUDGET):
        scheduler.arrive("a", number)
        assert (await soon(scheduler.run())).error is None
    assert said(scheduler) == {"a": "Pending"}


async def test_a_node_that_did_not_converge_may_in_the_next_run() -> None:
    loops = True

    def body(id_: str, level: int) -> Outcome:
        if loops:
            scheduler.arrive(id_)
        return DONE

    scheduler = Scheduler(body, clock=VirtualClock())
    assert isinstance((await run(scheduler, "a")).error, NotConverged)
    loops = False
    scheduler.arrive("a")
    assert (await soon(scheduler.run())).error is None
    assert said(scheduler) == {"a": "Ready"}
