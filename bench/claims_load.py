"""The loads of `bench.claims`: closed loops of clients, Poisson arrivals, and bursts.

The time of a claim ends with the answer that names the instance: from then on it accepts commands. It begins when the
claim is sent or, for arrivals, when it is due.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from bench.claims_rota import Claims, Pool, Rota

SEED = 7
WARM_SECONDS = 0.3
"""Time at the beginning of each load that is not counted."""
HOLD_SECONDS = 0.005


class Run(NamedTuple):
    """The client's measurements of one load."""

    cycles: int
    """Claims made and released, uncounted ones included."""
    per_second: float
    until_bound: list[float]
    """Milliseconds from the sending, or from the due time, until the answer."""
    late: list[float]
    """Milliseconds by which each claim was sent after it was due, which `until_bound` includes."""


class Load(NamedTuple):
    """The client's measurements of one load, and the cost of one cycle: a claim and its release."""

    per_second: float
    until_bound: list[float]
    late: list[float]
    """Sorted milliseconds."""
    written: float
    """Objects written in a cycle, each durable before its claim is answered."""
    server_ms: float
    client_ms: float
    """Processor milliseconds of this process in a cycle."""


async def measured(here: Rota, pool: Pool, run: Callable[[], Awaitable[Run]]) -> Load:
    revision, server, client = await here.revision(), here.cpu_seconds(), time.process_time()
    found = await run()
    client, server = time.process_time() - client, here.cpu_seconds() - server
    await here.until_idle(pool)
    written = await here.revision() - revision
    each = 1e3 / found.cycles
    took, late = sorted(found.until_bound), sorted(found.late)
    return Load(found.per_second, took, late, written / found.cycles, server * each, client * each)


async def in_turn(claims: Claims, clients: int, seconds: float, *, runs_a_command: bool = False) -> Run:
    """Run a closed loop: each of the clients claims and releases, one cycle after the other."""
    since = time.perf_counter() + WARM_SECONDS
    until = since + seconds
    cycles, counted, took = 0, 0, list[float]()

    async def again_and_again() -> None:
        nonlocal cycles, counted
        while (sent := time.perf_counter()) < until:
            held = await claims.claim()
            if runs_a_command:
                await claims.run(held)
            bound = time.perf_counter()
            await claims.release(held)
            cycles += 1
            if sent >= since:
                took.append((bound - sent) * 1e3)
            counted += since <= time.perf_counter() < until

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(again_and_again())
    return Run(cycles, counted / seconds, took, [])


async def cycles(claims: Claims, clients: int, count: int) -> None:
    """Make claims and release them at once, without measuring."""
    left = count

    async def again_and_again() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await claims.release(await claims.claim())

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(again_and_again())


async def poisson(claims: Claims, rate: float, seconds: float) -> Run:
    """Send claims at random times at this average rate, whether earlier ones are answered or not.

    The time of a claim begins when it is due.
    """
    chance, began = random.Random(SEED), time.perf_counter()
    since, until = began + WARM_SECONDS, began + WARM_SECONDS + seconds
    due_times, due = list[float](), began
    while (due := due + chance.expovariate(rate)) < until:
        due_times.append(due)
    took, late, last = list[float](), list[float](), since

    async def one(due: float) -> None:
        nonlocal last
        sent = time.perf_counter()
        held = await claims.claim()
        bound = time.perf_counter()
        if due >= since:
            took.append((bound - due) * 1e3)
            late.append((sent - due) * 1e3)
            last = max(last, bound)
        await asyncio.sleep(HOLD_SECONDS)
        await claims.release(held)

    async with asyncio.TaskGroup() as group:
        await paced(due_times, lambda due: group.create_task(one(due)))
    return Run(len(due_times), len(took) / (max(last, until) - since), took, late)


async def paced(due_times: list[float], begin: Callable[[float], object]) -> None:
    """Call `begin` at each of these times.

    A thread waits for them: the timers of an event loop are a millisecond late, which would be in the figures.
    """
    loop, is_over = asyncio.get_running_loop(), threading.Event()

    def begin_unless_over(due: float) -> None:
        if not is_over.is_set():
            begin(due)

    def pace() -> None:
        for due in due_times:
            if is_over.wait(due - time.perf_counter()):
                return
            loop.call_soon_threadsafe(begin_unless_over, due)

    pacing = loop.run_in_executor(None, pace)
    try:
        await pacing
    finally:
        is_over.set()


async def burst(claims: Claims, count: int) -> Run:
    """Send all claims at one instant. Each holds its instance for a moment."""
    took = list[float]()
    began = time.perf_counter()

    async def one() -> None:
        held = await claims.claim()
        took.append((time.perf_counter() - began) * 1e3)
        await asyncio.sleep(HOLD_SECONDS)
        await claims.release(held)

    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(one())
    return Run(count, count / (max(took) / 1e3), took, [])
