from __future__ import annotations

import asyncio

import msgspec
import pytest

from rota import Client
from rota.api import WorkerPool
from rota.client import ALL_NAMESPACES, ObjectList
from rota.registry import WatchOptions
from tests.conformance.expecting import PATIENCE_SECONDS, Object, refused, told, watching
from tests.conformance.objects import POOLS, TASKS, config_map, name_of, namespace, pool, task, version_of
from tests.conformance.planes import Plane


async def now(client: Client) -> str:
    return (await client.list(POOLS)).resource_version


# What is told.


async def test_creation_change_and_deletion_are_told_in_order(client: Client) -> None:
    since = await now(client)
    made = await client.create(pool("a"))
    changed = await client.patch(POOLS, "a", {"spec": {"replicas": 1}})
    await client.delete(POOLS, "a")
    async with watching(client, POOLS, resource_version=since) as watch:
        added, modified, deleted = await watch.take(3)
    assert [told(e) for e in (added, modified, deleted)] == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert (added.object, modified.object) == (made, changed)


async def test_a_deletion_carries_the_last_state_and_its_own_version(client: Client) -> None:
    await client.create(pool("a"))
    changed = await client.patch(POOLS, "a", {"spec": {"replicas": 7}})
    since = await now(client)
    await client.delete(POOLS, "a")
    async with watching(client, POOLS, resource_version=since) as watch:
        deleted = await watch.next()
    assert deleted.type == "DELETED" and deleted.object is not None
    assert deleted.object["spec"] == changed["spec"]
    assert int(version_of(deleted.object)) > int(version_of(changed))
    assert deleted.resource_version == version_of(deleted.object)


async def test_a_deletion_that_waits_is_a_change_first(client: Client) -> None:
    await client.create(pool("a", finalizers=["example.com/hold"]))
    since = await now(client)
    await client.delete(POOLS, "a")
    await client.patch(POOLS, "a", {"metadata": {"finalizers": None}})
    async with watching(client, POOLS, resource_version=since) as watch:
        marked, deleted = await watch.take(2)
    assert (told(marked), told(deleted)) == (("MODIFIED", "a"), ("DELETED", "a"))
    assert marked.object is not None and marked.object["metadata"]["deletionTimestamp"]
    assert deleted.object is not None and deleted.object["metadata"]["finalizers"] == ["example.com/hold"]


async def test_a_namesake_is_told_as_new(client: Client) -> None:
    since = await now(client)
    for _ in range(2):
        await client.create(pool("a"))
        await client.delete(POOLS, "a")
    async with watching(client, POOLS, resource_version=since) as watch:
        events = await watch.take(4)
    assert [e.type for e in events] == ["ADDED", "DELETED", "ADDED", "DELETED"]


async def test_a_write_that_changes_nothing_is_not_told(client: Client) -> None:
    made = await client.create(pool("a", {"replicas": 1}))
    since = await now(client)
    await client.update(made)
    await client.patch(POOLS, "a", {"spec": {"replicas": 1}})
    await client.create(pool("z"))
    async with watching(client, POOLS, resource_version=since) as watch:
        assert told(await watch.next()) == ("ADDED", "z")


async def test_a_status_is_told_like_any_change(client: Client) -> None:
    await client.create(pool("a"))
    since = await now(client)
    await client.patch(POOLS, "a", {"status": {"replicas": 1}}, subresource="status")
    async with watching(client, POOLS, resource_version=since) as watch:
        change = await watch.next()
    assert told(change) == ("MODIFIED", "a") and change.object is not None and change.object["status"]["replicas"] == 1


async def test_other_kinds_and_namespaces_are_not_told(client: Client) -> None:
    other = f"{client.namespace}-other"
    await client.create(namespace(other))
    since = await now(client)
    await client.create(config_map("a"))
    await client.create(pool("b"), namespace=other)
    await client.create(pool("c"))
    async with watching(client, POOLS, resource_version=since) as watch:
        assert told(await watch.next()) == ("ADDED", "c")


async def test_all_namespaces_can_be_watched(client: Client) -> None:
    other = f"{client.namespace}-other"
    await client.create(namespace(other))
    since = await now(client)
    labels = {"of": client.namespace}
    await client.create(pool("a", labels=labels), namespace=other)
    await client.create(pool("b", labels=labels))
    only = f"of={client.namespace}"
    async with watching(client, POOLS, namespace=ALL_NAMESPACES, labels=only, resource_version=since) as watch:
        assert [told(e) for e in await watch.take(2)] == [("ADDED", "a"), ("ADDED", "b")]


async def test_a_typed_watch_has_typed_objects(client: Client) -> None:
    await client.create(pool("a", {"replicas": 2}))
    async for change in client.watch(WorkerPool):
        assert isinstance(change.object, WorkerPool) and change.object.spec.replicas == 2
        break


# Where a watch begins.


async def test_a_watch_from_a_list_has_no_gap_and_no_repetition(client: Client) -> None:
    await client.create(pool("before"))
    listed = await client.list(POOLS)
    await client.create(pool("after"))
    async with watching(client, POOLS, resource_version=listed.resource_version) as watch:
        assert told(await watch.next()) == ("ADDED", "after")


async def test_a_watch_from_an_object_s_version_tells_what_came_after(client: Client) -> None:
    made = await client.create(pool("a"))
    await client.patch(POOLS, "a", {"spec": {"replicas": 1}})
    async with watching(client, POOLS, resource_version=version_of(made)) as watch:
        assert told(await watch.next()) == ("MODIFIED", "a")


@pytest.mark.parametrize("version", ["", "0"])
async def test_a_watch_from_nowhere_begins_with_what_there_is(client: Client, version: str) -> None:
    for name in "ab":
        await client.create(pool(name))
    async with watching(client, POOLS, resource_version=version) as watch:
        assert [told(e) for e in await watch.take(2)] == [("ADDED", "a"), ("ADDED", "b")]
        await client.patch(POOLS, "a", {"spec": {"replicas": 1}})
        assert told(await watch.next()) == ("MODIFIED", "a")


async def test_a_watch_waits_for_what_is_to_come(client: Client) -> None:
    async with watching(client, POOLS, resource_version=await now(client)) as watch:
        coming = asyncio.create_task(watch.next())
        await client.create(pool("a"))
        assert told(await coming) == ("ADDED", "a")


async def test_a_watch_can_be_taken_up_where_it_ended(client: Client) -> None:
    since = await now(client)
    for name in "abc":
        await client.create(pool(name))
    async with watching(client, POOLS, resource_version=since) as watch:
        first = await watch.next()
    async with watching(client, POOLS, resource_version=first.resource_version) as watch:
        assert [told(e) for e in await watch.take(2)] == [("ADDED", "b"), ("ADDED", "c")]


async def test_the_beginning_can_be_sent_with_a_mark_at_its_end(client: Client) -> None:
    await client.create(pool("a"))
    newest = await client.create(pool("b"))
    options = WatchOptions(bookmarks=True, send_initial_events=True)
    seen = []
    watch = client.backend.watch(POOLS, client.namespace, options)
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for batch in watch:
            seen += batch
            if seen[-1].type == "BOOKMARK":
                break
    await watch.aclose()  # type: ignore[attr-defined]
    assert [event.type for event in seen] == ["ADDED", "ADDED", "BOOKMARK"]
    mark = msgspec.json.decode(seen[-1].object)
    assert mark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(mark["metadata"]["resourceVersion"]) >= int(version_of(newest))
    assert (mark["apiVersion"], mark["kind"]) == ("rota.dev/v1alpha1", "WorkerPool")


async def test_a_watch_goes_on_after_its_beginning(client: Client) -> None:
    await client.create(pool("a"))
    async with watching(client, POOLS, bookmarks=True, send_initial_events=True) as watch:
        assert [e.type for e in await watch.take(2)] == ["ADDED", "BOOKMARK"]
        await client.create(pool("b"))
        assert told(await watch.next()) == ("ADDED", "b")


async def test_a_bookmark_is_a_place_to_go_on_from(client: Client) -> None:
    await client.create(pool("a"))
    async with watching(client, POOLS, bookmarks=True, send_initial_events=True) as watch:
        _, mark = await watch.take(2)
    await client.create(pool("b"))
    async with watching(client, POOLS, resource_version=mark.resource_version) as watch:
        assert told(await watch.next()) == ("ADDED", "b")


@pytest.mark.needs("compaction on demand")
async def test_a_watch_from_a_forgotten_version_is_gone(client: Client, plane: Plane) -> None:
    since = await now(client)
    await client.create(pool("a"))
    await client.patch(POOLS, "a", {"spec": {"replicas": 1}})
    await plane.forget_history()
    with refused(410, "Expired") as refusal:
        async with watching(client, POOLS, resource_version=since) as watch:
            await watch.next()
    assert refusal.value.message.startswith(f"too old resource version: {since} (")


# Selection.


async def test_an_object_enters_and_leaves_a_selection_by_label(client: Client) -> None:
    await client.create(pool("a"))
    since = await now(client)
    await client.patch(POOLS, "a", {"metadata": {"labels": {"in": "yes"}}})
    await client.patch(POOLS, "a", {"spec": {"replicas": 1}})
    last = await client.patch(POOLS, "a", {"metadata": {"labels": {"in": "no"}}})
    await client.patch(POOLS, "a", {"spec": {"replicas": 2}})
    await client.create(pool("z", labels={"in": "yes"}))
    async with watching(client, POOLS, labels="in=yes", resource_version=since) as watch:
        events = await watch.take(4)
    expected = [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "z")]
    assert [told(e) for e in events] == expected
    left = events[2].object
    assert left is not None and left["metadata"]["labels"] == {"in": "yes"}
    assert version_of(left) == version_of(last)


async def test_an_object_enters_and_leaves_a_selection_by_field(client: Client) -> None:
    await client.create(task("a"))
    since = (await client.list(TASKS)).resource_version
    for phase in ("Queued", "Running", "Running", "Succeeded"):
        await client.patch(TASKS, "a", {"status": {"phase": phase, "message": phase}}, subresource="status")
    await client.patch(TASKS, "a", {"status": {"phase": "Running"}}, subresource="status")
    async with watching(client, TASKS, fields="status.phase=Running", resource_version=since) as watch:
        assert [e.type for e in await watch.take(3)] == ["ADDED", "DELETED", "ADDED"]


async def test_a_deletion_outside_of_a_selection_is_not_told(client: Client) -> None:
    await client.create(pool("a"))
    await client.create(pool("b", labels={"in": "yes"}))
    since = await now(client)
    await client.delete(POOLS, "a")
    await client.delete(POOLS, "b")
    async with watching(client, POOLS, labels="in", resource_version=since) as watch:
        assert told(await watch.next()) == ("DELETED", "b")


async def test_one_object_can_be_watched_by_name(client: Client) -> None:
    since = await now(client)
    for name in "abc":
        await client.create(pool(name))
    await client.delete(POOLS, "b")
    async with watching(client, POOLS, fields="metadata.name=b", resource_version=since) as watch:
        assert [told(e) for e in await watch.take(2)] == [("ADDED", "b"), ("DELETED", "b")]


async def test_the_beginning_of_a_selective_watch_is_selected(client: Client) -> None:
    await client.create(pool("a"))
    await client.create(pool("b", labels={"in": "yes"}))
    async with watching(client, POOLS, labels="in=yes") as watch:
        assert told(await watch.next()) == ("ADDED", "b")


@pytest.mark.parametrize("selector", [{"labels": "a=b=c"}, {"fields": "spec.replicas=1"}])
async def test_a_watch_refuses_the_selectors_that_a_list_does(client: Client, selector: dict[str, str]) -> None:
    with refused(400, "BadRequest"):
        async with watching(client, POOLS, **selector) as watch:
            await watch.next()


# Many at once.


async def test_every_change_by_many_writers_is_told_once_and_in_order(client: Client) -> None:
    since = await now(client)
    writers, writes = 8, 10

    async def write(number: int) -> list[str]:
        name = f"w{number}"
        made = await client.create(pool(name))
        patches = ({"spec": {"replicas": replicas}} for replicas in range(1, writes))
        return [version_of(made), *[version_of(await client.patch(POOLS, name, patch)) for patch in patches]]

    async with watching(client, POOLS, resource_version=since) as watch:
        watched = asyncio.create_task(watch.take(writers * writes))
        written = await asyncio.gather(*(write(n) for n in range(writers)))
        events = await watched
    seen: dict[str, list[str]] = {}
    for event in events:
        assert event.object is not None
        seen.setdefault(name_of(event.object), []).append(version_of(event.object))
    assert seen == {f"w{n}": versions for n, versions in enumerate(written)}
    versions = [int(event.resource_version) for event in events]
    assert versions == sorted(set(versions))


async def test_all_watchers_are_told_the_same(client: Client) -> None:
    since = await now(client)

    async def watch_all() -> list[tuple[str, Object | None]]:
        async with watching(client, POOLS, resource_version=since) as watch:
            return [(e.type, e.object) for e in await watch.until("ADDED", "last")]

    watchers = [asyncio.create_task(watch_all()) for _ in range(5)]
    for i in range(10):
        await client.create(pool(f"p{i}"))
        await client.patch(POOLS, f"p{i}", {"spec": {"replicas": i}})
        await client.delete(POOLS, f"p{i}")
    await client.create(pool("last"))
    first, *others = await asyncio.gather(*watchers)
    assert len(first) == 31
    assert all(other == first for other in others)


async def test_what_is_listed_and_what_is_watched_add_up(client: Client) -> None:
    """At whatever moment a list is taken, it and the watch from it give the final state."""

    listed: list[ObjectList[Object]] = []

    async def churn(name: str) -> None:
        for i in range(3):
            await client.create(pool(name))
            listed.append(await client.list(POOLS))
            await client.patch(POOLS, name, {"spec": {"replicas": i}})
            listed.append(await client.list(POOLS))
            await client.delete(POOLS, name)
            listed.append(await client.list(POOLS))

    await asyncio.gather(*(churn(f"p{n}") for n in range(5)))
    await client.create(pool("last"))
    for start in listed:
        state = {name_of(item): item for item in start.items}
        async with watching(client, POOLS, resource_version=start.resource_version) as watch:
            for event in await watch.until("ADDED", "last"):
                assert event.object is not None
                name = name_of(event.object)
                if event.type == "DELETED":
                    del state[name]
                else:
                    assert (name in state) == (event.type == "MODIFIED")
                    state[name] = event.object
        assert set(state) == {"last"}
