"""Schedules in a world: made, left to the clock, and their Tasks brought to an end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from rota.api import Schedule, Task
from rota.client import Client, LocalBackend
from rota.control.schedule import Schedules
from rota.control.schedules.making import SCHEDULED_TIME
from rota.engine import VirtualClock
from rota.registry import Registry
from rota.store import MemoryStore
from tests.engine_loop.loops import Way, World
from tests.unchecked import stored

START = int(datetime(2026, 1, 5, 12, 0, 30, tzinfo=UTC).timestamp())
"""A Monday, half a minute past noon."""
POOL: dict[str, Any] = {"workerPoolRef": {"name": "pool"}}
MINUTE = 60
COMMAND = {"command": ["true"], **POOL}


class SteppedClock(VirtualClock):
    """Time whose wall clock can be set. What waits goes on waiting, as on a machine."""

    can_be_set = True

    def step(self, seconds: float) -> None:
        self._start += seconds

    def sleep(self, seconds: float) -> None:
        """The machine is suspended: the wall clock goes on, what waits does not."""
        self._start += seconds


class OneByOne(LocalBackend):
    """A server that has no atomic commit, as a cluster's."""

    atomic = False


class Scene:
    """A world with a pool, and the controller of schedules."""

    def __init__(self, world: World, clock: SteppedClock) -> None:
        self.world = world
        self.clock = clock
        self.client = world.client

    async def serve(self, *, atomic: bool = True, look_seconds: float = 1.0, client: Client | None = None) -> Schedules:
        controller = Schedules(look_seconds)
        if not atomic:
            client = Client(OneByOne(self.world.registry), manager="controllers")
        await self.world.serve(controller, client=client)
        return controller

    async def pool(self, name: str = "pool") -> None:
        await self.world.create("WorkerPool", name, {"worker": {}, "replicas": 0})

    async def schedule(self, name: str = "tick", cron: str = "* * * * *", **spec: Any) -> Schedule:
        target = spec.pop("target", {"taskTemplate": COMMAND})
        await self.world.create("Schedule", name, {"cron": cron, "target": target, **spec})
        if self.world.serving is not None:
            await self.world.rest()
        return await self.get(name)

    async def took(self, cron: str = "* * * * *", **spec: Any) -> None:
        """A schedule that a cluster's API server took, which makes none of Rota's own checks."""
        whole = {"cron": cron, "target": {"taskTemplate": COMMAND}, **spec}
        await stored(self.world.registry, "Schedule", "tick", whole)
        await self.world.rest()

    async def get(self, name: str = "tick") -> Schedule:
        found: Schedule = await self.world.get("Schedule", name)
        return found

    async def status(self, name: str = "tick") -> Any:
        return (await self.get(name)).status

    async def patch(self, name: str = "tick", **spec: Any) -> None:
        await self.world.patch("Schedule", name, {"spec": spec})
        await self.world.rest()

    async def passes(self, seconds: float, step: float = 30.0) -> None:
        await self.world.pass_time(seconds, step)

    async def ready(self, name: str = "tick") -> tuple[str, str]:
        found = await self.world.condition("Schedule", name, "Ready")
        assert found is not None
        return found[0], found[1]

    # Tasks.

    async def tasks(self) -> list[Task]:
        kind: Any = Task
        found: list[Task] = (await self.client.list(kind)).items
        return sorted(found, key=lambda task: (task.metadata.annotations[SCHEDULED_TIME], task.metadata.name))

    async def ticks(self) -> list[str]:
        """The times of the Tasks that are there, as hours and minutes."""
        return [task.metadata.annotations[SCHEDULED_TIME][11:16] for task in await self.tasks()]

    async def moments(self) -> list[int]:
        """The moments of the Tasks that are there."""
        texts = [task.metadata.annotations[SCHEDULED_TIME] for task in await self.tasks()]
        return [int(datetime.fromisoformat(text).timestamp()) for text in texts]

    async def end(self, task: Task | None = None, phase: str = "Succeeded", **status: Any) -> None:
        """A Task, or each that is not over, ends. A field that is None is left out."""
        for one in [task] if task is not None else await self.tasks():
            if not one.over():
                now = datetime.fromtimestamp(self.clock.time(), UTC).isoformat()
                times = {"startTime": now, "completionTime": now}
                body = {"phase": phase, **times, **status}
                known = {name: value for name, value in body.items() if value is not None}
                await self.world.set_status("Task", one.metadata.name, **known)
        await self.world.rest()

    async def delete(self, task: Task) -> None:
        await self.world.delete("Task", task.metadata.name)
        await self.world.rest()


@asynccontextmanager
async def scene_in(way: Way = "store", start: float = START) -> AsyncIterator[Scene]:
    clock = SteppedClock(start)
    registry = Registry(MemoryStore(), clock=clock.time)
    await registry.start()
    world = World(registry, clock, way)
    scene = Scene(world, clock)
    await scene.pool()
    try:
        yield scene
    finally:
        await world.stop()
        await registry.stop()


@asynccontextmanager
async def restarted(scene: Scene) -> AsyncIterator[Scene]:
    """The same server, after its process has ended: nothing is known but what was written."""
    await scene.world.stop()
    world = World(scene.world.registry, scene.clock, scene.world.way)
    again = Scene(world, scene.clock)
    try:
        yield again
    finally:
        await world.stop()


@pytest.fixture(params=["store", "cached"])
async def scene(request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    async with scene_in(request.param) as made:
        yield made
