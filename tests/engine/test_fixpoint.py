"""To the fixpoint: who runs when, what wakes, and that it comes to the same."""

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
    Outcome,
    RequeueAfter,
    Scheduler,
    VirtualClock,
)
from tests.engine.bodies import Bodies, HeldScheduler, assert_nothing_left, body_for, run, said, serving, settle, soon

pytestmark = pytest.mark.timeout(30)

BUDGET = 32
CYCLE = "Failed: dependency cycle detected: "
NOT_FOUND = "Failed: dependency not found: "
FAILED = "Failed: dependencies failed: "
SKIPPED = "Failed: dependencies skipped: "


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

    scheduler = HeldScheduler(body)
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
    scheduler = HeldScheduler(body)
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


@pytest.mark.parametrize(("status", "wakes"), [("Ready", 1), ("Failed", 1), ("Skipped", 1), ("Pending", 0)])
async def test_every_status_but_pending_wakes(status: str, wakes: int) -> None:
    ran = 0

    def body(id_: str, level: int) -> Outcome:
        nonlocal ran
        ran += 1
        return Blocked(("x",)) if level < FORCE else DONE

    scheduler = HeldScheduler(body)
    scheduler.seed(["a"])
    with scheduler.hold():
        running = asyncio.create_task(scheduler.run())
        await settle()
        scheduler.status("x", status)  # type: ignore[arg-type]
        await settle()
        assert ran == 1 + wakes
    await soon(running)


class Skipping(Bodies):
    """Bodies of which `b` ends skipped."""

    def decide(self, id_: str, level: int) -> Outcome:
        return Done("Skipped") if id_ == "b" else super().decide(id_, level)


async def test_who_waits_for_a_node_that_ends_skipped_is_woken_and_says_so() -> None:
    bodies = Skipping({"a": "b", "b": ""})
    scheduler = bodies.on()
    assert (await run(scheduler, "a", "b")).level == NO_CASCADE
    assert said(scheduler) == {"a": SKIPPED + "b", "b": "Skipped"}
    assert bodies.ran == [("a", 0), ("b", 0), ("a", 0)]
    assert_nothing_left(scheduler)


async def test_who_waits_for_every_one_of_them_runs_when_one_was_skipped() -> None:
    bodies = Skipping({"a": "b c", "b": "", "c": "x"})
    scheduler = bodies.on()
    scheduler.seed(bodies.graph, after=bodies.graph.__getitem__)
    with scheduler.hold():
        running = asyncio.create_task(scheduler.run())
        await settle()
        assert bodies.ran == [("b", 0), ("a", 0)]
        bodies.put("x")
    assert (await soon(running)).level == NO_CASCADE
    assert said(scheduler)["a"] == SKIPPED + "b"


async def test_a_seed_whose_need_was_skipped_already_runs_at_once() -> None:
    bodies = Skipping({"a": "b", "b": ""})
    scheduler = bodies.on()
    await run(scheduler, "b")
    scheduler.seed(["a"], after=bodies.graph.__getitem__)
    assert (await soon(scheduler.run())).level == NO_CASCADE
    assert said(scheduler)["a"] == SKIPPED + "b"


async def test_what_failed_because_of_a_skipped_node_recovers_when_that_is_ready() -> None:
    skips = True

    class Once(Bodies):
        def decide(self, id_: str, level: int) -> Outcome:
            return Done("Skipped") if id_ == "b" and skips else super().decide(id_, level)

    bodies = Once({"a": "b", "b": ""})
    scheduler = bodies.on()
    await run(scheduler, "a", "b")
    skips = False
    scheduler.arrive("b", "changed")
    await soon(scheduler.run())
    assert said(scheduler) == {"a": "Ready", "b": "Ready"}


async def test_who_waits_for_a_skipped_node_does_not_hang_while_serving() -> None:
    bodies = Skipping({"a": "b", "b": ""})
    decide, there = bodies.decide, set[str]()

    def with_memory(id_: str, level: int) -> Outcome:
        # What has ended is forgotten while serving: what came of it is read from where it is kept.
        if id_ == "a" and "b" in there:
            return Failed(("b",), message="dependencies skipped: b")
        there.add(id_)
        return decide(id_, level)

    bodies.decide = with_memory  # type: ignore[method-assign]
    scheduler = bodies.on(live=True)
    async with serving(scheduler):
        scheduler.seed(["a", "b"])
        await settle()
        assert bodies.ran == [("a", 0), ("b", 0), ("a", 0)]
        assert scheduler.view.failed_because_of("b") == ["a"]
        assert scheduler.view.parked() == []


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


@pytest.mark.parametrize(
    "outcome", [DONE, Blocked(("never",)), Failed(), RequeueAfter(5)], ids=lambda o: type(o).__name__
)
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
