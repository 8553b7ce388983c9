"""To the fixpoint: who runs, how often, at which level, and how it ends."""

from __future__ import annotations

import asyncio

import pytest

from rota.engine import (
    CASCADE,
    DONE,
    FORCE,
    NO_CASCADE,
    Blocked,
    BodyCancelled,
    Done,
    Failed,
    NotConverged,
    Outcome,
    RealClock,
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


# Who runs when.


async def test_seeds_run_in_the_order_of_their_ids() -> None:
    bodies = body_for({"b": "", "c": "", "a": ""})
    await run(bodies.on(), "c", "a", "b")
    assert bodies.order() == ["a", "b", "c"]


async def test_duplicate_seeds_are_ignored() -> None:
    bodies = body_for({"a": ""})
    scheduler = bodies.on()
    scheduler.seed(["a", "a"])
    scheduler.seed(["a"])
    await run(scheduler, "a")
    assert bodies.order() == ["a"]
    await run(scheduler, "a")
    assert bodies.order() == ["a"]


async def test_an_empty_run_ends() -> None:
    assert await run(body_for({}).on()) == (NO_CASCADE, False, None)


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_bodies_run_on_a_bounded_pool(concurrency: int) -> None:
    under_way = most = 0

    async def body(id_: str, level: int) -> Outcome:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await settle()
        under_way -= 1
        return DONE

    await run(Scheduler(body, concurrency=concurrency), *"abcdefgh")
    assert most == concurrency


@pytest.mark.parametrize(
    ("graph", "runs"),
    [({"a": "b", "b": "c", "c": ""}, 5), ({"a": "b c", "b": "d", "c": "d", "d": ""}, 8)],
    ids=["chain", "diamond"],
)
async def test_a_chain_and_a_diamond_never_drain(graph: dict[str, str], runs: int) -> None:
    bodies = body_for(graph)
    scheduler = bodies.on()
    assert await run(scheduler, *graph) == (NO_CASCADE, False, None)
    assert said(scheduler) == dict.fromkeys(graph, "Ready")
    assert len(bodies.ran) <= runs
    assert_nothing_left(scheduler)


async def test_a_blocked_node_is_parked_under_every_id_and_runs_when_any_of_them_advances() -> None:
    for first, second in (("x", "y"), ("y", "x")):
        bodies = body_for({"a": "x y"})
        scheduler = bodies.on()
        scheduler.seed(["a"])
        with scheduler.hold():
            running = asyncio.create_task(scheduler.run())
            await settle()
            assert scheduler.view.waiting_for("x") == scheduler.view.waiting_for("y") == ["a"]
            bodies.put(first)
            await settle()
            assert bodies.runs("a") == 2
            assert scheduler.view.waiting_for(first) == []
            assert scheduler.view.waiting_for(second) == ["a"]
            bodies.put(second)
        assert (await soon(running)).level == NO_CASCADE
        assert said(scheduler) == {"a": "Ready"}


async def test_waiting_for_every_one_of_them_takes_one_run_when_all_are_ready() -> None:
    there: set[str] = set()
    ran: list[str] = []

    def body(id_: str, level: int) -> Outcome:
        ran.append(id_)
        left = tuple(sorted({"x", "y", "z"} - there))
        return Blocked(left, every=True) if left else DONE

    scheduler = Scheduler(body)
    scheduler.seed(["a"])
    with scheduler.hold():
        running = asyncio.create_task(scheduler.run())
        for id_ in ("y", "x", "z"):
            await settle()
            assert ran == ["a"]
            there.add(id_)
            scheduler.arrive(id_, runnable=False)
            scheduler.arrive(id_, runnable=False)
    assert (await soon(running)).level == NO_CASCADE
    assert ran == ["a", "a"]


async def test_who_waits_for_every_one_of_them_runs_when_one_has_failed() -> None:
    def body(id_: str, level: int) -> Outcome:
        ran.append(id_)
        return DONE if failed else Blocked(("x", "y"), every=True)

    ran: list[str] = []
    failed = False
    scheduler = Scheduler(body)
    scheduler.seed(["a"])
    with scheduler.hold():
        running = asyncio.create_task(scheduler.run())
        await settle()
        failed = True
        scheduler.status("y", "Failed")
    assert (await soon(running)).level == NO_CASCADE
    assert ran == ["a", "a"]


async def test_a_seed_does_not_run_before_what_it_is_known_to_need_is_ready() -> None:
    bodies = body_for({"a": "b x", "b": "", "c": "d", "d": "nothing"})
    scheduler = bodies.on()
    scheduler.seed(bodies.graph, after=bodies.graph.__getitem__)
    with scheduler.hold():
        running = asyncio.create_task(scheduler.run())
        await settle()
        assert bodies.order() == ["b"]
        bodies.put("x")
        await settle()
        assert bodies.order() == ["b", "a"]
    assert (await soon(running)).level == CASCADE
    # One whose need has failed runs too, without having been raised.
    assert bodies.ran == [("b", 0), ("a", 0), ("d", CASCADE), ("c", NO_CASCADE)]
    assert said(scheduler)["c"] == FAILED + "d"


async def test_a_seed_whose_need_is_ready_already_runs_at_once() -> None:
    bodies = body_for({"a": "b", "b": ""})
    scheduler = bodies.on()
    await run(scheduler, "b")
    scheduler.seed(["a"], after=bodies.graph.__getitem__)
    assert (await soon(scheduler.run())).level == NO_CASCADE
    assert bodies.ran[-1] == ("a", NO_CASCADE)


async def test_a_seed_whose_need_has_failed_already_runs_at_once() -> None:
    bodies = body_for({"a": "b"})
    scheduler = bodies.on()
    bodies.decide = lambda id_, level: Failed() if id_ == "b" else Bodies.decide(bodies, id_, level)  # type: ignore[method-assign]
    await run(scheduler, "b")
    scheduler.seed(["a"], after=bodies.graph.__getitem__)
    assert (await soon(scheduler.run())).level == NO_CASCADE
    assert said(scheduler)["a"] == FAILED + "b"


async def test_seeds_of_which_one_cannot_be_read_are_not_half_taken() -> None:
    def needs(id_: str) -> tuple[str, ...]:
        if id_ == "b":
            raise LookupError(id_)
        return ()

    bodies = body_for({"a": "", "b": ""})
    scheduler = bodies.on()
    with pytest.raises(LookupError):
        scheduler.seed(["a", "b"], after=needs)
    await run(scheduler, "a", "b")
    assert said(scheduler) == {"a": "Ready", "b": "Ready"}


# What wakes.


async def test_plain_data_wakes_but_is_never_run() -> None:
    bodies = body_for({"a": "x"})
    scheduler = bodies.on()
    scheduler.seed(["a"])
    with scheduler.hold():
        running = asyncio.create_task(scheduler.run())
        await settle()
        bodies.put("x")
    assert (await soon(running)).level == NO_CASCADE
    assert bodies.ran == [("a", 0), ("a", 0)]
    assert "x" not in said(scheduler)


async def test_a_dependency_that_was_not_seeded_arrives_and_wakes_its_waiter() -> None:
    bodies = body_for({"a": "b", "b": ""})
    scheduler = bodies.on()
    scheduler.seed(["a"])
    with scheduler.hold():
        running = asyncio.create_task(scheduler.run())
        await settle()
        scheduler.arrive("b")
    assert (await soon(running)).level == NO_CASCADE
    assert said(scheduler) == {"a": "Ready", "b": "Ready"}


@pytest.mark.parametrize(("status", "wakes"), [("Ready", 1), ("Failed", 1), ("Skipped", 0), ("Pending", 0)])
async def test_only_ready_and_failed_wake(status: str, wakes: int) -> None:
    ran = 0

    def body(id_: str, level: int) -> Outcome:
        nonlocal ran
        ran += 1
        return Blocked(("x",)) if level < FORCE else DONE

    scheduler = Scheduler(body)
    scheduler.seed(["a"])
    with scheduler.hold():
        running = asyncio.create_task(scheduler.run())
        await settle()
        scheduler.status("x", status)  # type: ignore[arg-type]
        await settle()
        assert ran == 1 + wakes
    await soon(running)


async def test_a_body_may_end_skipped_which_wakes_nobody_and_counts_as_not_ready() -> None:
    bodies = body_for({"a": "b", "b": ""})
    bodies.decide = lambda id_, level: (  # type: ignore[method-assign]
        Done("Skipped") if id_ == "b" else Bodies.decide(bodies, id_, level)
    )
    scheduler = bodies.on()
    assert (await run(scheduler, "a", "b")).level == CASCADE
    assert said(scheduler) == {"a": NOT_FOUND + "b", "b": "Skipped"}
    assert bodies.ran == [("a", 0), ("b", 0), ("a", CASCADE)]


async def test_the_view_tells_that_a_node_was_skipped() -> None:
    scheduler = Scheduler(lambda id_, level: Done("Skipped"))
    await run(scheduler, "a")
    seen = scheduler.view.get("a")
    assert seen is not None and (seen.state, seen.status) == ("done", "Skipped")


async def test_a_changed_arrival_of_an_ended_node_runs_it_again_and_an_unchanged_one_does_nothing() -> None:
    bodies = body_for({"a": ""})
    scheduler = bodies.on()
    for content, runs in (("1", 1), ("1", 1), ("2", 2), ("2", 2), ("1", 3), (None, 4), (None, 5)):
        scheduler.arrive("a", content)
        await soon(scheduler.run())
        assert bodies.runs("a") == runs, content


async def test_a_producer_that_is_run_again_restores_what_it_makes() -> None:
    made: list[str] = []

    def body(id_: str, level: int) -> Outcome:
        if id_ == "producer":
            made.append("x")
            scheduler.arrive("x", "same", runnable=False)
            return DONE
        return DONE if made else Blocked(("x",))

    scheduler = Scheduler(body)
    scheduler.arrive("producer", "1")
    scheduler.seed(["reader"])
    await soon(scheduler.run())
    made.clear()
    scheduler.arrive("producer", "2")
    scheduler.arrive("reader")
    assert (await soon(scheduler.run())).level == NO_CASCADE
    assert made == ["x"]


async def test_emissions_are_done_before_the_body_returns() -> None:
    seen: list[str] = []

    def body(id_: str, level: int) -> Outcome:
        if id_ == "a":
            scheduler.arrive("b", "1")
            seen.extend(node.id for node in scheduler.view.runnable())
        return DONE

    scheduler = Scheduler(body)
    await run(scheduler, "a")
    assert seen == ["b"]


# Wakes while the body runs.


@pytest.mark.parametrize("how", ["data", "node", "status"])
async def test_what_arrives_while_its_consumer_runs_is_not_left_to_the_drain(how: str) -> None:
    there = False
    reading, go_on = asyncio.Event(), asyncio.Event()

    async def body(id_: str, level: int) -> Outcome:
        if id_ == "x":
            return DONE
        seen = there
        if not seen:
            reading.set()
            await go_on.wait()
        return DONE if seen else Blocked(("x",))

    scheduler = Scheduler(body)
    scheduler.seed(["a"])
    running = asyncio.create_task(scheduler.run())
    await soon(reading.wait())
    there = True
    if how == "status":
        scheduler.status("x", "Ready")
    else:
        scheduler.arrive("x", "1", runnable=how == "node")
    await settle()
    go_on.set()
    assert (await soon(running)).level == NO_CASCADE
    assert said(scheduler)["a"] == "Ready"


async def test_a_dependency_that_ends_before_its_waiter_says_blocked_still_wakes_it() -> None:
    looked = asyncio.Event()
    ended = asyncio.Event()

    class Slow(Bodies):
        async def __call__(self, id_: str, level: int) -> Outcome:
            self.ran.append((id_, level))
            outcome = self.decide(id_, level)
            if id_ == "a" and isinstance(outcome, Blocked):
                looked.set()
                await ended.wait()
                await settle()
            elif id_ == "b":
                await looked.wait()
                ended.set()
            return outcome

    bodies = Slow({"a": "b", "b": ""})
    scheduler = bodies.on()
    assert (await run(scheduler, "a", "b")).level == NO_CASCADE
    assert bodies.ran == [("a", 0), ("b", 0), ("a", 0)]
    assert_nothing_left(scheduler)


@pytest.mark.parametrize("outcome", [DONE, Blocked(("never",)), Failed(), RequeueAfter(5)], ids=lambda o: type(o).__name__)
async def test_a_node_woken_while_it_runs_runs_exactly_once_more_whatever_its_outcome(outcome: Outcome) -> None:
    ran = 0

    async def body(id_: str, level: int) -> Outcome:
        nonlocal ran
        ran += 1
        if ran == 1:
            for content in range(3):
                scheduler.arrive("a", content)
                await settle()
            return outcome
        return DONE

    scheduler = Scheduler(body, clock=VirtualClock())
    await run(scheduler, "a")
    assert ran == 2
    assert scheduler.clock.now() == 0


async def test_content_and_status_wakes_coalesce_into_one_run() -> None:
    bodies = body_for({"a": "x y"})
    scheduler = bodies.on()
    scheduler.seed(["a"])
    with scheduler.hold():
        running = asyncio.create_task(scheduler.run())
        await settle()
        bodies.data |= {"x", "y"}
        scheduler.arrive("x", "1", runnable=False)
        scheduler.arrive("x", "2", runnable=False)
        scheduler.status("y", "Ready")
        scheduler.arrive("a", "new")
    await soon(running)
    assert bodies.runs("a") == 2


async def test_an_arrival_while_a_node_waits_for_a_slot_is_kept() -> None:
    go_on = asyncio.Event()
    read: list[str] = []
    value = "old"

    async def body(id_: str, level: int) -> Outcome:
        if id_ == "first":
            await go_on.wait()
        else:
            read.append(value)
        return DONE

    scheduler = Scheduler(body, concurrency=1)
    scheduler.seed(["first", "second"])
    running = asyncio.create_task(scheduler.run())
    await settle()
    value = "new"
    scheduler.arrive("second", value)
    go_on.set()
    await soon(running)
    assert read == ["new"]


async def test_a_node_never_runs_twice_at_once() -> None:
    under_way = most = 0

    async def body(id_: str, level: int) -> Outcome:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await settle()
        under_way -= 1
        return DONE

    scheduler = Scheduler(body)
    scheduler.seed(["a"])
    running = asyncio.create_task(scheduler.run())
    for content in range(8):
        for _ in range(content):
            await asyncio.sleep(0)
        scheduler.arrive("a", content)
    await soon(running)
    assert most == 1


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


# Bodies that go wrong.


async def test_a_body_that_raises_at_once_has_failed_and_the_run_ends() -> None:
    def body(id_: str, level: int) -> Outcome:
        raise ValueError(f"{id_} is broken")

    scheduler = Scheduler(body)
    result = await run(scheduler, "a", "b")
    assert isinstance(result.error, ValueError) and str(result.error) == "a is broken"
    assert said(scheduler) == {"a": "Failed: a is broken", "b": "Failed: b is broken"}
    assert_nothing_left(scheduler)


async def test_a_body_that_raises_while_it_awaits_has_failed_and_the_run_ends() -> None:
    async def body(id_: str, level: int) -> Outcome:
        await asyncio.sleep(0)
        raise ValueError("broken")

    scheduler = Scheduler(body)
    result = await run(scheduler, "a")
    assert isinstance(result.error, ValueError)
    assert said(scheduler) == {"a": "Failed: broken"}
    assert_nothing_left(scheduler)


async def test_those_that_wait_for_a_body_that_raises_are_woken() -> None:
    bodies = body_for({"a": "b", "b": ""})
    decide = bodies.decide
    bodies.decide = lambda id_, level: 1 / 0 if id_ == "b" else decide(id_, level)  # type: ignore
    scheduler = bodies.on()
    assert (await run(scheduler, "a", "b")).level == NO_CASCADE
    assert said(scheduler)["a"] == FAILED + "b"


async def test_a_body_that_is_cancelled_has_failed_and_the_run_ends() -> None:
    async def body(id_: str, level: int) -> Outcome:
        raise asyncio.CancelledError

    scheduler = Scheduler(body)
    result = await run(scheduler, "a")
    assert isinstance(result.error, BodyCancelled) and not result.cancelled
    assert_nothing_left(scheduler)


async def test_a_body_that_cancels_its_own_task_has_failed_and_the_run_ends() -> None:
    async def body(id_: str, level: int) -> Outcome:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        return DONE

    scheduler = Scheduler(body)
    assert isinstance((await run(scheduler, "a")).error, BodyCancelled)
    assert_nothing_left(scheduler)


async def test_a_body_that_takes_too_long_has_failed_and_the_run_ends() -> None:
    async def body(id_: str, level: int) -> Outcome:
        await asyncio.Event().wait()
        return DONE

    scheduler = Scheduler(body, timeout_seconds=0.01)
    result = await run(scheduler, "a")
    assert isinstance(result.error, TimeoutError)
    seen = scheduler.view.get("a")
    assert seen is not None and isinstance(seen.outcome, Failed) and seen.outcome.reason == "TimeoutError"
    assert_nothing_left(scheduler)


async def test_a_body_that_takes_too_long_is_told_of_with_its_name() -> None:
    async def body(id_: str, level: int) -> Outcome:
        await asyncio.Event().wait()
        return DONE

    scheduler = Scheduler(body, timeout_seconds=0.01)
    await run(scheduler, "slow")
    assert "slow" in said(scheduler)["slow"]


@pytest.mark.parametrize("answer", [None, 3, "Ready"])
async def test_a_body_that_answers_nonsense_has_failed(answer: object) -> None:
    def at_once(id_: str, level: int) -> Outcome:
        return answer  # type: ignore[return-value]

    async def later(id_: str, level: int) -> Outcome:
        return answer  # type: ignore[return-value]

    for body in (at_once, later):
        scheduler = Scheduler(body)  # type: ignore[arg-type]
        assert isinstance((await run(scheduler, "a")).error, TypeError)
        assert_nothing_left(scheduler)


async def test_a_node_whose_body_raised_runs_again_when_it_changes() -> None:
    ran = 0

    def body(id_: str, level: int) -> Outcome:
        nonlocal ran
        ran += 1
        if ran == 1:
            raise ValueError
        return DONE

    scheduler = Scheduler(body)
    await run(scheduler, "a")
    scheduler.arrive("a", "2")
    await soon(scheduler.run())
    assert said(scheduler) == {"a": "Ready"}


# Cancel and stop.


async def test_cancel_of_an_empty_run_is_clean() -> None:
    scheduler = body_for({}).on()
    with scheduler.hold():
        running = asyncio.create_task(scheduler.run())
        await settle()
        await soon(scheduler.cancel())
        assert await soon(running) == (NO_CASCADE, True, None)


async def test_cancel_cancels_the_bodies_that_run_and_waits_until_they_are_gone() -> None:
    gone: list[str] = []

    async def body(id_: str, level: int) -> Outcome:
        try:
            await asyncio.Event().wait()
        finally:
            await settle()
            gone.append(id_)
        return DONE

    scheduler = Scheduler(body, concurrency=2)
    scheduler.seed(["a", "b", "c"])
    running = asyncio.create_task(scheduler.run())
    await settle()
    await soon(scheduler.cancel())
    assert gone == ["a", "b"]
    assert await soon(running) == (NO_CASCADE, True, None)
    assert scheduler.view.running() == []


async def test_cancel_before_a_body_began_is_clean() -> None:
    async def body(id_: str, level: int) -> Outcome:
        return DONE

    scheduler = Scheduler(body)
    scheduler.seed(["a"])
    running = asyncio.create_task(scheduler.run())
    for _ in range(2):
        await asyncio.sleep(0)
    assert [seen.id for seen in scheduler.view.running()] == ["a"]
    await soon(scheduler.cancel())
    assert (await soon(running)).cancelled
    assert scheduler.view.running() == []


async def test_cancel_in_the_last_body_is_told_though_all_is_done() -> None:
    def body(id_: str, level: int) -> Outcome:
        if id_ == "b":
            cancels.append(asyncio.ensure_future(scheduler.cancel()))
        return DONE

    cancels: list[asyncio.Future[None]] = []
    scheduler = Scheduler(body)
    scheduler.seed(["a", "b"])
    with scheduler.hold():
        result = await soon(scheduler.run())
    await cancels[0]
    assert result == (NO_CASCADE, True, None)
    assert said(scheduler) == {"a": "Ready", "b": "Ready"}


@pytest.mark.parametrize("how", ["cancel", "stop"])
async def test_a_body_may_end_the_run_itself(how: str) -> None:
    async def body(id_: str, level: int) -> Outcome:
        await getattr(scheduler, how)()
        return DONE

    scheduler = Scheduler(body)
    result = await run(scheduler, "a", "b")
    assert result.cancelled == (how == "cancel")
    assert scheduler.view.running() == []


@pytest.mark.parametrize("how", ["cancel", "stop"])
async def test_a_run_that_is_ended_before_its_first_turn_ends(how: str) -> None:
    bodies = body_for({"a": ""})
    scheduler = bodies.on()
    scheduler.seed(["a"])
    running = asyncio.create_task(scheduler.run())
    await getattr(scheduler, how)()
    assert (await soon(running)).cancelled == (how == "cancel")
    assert bodies.ran == []


async def test_a_cancelled_run_leaves_no_body_behind() -> None:
    async def body(id_: str, level: int) -> Outcome:
        await asyncio.Event().wait()
        return DONE

    scheduler = Scheduler(body)
    scheduler.seed(["a"])
    running = asyncio.create_task(scheduler.run())
    await settle()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(running)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert scheduler.view.running() == []


async def test_stop_waits_for_bodies_starts_none_and_keeps_the_first_error() -> None:
    go_on = asyncio.Event()
    ran: list[str] = []

    async def body(id_: str, level: int) -> Outcome:
        ran.append(id_)
        await go_on.wait()
        raise ValueError(id_)

    scheduler = Scheduler(body, concurrency=2)
    scheduler.seed(["a", "b", "c"])
    running = asyncio.create_task(scheduler.run())
    await settle()
    stopping = asyncio.create_task(scheduler.stop())
    await settle()
    assert not stopping.done() and not running.done()
    go_on.set()
    await soon(stopping)
    result = await soon(running)
    assert str(result.error) == "a" and not result.cancelled
    assert ran == ["a", "b"]


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


# The same again.


@pytest.mark.parametrize("concurrency", [1, 2, 7, 64])
async def test_output_is_identical_over_repeated_runs_and_any_worker_count(concurrency: int) -> None:
    graph = {
        **{f"n{number}": f"n{(number * 7 + 3) % 40} n{(number * 5 + 1) % 40}" for number in range(30)},
        **{f"n{number}": "missing" if number % 2 else "" for number in range(30, 40)},
    }

    class Awaiting(Bodies):
        async def __call__(self, id_: str, level: int) -> Outcome:
            outcome = self.decide(id_, level)
            for _ in range(sum(map(ord, id_)) % 5):
                await asyncio.sleep(0)
            return outcome

    inline = body_for(graph)
    level = (await run(inline.on(), *graph)).level
    expected = said(inline.scheduler)
    for _ in range(3):
        bodies = Awaiting(graph)
        assert (await run(bodies.on(concurrency=concurrency), *graph)).level == level
        assert said(bodies.scheduler) == expected
        assert_nothing_left(bodies.scheduler)
