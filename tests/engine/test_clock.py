"""Time that is handed in: it passes when it is told to, and ends what takes too long."""

from __future__ import annotations

import asyncio

import pytest

from rota.engine import VirtualClock
from rota.engine.clock import Clock, Limit, RealClock, sleep


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_what_takes_too_long_is_ended_by_the_clock_that_is_handed_in() -> None:
    clock, ended = VirtualClock(), []

    async def work() -> None:
        try:
            async with Limit(clock, 30):
                await asyncio.Event().wait()
        except TimeoutError:
            ended.append(clock.now())

    working = asyncio.create_task(work())
    await settle()
    clock.advance(29)
    await settle()
    assert ended == []
    clock.advance(1)
    await working
    assert ended == [30]


@pytest.mark.parametrize("clock", [VirtualClock(), RealClock()], ids=["virtual", "real"])
async def test_what_ends_in_time_is_not_ended(clock: Clock) -> None:
    async with Limit(clock, 30) as limit:
        await asyncio.sleep(0)
    async with Limit(clock, None) as unlimited:
        await asyncio.sleep(0)
    assert not limit.expired() and not unlimited.expired()


async def test_what_is_cancelled_is_not_taken_to_be_late() -> None:
    async def work() -> None:
        async with Limit(VirtualClock(), 30):
            await asyncio.Event().wait()

    working = asyncio.create_task(work())
    await settle()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working


async def test_the_real_clock_ends_what_takes_too_long() -> None:
    with pytest.raises(TimeoutError):
        async with Limit(RealClock(), 0.01):
            await asyncio.Event().wait()


def test_calls_of_one_moment_are_made_one_by_one() -> None:
    clock, made = VirtualClock(), []
    for name in ("a", "b"):
        clock.call_at(5, lambda name=name: made.append(name))  # type: ignore[misc]
    assert clock.advance_once(10) and (made, clock.now()) == (["a"], 5)
    assert clock.advance_once(10) and (made, clock.now()) == (["a", "b"], 5)
    assert not clock.advance_once(10) and clock.now() == 10


def test_a_call_that_is_cancelled_is_not_made_and_not_kept() -> None:
    clock, made = VirtualClock(), []
    kept = clock.call_at(500, lambda: made.append("kept"))
    for at in range(1000):
        clock.call_at(at, lambda: made.append("cancelled")).cancel()
    assert clock.next_due() == 500 and len(clock._timers) <= 2
    clock.advance(1000)
    kept.cancel()
    assert made == ["kept"] and clock.next_due() is None


async def test_one_that_sleeps_by_a_clock_is_woken_by_it() -> None:
    clock = VirtualClock()
    sleeping = asyncio.create_task(sleep(clock, 60))
    await settle()
    clock.advance(60)
    await sleeping
