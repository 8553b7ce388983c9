"""A hub and its cells in memory, on a clock that jumps: the real controllers, with runtimes that only seem to run."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

import msgspec

from rota.api import Cell, Instance, Location, ObjectMeta
from rota.api.cell import CellSpec, LocationSpec
from rota.client import Client
from rota.client.backend import Batches
from rota.client.local import LocalBackend
from rota.control.cells.fence import Fence
from rota.control.cells.heard import Heard
from rota.control.cells.link import MIRRORED, About, Link
from rota.control.cells.messages import REPORT_BYTES_MAX, Answer, Report
from rota.control.cells.names import cell_namespace
from rota.control.cells.reports import Reports
from rota.control.plane import Plane
from rota.control.table import controllers
from rota.engine import CachedObjects, ControlLoop, StoreObjects, VirtualClock
from rota.engine.clock import Clock, sleep
from rota.engine.objects import Objects
from rota.engine.recorder import Recorder
from rota.registry import ApiError, Registry, WatchOptions
from rota.registry.system import establish
from rota.store import MemoryStore
from rota.testing.loop import IdleLoop
from rota.testing.runners import MemoryRunners
from rota.testing.runtime import MemoryRuntime

R = TypeVar("R")

MANAGER = "rota-controllers"
START = 1_700_000_000.0
LATENCY_SECONDS = 0.005
"""How long a message takes from a site to another."""


class Site:
    """One control plane: its store, its runtime and, while it is up, its controllers."""

    def __init__(self, clock: VirtualClock, plane: Plane) -> None:
        self.clock = clock
        self.plane = plane
        self.registry = Registry(MemoryStore(), clock=clock.time)
        self.objects = StoreObjects(self.registry)
        self.client = Client.local(self.registry, manager="rota-testing")
        self.runtime = MemoryRuntime(clock)
        self.boot = 0
        self.reports: Reports | None = None
        self.link: Link | None = None
        self.fence: Fence | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def is_up(self) -> bool:
        return bool(self._tasks)

    async def open(self) -> None:
        await self.registry.start()
        await establish(self.registry)

    def up(self, hub: SimulatedHub | None = None) -> None:
        """Begin. A cell has a hub."""
        self.boot += 1
        client = Client.local(self.registry, manager=MANAGER)
        recorder = Recorder(client, clock=self.clock)
        heard = Heard(self.clock)
        runners = MemoryRunners(self.clock, self.runtime)
        self.fence = Fence(self.objects, self.runtime, self.clock) if hub is not None else None
        made = controllers(self.runtime, runners, plane=self.plane, heard=heard, fence=self.fence)
        loop = ControlLoop(client, self.objects, made, recorder, clock=self.clock)
        working: list[Coroutine[Any, Any, None]] = [recorder.run(), loop.serve()]
        if self.plane.places:
            self.reports = Reports(client, self.objects, recorder, heard, self.clock)
        if hub is not None:
            assert self.plane.cell is not None and self.fence is not None
            about = About(self.plane.cell, f"home-of-{self.plane.cell}", self.boot, "test")
            self.link = Link(about, hub, client, self.objects, recorder, self.clock, self.fence)
            working.append(self.link.run())
        self._tasks = [asyncio.create_task(one) for one in working]

    async def down(self) -> None:
        """End, as by a crash: nothing is tidied up, and what runs goes on."""
        if self.reports is not None:
            self.reports.end()
        if self.fence is not None:
            self.fence.end()
        self.reports = self.link = self.fence = None
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        await self.down()
        await self.registry.stop()

    def check(self) -> None:
        """Raise what has ended a part of it."""
        for task in self._tasks:
            if task.done():
                task.result()


class Line:
    """What is between a cell and its hub."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.is_cut = False
        self.loss = 0.0
        """The share of messages that do not arrive."""
        self.latency_seconds = LATENCY_SECONDS
        """How long a message takes at most, where that differs; at least it takes what all take."""
        self._following: set[asyncio.Task[Any]] = set()

    async def carry(self) -> None:
        """Take one message over. Raises `ConnectionError` if it does not arrive."""
        if self.is_cut:
            raise ConnectionError("cut off")
        await sleep(self._clock, random.uniform(LATENCY_SECONDS, self.latency_seconds))
        if self.is_cut or random.random() < self.loss:
            raise ConnectionError("cut off")

    def cut(self) -> None:
        self.is_cut = True
        for task in [*self._following]:
            task.cancel("cut off")

    def heal(self) -> None:
        self.is_cut = False


class _Remote(LocalBackend):
    """The registry of another site: everything goes over a line, and watches end with it."""

    in_process = False

    def __init__(self, registry: Registry, line: Line, clock: Clock) -> None:
        super().__init__(registry)
        self._line = line
        self._clock = clock

    async def list(self, *arguments: Any) -> Any:
        await self._line.carry()
        found = await super().list(*arguments)
        await self._line.carry()
        return found

    async def _watched(self, batches: Batches) -> Any:
        """Bring what a watch brings, until the line is cut."""
        await self._line.carry()
        following = batches.__aiter__()
        try:
            while True:
                next_: asyncio.Task[Any] = asyncio.ensure_future(_next(following))
                self._line._following.add(next_)
                try:
                    batch = await next_
                except asyncio.CancelledError:
                    if self._line.is_cut:
                        raise ConnectionError("cut off") from None
                    raise
                except StopAsyncIteration:
                    return
                finally:
                    self._line._following.discard(next_)
                await self._line.carry()
                yield batch
        finally:
            await batches.aclose()  # type: ignore[attr-defined]

    def watch(self, kind: Any, namespace: str, options: WatchOptions) -> Batches:
        batches: Batches = self._watched(super().watch(kind, namespace, options))
        return batches


async def _next(iterator: Any) -> Any:
    return await iterator.__anext__()


class SimulatedHub:
    """The hub, as one cell sees it."""

    def __init__(self, hub: Site, cell: str, line: Line) -> None:
        self._hub = hub
        self._cell = cell
        self._line = line

    async def report(self, report: Report) -> Answer:
        sent = msgspec.json.encode(report)
        await self._line.carry()
        if len(sent) > REPORT_BYTES_MAX:
            raise ApiError(413, "RequestEntityTooLarge", f"the report has {len(sent)} bytes")
        if self._hub.reports is None:
            raise ConnectionRefusedError("the hub is down")
        answer = await self._hub.reports.receive(self._cell, msgspec.json.decode(sent, type=Report))
        await self._line.carry()
        return msgspec.json.decode(msgspec.json.encode(answer), type=Answer)

    def objects(self) -> Objects:
        client = Client(_Remote(self._hub.registry, self._line, self._hub.clock))
        kinds = [kind.api for kind in MIRRORED]
        return CachedObjects(
            client,
            kinds,
            namespace=cell_namespace(self._cell),
            sleep=lambda seconds: sleep(self._hub.clock, seconds),
        )


class Fleet:
    """A hub and its cells. All of it is for one thread at a time; time passes only while it is told to."""

    def __init__(self, cells: Mapping[str, str], seed: int = 0) -> None:
        """`cells`: the city of each. `seed`: for everything that is drawn, so that it is the same again."""
        self._seed = seed
        self.clock = VirtualClock(START)
        self._loop = IdleLoop()
        self.hub = Site(self.clock, Plane(cell=None))
        self.cells = {name: Site(self.clock, Plane(name, city, places=False)) for name, city in cells.items()}
        self.lines = {name: Line(self.clock) for name in cells}
        self._until = 0.0

    def __enter__(self) -> Fleet:
        self._chance = random.getstate()
        random.seed(self._seed)
        self.do(self._open())
        return self

    async def _open(self) -> None:
        await self.hub.open()
        for city in dict.fromkeys(site.plane.city for site in self.cells.values()):
            await self.hub.client.create(Location(metadata=ObjectMeta(name=city), spec=LocationSpec(city_code=city)))
        for name, site in self.cells.items():
            await self.hub.client.create(Cell(metadata=ObjectMeta(name=name), spec=CellSpec(city_code=site.plane.city)))
            await self.hub.registry.ensure_namespace(cell_namespace(name))
        self.hub.up()
        for name, site in self.cells.items():
            await site.open()
            site.up(self.to_hub(name))

    def to_hub(self, cell: str) -> SimulatedHub:
        return SimulatedHub(self.hub, cell, self.lines[cell])

    def __exit__(self, *_: object) -> None:
        try:
            self.do(self._close())
        finally:
            self._loop.close()
            random.setstate(self._chance)

    async def _close(self) -> None:
        for site in (*self.cells.values(), self.hub):
            await site.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    # What becomes of sites.

    def down(self, cell: str = "") -> None:
        """Kill a cell, or the hub. What it runs goes on."""
        self.do(self._site(cell).down())

    def up(self, cell: str = "") -> None:
        """Start a cell again, or the hub."""

        async def up() -> None:
            self._site(cell).up(self.to_hub(cell) if cell else None)

        self.do(up())

    def _site(self, cell: str) -> Site:
        return self.cells[cell] if cell else self.hub

    # Steps.

    def do(self, work: Coroutine[Any, Any, R]) -> R:
        """Return what some work comes to. Time passes as far as it waits for it."""
        task = self._loop.create_task(work)
        task.add_done_callback(lambda _: self._loop.stop())
        self._until = float("inf")
        while not task.done():
            self._loop.run_idle(self._idle)
        return task.result()

    def go(self, seconds: float) -> None:
        """Let time pass. What is due meanwhile is done."""
        self._until = self.clock.now() + seconds
        self._loop.run_idle(self._idle)
        for site in (self.hub, *self.cells.values()):
            site.check()

    def _idle(self) -> None:
        due = self.clock.next_due()
        if due is not None and due <= self._until:
            self.clock.advance_to(due)
        elif self._until != float("inf"):
            self.clock.advance_to(self._until)
            self._loop.stop()
        else:
            raise AssertionError("nothing is left that could happen, and it is still waited for")

    # Looks.

    def instances(self, site: Site) -> list[Instance]:
        found: Any = site.objects.list(Instance.api)
        return sorted(found, key=lambda one: one.metadata.name)
