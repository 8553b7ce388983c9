"""Exactly one Task for each tick, with two processes that would both fire it, and through kills of a real server."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rota.api import Schedule, Task
from rota.client import Client, LocalBackend, Update
from rota.control.schedule import Schedules
from rota.control.schedules.making import SCHEDULE_NAME, SCHEDULED_TIME, time_text
from rota.engine import ControlLoop, StoreObjects, VirtualClock
from rota.engine.fence import Fenced
from rota.engine.leadership import LEASE_SECONDS, Leadership
from rota.engine.recorder import Recorder
from rota.registry import Registry
from rota.store import MemoryStore
from tests.amount import amount
from tests.schedules.scene import COMMAND, START, OneByOne
from tests.server.live import Live

KILLS = int(os.environ.get("ROTA_SCHEDULE_KILLS", amount(2, 20)))
SCHEDULES = 40
MISSED_MINUTES = 90
LOOKS_MAX = 4
"""The number of requests before the server is killed: so it has gone on for a while, or not."""
PATIENCE_SECONDS = 60.0
SETTLE_TURNS = 200
TICKS = 12


class Process:
    """One of several that may lead. Its connection can break, and come back."""

    def __init__(self, registry: Registry, clock: VirtualClock, name: str, *, atomic: bool, fenced: bool) -> None:
        self._line = LocalBackend(registry) if atomic else OneByOne(registry)
        self._registry = registry
        self._clock = clock
        self._fenced = fenced
        self.leadership = Leadership(Client(self._line), name, clock=clock)
        self.task = asyncio.create_task(self.leadership.run(self._lead) if fenced else self._lead())

    async def _lead(self) -> None:
        backend: Any = self._line
        if self._fenced:
            backend = Fenced(self._line, lambda: self.leadership.held, lambda: self.leadership.holder)
        client = Client(backend, manager="controllers")
        recorder = Recorder(client, clock=self._clock)
        await ControlLoop(client, StoreObjects(self._registry), [Schedules()], recorder, clock=self._clock).serve()

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class Server:
    """A store, its time, and every Task that was ever made in it."""

    def __init__(self, registry: Registry, clock: VirtualClock) -> None:
        self.registry = registry
        self.clock = clock
        self.client = Client.local(registry)
        self.made: Counter[str] = Counter()
        StoreObjects(registry).listen((Task.api,), self._hear)

    def _hear(self, kind: object, update: Update[Any]) -> None:
        if update.old is None and update.new is not None:
            self.made[update.new.metadata.annotations[SCHEDULED_TIME]] += 1

    async def schedule(self, **spec: Any) -> None:
        await self.client.create(_object("WorkerPool", "pool", {"worker": {}, "replicas": 0}))
        spec = {"cron": "* * * * *", "target": {"taskTemplate": COMMAND}, "catchUp": "All", "overlap": "Allow", **spec}
        await self.client.create(_object("Schedule", "tick", spec))

    async def passes(self, seconds: float, step: float) -> None:
        for _ in range(round(seconds / step)):
            self.clock.advance(step)
            for _ in range(SETTLE_TURNS):
                await asyncio.sleep(0)

    async def delete_all(self) -> None:
        kind: Any = Task
        for task in (await self.client.list(kind)).items:
            await self.client.delete(kind, task.metadata.name)

    def expected(self, count: int) -> dict[str, int]:
        return {time_text(START + 30 + 60 * number): 1 for number in range(count)}


@asynccontextmanager
async def server() -> AsyncIterator[Server]:
    clock = VirtualClock(START)
    registry = Registry(MemoryStore(), clock=clock.time)
    await registry.start()
    try:
        yield Server(registry, clock)
    finally:
        await registry.stop()


async def test_two_processes_that_lead_in_turn_fire_each_tick_once() -> None:
    async with server() as there:
        await there.schedule()
        processes = [Process(there.registry, there.clock, name, atomic=True, fenced=True) for name in "ab"]
        for turn in range(TICKS):
            await there.passes(60, 2)
            leader = next(one for one in processes if one.leadership.held)
            if turn % 3 == 1:
                at = processes.index(leader)
                await leader.stop()
                name = leader.leadership.identity
                processes[at] = Process(there.registry, there.clock, name, atomic=True, fenced=True)
        await there.passes(60 + LEASE_SECONDS, 2)
        for one in processes:
            await one.stop()
        assert there.made == there.expected(TICKS + 1)


@pytest.mark.parametrize("pruned", [False, True])
async def test_two_processes_that_both_take_themselves_for_the_leader_fire_each_tick_once(pruned: bool) -> None:
    async with server() as there:
        await there.schedule()
        processes = [Process(there.registry, there.clock, name, atomic=True, fenced=False) for name in "ab"]
        for _ in range(TICKS):
            await there.passes(60, 30)
            if pruned:
                await there.delete_all()
        for one in processes:
            await one.stop()
        assert there.made == there.expected(TICKS)
        kind: Any = Schedule
        found = await there.client.get(kind, "tick")
        assert found.status.run_count == TICKS


async def test_without_atomic_commits_two_leaders_still_fire_each_tick_once() -> None:
    async with server() as there:
        await there.schedule()
        processes = [Process(there.registry, there.clock, name, atomic=False, fenced=False) for name in "ab"]
        await there.passes(60 * TICKS, 30)
        for one in processes:
            await one.stop()
        assert there.made == there.expected(TICKS)


def test_a_server_that_is_killed_again_and_again_makes_each_missed_tick_once(tmp_path: Path) -> None:
    chance = random.Random(8)
    home = tmp_path / "home"
    first = int(time.time()) // 60 * 60 - MISSED_MINUTES * 60
    live = Live(home, "--no-controllers")
    try:
        asyncio.run(_prepare(home, first))
        live.kill()
        live.arguments = ()
        for _ in range(KILLS):
            live.start()
            for _ in range(chance.randrange(LOOKS_MAX)):
                live.kubectl("get", "--raw", "/version")
            live.kill()
        live.start()
        made = _settled(live, first)
    finally:
        live.end()
    assert set(made.values()) == {1}
    assert len({name for name, _ in made}) == SCHEDULES


async def _prepare(home: Path, first: int) -> None:
    """Schedules that were last dealt with long ago."""
    target = {"taskTemplate": {"command": ["true"], "workerPoolRef": {"name": "pool"}}}
    spec = {"cron": "* * * * *", "target": target, "catchUp": "All", "overlap": "Allow", "catchUpWithinSeconds": 86_400}
    status = {"nextRunTime": time_text(first), "observedCron": "UTC * * * * *"}
    client = Client.connect(home=home)
    try:
        await client.create(_object("WorkerPool", "pool", {"worker": {}, "replicas": 0}))
        for number in range(SCHEDULES):
            made = await client.create(_object("Schedule", f"s{number}", spec))
            await client.update_status({**made, "status": status})
    finally:
        await client.close()


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "rota.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def _settled(live: Live, first: int) -> Counter[tuple[str, str]]:
    """All Tasks, when every schedule has come to now."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        schedules = live.read("sched")["items"]
        counts = [one.get("status", {}).get("runCount", 0) for one in schedules]
        nexts = [datetime.fromisoformat(one["status"]["nextRunTime"]) for one in schedules]
        if min(counts) >= MISSED_MINUTES and min(nexts) > datetime.now(UTC):
            break
        assert time.monotonic() < until, counts
    tasks = live.read("tasks")["items"]
    notes = [task["metadata"]["annotations"] for task in tasks]
    made = Counter((one[SCHEDULE_NAME], one[SCHEDULED_TIME]) for one in notes)
    for schedule in live.read("sched")["items"]:
        status, name = schedule["status"], schedule["metadata"]["name"]
        last = int(datetime.fromisoformat(status["lastScheduledTime"]).timestamp())
        assert status["runCount"] == (last - first) // 60 + 1, "none is counted twice, none left out"
        own = {text for which, text in made if which == name and text <= time_text(last)}
        assert own >= {time_text(first + 60 * minute) for minute in range(MISSED_MINUTES)}
    return made
