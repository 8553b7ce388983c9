"""Benchmark of tasks through warm workers: `python -m bench.tasks [--quick] [--json FILE]`.

No-op tasks run through two warm workers under `rota up`, each durable at every step. Beside it four task queues in
their default configuration, with two worker processes each, and `ProcessPoolExecutor`, which stores nothing and is the
limit. All run at once, and their rounds are interleaved.

Rota's time ends when its client gets the event of the finished task. A peer's time ends when its task runs, which is
less: no result is stored or fetched. A column of its own has the time to a result in the peer's own way. Last come two
flows for which others have published figures.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import sys
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from bench.harness import Report, arguments, save
from bench.tasks_flows import flows
from bench.tasks_peers import Peer, peers
from bench.tasks_rota import CLEAN, PYTHON, SHELL, SKIPPED, Pool, Rota, rota
from bench.tasks_window import Load, p50, p99

IN_FLIGHT = (1, 16, 64)
IN_FLIGHT_CLEAN = (1, 16)
"""The loads of a pool with `reset: Clean`. Its workers take so long that more tasks in flight would only wait."""
ROUNDS, ROUNDS_QUICK = 3, 1
LOAD_SECONDS, LOAD_SECONDS_QUICK = 2.0, 0.4
QUEUED, QUEUED_QUICK = 100_000, 10_000
DRAINED, DRAINED_QUICK = 5_000, 500
CHAIN_LENGTH = 40
CHAINS, CHAINS_QUICK = 9, 3
POOLS = {
    "Rota, python": PYTHON,
    "Rota, shell": SHELL,
    "Rota, python, reset: Clean": CLEAN,
}


class Best:
    """The best round of one subject by tasks in flight, and its times to a result with one in flight."""

    def __init__(self) -> None:
        self.loads: dict[int, Load] = {}
        self.answers: Load | None = None

    def take(self, in_flight: int, load: Load) -> None:
        if in_flight not in self.loads or self.loads[in_flight].per_second < load.per_second:
            self.loads[in_flight] = load


async def side_by_side(here: Rota, others: list[Peer | str], rounds: int, seconds: float) -> dict[str, Best]:
    """Run the rounds of all subjects interleaved: a noisy moment of the machine then affects all of them."""
    present = [one for one in others if isinstance(one, Peer)]
    found = {label: Best() for label in [*POOLS, *(one.label for one in present)]}
    for _ in range(rounds):
        for in_flight in IN_FLIGHT:
            for label, pool in POOLS.items():
                if pool is not CLEAN or in_flight in IN_FLIGHT_CLEAN:
                    found[label].take(in_flight, await here.load(pool, in_flight, seconds))
            for one in present:
                found[one.label].take(in_flight, one.load(in_flight, seconds))
    for label in POOLS:
        found[label].answers = found[label].loads[1]
    for one in present:
        found[one.label].answers = one.answers(seconds)
    return found


def rates(found: dict[str, Best], others: list[Peer | str]) -> Report:
    columns = [f"tasks/s, {n}" for n in IN_FLIGHT] + [f"{p} ms, {n}" for n in IN_FLIGHT[1:] for p in ("p50", "p99")]
    report = Report("no-op tasks, by how many are in flight", columns)
    for label, best in found.items():
        loads = [best.loads.get(n) for n in IN_FLIGHT]
        late = [figure(load.until_result) if load else None for load in loads[1:] for figure in (p50, p99)]
        report.add(label, *(load.per_second if load else None for load in loads), *late)
    for one in others:
        if isinstance(one, str):
            report.add(one, *(None for _ in columns))
    top = found["Rota, python"].loads[IN_FLIGHT[-1]].per_second
    for label, best in found.items():
        if label not in POOLS:
            ratio = top / best.loads[IN_FLIGHT[-1]].per_second
            report.add(f"Rota, python, to {label}", None, None, ratio, *(None for _ in columns[3:]))
    report.show()
    return report


def latencies(found: dict[str, Best], others: list[Peer | str]) -> Report:
    columns = ["assigned p50", "assigned p99", "runs p50", "runs p99", "result p50", "result p99"]
    report = Report("one in flight, ms from the call", columns)
    for label, best in found.items():
        alone, answers = best.loads[1], best.answers
        result = answers.until_result if answers else []
        shown = (alone.until_assigned, alone.until_running, result)
        report.add(label, *(figure(values) for values in shown for figure in (p50, p99)))
    for one in others:
        if isinstance(one, str):
            report.add(one, *(None for _ in columns))
    report.show()
    return report


async def small_things(here: Rota, quick: bool) -> Report:
    report = Report("single figures", ["figure"])
    cold = await here.cold(LOAD_SECONDS_QUICK if quick else LOAD_SECONDS)
    report.add("a worker of its own: runs after, p50 ms", p50(cold.until_running))
    report.add("a worker of its own: result after, p50 ms", p50(cold.until_result))
    for label, pool in POOLS.items():
        if pool is CLEAN:
            continue
        took = sorted([await here.chain(pool, CHAIN_LENGTH) for _ in range(CHAINS_QUICK if quick else CHAINS)])
        report.add(f"{label}: a chain of {CHAIN_LENGTH}, best, s", took[0])
        report.add(f"{label}: a chain of {CHAIN_LENGTH}, median, s", statistics.median(took))
    for in_flight in IN_FLIGHT:
        written = await writes_each(here, PYTHON, in_flight)
        report.add(f"objects written for each task, {in_flight} in flight", written)
    report.show()
    return report


async def costs(here: Rota, quick: bool) -> Report:
    report = Report("processor time for each task, ms", ["server", "client", "runners, boxes", "all"])
    for label, pool in POOLS.items():
        if pool is CLEAN:
            continue
        for in_flight in IN_FLIGHT:
            before, tasks = here.spent(), here.submitted
            await here.load(pool, in_flight, LOAD_SECONDS_QUICK if quick else LOAD_SECONDS)
            used = [1000 * one / (here.submitted - tasks) for one in here.spent().since(before)]
            report.add(f"{label}, {in_flight} in flight", *used, sum(used))
    report.show()
    return report


async def writes_each(here: Rota, pool: Pool, in_flight: int) -> float:
    before, tasks = await here.revision(), here.submitted
    await here.load(pool, in_flight, LOAD_SECONDS_QUICK)
    return (await here.revision() - before) / (here.submitted - tasks)


async def backlog(folder: Path, quick: bool) -> Report:
    """Compare the throughput with few and with many waiting tasks, on a server of its own."""
    drained = DRAINED_QUICK if quick else DRAINED
    few = SKIPPED + drained
    report = Report("tasks that wait", ["all written, s", "written/s", "MiB before", "MiB with them", "then tasks/s"])
    async with rota(folder) as here:
        await here.pool(PYTHON)
        await here.load(PYTHON, IN_FLIGHT[-1], LOAD_SECONDS_QUICK)
        for waiting in (few, QUEUED_QUICK if quick else QUEUED):
            await here.pool(PYTHON, 0)
            before = here.memory_mib()
            took, ends = await here.queue(PYTHON, waiting)
            memory = here.memory_mib()
            rate = await here.drain(PYTHON, ends, drained)
            report.add(f"{waiting}", took, waiting / took, before, memory, rate)
            if waiting == few:
                await asyncio.gather(*ends)
    alone, behind = (row[1][-1] or 0.0 for row in report.rows)
    report.add("many to few", None, None, None, None, behind / alone)
    report.show()
    return report


async def measure(others: list[Peer | str], quick: bool) -> list[Report]:
    with tempfile.TemporaryDirectory() as folder:
        async with rota(Path(folder)) as here:
            for pool in POOLS.values():
                await here.pool(pool)
            rounds = ROUNDS_QUICK if quick else ROUNDS
            found = await side_by_side(here, others, rounds, LOAD_SECONDS_QUICK if quick else LOAD_SECONDS)
            reports = [rates(found, others), latencies(found, others)]
            reports += [await costs(here, quick), await small_things(here, quick)]
            reports.append(await flows(here, Path(folder), quick))
    with tempfile.TemporaryDirectory() as folder:
        return [*reports, await backlog(Path(folder), quick)]


def on_fastest_loop(work: Coroutine[Any, Any, list[Report]]) -> list[Report]:
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)


def main() -> None:
    options = arguments(__doc__.splitlines()[0] if __doc__ else "").parse_args()
    # SIGTERM also ends all started processes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with peers() as others:
        reports = on_fastest_loop(measure(others, options.quick))
    print(f"\nload of the machine over the last minute, this benchmark included: {os.getloadavg()[0]:.1f}")
    save(options.json, reports)


if __name__ == "__main__":
    main()
