"""One control plane of a simulated fleet: clock, store, runtime and, while it is up, controllers."""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeVar

from rota.api import BY_BUCKET
from rota.client import Client
from rota.client.backend import Batches
from rota.client.local import LocalBackend
from rota.control.cells.counting import LinkCounting
from rota.control.cells.fence import Fence
from rota.control.cells.link import About, Hub, Link
from rota.control.cells.reports import Reports
from rota.control.leading import Leading, Linking
from rota.control.plane import Plane
from rota.control.table import controllers
from rota.engine import CachedObjects, Objects, StoreObjects, VirtualClock, kinds_of
from rota.engine.clock import Clock, VirtualTimer, sleep
from rota.engine.fence import Fenced
from rota.engine.recorder import Recorder
from rota.registry import Registry, WatchOptions
from rota.registry.system import establish
from rota.store import MemoryStore, Write
from rota.testing.runners import MemoryRunners
from rota.testing.runtime import MemoryRuntime

R = TypeVar("R")

MANAGER = "rota-controllers"
RESTORE_JUMP = 1_000_000
"""Jump of the revision by a restore."""
AWAKE_SECONDS = 1.0
"""Seconds between checks of a suspended machine."""


class SiteTimer(VirtualTimer):
    """A timer that fires when its machine is resumed, if that is suspended when the timer is due."""

    __slots__ = ("ringing",)
    ringing: VirtualTimer

    def cancel(self) -> None:
        super().cancel()
        self.ringing.cancel()


class SiteClock:
    """The clock of one machine, which can be suspended, and whose wall clock can be set."""

    can_be_set = True

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._ahead_seconds = 0.0
        self._due: list[VirtualTimer] | None = None
        """Timers that have come due while the machine is suspended; None if it is not."""

    @property
    def is_suspended(self) -> bool:
        return self._due is not None

    def now(self) -> float:
        return self._clock.now()

    def time(self) -> float:
        return self._clock.time() + self._ahead_seconds

    def call_at(self, when: float, callback: Callable[[], None]) -> VirtualTimer:
        timer = SiteTimer(callback)

        def ring() -> None:
            if self._due is not None:
                self._due.append(timer)
            elif timer.callback is not None:
                timer.callback()

        timer.ringing = self._clock.call_at(when, ring)
        return timer

    def step(self, seconds: float) -> None:
        """Set the wall clock, forward or back."""
        self._ahead_seconds += seconds

    def suspend(self) -> None:
        self._due = self._due or []

    def resume(self) -> None:
        due, self._due = self._due or [], None
        for timer in due:
            if timer.callback is not None:
                timer.callback()

    async def awake(self) -> None:
        """Wait until the machine is not suspended."""
        while self.is_suspended:
            await sleep(self._clock, AWAKE_SECONDS)


class Lag:
    """The delay with which the controllers of a site see writes, like those of an operator."""

    def __init__(self, seconds_max: float, seed: str) -> None:
        """`seed`: the seed of the delays."""
        self.seconds_max = seconds_max
        self._draw = random.Random(seed)

    def seconds(self) -> float:
        return self._draw.uniform(0, self.seconds_max)


class _Lagging(LocalBackend):
    """A registry whose watches are delayed, like that of another process."""

    atomic = False
    registry = None

    def __init__(self, registry: Registry, clock: SiteClock, lag: Lag) -> None:
        super().__init__(registry)
        self._clock = clock
        self._lag = lag

    async def _late(self, batches: Batches) -> Any:
        try:
            async for batch in batches:
                await sleep(self._clock, self._lag.seconds())
                yield batch
        finally:
            await batches.aclose()  # type: ignore[attr-defined]

    def watch(self, kind: Any, namespace: str, options: WatchOptions) -> Batches:
        late: Batches = self._late(super().watch(kind, namespace, options))
        return late


class Backup(NamedTuple):
    """A backup of a site."""

    entries: list[tuple[str, bytes]]
    boot: int


class Site:
    """A control plane. Its objects and its runtime survive when it goes down."""

    def __init__(self, clock: VirtualClock, plane: Plane) -> None:
        self.clock = SiteClock(clock)
        self.plane = plane
        self.lag: Lag | None = None
        """The delay with which its controllers see writes, from its next start on; None for none."""
        self.runtime = MemoryRuntime(self.clock)
        self.boot = 0
        self._restored_at = -math.inf
        self._leading: Leading | None = None
        self.on_down: Callable[[], None] = lambda: None
        """Called when the site goes down."""
        self._tasks: list[asyncio.Task[Any]] = []
        self._requests: dict[asyncio.Task[Any], None] = {}
        self._life = object()
        self._store(MemoryStore())

    def _store(self, store: MemoryStore) -> None:
        self.registry = Registry(store, clock=self.clock.time)
        self.objects = StoreObjects(self.registry)
        self.client = Client.local(self.registry, manager="rota-testing")

    @property
    def is_up(self) -> bool:
        return bool(self._tasks)

    async def open(self) -> None:
        await self.registry.start()
        await establish(self.registry)

    def up(self, hub: Hub | None = None) -> None:
        """Start the plane. `hub` is given for a cell."""
        self.boot += 1
        self.lead(hub)

    def lead(self, hub: Hub | None = None) -> None:
        """Start the controllers, at the first start or after a loss of leadership."""
        life = self._life = object()
        backend = LocalBackend(self.registry) if self.lag is None else _Lagging(self.registry, self.clock, self.lag)
        client = Client(Fenced(backend, lambda: self._life is life, lambda: ""), manager=MANAGER)
        if self.lag is None:
            self._leading = self._wired(client, self.objects, hub)
            self._tasks = [asyncio.create_task(self._leading.run())]
        else:
            self._tasks = [asyncio.create_task(self._lead_behind(client, hub))]

    async def _lead_behind(self, client: Client, hub: Hub | None) -> None:
        """Run the controllers on caches, which are behind the registry."""
        kinds = kinds_of(controllers(self.runtime, MemoryRunners(self.clock, self.runtime), plane=self.plane))
        caches = CachedObjects(client, kinds, sleep=lambda seconds: sleep(self.clock, seconds))
        writing = Client(caches.seeing(client.backend), manager=MANAGER)
        async with caches as objects:
            self._leading = self._wired(writing, objects, hub)
            await self._leading.run()

    def _wired(self, client: Client, objects: Objects, hub: Hub | None) -> Leading:
        life = self._life
        return Leading(
            client,
            objects,
            self.clock,
            plane=self.plane,
            runtime=self.runtime,
            runners=MemoryRunners(self.clock, self.runtime),
            linking=self._linking(hub) if hub is not None else None,
            restored_seconds_ago=self.clock.time() - self._restored_at,
            leads=lambda: self._life is life,
        )

    def _linking(self, hub: Hub) -> Linking:
        assert self.plane.cell is not None
        about = About(self.plane.cell, f"home-of-{self.plane.cell}", self.boot, "test")

        async def link(
            client: Client, objects: Objects, events: Recorder, clock: Clock, fence: Fence, counting: LinkCounting
        ) -> Link:
            return Link(about, hub, client, objects, events, clock, fence, counting=counting)

        return link

    @property
    def reports(self) -> Reports | None:
        """Return the receiver of the reports of cells, while it is up."""
        return self._leading.reports if self._leading is not None else None

    @property
    def link(self) -> Link | None:
        return self._leading.link if self._leading is not None else None

    @property
    def fence(self) -> Fence | None:
        return self._leading.fence if self._leading is not None else None

    def request(self, work: Coroutine[Any, Any, R]) -> asyncio.Task[R]:
        """Run a request of another site. It survives its caller, and ends with this site."""
        task = asyncio.create_task(work)
        self._requests[task] = None
        task.add_done_callback(lambda done: self._requests.pop(done, None))
        return task

    def kill(self) -> None:
        """Kill the plane without any clean-up. Nothing more is written; its instances keep running."""
        self._life = object()
        if self._leading is not None:
            self._leading.end()
            self._leading = None
        ending, self._tasks = [*self._tasks, *self._requests], []
        for task in ending:
            task.add_done_callback(_ended)
            task.cancel()
        self.on_down()

    async def down(self) -> None:
        """Kill the plane and wait for its tasks."""
        ending = [*self._tasks, *self._requests]
        self.kill()
        await asyncio.gather(*ending, return_exceptions=True)

    async def close(self) -> None:
        await self.down()
        await self.registry.stop()

    def check(self) -> None:
        """Raise the error of a task that has ended."""
        for task in self._tasks:
            if task.done():
                task.result()

    # Faults of the machine.

    def power_cut(self) -> None:
        """Kill the plane and its instances."""
        self.kill()
        self.runtime.power_cut()

    def step_clock(self, seconds: float) -> None:
        self.clock.step(seconds)
        if not self.clock.is_suspended:
            self.runtime.look_at_leases()

    def backup(self) -> Backup:
        store = self.registry.store
        return Backup([(one.key, one.value) for bucket in BY_BUCKET for one in store.scan(f"{bucket}/")], self.boot)

    async def restore(self, backup: Backup) -> None:
        """Take the site down, and restore the objects of a backup. Instances keep running."""
        await self.close()
        revision = self.registry.store.revision + RESTORE_JUMP
        await self.registry.store.close()
        store = MemoryStore(revision=revision)
        self._store(store)
        await store.commit([Write(key, 0, _at_revision(value)) for key, value in backup.entries])
        await self.registry.start()
        self.boot = backup.boot
        self._restored_at = self.clock.time()


def _at_revision(value: bytes) -> Callable[[int], bytes]:
    def made(revision: int) -> bytes:
        body = json.loads(value)
        body["metadata"]["resourceVersion"] = str(revision)
        return json.dumps(body).encode()

    return made


def _ended(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
