"""Caches that are behind: what this process has written is seen all the same, and older news of it changes nothing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from rota.api import Condition, Kind, ObjectMeta, Workspace
from rota.api.meta import empty_status
from rota.api.pool import WorkspaceSpec
from rota.client import Client, LocalBackend, Operation, Update, to_dict
from rota.engine import (
    DONE,
    CachedObjects,
    Context,
    ControlLoop,
    ObjectReconciler,
    Outcome,
    StoreObjects,
    VirtualClock,
    kinds_of,
)
from rota.engine.objects import get
from rota.engine.references import id_of
from rota.registry import ApiError, Registry, WatchOptions
from rota.store import MemoryStore
from tests.until import until_async

FINALIZER = "example.com/held"
STEPS = 60
MARK = "mark"


class Late(LocalBackend):
    """A registry whose news come when they are let through."""

    registry = None

    def __init__(self, registry: Registry) -> None:
        super().__init__(registry)
        self.open = asyncio.Event()
        self.is_lost = False

    async def _late(self, batches: Any) -> AsyncIterator[Any]:
        try:
            async for batch in batches:
                await self.open.wait()
                if self.is_lost:
                    self.is_lost = False
                    raise ApiError(410, "Expired", "the history is gone")
                yield batch
        finally:
            await batches.aclose()

    def watch(self, kind: Kind, namespace: str, options: WatchOptions) -> Any:
        return self._late(super().watch(kind, namespace, options))


class Behind:
    """Objects that are behind, a client whose writes they show, and somebody else's."""

    def __init__(self, registry: Registry) -> None:
        self._store = StoreObjects(registry)
        self.backend = Late(registry)
        self.objects = CachedObjects(Client(self.backend), kinds_of([ObjectReconciler(Workspace)]))
        self.own = Client(self.objects.seeing(self.backend), manager="own")
        self.other = Client.local(registry, manager="other")
        self.heard: list[tuple[str | None, str | None]] = []

    def listen(self) -> None:
        self.objects.listen((Workspace.api,), self._hear)

    def _hear(self, kind: Kind, update: Update[Any]) -> None:
        if update.key.name != MARK:
            self.heard.append((_ref(update.old), _ref(update.new)))

    def there(self, name: str = "w") -> Any:
        return get(self.objects, Workspace, name, "default")

    def is_fresh(self, name: str) -> bool:
        """Return whether the cache has the stored version of an object."""
        seen, stored = self.there(name), get(self._store, Workspace, name, "default")
        return (seen is None) == (stored is None) and (
            stored is None or stored.metadata.resource_version == seen.metadata.resource_version
        )

    async def catch_up(self) -> None:
        """Let everything through, and wait until it is here."""
        self.backend.open.set()

        def is_marked() -> bool:
            return get(self.objects, Workspace, MARK, "default") is not None

        mark = await self.other.create(_workspace(MARK))
        await until_async(is_marked, "the mark has not come", poll_seconds=0)
        await self.other.delete(Workspace, MARK, uid=mark.metadata.uid)
        await until_async(lambda: not is_marked(), "the mark is still there", poll_seconds=0)
        self.backend.open.clear()


def _ref(obj: Any) -> str | None:
    return obj.spec.ref if obj is not None else None


def _workspace(name: str = "w", ref: str = "a", **meta: Any) -> Workspace:
    return Workspace(
        metadata=ObjectMeta(name=name, namespace="default", **meta),
        spec=WorkspaceSpec(repo="https://git.example/app", ref=ref),
    )


def _with_ref(obj: Workspace, ref: str) -> Workspace:
    return msgspec.structs.replace(obj, spec=msgspec.structs.replace(obj.spec, ref=ref))


@pytest.fixture
async def behind() -> AsyncIterator[Behind]:
    registry = Registry(MemoryStore())
    await registry.start()
    made = Behind(registry)
    async with made.objects:
        made.listen()
        yield made
    await registry.stop()


async def test_every_kind_of_write_is_seen_when_it_returns_and_told_once(behind: Behind) -> None:
    made = await behind.own.create(_workspace())
    assert behind.there() == made
    changed = await behind.own.update(_with_ref(made, "b"))
    assert behind.there() == changed
    await behind.own.patch(Workspace, "w", {"spec": {"ref": "c"}})
    assert behind.there().spec.ref == "c"
    told = await behind.own.update_status(msgspec.structs.replace(behind.there(), status=empty_status(Workspace)))
    assert behind.there() == told
    await behind.own.delete(Workspace, "w")
    assert behind.there() is None
    told_of = [(None, "a"), ("a", "b"), ("b", "c"), ("c", "c"), ("c", None)]
    assert behind.heard == told_of
    await behind.catch_up()
    assert behind.there() is None and behind.heard == told_of


async def test_the_writes_of_a_batch_are_seen(behind: Behind) -> None:
    await behind.own.batch([Operation("create", Workspace.api, "default", "w", to_dict(_workspace()))])
    assert behind.there() is not None
    await behind.own.batch([Operation("delete", Workspace.api, "default", "w")])
    assert behind.there() is None


async def test_what_is_only_tried_is_not_seen(behind: Behind) -> None:
    await behind.own.create(_workspace(), dry_run=True)
    assert behind.there() is None
    await behind.own.create(_workspace())
    await behind.own.delete(Workspace, "w", dry_run=True)
    assert behind.there() is not None


async def test_what_lost_the_last_that_held_it_is_gone(behind: Behind) -> None:
    made = await behind.own.create(_workspace(finalizers=[FINALIZER]))
    await behind.own.delete(Workspace, "w")
    going = behind.there()
    assert going.metadata.deletion_timestamp is not None
    bare = msgspec.structs.replace(going.metadata, finalizers=[])
    await behind.own.update(msgspec.structs.replace(going, metadata=bare))
    assert behind.there() is None
    again = await behind.own.create(_workspace(ref="b"))
    await behind.catch_up()
    assert behind.there().metadata.uid == again.metadata.uid != made.metadata.uid


async def test_what_others_write_meanwhile_comes_with_the_news(behind: Behind) -> None:
    await behind.own.create(_workspace())
    await behind.other.patch(Workspace, "w", {"spec": {"ref": "theirs"}})
    assert behind.there().spec.ref == "a"
    with pytest.raises(ApiError, match="modified"):
        await behind.own.update(_with_ref(behind.there(), "b"))
    await behind.own.get(Workspace, "w")
    assert behind.there().spec.ref == "theirs", "it was asked for, so it is known"
    await behind.other.patch(Workspace, "w", {"spec": {"ref": "later"}})
    await behind.catch_up()
    assert behind.there().spec.ref == "later"
    await behind.other.delete(Workspace, "w")
    await behind.catch_up()
    assert behind.there() is None


async def test_an_answer_that_comes_after_the_news_brings_nothing_back(behind: Behind) -> None:
    answer = await behind.other.create(_workspace())
    await behind.other.delete(Workspace, "w")
    await behind.catch_up()
    behind.objects.show(Workspace.api, msgspec.json.encode(to_dict(answer)))
    assert behind.there() is None


async def test_when_the_history_is_gone_what_is_listed_counts(behind: Behind) -> None:
    await behind.own.create(_workspace())
    await behind.own.create(_workspace("v"))
    await behind.own.delete(Workspace, "v")
    await behind.other.delete(Workspace, "w")
    behind.backend.is_lost = True
    await behind.catch_up()
    assert behind.there() is None and behind.there("v") is None
    await behind.other.create(_workspace("v"))
    await behind.catch_up()
    assert behind.there("v") is not None


class _Saying(ObjectReconciler[Workspace]):
    """Has a status say whatever is wanted."""

    wanted = ""

    def __init__(self) -> None:
        super().__init__(Workspace)
        self.runs = 0

    async def sync(self, context: Context, obj: Workspace) -> Outcome:
        if obj.metadata.name == MARK:
            return DONE
        said = Condition(type="Ready", status="True", reason=self.wanted)
        await context.write_status(obj, context.condition(obj, obj.status or empty_status(Workspace), said))
        self.runs += 1
        return DONE


class _Silent:
    def record(self, *about: object) -> None:
        """Nobody asks."""


async def test_where_own_writes_are_not_seen_their_news_are_looked_at_when_a_run_came_between(behind: Behind) -> None:
    """A status that is not written, because it is what a cache that is behind shows, is written in the end."""
    saying = _Saying()
    saying.wanted = "A"
    await behind.other.create(_workspace())
    plain = Client(behind.backend)
    loop = ControlLoop(plain, behind.objects, [saying], _Silent(), clock=VirtualClock(0.0))

    async def until(runs: int) -> None:
        await until_async(lambda: saying.runs >= runs, poll_seconds=0)

    async def said() -> str:
        status = (await behind.other.get(Workspace, "w")).status
        condition = status.condition("Ready") if status is not None else None
        return condition.reason if condition is not None else ""

    serving = asyncio.create_task(loop.serve())
    try:
        await behind.catch_up()
        await until(1)
        await behind.catch_up()
        assert await said() == "A"
        for runs, wanted in ((2, "B"), (3, "A")):
            saying.wanted = wanted
            loop.scheduler.arrive(id_of(behind.there()))
            await until(runs)
        assert await said() == "B", "what is seen still says A"
        await behind.catch_up()
        await until(4)
        assert await said() == "A"
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


@pytest.mark.parametrize("seed", range(10))
async def test_whatever_is_written_by_whom_own_writes_are_seen_and_in_the_end_all(behind: Behind, seed: int) -> None:
    draw = random.Random(seed)
    for step in range(STEPS):
        name, who = draw.choice("vw"), draw.choice((behind.own, behind.own, behind.other))
        try:
            match draw.randrange(4):
                case 0:
                    finalizers = [FINALIZER] if draw.random() < 0.5 else []
                    await who.create(_workspace(name, ref=str(step), finalizers=finalizers))
                case 1:
                    await who.patch(Workspace, name, {"spec": {"ref": str(step)}})
                case 2:
                    await who.patch(Workspace, name, {"metadata": {"finalizers": None}})
                case _:
                    await who.delete(Workspace, name)
        except ApiError:
            continue
        if who is behind.own:
            assert behind.is_fresh(name), f"step {step}"
        if draw.random() < 0.1:
            await behind.catch_up()
    await behind.catch_up()
    assert behind.is_fresh("v") and behind.is_fresh("w")
