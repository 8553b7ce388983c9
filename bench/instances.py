"""Instances as processes: `python -m bench.instances [--quick] [--json FILE]`.

A pool of sleeping processes without a sandbox (its cost is that of bubblewrap) under `rota up`, beside the same number
of plain `subprocess` children, which is the limit: nobody watches those, and nothing of them survives.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from bench.harness import Report, arguments, save
from rota.api import Instance, WorkerPool
from rota.client import Cache, Client

ROTA = Path(sys.executable).parent / "rota"
COMMAND = ["sleep", "1000000"]
DEATHS = 50
STEADY_SECONDS = 5.0
PATIENCE_SECONDS = 120.0
TICKS = os.sysconf("SC_CLK_TCK")


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

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def resident_mib(self) -> float:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


@contextlib.asynccontextmanager
async def following(home: Path) -> AsyncIterator[tuple[Client, Cache[Instance]]]:
    client = Client.connect(home=home, manager="bench")
    try:
        async with Cache(client, Instance) as cache:
            yield client, cache
    finally:
        await client.close()


def pool(replicas: int, mark: str = "first") -> dict[str, Any]:
    container = {"name": "main", "command": COMMAND, "env": [{"name": "MARK", "value": mark}]}
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


async def measure(count: int, report: Report) -> None:
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
                report.add("started and told of, per s", count / took)
                await steady(server, report)
                await deaths(cache, report)
            await adoption(server, count, report)
            async with following(server.home) as (client, cache):
                await rollout(client, cache, report)
        finally:
            began = time.perf_counter()
            await server.end(signal.SIGTERM)
            report.add("all ended after SIGTERM, s", time.perf_counter() - began)


async def steady(server: Server, report: Report) -> None:
    before = server.cpu_seconds()
    await asyncio.sleep(STEADY_SECONDS)
    report.add("steady CPU of the server, %", (server.cpu_seconds() - before) / STEADY_SECONDS * 100)
    report.add("memory of the server, MiB", server.resident_mib())


async def deaths(cache: Cache[Instance], report: Report) -> None:
    """From the kill of a process to the news that another one runs in its place."""
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
    report.add("death seen and replaced, p50 ms", found[len(found) // 2])
    report.add("death seen and replaced, p99 ms", found[int(len(found) * 0.99)])


async def adoption(server: Server, count: int, report: Report) -> None:
    """From the start of a server after `kill -9` until it has looked at everything that runs."""
    await server.end(signal.SIGKILL)
    began = time.perf_counter()
    await server.start()
    report.add("ready again after kill -9, s", time.perf_counter() - began)
    async with following(server.home) as (_, cache):
        victim = ready(cache)[0]
        name, old = victim.metadata.name, pid_of(victim)
        os.kill(old, signal.SIGKILL)
        await until(lambda: (now := cache.get(name, "default")) is not None and pid_of(now) != old)
        report.add(f"and {count} adopted: one that dies is replaced, s", time.perf_counter() - began)


async def rollout(client: Client, cache: Cache[Instance], report: Report) -> None:
    await client.set_scale(WorkerPool, "many", 100, namespace="default")
    await until(lambda: len(cache) == 100 and len(ready(cache)) == 100)
    before = {one.metadata.uid for one in cache.list()}
    began = time.perf_counter()
    await client.apply(pool(100, "second"))
    await until(lambda: len(ready(cache)) == 100 and not before & {one.metadata.uid for one in cache.list()})
    report.add("rollout of 100, ten at a time, s", time.perf_counter() - began)


def plain(count: int, report: Report) -> None:
    began = time.perf_counter()
    children = [subprocess.Popen(COMMAND, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) for _ in range(count)]
    report.add("plain subprocess, per s: the limit", count / (time.perf_counter() - began))
    for child in children:
        child.kill()
    for child in children:
        child.wait()


def main() -> None:
    options = arguments(__doc__.splitlines()[0] if __doc__ else "").parse_args()
    count = 200 if options.quick else 1_000
    report = Report("instances", ["figure"])
    asyncio.run(measure(count, report))
    plain(count, report)
    report.show()
    save(options.json, [report])


if __name__ == "__main__":
    main()
