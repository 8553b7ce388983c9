"""A loop on a registry in memory, on virtual time, that sees objects in either of the two ways there are."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Literal, NamedTuple, TypeVar

from rota.api import KINDS, Condition, Object
from rota.api.meta import empty_status
from rota.client import Client, Key
from rota.engine import (
    DONE,
    CachedObjects,
    Context,
    ControlLoop,
    NodeView,
    ObjectReconciler,
    Objects,
    Outcome,
    Reconciler,
    Result,
    StoreObjects,
    VirtualClock,
    kinds_of,
)
from rota.engine.recorder import Recorder
from rota.registry import Registry
from rota.store import MemoryStore
from tests.until import until_async

T = TypeVar("T", bound=Object)
Body = Callable[[Context, Any], Awaitable[Outcome]]
Way = Literal["store", "cached"]

START = 1_700_000_000.0
PATIENCE_SECONDS = 60
SLACK_SECONDS = 1e-6
"""Beside a moment on the clock, for what sums of fractions are off."""
QUIET_TURNS = 30
"""Turns of the event loop without anything running, after which nothing is on its way."""
REPO = {"repo": "https://git.example/app"}


class Said(NamedTuple):
    """An event that was recorded."""

    about: str
    type: str
    reason: str
    message: str


class Events:
    """Keeps what was recorded, and has it written as it would be."""

    def __init__(self, recorder: Recorder) -> None:
        self.said: list[Said] = []
        self._recorder = recorder

    def record(self, about: Object, type: Literal["Normal", "Warning"], reason: str, message: str) -> None:  # noqa: A002
        self.said.append(Said(f"{about.api.name}/{about.metadata.name}", type, reason, message))
        self._recorder.record(about, type, reason, message)

    def reasons(self, about: str) -> list[str]:
        return [one.reason for one in self.said if one.about == about]


async def rests(context: Context, obj: object) -> Outcome:
    """A body that does nothing."""
    return DONE


async def says_ready(context: Context, obj: Any) -> Outcome:
    """Writes a status, once."""
    status = obj.status or empty_status(type(obj))
    condition = Condition(type="Ready", status="True", reason="Ready")
    await context.write_status(obj, context.condition(obj, status, condition))
    return DONE


class Noting(ObjectReconciler[T]):
    """Notes what it was run for, and does what the test says."""

    def __init__(
        self,
        kind: type[T],
        do: Body = rests,
        *,
        owns: tuple[type[Object], ...] = (),
        watches: tuple[Any, ...] = (),
        concurrency: int = 8,
        timeout_seconds: float = 60.0,
    ) -> None:
        super().__init__(kind)
        self.do = do
        self.owns = owns
        self.watches = watches
        self.concurrency = concurrency
        self.timeout_seconds = timeout_seconds
        self.seen: list[T] = []

    @property
    def runs(self) -> Counter[str]:
        return Counter(obj.metadata.name for obj in self.seen)

    async def sync(self, context: Context, obj: T) -> Outcome:
        self.seen.append(obj)
        return await self.do(context, obj)


class NotingKeys(Reconciler):
    """The same for a reconciler of no kind: its nodes are keys."""

    def __init__(self, name: str, watches: tuple[Any, ...] = (), seeds: tuple[Key, ...] = (), do: Any = rests) -> None:
        self.name = name
        self.watches = watches
        self.seeds = seeds
        self.do = do
        self.seen: list[Key] = []

    async def reconcile(self, context: Context, key: Key) -> Outcome:
        self.seen.append(key)
        outcome: Outcome = await self.do(context, key)
        return outcome


class World:
    """A registry, a client of somebody else, and loops."""

    def __init__(self, registry: Registry, clock: VirtualClock, way: Way) -> None:
        self.registry = registry
        self.way = way
        self.clock = clock
        self.client = Client.local(registry, manager="somebody")
        self._recorder = Recorder(Client.local(registry), component="tests", clock=clock)
        self._recording: asyncio.Task[None] | None = None
        self.events = Events(self._recorder)
        self.loop: ControlLoop
        self.objects: Objects
        self.serving: asyncio.Task[None] | None = None
        self._open = AsyncExitStack()

    async def prepare(self, *which: Reconciler, live: bool = True, seen: Any = None, client: Any = None) -> ControlLoop:
        """A loop that does not run yet. `seen` may wrap what it sees."""
        kinds = kinds_of(which)
        cached = self.way == "cached"
        self.objects = CachedObjects(Client.local(self.registry), kinds) if cached else StoreObjects(self.registry)
        await self._open.enter_async_context(self.objects)
        objects = self.objects if seen is None else seen(self.objects)
        writing = client or Client.local(self.registry, manager="controllers")
        self.loop = ControlLoop(writing, objects, which, self.events, clock=self.clock, live=live)
        return self.loop

    async def serve(self, *which: Reconciler, **more: Any) -> None:
        """Run for ever, in the background. Returns when what is there already has been looked at."""
        loop = await self.prepare(*which, **more)
        self._recording = asyncio.create_task(self._recorder.run(), name="events")
        self.serving = asyncio.create_task(loop.serve(), name="loop")
        await self.rest()

    async def run(self, *which: Reconciler, **more: Any) -> Result:
        """Run to the fixpoint, which can be told only where news comes with the write that makes it."""
        assert self.way == "store"
        return await (await self.prepare(*which, live=False, **more)).run()

    async def stop(self) -> None:
        if self.serving is not None:
            self.serving.cancel()
            await asyncio.gather(self.serving, return_exceptions=True)
            self.serving = None
        if self._recording is not None:
            self._recording.cancel()
            await asyncio.gather(self._recording, return_exceptions=True)
            self._recording = None
        await self._open.aclose()

    # Time.

    async def until(self, what: Callable[[], object]) -> None:
        """Go on when something is so."""
        await until_async(what, seconds=PATIENCE_SECONDS, poll_seconds=0)

    async def rest(self) -> None:
        """Go on when all is told, and nothing runs or is about to."""
        quiet = 0

        def busy() -> list[NodeView]:
            return [node for node in self.loop.view if node.state in ("running", "runnable")]

        def is_quiet() -> bool:
            nonlocal quiet
            quiet = 0 if busy() or not self._told() else quiet + 1
            return quiet > QUIET_TURNS

        await until_async(is_quiet, lambda: f"busy: {busy()}", seconds=PATIENCE_SECONDS, poll_seconds=0)

    def _told(self) -> bool:
        if self.way == "store":
            return True
        known, there = self.objects, StoreObjects(self.registry)
        return all(_versions(known.list(kind)) == _versions(there.list(kind)) for kind in self.loop.kinds)

    async def pass_time(self, seconds: float, step: float = 0.0) -> None:
        """Let time pass, in steps, with everything that comes due being done in between."""
        left = seconds
        while left > 0:
            now = min(left, step or left)
            self.clock.advance(now)
            left -= now
            await self.rest()

    # Objects.

    async def create(self, kind: str, name: str, spec: Any = None, *, namespace: str = "default", **meta: Any) -> Any:
        api = KINDS[kind]
        metadata = {"name": name, **({"namespace": namespace} if api.namespaced else {}), **meta}
        body: dict[str, Any] = {"apiVersion": api.api_version, "kind": kind, "metadata": metadata}
        return await self.client.create(body if spec is None else {**body, "spec": spec})

    async def workspace(self, name: str = "w", secret: str = "", **more: Any) -> Any:
        return await self.create("Workspace", name, REPO | ({"secretRef": {"name": secret}} if secret else {}), **more)

    async def task(self, name: str, *after: str, **more: Any) -> Any:
        return await self.create("Task", name, {"function": {"name": "f"}, "dependsOn": list(after)}, **more)

    async def get(self, kind: str, name: str, namespace: str = "default") -> Any:
        return await self.client.get(KINDS[kind].type, name, namespace=namespace if KINDS[kind].namespaced else None)

    async def patch(self, kind: str, name: str, patch: Any, **more: Any) -> Any:
        return await self.client.patch(KINDS[kind], name, patch, **more)

    async def delete(self, kind: str, name: str) -> None:
        await self.client.delete(KINDS[kind], name)

    async def set_status(self, kind: str, name: str, **status: Any) -> None:
        """Somebody writes a status."""
        found = await self.client.get(KINDS[kind], name)
        await self.client.update_status({**found, "status": {**found.get("status", {}), **status}})

    async def say_ready(self, kind: str, name: str, status: str = "True", reason: str = "Told") -> None:
        generation = (await self.get(kind, name)).metadata.generation
        condition = {"type": "Ready", "status": status, "reason": reason, "observedGeneration": generation}
        await self.set_status(kind, name, conditions=[condition])

    async def condition(self, kind: str, name: str, type_: str) -> tuple[str, str, str] | None:
        status = (await self.get(kind, name)).status
        found = status.condition(type_) if status is not None else None
        return None if found is None else (found.status, found.reason, found.message)

    def node(self, kind: str, name: str, namespace: str = "default") -> NodeView | None:
        api = KINDS[kind]
        return self.loop.view.get(api.key(namespace if api.namespaced else "", name))


def _versions(objects: Iterable[Object]) -> dict[tuple[str, str], str]:
    return {(obj.metadata.namespace, obj.metadata.name): obj.metadata.resource_version for obj in objects}


@asynccontextmanager
async def world_in(way: Way) -> AsyncIterator[World]:
    clock = VirtualClock(START)
    registry = Registry(MemoryStore(), clock=clock.time)
    await registry.start()
    world = World(registry, clock, way)
    try:
        yield world
    finally:
        await world.stop()
        await registry.stop()
