from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from rota import ApiError, Client
from rota.api import Kind, WorkerPool
from rota.client import Cache, Key, Update
from rota.registry import WatchEvent, WatchOptions
from tests.conformance.expecting import PATIENCE_SECONDS
from tests.conformance.objects import POOLS, config_map, namespace, pool
from tests.conformance.planes import Plane

Pools = Cache[WorkerPool]


class Line:
    """A backend whose watches can be cut, as by a network."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self._up = asyncio.Event()
        self._up.set()
        self._cut = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def cut(self) -> None:
        self._up.clear()
        self._cut.set()

    def mend(self) -> None:
        self._cut.clear()
        self._up.set()

    async def watch(self, kind: Kind, where: str, options: WatchOptions) -> AsyncIterator[list[WatchEvent]]:
        await self._up.wait()
        batches = self._backend.watch(kind, where, options)
        cut = asyncio.create_task(self._cut.wait())
        try:
            while True:
                batch = asyncio.ensure_future(anext(batches))
                await asyncio.wait((batch, cut), return_when=asyncio.FIRST_COMPLETED)
                if cut.done():
                    batch.cancel()
                    await asyncio.gather(batch, return_exceptions=True)
                    raise ConnectionResetError("the line was cut")
                yield await batch
        finally:
            cut.cancel()
            await asyncio.gather(cut, return_exceptions=True)
            await batches.aclose()


class Told:
    """The updates of a cache, to be waited for."""

    def __init__(self, cache: Pools) -> None:
        self._updates: asyncio.Queue[Update[WorkerPool]] = asyncio.Queue()
        self.unsubscribe = cache.subscribe(self._updates.put_nowait)

    async def next(self) -> tuple[str, str]:
        """The next update: what happened, and to which object."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            update = await self._updates.get()
        what = "new" if update.old is None else "gone" if update.new is None else "changed"
        return what, update.key.name

    async def take(self, count: int) -> list[tuple[str, str]]:
        return [await self.next() for _ in range(count)]


async def changed(client: Client, name: str, replicas: int) -> None:
    await client.patch(POOLS, name, {"spec": {"replicas": replicas}})


async def test_a_cache_begins_with_what_there_is(client: Client) -> None:
    for name in "ab":
        await client.create(pool(name))
    async with Pools(client, WorkerPool, namespace=client.namespace) as cache:
        assert sorted(obj.metadata.name for obj in cache.list()) == ["a", "b"]
        assert len(cache) == 2
        found = cache.get("a", client.namespace)
        assert found is not None and found == await client.get(WorkerPool, "a")
        assert cache.get("absent", client.namespace) is None


async def test_a_cache_of_nothing_is_complete_too(client: Client) -> None:
    async with Pools(client, WorkerPool, namespace=client.namespace) as cache:
        assert cache.list() == [] and int(cache.resource_version) > 0


async def test_a_cache_follows_every_change(client: Client) -> None:
    async with Pools(client, WorkerPool, namespace=client.namespace) as cache:
        told = Told(cache)
        await client.create(pool("a"))
        await changed(client, "a", 5)
        assert await told.take(2) == [("new", "a"), ("changed", "a")]
        found = cache.get("a", client.namespace)
        assert found is not None and found.spec.replicas == 5
        await client.delete(POOLS, "a")
        assert await told.next() == ("gone", "a")
        assert cache.list() == []


async def test_a_subscriber_is_told_first_what_is_there(client: Client) -> None:
    for name in "ab":
        await client.create(pool(name))
    async with Pools(client, WorkerPool, namespace=client.namespace) as cache:
        told = Told(cache)
        assert sorted(await told.take(2)) == [("new", "a"), ("new", "b")]
        await changed(client, "a", 1)
        assert await told.next() == ("changed", "a")


async def test_an_update_has_what_was_and_what_is(client: Client) -> None:
    await client.create(pool("a", {"replicas": 1}))
    updates: asyncio.Queue[Update[WorkerPool]] = asyncio.Queue()
    async with Pools(client, WorkerPool, namespace=client.namespace) as cache:
        cache.subscribe(updates.put_nowait)
        await updates.get()
        await changed(client, "a", 2)
        async with asyncio.timeout(PATIENCE_SECONDS):
            update = await updates.get()
    assert update.key == Key(client.namespace, "a")
    assert update.old is not None and update.old.spec.replicas == 1
    assert update.new is not None and update.new.spec.replicas == 2


async def test_one_subscriber_can_go_without_the_others(client: Client) -> None:
    async with Pools(client, WorkerPool, namespace=client.namespace) as cache:
        heard: list[str] = []
        leave = cache.subscribe(lambda update: heard.append(update.key.name))
        told = Told(cache)
        leave()
        await client.create(pool("a"))
        assert await told.next() == ("new", "a")
        assert heard == []


async def test_a_subscriber_that_fails_does_not_keep_the_others_from_hearing(client: Client) -> None:
    def fail(update: Update[WorkerPool]) -> None:
        raise RuntimeError("it fails")

    async with Pools(client, WorkerPool, namespace=client.namespace) as cache:
        cache.subscribe(fail)
        told = Told(cache)
        await client.create(pool("a"))
        await changed(client, "a", 1)
        assert await told.take(2) == [("new", "a"), ("changed", "a")]


async def test_a_cache_has_what_it_selects_only(client: Client) -> None:
    await client.create(pool("a", labels={"in": "yes"}))
    await client.create(pool("b"))
    async with Pools(client, WorkerPool, namespace=client.namespace, labels="in=yes") as cache:
        told = Told(cache)
        assert await told.next() == ("new", "a")
        await client.patch(POOLS, "b", {"metadata": {"labels": {"in": "yes"}}})
        await client.patch(POOLS, "a", {"metadata": {"labels": None}})
        assert await told.take(2) == [("new", "b"), ("gone", "a")]
        assert [obj.metadata.name for obj in cache.list()] == ["b"]


async def test_a_cache_can_be_of_all_namespaces(client: Client) -> None:
    other = f"{client.namespace}-other"
    await client.create(namespace(other))
    await client.create(pool("a", labels={"of": client.namespace}))
    await client.create(pool("a", labels={"of": client.namespace}), namespace=other)
    async with Pools(client, WorkerPool, labels=f"of={client.namespace}") as cache:
        assert len(cache) == 2
        assert [obj.metadata.namespace for obj in cache.list(other)] == [other]


async def test_objects_are_found_by_an_index(client: Client) -> None:
    by_reset: dict[str, Callable[[WorkerPool], list[str]]] = {"reset": lambda obj: [obj.spec.reset]}
    await client.create(pool("a", {"reset": "Keep"}))
    async with Pools(client, WorkerPool, namespace=client.namespace, indexes=dict(by_reset)) as cache:
        told = Told(cache)
        await client.create(pool("b", {"reset": "Keep"}))
        await told.take(2)
        assert sorted(obj.metadata.name for obj in cache.by_index("reset", "Keep")) == ["a", "b"]
        await client.patch(POOLS, "a", {"spec": {"reset": "Recreate"}})
        await client.delete(POOLS, "b")
        await told.take(2)
        assert list(cache.by_index("reset", "Keep")) == []
        assert [obj.metadata.name for obj in cache.by_index("reset", "Recreate")] == ["a"]


async def test_a_cache_that_can_never_be_complete_says_so(client: Client) -> None:
    with pytest.raises(ApiError) as refusal:
        async with Pools(client, WorkerPool, namespace=client.namespace, fields="spec.replicas=1"):
            pass
    assert refusal.value.code == 400


async def test_a_cache_of_many_pages_is_complete(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.client.cache.LIST_PAGE_ITEMS", 3)
    for i in range(10):
        await client.create(pool(f"p{i}"))
    async with Pools(client, WorkerPool, namespace=client.namespace) as cache:
        assert len(cache) == 10


# Away for a while.


async def test_a_cut_watch_is_taken_up_where_it_was(client: Client) -> None:
    line = Line(client.backend)
    await client.create(pool("kept"))
    await client.create(pool("gone"))
    async with Pools(Client(line), WorkerPool, namespace=client.namespace) as cache:
        told = Told(cache)
        await told.take(2)
        await changed(client, "kept", 1)
        assert await told.next() == ("changed", "kept")
        line.cut()
        await changed(client, "kept", 2)
        await changed(client, "kept", 3)
        await client.delete(POOLS, "gone")
        await client.create(pool("new"))
        line.mend()
        expected = [("changed", "kept"), ("changed", "kept"), ("gone", "gone"), ("new", "new")]
        assert await told.take(4) == expected
        assert cache.relists == 0


@pytest.mark.needs("compaction on demand")
async def test_when_history_is_gone_the_differences_are_told_once(client: Client, plane: Plane) -> None:
    line = Line(client.backend)
    for name in ("same", "changed", "gone"):
        await client.create(pool(name))
    async with Pools(Client(line), WorkerPool, namespace=client.namespace) as cache:
        told = Told(cache)
        await told.take(3)
        line.cut()
        await changed(client, "changed", 1)
        await changed(client, "changed", 2)
        await client.delete(POOLS, "gone")
        await client.create(pool("new"))
        await plane.forget_history()
        line.mend()
        assert sorted(await told.take(3)) == [("changed", "changed"), ("gone", "gone"), ("new", "new")]
        await client.create(pool("last"))
        assert await told.next() == ("new", "last")
        assert cache.relists == 1
        assert sorted(obj.metadata.name for obj in cache.list()) == ["changed", "last", "new", "same"]


@pytest.mark.needs("compaction on demand")
async def test_a_namesake_made_meanwhile_is_another_object(client: Client, plane: Plane) -> None:
    line = Line(client.backend)
    await client.create(pool("a"))
    async with Pools(Client(line), WorkerPool, namespace=client.namespace) as cache:
        told = Told(cache)
        await told.next()
        line.cut()
        await client.delete(POOLS, "a")
        await client.create(pool("a"))
        await client.create(config_map("noise"))
        await plane.forget_history()
        line.mend()
        assert await told.take(2) == [("gone", "a"), ("new", "a")]
        found = cache.get("a", client.namespace)
        assert found is not None and found == await client.get(WorkerPool, "a")


async def test_a_cache_ends_up_as_the_server_is(client: Client) -> None:
    line = Line(client.backend)

    async def churn(name: str) -> None:
        for i in range(5):
            await client.create(pool(name))
            await changed(client, name, i)
            await client.delete(POOLS, name)
        await client.create(pool(name))

    async with Pools(Client(line), WorkerPool, namespace=client.namespace) as cache:
        told = Told(cache)
        churning = asyncio.gather(*(churn(f"p{n}") for n in range(5)))
        line.cut()
        line.mend()
        await churning
        await client.create(pool("last"))
        while await told.next() != ("new", "last"):
            pass
        server = {obj.metadata.name: obj for obj in (await client.list(WorkerPool)).items}
        assert {obj.metadata.name: obj for obj in cache.list()} == server
