"""Nodes that run again at the fixpoint: how often, at whose expense, and what is kept for them."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from rota.engine import (
    DONE,
    NO_CASCADE,
    Blocked,
    Done,
    Failed,
    NotConverged,
    Outcome,
    Scheduler,
    VirtualClock,
)
from tests.engine.bodies import assert_nothing_left, run, said, soon

pytestmark = pytest.mark.timeout(60)

BUDGET = 32
CHARGES_MAX = 2
"""The charges of a selector that emits once: for its emission, and for the end of it."""
ARRIVALS = 100_000
KEPT_BYTES_MAX = 20_000


class Chain:
    """Selectors of which each brings its data when that of the one before it is there; in the order that suits least.

    The ids of later ones come first, so that each sweep of the fixpoint gets one stage further.
    """

    def __init__(self, depth: int, *, again: bool) -> None:
        self.ids = [f"stage-{depth - stage:03}" for stage in range(depth)]
        self.again = again
        """If true, a stage brings its data in each run, and not once."""
        self.there: set[int] = set()
        self.runs = Counter[str]()
        self.scheduler: Scheduler

    def body(self, id_: str, level: int) -> Outcome:
        self.runs[id_] += 1
        stage = self.ids.index(id_)
        if (stage == 0 or stage - 1 in self.there) and (self.again or stage not in self.there):
            self.there.add(stage)
            self.scheduler.arrive(f"data-{stage}", "the same", runnable=False)
        return DONE

    async def slow_body(self, id_: str, level: int) -> Outcome:
        # All of a sweep are under way before the first of them emits.
        for _ in range(3):
            await asyncio.sleep(0)
        outcome = self.body(id_, level)
        await asyncio.sleep(0)
        return outcome

    async def run(self, dispatch: Callable[[str, int], Outcome | Awaitable[Outcome]]) -> None:
        self.scheduler = Scheduler(dispatch, clock=VirtualClock(), rerun_at_drain=lambda id_: True)
        assert await run(self.scheduler, *self.ids) == (NO_CASCADE, False, None)
        depth = len(self.ids)
        assert self.there == set(range(depth))
        assert said(self.scheduler) == dict.fromkeys(self.ids, "Ready")
        assert max(self.runs.values()) <= depth + 2
        assert max(seen.charged for seen in self.scheduler.view) <= CHARGES_MAX
        assert_nothing_left(self.scheduler)


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("depth", [8, 32, 40, 100])
async def test_a_deep_chain_of_selectors_in_the_worst_order_converges(depth: int, again: bool) -> None:
    chain = Chain(depth, again=again)
    await chain.run(chain.body)


async def test_a_deep_chain_of_selectors_that_run_at_once_converges() -> None:
    chain = Chain(40, again=True)
    await chain.run(chain.slow_body)


async def test_data_that_a_selector_emits_again_unchanged_is_no_arrival_however_much_it_is() -> None:
    ran = 0

    def body(id_: str, level: int) -> Outcome:
        nonlocal ran
        ran += 1
        for number in range(5_000):
            scheduler.arrive(f"data/{number}", number, runnable=False)
        return DONE

    scheduler = Scheduler(body, clock=VirtualClock(), rerun_at_drain=lambda id_: True)
    assert (await run(scheduler, "selector")).error is None
    assert ran == 2


# What does not come to rest.


def always_new(scheduler: list[Scheduler], runs: Counter[str]) -> Callable[[str, int], Outcome]:
    def body(id_: str, level: int) -> Outcome:
        runs[id_] += 1
        scheduler[0].arrive(f"data/{id_}", runs[id_], runnable=False)
        return DONE

    return body


@pytest.mark.parametrize("ids", [["loop"], ["loop", "other"]])
async def test_selectors_that_always_emit_something_new_stop_at_their_budget_and_the_error_names_one(
    ids: list[str],
) -> None:
    made: list[Scheduler] = []
    runs = Counter[str]()
    made.append(Scheduler(always_new(made, runs), clock=VirtualClock(), rerun_at_drain=lambda id_: True))
    result = await run(made[0], *ids)
    assert set(runs.values()) == {1 + BUDGET}
    assert isinstance(result.error, NotConverged)
    assert str(result.error) == f"loop did not converge: it was run {1 + BUDGET} times, and was to run again"


async def test_threads_that_do_not_know_whose_body_they_run_are_stopped_too() -> None:
    made: list[Scheduler] = []
    runs = Counter[str]()
    body = always_new(made, runs)

    async def apart(id_: str, level: int) -> Outcome:
        return await asyncio.get_running_loop().run_in_executor(None, body, id_, level)

    made.append(Scheduler(apart, clock=VirtualClock(), rerun_at_drain=lambda id_: True))
    assert isinstance((await run(made[0], "loop")).error, NotConverged)
    assert runs["loop"] == 1 + BUDGET


async def test_a_node_that_wakes_itself_for_ever_is_the_error_of_the_run() -> None:
    def body(id_: str, level: int) -> Outcome:
        scheduler.arrive(id_)
        return DONE

    scheduler = Scheduler(body, clock=VirtualClock())
    error = (await run(scheduler, "loop")).error
    assert isinstance(error, NotConverged) and "loop did not converge" in str(error)


async def test_the_error_of_a_body_comes_before_that_of_a_node_that_does_not_converge() -> None:
    def body(id_: str, level: int) -> Outcome:
        if id_ == "broken":
            raise ValueError("broken")
        scheduler.arrive(id_)
        return DONE

    scheduler = Scheduler(body, clock=VirtualClock())
    assert isinstance((await run(scheduler, "loop", "broken")).error, ValueError)


async def test_a_selector_and_a_node_that_emits_before_it_blocks_stop_each_other() -> None:
    # The selector emits nothing itself: its reruns are free, and so its ends must not make the other's wakes free.
    runs = Counter[str]()

    def body(id_: str, level: int) -> Outcome:
        runs[id_] += 1
        if id_ == "selector":
            return DONE
        scheduler.arrive("data", runs[id_], runnable=False)
        return Blocked(("selector",)) if level == 0 else Failed(("selector",))

    scheduler = Scheduler(body, clock=VirtualClock(), rerun_at_drain=lambda id_: id_ == "selector")
    result = await run(scheduler, "emitter", "selector")
    assert isinstance(result.error, NotConverged)
    assert max(runs.values()) <= 3 * (1 + BUDGET)


async def test_a_blocked_node_that_a_chain_of_selectors_feeds_is_woken_for_free() -> None:
    # It waits for something that each sweep's selector may have brought, which is seen in no id it could name.
    depth = 3 * BUDGET
    chain = Chain(depth, again=True)

    def body(id_: str, level: int) -> Outcome:
        if id_ != "waiter":
            return chain.body(id_, level)
        chain.runs[id_] += 1
        return DONE if len(chain.there) == depth else Blocked((chain.ids[0],))

    chain.scheduler = Scheduler(body, clock=VirtualClock(), rerun_at_drain=lambda id_: id_ != "waiter")
    assert await run(chain.scheduler, "waiter", *chain.ids) == (NO_CASCADE, False, None)
    assert said(chain.scheduler)["waiter"] == "Ready"
    assert chain.runs["waiter"] > 1 + BUDGET


# Whom to run again.


async def test_whether_a_node_runs_again_is_asked_after_each_run() -> None:
    asked: list[tuple[str, int]] = []
    runs = Counter[str]()
    selects = False

    def body(id_: str, level: int) -> Outcome:
        nonlocal selects
        runs[id_] += 1
        # What it reads tells it, in its second run, that it has named all there is.
        selects = runs[id_] < 2
        return DONE

    def is_selector(id_: str) -> bool:
        asked.append((id_, runs[id_]))
        return selects

    scheduler = Scheduler(body, clock=VirtualClock(), rerun_at_drain=is_selector)
    scheduler.seed(["a"])
    for number, expected in ((1, 2), (2, 2)):
        scheduler.arrive(f"data/{number}", "1", runnable=False)
        await soon(scheduler.run())
        scheduler.arrive(f"data/{number}", "2", runnable=False)
        await soon(scheduler.run())
        assert runs["a"] == expected
    assert asked == [("a", 1), ("a", 2)]


async def test_an_error_of_the_question_is_the_error_of_the_node() -> None:
    def asked(id_: str) -> bool:
        raise LookupError(f"{id_} cannot be read")

    scheduler = Scheduler(lambda id_, level: DONE, clock=VirtualClock(), rerun_at_drain=asked)
    result = await run(scheduler, "a", "b")
    assert isinstance(result.error, LookupError)
    assert said(scheduler) == {"a": "Failed: a cannot be read", "b": "Failed: b cannot be read"}
    assert_nothing_left(scheduler)


async def test_a_selector_that_is_forgotten_does_not_run_again() -> None:
    runs = Counter[str]()

    def body(id_: str, level: int) -> Outcome:
        runs[id_] += 1
        return DONE

    scheduler = Scheduler(body, clock=VirtualClock(), rerun_at_drain=lambda id_: True)
    await run(scheduler, "a")
    scheduler.forget("a")
    scheduler.arrive("data", "1", runnable=False)
    await soon(scheduler.run())
    assert runs["a"] == 1
    assert len(scheduler._core.reruns or ()) == 0


# From one run to the next.


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


# What is kept.


async def test_arrivals_that_nobody_waits_for_leave_next_to_nothing_beside_a_selector() -> None:
    scheduler = Scheduler(lambda id_, level: DONE, clock=VirtualClock(), rerun_at_drain=lambda id_: True)
    await run(scheduler, "selector")
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(ARRIVALS):
            scheduler.arrive(f"data/{number}", number, runnable=False)
        await soon(scheduler.run())
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert kept < KEPT_BYTES_MAX
    (seen,) = scheduler.view
    assert seen.runs == 2
