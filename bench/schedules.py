"""Benchmark of schedules: `python -m bench.schedules [--quick] [--json FILE]`.

`rota up` has many schedules, of which a thousand are due at one instant and the others on other days. Lateness is the
time from the tick until a watching client gets the Task, which is durable by then. APScheduler 3 has the same jobs in
memory and stores nothing. Its lateness ends with the call of the job's function, which is the limit.
"""

from __future__ import annotations

import asyncio
import random
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from bench.harness import Report, arguments, save
from bench.instances import Server
from bench.instances_peers import cpu_seconds, memory_mib
from bench.schedules_peer import apscheduler
from bench.tasks_window import p50, p99
from rota.api import Schedule, Task
from rota.client import Client, Operation

COUNT, COUNT_QUICK = 100_000, 5_000
DUE, DUE_QUICK = 1_000, 200
IDLE_SECONDS, IDLE_SECONDS_QUICK = 30.0, 5.0
BATCH = 250
"""Objects in one request."""
AHEAD_SECONDS = 20.0
"""The least time between the creation of the due schedules and their tick."""
QUIET_PERCENT = 20.0
QUIET_SECONDS = 1.0
PATIENCE_SECONDS = 600.0
NAMESPACE = "default"
SEED = 11


class Figures(NamedTuple):
    """The figures of one scheduler."""

    add_seconds: float
    start_seconds: float | None
    memory_mib: float
    idle_percent: float
    lateness: list[float]
    """Milliseconds, for each due schedule."""


def body(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    meta = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "rota.dev/v1alpha1", "kind": kind, "metadata": meta, "spec": spec}


def schedule(name: str, cron: str) -> dict[str, Any]:
    template = {"command": ["true"], "workerPoolRef": {"name": "pool"}}
    return body("Schedule", name, {"cron": cron, "target": {"taskTemplate": template}})


def some_day(chance: random.Random) -> str:
    """Return a cron that is not due during the run."""
    month = (time.gmtime().tm_mon + 5) % 12 + 1
    return f"{chance.randrange(60)} {chance.randrange(24)} {chance.randrange(1, 29)} {month} *"


async def put(client: Client, schedules: list[dict[str, Any]]) -> None:
    for at in range(0, len(schedules), BATCH):
        some = schedules[at : at + BATCH]
        await client.batch([Operation("create", Schedule.api, NAMESPACE, body=one) for one in some])


async def until_quiet(pid: int) -> float:
    """Wait until a process is almost idle. Returns the seconds until then."""
    began, before = time.perf_counter(), cpu_seconds(pid)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            await asyncio.sleep(QUIET_SECONDS)
            now = cpu_seconds(pid)
            if (now - before) / QUIET_SECONDS * 100 < QUIET_PERCENT:
                return time.perf_counter() - began - QUIET_SECONDS
            before = now


async def idle(pid: int, seconds: float) -> float:
    before = cpu_seconds(pid)
    await asyncio.sleep(seconds)
    return (cpu_seconds(pid) - before) / seconds * 100


async def watch_ticks(client: Client, tick: float, count: int) -> list[float]:
    """Return the milliseconds from the tick to the event of each Task."""
    late: list[float] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for change in client.watch(Task.api, namespace=NAMESPACE):
            if change.type == "ADDED":
                late.append((time.time() - tick) * 1000)
                if len(late) == count:
                    return late
    raise AssertionError("a watch does not end by itself")


def next_minute() -> int:
    """Return the first full minute with enough time before it to create the due schedules."""
    return (int(time.time() + AHEAD_SECONDS) // 60 + 1) * 60


async def rota(count: int, due: int, idle_seconds: float) -> tuple[Figures, float]:
    """Return Rota's figures, and the MiB of an empty server."""
    chance = random.Random(SEED)
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder))
        await server.start()
        client = Client.connect(home=server.home, manager="bench")
        try:
            await client.create(body("WorkerPool", "pool", {"worker": {}, "replicas": 0}))
            empty = memory_mib(server.process.pid)
            began = time.perf_counter()
            await put(client, [schedule(f"quiet-{number}", some_day(chance)) for number in range(count - due)])
            await until_quiet(server.process.pid)
            added = time.perf_counter() - began - QUIET_SECONDS
            await client.close()
            await server.end(signal.SIGTERM)
            began = time.perf_counter()
            await server.start()
            await until_quiet(server.process.pid)
            started = time.perf_counter() - began - QUIET_SECONDS
            percent = await idle(server.process.pid, idle_seconds)
            memory = memory_mib(server.process.pid)
            client = Client.connect(home=server.home, manager="bench")
            tick = next_minute()
            at = time.gmtime(tick)
            cron = f"{at.tm_min} {at.tm_hour} {at.tm_mday} {at.tm_mon} *"
            await put(client, [schedule(f"due-{number}", cron) for number in range(due)])
            lateness = await watch_ticks(client, tick, due)
            return Figures(added, started, memory, percent, lateness), empty
        finally:
            await client.close()
            await server.end(signal.SIGTERM)


def table(subjects: dict[str, Figures | None], count: int, due: int) -> Report:
    report = Report(f"{count:,} schedules, {due:,} due at once", list(subjects))
    rows: dict[str, Callable[[Figures], float | None]] = {
        "lateness p50, ms": lambda one: p50(one.lateness),
        "lateness p99, ms": lambda one: p99(one.lateness),
        "lateness of the last, ms": lambda one: max(one.lateness),
        "idle CPU, %": lambda one: one.idle_percent,
        "memory, MiB": lambda one: one.memory_mib,
        "all added, s": lambda one: one.add_seconds,
        "started with all of them, s": lambda one: one.start_seconds,
    }
    for label, figure in rows.items():
        report.add(label, *(figure(one) if one is not None else None for one in subjects.values()))
    return report


async def main_async(quick: bool) -> list[Report]:
    count, due = (COUNT_QUICK, DUE_QUICK) if quick else (COUNT, DUE)
    seconds = IDLE_SECONDS_QUICK if quick else IDLE_SECONDS
    ours, empty = await rota(count, due, seconds)
    peer = await asyncio.to_thread(apscheduler, count, due, seconds)
    theirs = Figures(*peer) if peer is not None else None
    report = table({"Rota": ours, "APScheduler": theirs}, count, due)
    report.add("memory of an empty server, MiB", empty, None)
    report.add("memory of the schedules, MiB", ours.memory_mib - empty, None)
    report.show()
    return [report]


def main() -> None:
    given = arguments("Many schedules, a thousand due at one instant, beside APScheduler 3.").parse_args()
    save(given.json, asyncio.run(main_async(given.quick)))


if __name__ == "__main__":
    main()
