"""Bodies that go wrong, and runs that are ended from outside."""

from __future__ import annotations

import asyncio

import pytest

from rota.engine import (
    DONE,
    NO_CASCADE,
    BodyCancelled,
    Failed,
    Outcome,
    Scheduler,
)
from tests.engine.bodies import HeldScheduler, assert_nothing_left, body_for, run, said, settle, soon

pytestmark = pytest.mark.timeout(30)

BUDGET = 32
CYCLE = "Failed: dependency cycle detected: "
NOT_FOUND = "Failed: dependency not found: "
FAILED = "Failed: dependencies failed: "


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

    def broken(id_: str, level: int) -> Outcome:
        if id_ == "b":
            raise ValueError
        return decide(id_, level)

    bodies.decide = broken  # type: ignore[method-assign]
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
        scheduler = Scheduler(body)
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
    scheduler = HeldScheduler(body)
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
