"""Objects as controllers see them: the same from a store and from caches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

from rota.api import Kind, Location, Object, Secret, Workspace
from rota.client import Client, Key, Update
from rota.engine import CachedObjects, Objects, StoreObjects
from rota.engine.objects import REPORTED_AT_ONCE, get
from rota.registry import ApiError
from tests.engine_loop.loops import World, world_in

KINDS_SEEN = (Workspace.api, Secret.api, Location.api)


@pytest.fixture
async def seen(world: World) -> AsyncIterator[Objects]:
    cached = world.way == "cached"
    made = CachedObjects(Client.local(world.registry), KINDS_SEEN) if cached else StoreObjects(world.registry)
    async with made as objects:
        yield objects


class Heard:
    def __init__(self) -> None:
        self.updates: list[tuple[Kind, Update[Any]]] = []

    def __call__(self, kind: Kind, update: Update[Any]) -> None:
        self.updates.append((kind, update))

    def of(self, name: str) -> list[tuple[bool, bool]]:
        """For each update of an object, whether it was there before, and after."""
        return [(u.old is not None, u.new is not None) for _, u in self.updates if u.key.name == name]


def there(objects: Objects, name: str) -> Object | None:
    return objects.find(Workspace.api, "default", name)


async def test_what_is_there_is_found_by_kind_namespace_and_name(world: World, seen: Objects) -> None:
    await world.create("Namespace", "other")
    await world.workspace("w")
    await world.workspace("w", namespace="other")
    await world.create("Location", "ams", {"cityCode": "ams"})
    await world.until(lambda: there(seen, "w") and seen.find(Location.api, "", "ams"))
    await world.until(lambda: seen.find(Workspace.api, "other", "w"))
    assert seen.find(Workspace.api, "elsewhere", "w") is None and seen.find(Secret.api, "default", "w") is None
    assert seen.find(Location.api, "default", "ams") is not None, "a cluster's object has no namespace"
    found = get(seen, Workspace, "w", "default")
    assert found is not None and found.spec.repo == "https://git.example/app"


async def test_all_of_a_kind_or_of_a_namespace_are_listed(world: World, seen: Objects) -> None:
    await world.create("Namespace", "other")
    await world.create("Namespace", "other-2")
    for namespace in ("default", "other", "other-2"):
        await world.workspace("w", namespace=namespace)
    await world.until(lambda: len(seen.list(Workspace.api)) == 3)
    assert [obj.metadata.namespace for obj in seen.list(Workspace.api, "other")] == ["other"]
    assert seen.list(Secret.api) == []


async def test_a_listener_hears_of_everything_there_is_then_of_every_change_in_order(
    world: World, seen: Objects
) -> None:
    await world.workspace("before")
    await world.until(lambda: there(seen, "before"))
    heard = Heard()
    end = seen.listen(KINDS_SEEN, heard)
    assert heard.of("before") == [(False, True)]
    await world.workspace("after")
    for ref in ("a", "b"):
        await world.patch("Workspace", "after", {"spec": {"ref": ref}})
    await world.delete("Workspace", "after")
    await world.until(lambda: len(heard.of("after")) == 4)
    assert heard.of("after") == [(False, True), (True, True), (True, True), (True, False)]
    updates = [update for _, update in heard.updates if update.key == Key("default", "after")]
    assert [u.new.spec.ref for u in updates if u.new] == [None, "a", "b"]
    for earlier, later in pairwise(updates):
        assert later.old == earlier.new
    end()


async def test_what_is_read_in_a_listener_is_what_it_is_told_of(world: World, seen: Objects) -> None:
    behind: list[str] = []

    def check(kind: Kind, update: Update[Any]) -> None:
        found = seen.find(kind, *update.key)
        if (found is None) != (update.new is None):
            behind.append(str(update.key))

    seen.listen([Workspace.api], check)
    await world.workspace("w")
    await world.until(lambda: there(seen, "w"))
    await world.delete("Workspace", "w")
    await world.until(lambda: there(seen, "w") is None)
    assert not behind


async def test_a_listener_hears_only_of_the_kinds_it_wants(world: World, seen: Objects) -> None:
    heard = Heard()
    seen.listen([Secret.api], heard)
    await world.workspace("w")
    await world.create("Secret", "s")
    await world.until(lambda: heard.of("s"))
    assert heard.of("w") == []


async def test_the_kinds_may_come_from_an_iterator(world: World, seen: Objects) -> None:
    await world.workspace("w")
    await world.until(lambda: there(seen, "w"))
    heard = Heard()
    seen.listen(iter(KINDS_SEEN), heard)
    assert heard.of("w") == [(False, True)]


async def test_a_listener_that_has_ended_hears_nothing_more(world: World, seen: Objects) -> None:
    heard, other = Heard(), Heard()
    end = seen.listen(KINDS_SEEN, heard)
    seen.listen(KINDS_SEEN, other)
    end()
    await world.workspace("w")
    await world.until(lambda: other.of("w"))
    assert heard.of("w") == []


async def test_from_a_store_news_is_told_before_the_write_returns() -> None:
    async with world_in("store") as world:
        heard = Heard()
        StoreObjects(world.registry).listen([Workspace.api], heard)
        await world.workspace("w")
        assert heard.of("w") == [(False, True)]


async def test_a_cache_that_cannot_begin_says_why_and_closes_those_that_have() -> None:
    async with world_in("store") as world:
        client = Client.local(world.registry)
        real = client.list

        async def refusing(kind: Any, **more: Any) -> Any:
            if kind.api is Secret.api:
                raise ApiError(403, "Forbidden", "secrets is forbidden")
            return await real(kind, **more)

        client.list = refusing  # type: ignore[method-assign]
        with pytest.raises(ApiError, match="secrets is forbidden"):
            async with CachedObjects(client, KINDS_SEEN):
                raise AssertionError


async def test_news_that_comes_while_everything_is_told_is_told_once_and_in_order(world: World, seen: Objects) -> None:
    """The updates of an object follow each other and end with its state; other tasks run in between."""
    count = 3 * REPORTED_AT_ONCE
    for i in range(count):
        await world.workspace(f"w{i:04}")
    await world.until(lambda: len(seen.list(Workspace.api)) == count)
    told: dict[str, Object | None] = {}
    breaks: list[str] = []

    def hear(kind: Kind, update: Update[Any]) -> None:
        if update.old is not None or update.key.name in told:
            known = told.get(update.key.name)
            version = known.metadata.resource_version if known is not None else None
            if version != (update.old.metadata.resource_version if update.old is not None else None):
                breaks.append(update.key.name)
        told[update.key.name] = update.new

    async def change() -> None:
        for i in range(0, count, 7):
            await world.patch("Workspace", f"w{i:04}", {"spec": {"ref": f"r{i}"}})
            await world.client.delete(Workspace, f"w{count - 1 - i:04}")
            await world.workspace(f"n{i:04}")

    following = asyncio.ensure_future(seen.follow(KINDS_SEEN, hear))
    await asyncio.gather(change(), following)
    await world.until(lambda: len(seen.list(Workspace.api)) == len([one for one in told.values() if one is not None]))
    found = {one.metadata.name: one for one in seen.list(Workspace.api)}
    assert {name: one for name, one in told.items() if one is not None} == found and breaks == []
    following.result()()
