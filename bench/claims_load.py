"""The loads of `bench.claims`: clients that take turns, arrivals at random times, and many at one instant.

A claim is timed from when it is sent, or was meant to be, to the answer that says what is held: from then on commands
can be run there.
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
"""Of each load, at its beginning, that does not count."""
HOLD_SECONDS = 0.005


class Run(NamedTuple):
    """What a client has seen."""

    cycles: int
    """Claims made and released, with those that do not count."""
    per_second: float
    until_bound: list[float]
    """In milliseconds."""
    late: list[float]
    """By so many milliseconds each claim was sent later than it was due; that is in the time above."""


class Load(NamedTuple):
    """What a client has seen, and what one cycle (a claim and its release) has cost."""

    per_second: float
    until_bound: list[float]
    late: list[float]
    """In milliseconds, in order."""
    written: float
    """Objects, each in a commit that is on disk before anybody is told."""
    server_ms: float
    client_ms: float
    """Time of a core."""


async def measured(here: Rota, pool: Pool, run: Callable[[], Awaitable[Run]]) -> Load:
    revision, server, client = await here.revision(), here.cpu_seconds(), time.process_time()
    found = await run()
    client, server = time.process_time() - client, here.cpu_seconds() - server
    await here.settled(pool)
    written = await here.revision() - revision
    each = 1e3 / found.cycles
    took, late = sorted(found.until_bound), sorted(found.late)
    return Load(found.per_second, took, late, written / found.cycles, server * each, client * each)


async def in_turn(claims: Claims, clients: int, seconds: float, *, runs_a_command: bool = False) -> Run:
    """So many clients, each of which claims and releases, again and again."""
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
    """So many claims, released at once, of which nothing is measured."""
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
    """So many a second on average, at random, whatever becomes of those before. Timed from when each was due."""
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
    """Have something begin at each of these times.

    A thread looks at the clock: the timers of an event loop are a millisecond late, which is what is measured here.
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
    """So many at one instant, each of which holds what it gets for a moment."""
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
