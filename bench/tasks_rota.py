"""Rota as `bench.tasks` measures it: `rota up` as a process, warm pools, and a watching client on its socket."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from bench.instances import Server
from bench.instances_peers import memory_mib
from bench.tasks_cost import Spent, spent
from bench.tasks_peers import WORKERS
from bench.tasks_window import Load, Window
from rota.api import Task, WorkerPool
from rota.client import Cache, Client, HttpBackend, Update

NAMESPACE = "default"
PATIENCE_SECONDS = 300.0
POLL_SECONDS = 0.01
COLD_SECONDS_MAX = 15.0
WRITERS = 64
"""Concurrent creates while a backlog is made."""
SKIPPED = 200
"""Tasks at the beginning of a backlog that do not count: the workers have just started."""


class Pool(NamedTuple):
    """A pool, and the no-op task for it."""

    name: str
    type: str
    command: tuple[str, ...]
    reset: str = "Keep"


SHELL = Pool("shell", "shell", ("true",))
PYTHON = Pool("python", "python", ("math:sqrt", "4"))
CLEAN = Pool("clean", "python", ("math:sqrt", "4"), "Clean")


class Finished(NamedTuple):
    task: Task
    at: float
    """The time of the event in the client, by the wall clock, as the server's times are."""


class Submitted(NamedTuple):
    name: str
    over: asyncio.Future[Finished]


class Rota:
    """A server and its client. Made by `rota`."""

    def __init__(self, server: Server, client: Client, cache: Cache[Task]) -> None:
        self.server = server
        self.client = client
        self.submitted = 0
        """The number of tasks submitted so far."""
        self._waiting: dict[str, asyncio.Future[Finished]] = {}
        self._queued = 0
        cache.subscribe(self._on_update)

    def _on_update(self, update: Update[Task]) -> None:
        if update.new is None:
            return
        self._queued += is_queued(update.new) - is_queued(update.old)
        if update.new.over():
            waiting = self._waiting.pop(update.key.name, None)
            if waiting is not None:
                waiting.set_result(Finished(update.new, time.time()))

    # Setting up and measuring.

    async def pool(self, pool: Pool, replicas: int = WORKERS, workspace: str = "") -> None:
        """Apply a pool. Returns when it is ready."""
        worker = {"type": pool.type, **({"workspaceRef": {"name": workspace}} if workspace else {})}
        spec = {"worker": worker, "replicas": replicas, "reset": pool.reset}
        await self.client.apply(declared("WorkerPool", pool.name, spec), force=True)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not is_up(await self.client.get(WorkerPool, pool.name), replicas):
                await asyncio.sleep(POLL_SECONDS)

    async def revision(self) -> int:
        """Return the revision of the store, which is the number of writes so far."""
        assert isinstance(self.client.backend, HttpBackend)
        answer = await self.client.backend.raw("GET", "/v1/status")
        revision: int = msgspec.json.decode(answer.body)["revision"]
        return revision

    def memory_mib(self) -> float:
        return memory_mib(self.server.process.pid)

    def spent(self) -> Spent:
        return spent(self.server.process.pid, self.server.keeper())

    # Loads.

    async def submit(self, spec: dict[str, Any]) -> Submitted:
        """Submit a task. Returns when it is on disk, with a future of its end."""
        name = f"task-{self.submitted}"
        self.submitted += 1
        over = self._waiting[name] = asyncio.get_running_loop().create_future()
        await self.client.create(declared("Task", name, spec))
        return Submitted(name, over)

    async def load(self, pool: Pool, in_flight: int, seconds: float) -> Load:
        """Run a closed loop: each client submits a task and waits for its end, one after the other."""
        window = Window(seconds)

        async def one_after_the_other() -> None:
            while window.is_open():
                self._record(window, *await self._follow(on_pool(pool), PATIENCE_SECONDS))

        async with asyncio.TaskGroup() as group:
            for _ in range(in_flight):
                group.create_task(one_after_the_other())
        return window.load()

    async def cold(self, seconds: float) -> Load:
        """Run tasks that each get a new worker, one after the other."""
        window = Window(seconds)
        while window.is_open():
            spec = {"command": ["true"], "worker": {"type": "shell"}}
            self._record(window, *await self._follow(spec, COLD_SECONDS_MAX))
        return window.load()

    async def _follow(self, spec: dict[str, Any], patience_seconds: float) -> tuple[float, Finished]:
        """Submit a task and wait for its end. Returns the time of its submission, and the event of its end."""
        since = time.time()
        submitted = await self.submit(spec)
        async with asyncio.timeout(patience_seconds):
            return since, await submitted.over

    @staticmethod
    def _record(window: Window, since: float, finished: Finished) -> None:
        status = finished.task.status
        assert status is not None and status.phase == "Succeeded", status
        assigned, running = status.start_time, status.attempts[0].start
        assert assigned is not None and running is not None
        window.over(
            assigned=assigned.timestamp() - since, running=running.timestamp() - since, result=finished.at - since
        )

    async def chain(self, pool: Pool, length: int) -> float:
        """Return the seconds from the first submission until the end of a chain: each task needs the one before."""
        began = time.perf_counter()
        last = await self.submit(on_pool(pool))
        for _ in range(length - 1):
            last = await self.submit({**on_pool(pool), "dependsOn": [last.name]})
        async with asyncio.timeout(PATIENCE_SECONDS):
            task, _ = await last.over
        assert task.status is not None and task.status.phase == "Succeeded", task.status
        return time.perf_counter() - began

    async def queue(self, pool: Pool, count: int) -> tuple[float, list[asyncio.Future[Finished]]]:
        """Submit tasks to a pool without workers. Returns the seconds until all are Queued, and their ends."""
        began, left, ends = time.perf_counter(), count, list[asyncio.Future[Finished]]()

        async def write() -> None:
            nonlocal left
            while left:
                left -= 1
                ends.append((await self.submit(on_pool(pool))).over)

        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(*(write() for _ in range(WRITERS)))
            while self._queued < count:
                await asyncio.sleep(POLL_SECONDS)
        return time.perf_counter() - began, ends

    async def drain(self, pool: Pool, ends: Sequence[asyncio.Future[Finished]], count: int) -> float:
        """Give a pool with a backlog its workers. Returns the tasks per second over this number of tasks."""
        done, times = asyncio.Event(), list[float]()

        def count_it(_: asyncio.Future[Finished]) -> None:
            times.append(time.perf_counter())
            if len(times) == SKIPPED + count:
                done.set()

        for end in ends:
            end.add_done_callback(count_it)
        await self.client.set_scale(WorkerPool, pool.name, WORKERS, namespace=NAMESPACE)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await done.wait()
        return count / (times[SKIPPED + count - 1] - times[SKIPPED - 1])


@contextlib.asynccontextmanager
async def rota(home: Path) -> AsyncIterator[Rota]:
    server = Server(home)
    await server.start()
    try:
        client = Client.connect(home=home, manager="bench", namespace=NAMESPACE)
        try:
            async with Cache(client, Task, namespace=NAMESPACE) as cache:
                yield Rota(server, client, cache)
        finally:
            await client.close()
    finally:
        await server.end(signal.SIGTERM)


def is_queued(task: Task | None) -> bool:
    return task is not None and task.status is not None and task.status.phase == "Queued"


def is_up(pool: WorkerPool, replicas: int) -> bool:
    status = pool.status
    return status is not None and status.replicas == replicas and pool.readiness().state == "Ready"


def on_pool(pool: Pool) -> dict[str, Any]:
    return {"command": [*pool.command], "workerPoolRef": {"name": pool.name}}


def declared(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "rota.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}
