"""The end of a run: what fails, at which level, what recovers, and what does not come to rest."""

from __future__ import annotations

import asyncio

import pytest

from rota.engine import (
    CASCADE,
    DONE,
    FORCE,
    NO_CASCADE,
    Blocked,
    Done,
    Failed,
    NotConverged,
    Outcome,
    RequeueAfter,
    Scheduler,
    VirtualClock,
)
from tests.engine.bodies import Bodies, assert_nothing_left, body_for, run, said, settle, soon

pytestmark = pytest.mark.timeout(30)

BUDGET = 32
CYCLE = "Failed: dependency cycle detected: "
NOT_FOUND = "Failed: dependency not found: "
FAILED = "Failed: dependencies failed: "


# The end.


async def test_a_dangling_chain_ends_at_cascade_leaf_first_and_not_at_force() -> None:
    bodies = body_for({"a": "b", "b": "c", "c": "d", "d": "e", "e": "missing"})
    scheduler = bodies.on()
    assert (await run(scheduler, *"abcde")).level == CASCADE
    assert said(scheduler) == {
        "a": FAILED + "b",
        "b": FAILED + "c",
        "c": FAILED + "d",
        "d": FAILED + "e",
        "e": NOT_FOUND + "missing",
    }
    assert [id_ for id_, level in bodies.ran if level == CASCADE] == ["e"]
    assert max(bodies.runs(id_) for id_ in "abcde") <= 6
    assert_nothing_left(scheduler)


@pytest.mark.parametrize("graph", [{"a": "z", "z": "missing"}, {"z": "a", "a": "missing"}])
async def test_a_consumer_sorted_before_or_after_its_blocker_still_fails(graph: dict[str, str]) -> None:
    bodies = body_for(graph)
    scheduler = bodies.on()
    assert (await run(scheduler, *graph)).level == CASCADE
    (blocker,) = (id_ for id_, on in graph.items() if on == "missing")
    (consumer,) = graph.keys() - {blocker}
    assert said(scheduler) == {blocker: NOT_FOUND + "missing", consumer: FAILED + blocker}


async def test_a_cycle_across_kinds_reaches_force_and_both_fail_with_the_path() -> None:
    bodies = body_for({"Function/a": "WorkerPool/b", "WorkerPool/b": "Function/a"})
    scheduler = bodies.on()
    assert (await run(scheduler, *bodies.graph)).level == FORCE
    assert said(scheduler) == {
        "Function/a": CYCLE + "Function/a → WorkerPool/b → Function/a",
        "WorkerPool/b": CYCLE + "WorkerPool/b → Function/a → WorkerPool/b",
    }
    assert_nothing_left(scheduler)


async def test_a_node_that_needs_itself_is_a_cycle() -> None:
    bodies = body_for({"a": "a"})
    scheduler = bodies.on()
    assert (await run(scheduler, "a")).level == FORCE
    assert said(scheduler) == {"a": CYCLE + "a → a"}


async def test_what_waits_for_a_cycle_fails_because_of_it_and_is_not_forced() -> None:
    bodies = body_for({"a": "b", "b": "c", "c": "b", "d": "a"})
    scheduler = bodies.on()
    await run(scheduler, *"abcd")
    assert said(scheduler) == {
        "a": FAILED + "b",
        "b": CYCLE + "b → c → b",
        "c": CYCLE + "c → b → c",
        "d": FAILED + "a",
    }
    assert {id_ for id_, level in bodies.ran if level == FORCE} == {"b", "c"}


async def test_what_is_absent_fails_before_any_cycle_is_forced() -> None:
    bodies = body_for({"a": "b", "b": "a", "c": "missing"})
    await run(bodies.on(), *"abc")
    levels = [level for _, level in bodies.ran]
    assert levels == sorted(levels)
    assert bodies.ran[-3:] == [("c", CASCADE), ("a", FORCE), ("b", FORCE)]


async def test_a_cycle_that_a_cascade_breaks_is_not_forced() -> None:
    # `b` gives up its way round to `a` when `c` has failed.
    class Tolerant(Bodies):
        def decide(self, id_: str, level: int) -> Outcome:
            return DONE if id_ == "b" and self.failed("c") else super().decide(id_, level)

    bodies = Tolerant({"a": "b", "b": "a c", "c": "missing"})
    scheduler = bodies.on()
    assert (await run(scheduler, *"abc")).level == CASCADE
    assert said(scheduler) == {"a": "Ready", "b": "Ready", "c": NOT_FOUND + "missing"}


async def test_nodes_that_appear_after_an_escalation_start_at_level_0() -> None:
    bodies = body_for({"a": "missing", "new": "other", "other": ""})
    decide = bodies.decide

    def creates(id_: str, level: int) -> Outcome:
        outcome = decide(id_, level)
        if isinstance(outcome, Failed) and id_ == "a":
            bodies.scheduler.arrive("new")
            bodies.scheduler.arrive("other")
        return outcome

    bodies.decide = creates  # type: ignore[method-assign]
    scheduler = bodies.on()
    await run(scheduler, "a")
    assert bodies.ran == [("a", 0), ("a", CASCADE), ("new", 0), ("other", 0), ("new", 0)]


async def test_nodes_that_appear_after_a_force_start_at_level_0() -> None:
    bodies = body_for({"a": "a", "new": "gone"})
    decide = bodies.decide

    def creates(id_: str, level: int) -> Outcome:
        if level == FORCE:
            bodies.scheduler.arrive("new")
        return decide(id_, level)

    bodies.decide = creates  # type: ignore[method-assign]
    await run(bodies.on(), "a")
    assert bodies.ran[-2:] == [("new", 0), ("new", CASCADE)]


@pytest.mark.parametrize(("arrives", "runs"), [(True, 2), (False, 1)])
async def test_a_node_marked_for_it_runs_again_at_the_end_only_if_something_arrived(arrives: bool, runs: int) -> None:
    ran: list[str] = []

    def body(id_: str, level: int) -> Outcome:
        ran.append(id_)
        if id_ == "z" and arrives:
            scheduler.arrive("data", "1", runnable=False)
        return DONE

    scheduler = Scheduler(body, rerun_at_drain=lambda id_: id_ == "selector")
    assert (await run(scheduler, "selector", "z")).level == NO_CASCADE
    assert ran.count("selector") == runs
    assert ran.count("z") == 1


async def test_a_parked_node_marked_for_it_runs_again_at_the_end_before_anything_is_escalated() -> None:
    ran: list[tuple[str, int]] = []

    def body(id_: str, level: int) -> Outcome:
        ran.append((id_, level))
        if id_ == "z":
            scheduler.arrive("y")
        return Blocked(()) if id_ == "selector" and ("y", 0) not in ran else DONE

    scheduler = Scheduler(body, rerun_at_drain=lambda id_: id_ == "selector")
    assert (await run(scheduler, "selector", "z")).level == NO_CASCADE
    assert ran == [("selector", 0), ("z", 0), ("y", 0), ("selector", 0)]


async def test_while_something_is_held_it_is_not_the_end() -> None:
    bodies = body_for({"a": "x"})
    scheduler = bodies.on()
    scheduler.seed(["a"])
    with scheduler.hold():
        running = asyncio.create_task(scheduler.run())
        await settle()
        assert not running.done() and bodies.ran == [("a", 0)]
    assert (await soon(running)).level == CASCADE


async def test_a_later_run_tells_the_level_that_it_needed_itself() -> None:
    bodies = body_for({"a": "missing", "b": ""})
    scheduler = bodies.on()
    assert (await run(scheduler, "a")).level == CASCADE
    assert (await run(scheduler, "b")).level == NO_CASCADE


async def test_what_comes_because_a_circle_was_broken_is_the_same_news_in_any_order() -> None:
    # `giver` brings `x` when `a` has failed: before or after `c`, which is of the same circle, has looked.
    class Circle(Bodies):
        def decide(self, id_: str, level: int) -> Outcome:
            if id_ == "giver" and self.failed("a"):
                self.put("x", "1")
                return DONE
            return super().decide(id_, level)

    ended: list[dict[str, str]] = []
    for lane_of in (None, lambda id_: id_ in "bc"):
        bodies = Circle({"a": "c", "b": "a", "c": "b x", "giver": "a"})
        scheduler = bodies.on(lane_of=lane_of)
        await run(scheduler, *bodies.graph)
        ended.append(said(scheduler))
    assert ended[0] == ended[1]


# Recovery.


async def test_recovery_through_two_hops() -> None:
    bodies = body_for({"a": "b", "b": "x"})
    scheduler = bodies.on()
    await run(scheduler, "a", "b")
    assert said(scheduler) == {"a": FAILED + "b", "b": NOT_FOUND + "x"}
    assert scheduler.view.failed_because_of("x") == ["b"]
    assert scheduler.view.failed_because_of("b") == ["a"]
    bodies.put("x")
    await soon(scheduler.run())
    assert said(scheduler) == {"a": "Ready", "b": "Ready"}
    assert not scheduler._core.recovering


async def test_a_node_that_failed_because_of_another_is_not_run_again_by_a_failure() -> None:
    bodies = body_for({"a": "x"})
    scheduler = bodies.on()
    await run(scheduler, "a")
    runs = bodies.runs("a")
    scheduler.status("x", "Failed")
    await soon(scheduler.run())
    assert bodies.runs("a") == runs


async def test_a_node_that_failed_because_of_what_turned_ready_meanwhile_runs_again() -> None:
    looked, go_on = asyncio.Event(), asyncio.Event()
    ready = False

    async def body(id_: str, level: int) -> Outcome:
        if ready:
            return DONE
        looked.set()
        await go_on.wait()
        return Failed(("x",))

    scheduler = Scheduler(body)
    scheduler.seed(["a"])
    running = asyncio.create_task(scheduler.run())
    await soon(looked.wait())
    ready = True
    scheduler.status("x", "Ready")
    go_on.set()
    await soon(running)
    assert said(scheduler) == {"a": "Ready"}


async def test_who_said_not_found_says_so_no_longer_when_it_came_and_failed() -> None:
    # Otherwise the message would depend on whether the node came before or after the look.
    bodies = body_for({"a": "b", "b": "missing"})
    scheduler = bodies.on()
    await run(scheduler, "a")
    assert said(scheduler) == {"a": NOT_FOUND + "b"}
    scheduler.arrive("b")
    await soon(scheduler.run())
    assert said(scheduler) == {"a": FAILED + "b", "b": NOT_FOUND + "missing"}


# Budget.


async def test_a_node_that_wakes_itself_stops_at_its_budget_with_its_name() -> None:
    ran = 0

    def body(id_: str, level: int) -> Outcome:
        nonlocal ran
        ran += 1
        scheduler.arrive(id_, ran)
        return DONE

    scheduler = Scheduler(body)
    await run(scheduler, "loop")
    assert ran == 1 + BUDGET
    (seen,) = scheduler.view.failed()
    assert isinstance(seen.outcome, Failed) and isinstance(seen.outcome.error, NotConverged)
    assert "loop did not converge" in seen.outcome.message
    assert_nothing_left(scheduler)


async def test_two_nodes_that_wake_each_other_stop_at_their_budget() -> None:
    ran: list[str] = []

    def body(id_: str, level: int) -> Outcome:
        ran.append(id_)
        scheduler.arrive("b" if id_ == "a" else "a", len(ran))
        return DONE

    scheduler = Scheduler(body)
    await run(scheduler, "a", "b")
    assert max(map(ran.count, "ab")) == 1 + BUDGET
    assert any("did not converge" in text for text in said(scheduler).values())


async def test_blocked_nodes_that_wake_each_other_without_progress_stop_at_their_budget() -> None:
    ran: list[str] = []

    def body(id_: str, level: int) -> Outcome:
        ran.append(id_)
        other = "b" if id_ == "a" else "a"
        scheduler.status(id_, "Ready")
        return Blocked((other,))

    scheduler = Scheduler(body)
    await run(scheduler, "a", "b")
    assert max(map(ran.count, "ab")) <= 3 * (1 + BUDGET)


async def test_a_node_that_always_asks_for_more_time_stops_at_its_budget() -> None:
    ran = 0

    def body(id_: str, level: int) -> Outcome:
        nonlocal ran
        ran += 1
        return RequeueAfter(1)

    scheduler = Scheduler(body, clock=VirtualClock())
    await run(scheduler, "a")
    assert ran == 1 + BUDGET
    assert_nothing_left(scheduler)


async def test_those_that_wait_for_a_node_that_does_not_converge_are_told() -> None:
    def body(id_: str, level: int) -> Outcome:
        if id_ == "waiter":
            return Failed(message="so be it") if scheduler.view.failed() else Blocked(("loop",))
        scheduler.arrive("loop")
        return Done("Pending")

    scheduler = Scheduler(body)
    assert (await run(scheduler, "loop", "waiter")).level == NO_CASCADE
    assert said(scheduler)["waiter"] == "Failed: so be it"


async def test_retries_of_a_blocked_node_are_free() -> None:
    count = 4 * BUDGET
    needs = [f"x{number:03}" for number in range(count)]
    bodies = body_for({"a": " ".join(needs)} | dict.fromkeys(needs, ""))
    scheduler = bodies.on()
    assert await run(scheduler, *bodies.graph) == (NO_CASCADE, False, None)
    assert said(scheduler)["a"] == "Ready"


async def test_retries_of_a_blocked_node_are_free_when_one_producer_brings_it_all() -> None:
    count = 4 * BUDGET

    class OneByOne(Bodies):
        async def __call__(self, id_: str, level: int) -> Outcome:
            if id_ == "b":
                for number in range(count):
                    self.put(f"x{number}", "1")
                    await settle()
                return DONE
            return self.decide(id_, level)

    bodies = OneByOne({"a": " ".join(f"x{number}" for number in range(count)), "b": ""})
    scheduler = bodies.on()
    assert (await run(scheduler, "a", "b")).level == NO_CASCADE
    assert said(scheduler)["a"] == "Ready"
