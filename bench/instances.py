"""Benchmark of instances as processes: `python -m bench.instances [--quick] [--json FILE]`.

A pool of sleeping processes under `rota up`, without a sandbox, because bubblewrap's cost is not Rota's. Beside it the
same number under supervisord, and as children of a plain `subprocess` program. That is the limit: it neither watches
nor stores anything. Rota's time ends when every instance is reported Ready.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from bench.harness import Report, arguments, save
from bench.instances_peers import COMMAND, Cost, cost, cpu_seconds, memory_mib, plain, supervisord
from rota.api import Instance, WorkerPool
from rota.client import Cache, Client

ROTA = Path(sys.executable).parent / "rota"
COUNT, COUNT_QUICK = 1_000, 200
DEATHS = 50
SETTLE_SECONDS, SETTLE_SECONDS_QUICK = 60.0, 2.0
"""Time after the last instance is ready, until the load of the server counts as steady."""
STEADY_SECONDS, STEADY_SECONDS_QUICK = 30.0, 5.0
PATIENCE_SECONDS = 120.0


class Server:
    """`rota up` as a process of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home

    async def start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(
            ROTA, "up", "--home", self.home, "--port", "0", stdout=asyncio.subprocess.PIPE
        )
        assert self.process.stdout is not None
        await self.process.stdout.readline()

    async def end(self, how: int) -> None:
        self.process.send_signal(how)
        await self.process.wait()

    def keeper(self) -> int:
        return int((self.home / "keeper" / "lock").read_text())


@contextlib.asynccontextmanager
async def following(home: Path) -> AsyncIterator[tuple[Client, Cache[Instance]]]:
    client = Client.connect(home=home, manager="bench")
    try:
        async with Cache(client, Instance) as cache:
            yield client, cache
    finally:
        await client.close()


def pool(replicas: int, mark: str = "first") -> dict[str, Any]:
    container = {"name": "main", "command": [*COMMAND], "env": [{"name": "MARK", "value": mark}]}
    template = {"isolation": "none", "containers": [container], "terminationGracePeriodSeconds": 0}
    return {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": "many", "namespace": "default"},
        "spec": {"replicas": replicas, "template": template, "update": {"maxUnavailable": 10}},
    }


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not what():
            await asyncio.sleep(0.005)


def ready(cache: Cache[Instance]) -> list[Instance]:
    return [one for one in cache.list() if one.readiness().state == "Ready"]


def pid_of(instance: Instance) -> int:
    assert instance.status is not None and instance.status.runtime_id is not None
    return int(instance.status.runtime_id.partition("@")[0])


async def measure(count: int, report: Report, settle_seconds: float, steady_seconds: float) -> Cost:
    """Measure Rota's instances: the figures that no peer has go to the report, those that peers have are returned."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder))
        await server.start()
        try:
            async with following(server.home) as (client, cache):
                began = time.perf_counter()
                await client.apply(pool(count))
                await until(lambda: len(ready(cache)) == count)
                took = time.perf_counter() - began
                report.add(f"all of {count} ready, s", took)
                report.add("started and reported, per s", count / took)
                await asyncio.sleep(settle_seconds)
                found = await steady(server, report, took, steady_seconds)
                await deaths(cache, report)
            await adoption(server, count, report)
            async with following(server.home) as (client, cache):
                await rollout(client, cache, report)
        finally:
            began = time.perf_counter()
            await server.end(signal.SIGTERM)
            report.add("100 ended after SIGTERM, s", time.perf_counter() - began)
    return found


async def steady(server: Server, report: Report, took: float, seconds: float) -> Cost:
    both = {"server": server.process.pid, "keeper": server.keeper()}
    before = {name: cpu_seconds(pid) for name, pid in both.items()}
    found = await asyncio.to_thread(cost, [*both.values()], took, seconds)
    for name, pid in both.items():
        report.add(f"steady CPU of the {name}, %", (cpu_seconds(pid) - before[name]) / seconds * 100)
        report.add(f"memory of the {name}, MiB", memory_mib(pid))
    return found


async def deaths(cache: Cache[Instance], report: Report) -> None:
    """Measure the time from the kill of a process until a client knows its replacement."""
    chance, found = random.Random(1), []
    for one in chance.sample(ready(cache), min(DEATHS, len(cache))):
        name, old = one.metadata.name, pid_of(one)

        def replaced(name: str = name, old: int = old) -> bool:
            now = cache.get(name, "default")
            return now is not None and now.readiness().state == "Ready" and pid_of(now) != old

        began = time.perf_counter()
        os.kill(old, signal.SIGKILL)
        await until(replaced)
        found.append((time.perf_counter() - began) * 1000)
    found.sort()
    report.add("kill to replacement, p50 ms", found[len(found) // 2])
    report.add("kill to replacement, p99 ms", found[int(len(found) * 0.99)])


async def adoption(server: Server, count: int, report: Report) -> None:
    """Measure the time from the start of a server after `kill -9` until it watches all adopted processes."""
    await server.end(signal.SIGKILL)
    began = time.perf_counter()
    await server.start()
    report.add("ready again after kill -9, s", time.perf_counter() - began)
    async with following(server.home) as (_, cache):
        victim = ready(cache)[0]
        name, old = victim.metadata.name, pid_of(victim)
        os.kill(old, signal.SIGKILL)
        await until(lambda: (now := cache.get(name, "default")) is not None and pid_of(now) != old)
        report.add(f"{count} adopted: a killed one is replaced, s", time.perf_counter() - began)


async def rollout(client: Client, cache: Cache[Instance], report: Report) -> None:
    await client.set_scale(WorkerPool, "many", 100, namespace="default")
    await until(lambda: len(cache) == 100 and len(ready(cache)) == 100)
    before = {one.metadata.uid for one in cache.list()}
    began = time.perf_counter()
    await client.apply(pool(100, "second"))
    await until(lambda: len(ready(cache)) == 100 and not before & {one.metadata.uid for one in cache.list()})
    report.add("rollout of 100, ten at a time, s", time.perf_counter() - began)


def beside(rota: Cost, count: int, steady_seconds: float) -> Report:
    with tempfile.TemporaryDirectory() as folder:
        supervised = supervisord(count, Path(folder), steady_seconds)
    every = [rota, supervised, plain(count, steady_seconds)]
    report = Report(f"{count} sleeping processes", ["rota", "supervisord", "subprocess"])

    def add(label: str, figure: Callable[[Cost], float]) -> None:
        report.add(label, *(None if one is None else figure(one) for one in every))

    add("all run, s", lambda one: one.start_seconds)
    add("started, per s", lambda one: count / one.start_seconds)
    add("memory of what supervises (PSS), MiB", lambda one: one.memory_mib)
    add("of that for each process, KiB", lambda one: one.memory_mib * 1024 / count)
    add("CPU while all sleep, %", lambda one: one.cpu_percent)
    if supervised is None:
        report.add("supervisord is not here: pip install supervisor", None, None, None)
    return report


def main() -> None:
    options = arguments(__doc__.splitlines()[0] if __doc__ else "").parse_args()
    count = COUNT_QUICK if options.quick else COUNT
    settle_seconds = SETTLE_SECONDS_QUICK if options.quick else SETTLE_SECONDS
    steady_seconds = STEADY_SECONDS_QUICK if options.quick else STEADY_SECONDS
    report = Report("instances", ["figure"])
    rota = asyncio.run(measure(count, report, settle_seconds, steady_seconds))
    others = beside(rota, count, steady_seconds)
    report.show()
    others.show()
    save(options.json, [report, others])


if __name__ == "__main__":
    main()
