"""Bodies that block, on threads."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections import Counter

import pytest

from rota.engine import DONE, NO_CASCADE, Blocked, Outcome, Scheduler, Threads
from tests.engine.bodies import assert_nothing_left, body_for, run, said, settle, soon

pytestmark = pytest.mark.timeout(30)

WORKERS = 4
WAIT_SECONDS = 60.0


async def test_bodies_run_on_threads_of_their_own() -> None:
    threads: set[int] = set()

    def body(id_: str, level: int) -> Outcome:
        threads.add(threading.get_ident())
        return DONE

    with Threads(body, WORKERS) as dispatch:
        scheduler = Scheduler(dispatch)
        assert await run(scheduler, *"abcdef") == (NO_CASCADE, False, None)
    assert threading.get_ident() not in threads
    assert set(said(scheduler).values()) == {"Ready"}


async def test_bodies_on_threads_run_side_by_side_within_the_bound() -> None:
    together = threading.Barrier(3, timeout=WAIT_SECONDS)
    under_way: set[str] = set()
    most = 0

    def body(id_: str, level: int) -> Outcome:
        nonlocal most
        under_way.add(id_)
        most = max(most, len(under_way))
        together.wait()
        together.wait()
        under_way.discard(id_)
        together.wait()
        return DONE

    with Threads(body, workers=8) as dispatch:
        result = await run(Scheduler(dispatch, concurrency=3), *"abcdefghi")
    assert result.error is None
    assert most == 3


async def test_what_a_thread_tells_is_done_when_the_call_returns() -> None:
    seen: list[object] = []

    def body(id_: str, level: int) -> Outcome:
        if id_ == "a":
            scheduler.arrive("b", "1")
            seen.append(scheduler.view.get("b") is not None)
            scheduler.arrive("x", "1", runnable=False)
            seen.append(scheduler.view.waiting_for("x"))
            scheduler.status("y", "Ready")
            seen.append(scheduler.view.waiting_for("y"))
            scheduler.seed(["c"])
            seen.append(scheduler.view.get("c") is not None)
            scheduler.forget("waits/z")
            seen.append(scheduler.view.get("waits/z"))
        elif id_.startswith("waits/") and id_ not in waited:
            waited.add(id_)
            return Blocked((id_.removeprefix("waits/"),))
        return DONE

    waited: set[str] = set()
    with Threads(body, 1) as dispatch:
        scheduler = Scheduler(dispatch)
        scheduler.seed(["waits/x", "waits/y", "waits/z"])
        with scheduler.hold():
            running = asyncio.create_task(scheduler.run())
            while len(scheduler.view.parked()) < 3:
                await asyncio.sleep(0)
            scheduler.seed(["a"])
        assert (await soon(running)).error is None
    assert seen == [True, [], [], True, None]
    assert said(scheduler) == dict.fromkeys(["a", "b", "c", "waits/x", "waits/y"], "Ready")


async def test_an_error_of_what_a_thread_tells_is_the_bodys() -> None:
    def lane_of(id_: str) -> str:
        if id_ == "bad":
            raise LookupError("no such lane")
        return "lane"

    def body(id_: str, level: int) -> Outcome:
        scheduler.arrive("bad")
        return DONE

    with Threads(body, 1) as dispatch:
        scheduler = Scheduler(dispatch, lane_of=lane_of)
        assert isinstance((await run(scheduler, "a")).error, LookupError)
    assert said(scheduler) == {"a": "Failed: no such lane"}


async def test_a_thread_may_hold_off_the_end() -> None:
    def body(id_: str, level: int) -> Outcome:
        with scheduler.hold():
            return DONE

    # In this mode a loop refuses calls from other threads, which otherwise go unnoticed until it wakes.
    asyncio.get_running_loop().set_debug(True)
    with Threads(body, 1) as dispatch:
        scheduler = Scheduler(dispatch)
        assert (await run(scheduler, "a")).error is None


async def test_a_body_that_raises_on_its_thread_has_failed() -> None:
    def body(id_: str, level: int) -> Outcome:
        raise ValueError("broken")

    with Threads(body, 1) as dispatch:
        scheduler = Scheduler(dispatch)
        assert isinstance((await run(scheduler, "a", "b")).error, ValueError)
    assert said(scheduler) == dict.fromkeys("ab", "Failed: broken")
    assert_nothing_left(scheduler)


async def test_a_body_that_takes_too_long_on_its_thread_has_failed() -> None:
    over = threading.Event()

    def body(id_: str, level: int) -> Outcome:
        over.wait(WAIT_SECONDS)
        return DONE

    with Threads(body, 1) as dispatch:
        scheduler = Scheduler(dispatch, timeout_seconds=0.01)
        result = await run(scheduler, "a")
        over.set()
    assert isinstance(result.error, TimeoutError)
    assert said(scheduler)["a"].startswith("Failed")
    assert_nothing_left(scheduler)


async def test_a_node_whose_thread_was_given_up_on_does_not_run_before_that_is_over() -> None:
    started, over = threading.Event(), threading.Event()
    under_way = most = ran = 0

    def body(id_: str, level: int) -> Outcome:
        nonlocal under_way, most, ran
        ran += 1
        under_way += 1
        most = max(most, under_way)
        if ran == 1:
            started.set()
            over.wait(WAIT_SECONDS)
        under_way -= 1
        return DONE

    with Threads(body, WORKERS) as dispatch:
        scheduler = Scheduler(dispatch, timeout_seconds=0.05)
        await run(scheduler, "a")
        assert started.is_set() and said(scheduler)["a"].startswith("Failed")
        scheduler.arrive("a", "2")
        running = asyncio.create_task(scheduler.run())
        await settle()
        over.set()
        await soon(running)
    assert (most, ran) == (1, 2)
    assert said(scheduler)["a"] == "Ready"


async def test_a_node_never_runs_twice_at_once_on_threads() -> None:
    under_way: Counter[str] = Counter()
    most = 0
    ids = [f"n{number}" for number in range(6)]

    def body(id_: str, level: int) -> Outcome:
        nonlocal most
        under_way[id_] += 1
        most = max(most, under_way[id_])
        for other in ids:
            scheduler.arrive(other, (id_, other))
        under_way[id_] -= 1
        return DONE

    with Threads(body, WORKERS) as dispatch:
        scheduler = Scheduler(dispatch, budget=20)
        await run(scheduler, *ids)
    assert most == 1
    assert_nothing_left(scheduler)


@pytest.mark.parametrize("turns", range(6))
async def test_a_wake_between_the_end_of_a_thread_and_its_parking_is_not_lost(turns: int) -> None:
    loop = asyncio.get_running_loop()
    there = False

    def wake(left: int) -> None:
        nonlocal there
        if left:
            loop.call_soon(wake, left - 1)
        else:
            there = True
            scheduler.arrive("x", "1", runnable=False)
            holding.__exit__(None, None, None)

    def body(id_: str, level: int) -> Outcome:
        if there:
            return DONE
        loop.call_soon_threadsafe(wake, turns)
        return Blocked(("x",))

    with Threads(body, 1) as dispatch:
        scheduler = Scheduler(dispatch)
        holding = scheduler.hold()
        holding.__enter__()
        assert (await run(scheduler, "a")).level == NO_CASCADE
    assert said(scheduler) == {"a": "Ready"}
    assert_nothing_left(scheduler)


async def test_many_wakes_from_many_threads_are_all_heard() -> None:
    count = 200
    there: set[str] = set()

    def body(id_: str, level: int) -> Outcome:
        kind, number = id_.split("/")
        if kind == "maker":
            there.add(f"data/{number}")
            scheduler.arrive(f"data/{number}", "1", runnable=False)
            return DONE
        return DONE if f"data/{number}" in there else Blocked((f"data/{number}",))

    with Threads(body, WORKERS) as dispatch:
        scheduler = Scheduler(dispatch, concurrency=WORKERS)
        ids = [f"{kind}/{number}" for kind in ("maker", "reader") for number in range(count)]
        assert await run(scheduler, *ids) == (NO_CASCADE, False, None)
    assert set(said(scheduler).values()) == {"Ready"}
    assert_nothing_left(scheduler)


async def test_cancel_leaves_the_scheduler_clean_though_a_thread_cannot_be_stopped() -> None:
    started, over = threading.Event(), threading.Event()

    def body(id_: str, level: int) -> Outcome:
        started.set()
        over.wait(WAIT_SECONDS)
        return DONE

    with Threads(body, 1) as dispatch:
        scheduler = Scheduler(dispatch)
        scheduler.seed(["a", "b"])
        running = asyncio.create_task(scheduler.run())
        while not started.is_set():
            await asyncio.sleep(0)
        await soon(scheduler.cancel())
        assert (await soon(running)).cancelled
        assert scheduler.view.running() == []
        over.set()


LATE_WORD = """
import asyncio, threading
from rota.engine import DONE, Scheduler, Threads

given_up = threading.Event()

def body(id_, level):
    given_up.wait()
    scheduler.arrive("late", "1", runnable=False)
    return DONE

async def main():
    global scheduler
    with Threads(body, 1) as dispatch:
        scheduler = Scheduler(dispatch, timeout_seconds=0.01)
        scheduler.seed(["a"])
        await scheduler.run()
        given_up.set()
    print("out")

asyncio.run(main())
"""


def test_a_thread_that_was_given_up_on_and_has_something_to_tell_does_not_block_the_end() -> None:
    # In a process of its own: a thread that hangs would keep this one from ending.
    try:
        told = subprocess.run([sys.executable, "-c", LATE_WORD], capture_output=True, timeout=WAIT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        pytest.fail("the thread waits for the loop, and the loop for the thread")
    assert told.stdout == b"out\n", told.stderr


async def test_output_is_the_same_on_any_number_of_threads() -> None:
    ended: list[dict[str, str]] = []
    for workers in (1, 2, 8):
        bodies = body_for({"a": "b", "b": "c", "c": "?", "d": "e", "e": "d", "f": ""})
        with Threads(bodies.decide, workers) as dispatch:
            bodies.scheduler = Scheduler(dispatch)
            await run(bodies.scheduler, *bodies.graph)
            ended.append(said(bodies.scheduler))
    assert ended[0] == ended[1] == ended[2]
    assert ended[0]["d"] == "Failed: dependency cycle detected: d → e → d"
