"""Benchmark of claims on idle instances: `python -m bench.claims [--quick] [--json FILE]`.

Claims go over HTTPS to `rota up`, a process of its own, and each is durable. The pool runs sleeping processes without a
sandbox, with `reset: Keep`, so that the claim itself is measured. This process is the client; both share two cores. A
cycle is a claim and its release.

A second pool resets its workers after each hold. The ledger alone, without server and disk, is measured last.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

from bench.claims_core import bindings, waiters
from bench.claims_load import Load, Run, burst, cycles, in_turn, measured, poisson
from bench.claims_published import (
    AT_45,
    AT_300,
    AT_1000,
    BURST_300,
    BURST_3000,
    IN_A_LOOP,
    SERIES,
    SERIES_AND_COMMAND,
    Beside,
    published,
)
from bench.claims_rota import BOXES, WORKERS, Claims, Pool, Rota, rota
from bench.harness import Report, arguments, save
from bench.tasks_window import p50, p99
from rota.control.claims.ended import FULL, KEPT_MAX

CLIENTS = 64
BOXES_FEW, BOXES_MANY = CLIENTS, 100
CLEANED = 8
"""Workers of the pool with `reset: Clean`, and the most clients that share them."""
CONNECTIONS = 256
ROUNDS, ROUNDS_QUICK = 3, 1
SECONDS, SECONDS_QUICK = 5.0, 1.0
SECONDS_RARE, SECONDS_RARE_QUICK = 20.0, 3.0
"""Duration of loads with few claims per second, which need longer for enough samples."""
FIRST_CYCLES = 500
COLUMNS = ["claims/s", "p50 ms", "p99 ms", "late p99 ms", "written", "server ms", "client ms"]
NOTE = """late: time from when a claim was due until this client sent it, which p50 and p99 include
written, server, client: objects and ms of a core, for a claim and its release; ended claims are removed by hundreds"""
SWITCH_SECONDS = 0.0005
"""The longest time that the pacing thread waits for the interpreter lock."""

Way = Callable[[Claims], Awaitable[Run]]


class Figures:
    """The best round of each load, by its median."""

    def __init__(self, here: Rota, rounds: int) -> None:
        self._here = here
        self._rounds = rounds
        self.best: dict[str, Load] = {}

    async def take(self, pool: Pool, connections: int, ways: dict[str, Way]) -> None:
        """Run each load in every round, interleaved: a noisy moment of the machine then affects all of them."""
        for _ in range(self._rounds):
            async with self._here.claims(pool, connections) as claims:
                for label, way in ways.items():
                    load = await measured(self._here, pool, lambda way=way: way(claims))  # type: ignore[misc]
                    if label not in self.best or median(load) < median(self.best[label]):
                        self.best[label] = load


def median(load: Load) -> float:
    return p50(load.until_bound) or 0.0


async def at_first(here: Rota) -> Report:
    """Measure a fresh server, then one that keeps as many ended claims as it may."""
    report = Report("objects written for each claim with its release", ["figure"])
    async with here.claims(BOXES, CLIENTS) as claims:
        before = await here.revision()
        await cycles(claims, CLIENTS, FIRST_CYCLES)
        await here.until_idle(BOXES)
        report.add("on a fresh server", (await here.revision() - before) / FIRST_CYCLES)
        memory = here.memory_mib()
        await cycles(claims, CLIENTS, FULL)
        await here.until_idle(BOXES)
        before = await here.revision()
        await cycles(claims, CLIENTS, FIRST_CYCLES)
        await here.until_idle(BOXES)
        written = (await here.revision() - before) / FIRST_CYCLES
        report.add(f"with {KEPT_MAX:,} ended claims kept, and the oldest removed", written)
        report.add("memory of the server, MiB: fresh", memory)
        report.add("memory of the server, MiB: with the ended claims", here.memory_mib())
    report.show()
    return report


async def over_https(here: Rota, quick: bool) -> Report:
    figures = Figures(here, ROUNDS_QUICK if quick else ROUNDS)
    seconds = SECONDS_QUICK if quick else SECONDS
    rare_seconds = SECONDS_RARE_QUICK if quick else SECONDS_RARE
    in_turns: dict[str, Way] = {
        SERIES: lambda claims: in_turn(claims, 1, seconds),
        SERIES_AND_COMMAND: lambda claims: in_turn(claims, 1, seconds, runs_a_command=True),
        IN_A_LOOP: lambda claims: in_turn(claims, CLIENTS, seconds),
    }
    await figures.take(BOXES, CLIENTS, in_turns)
    await here.pool(BOXES, BOXES_MANY)
    open_loops: dict[str, Way] = {
        AT_45: lambda claims: poisson(claims, 45, rare_seconds),
        AT_300: lambda claims: poisson(claims, 300, seconds),
        AT_1000: lambda claims: poisson(claims, 1_000, seconds),
    }
    await figures.take(BOXES, CONNECTIONS, open_loops)
    for label, count in {BURST_300: 300, BURST_3000: 3_000}.items():
        await figures.take(BOXES, count, {label: lambda claims, count=count: burst(claims, count)})  # type: ignore[misc]
    await here.pool(WORKERS, CLEANED)
    cleaned: dict[str, Way] = {
        f"{CLEANED} workers, reset: Clean, in series": lambda claims: in_turn(claims, 1, seconds),
        f"{CLEANED} workers, reset: Clean, {CLEANED} clients": lambda claims: in_turn(claims, CLEANED, seconds),
    }
    await figures.take(WORKERS, CLEANED, cleaned)
    report = Beside("claims over HTTPS, each durable", COLUMNS)
    for label, load in figures.best.items():
        costs = (load.written, load.server_ms, load.client_ms)
        report.add(label, load.per_second, p50(load.until_bound), p99(load.until_bound), p99(load.late), *costs)
    report.show()
    print(NOTE)
    return report


async def measure(quick: bool) -> list[Report]:
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        here = await stack.enter_async_context(rota(Path(folder)))
        await here.pool(BOXES, BOXES_FEW)
        reports = [await at_first(here), await over_https(here, quick), published()]
    return [*reports, await bindings(quick), waiters()]


async def ended_by_signals(quick: bool) -> list[Report]:
    """Measure, and end the started processes on SIGTERM, too, as on Ctrl-C."""
    this = asyncio.current_task()
    assert this is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    return await measure(quick)


def on_fastest_loop(quick: bool) -> list[Report]:
    try:
        import uvloop
    except ImportError:
        return asyncio.run(ended_by_signals(quick))
    return uvloop.run(ended_by_signals(quick))


def main() -> None:
    options = arguments(__doc__.splitlines()[0] if __doc__ else "").parse_args()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        reports = on_fastest_loop(options.quick)
    except asyncio.CancelledError:
        sys.exit(128 + signal.SIGTERM)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    print(f"\nload of the machine over the last minute, this benchmark included: {os.getloadavg()[0]:.1f}")
    save(options.json, reports)


if __name__ == "__main__":
    main()
