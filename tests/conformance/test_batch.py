from __future__ import annotations

import asyncio

import pytest

from rota import Client
from rota.client import Operation
from rota.registry import DeleteOptions, WriteOptions
from tests.conformance.expecting import refused, told, watching
from tests.conformance.objects import CONFIG_MAPS, POOLS, config_map, name_of, pool

pytestmark = pytest.mark.needs("atomic batch")


def creations(client: Client, *names: str) -> list[Operation]:
    return [Operation("create", POOLS, client.namespace, body=pool(name)) for name in names]


async def test_a_batch_writes_all_of_its_objects(client: Client) -> None:
    made = await client.batch(creations(client, "a", "b"))
    assert [name_of(obj) for obj in made] == ["a", "b"]
    assert [await client.get(POOLS, name) for name in "ab"] == made


async def test_every_verb_can_be_part_of_a_batch(client: Client) -> None:
    where = client.namespace
    old = await client.create(pool("updated"))
    for name in ("patched", "deleted"):
        await client.create(pool(name))
    await client.batch(
        [
            Operation("create", POOLS, where, body=pool("created")),
            Operation("update", POOLS, where, "updated", {**old, "spec": {**old["spec"], "replicas": 2}}),
            Operation("patch", POOLS, where, "patched", {"status": {"replicas": 3}}, subresource="status"),
            Operation("apply", CONFIG_MAPS, where, "applied", config_map("applied")),
            Operation("delete", POOLS, where, "deleted"),
        ]
    )
    assert [name_of(obj) for obj in (await client.list(POOLS)).items] == ["created", "patched", "updated"]
    assert (await client.get(POOLS, "updated"))["spec"]["replicas"] == 2
    assert (await client.get(POOLS, "patched"))["status"]["replicas"] == 3
    assert (await client.get(CONFIG_MAPS, "applied"))["data"] == {"key": "value"}


async def test_a_batch_with_one_refusal_writes_nothing(client: Client) -> None:
    await client.create(pool("b"))
    with refused(409, "AlreadyExists"):
        await client.batch(creations(client, "a", "b", "c"))
    assert [name_of(obj) for obj in (await client.list(POOLS)).items] == ["b"]


async def test_a_batch_with_a_stale_version_writes_nothing(client: Client) -> None:
    old = await client.create(pool("b"))
    await client.patch(POOLS, "b", {"spec": {"replicas": 1}})
    update = Operation("update", POOLS, client.namespace, "b", {**old, "spec": {**old["spec"], "replicas": 2}})
    with refused(409, "Conflict"):
        await client.batch([*creations(client, "a"), update])
    with refused(404, "NotFound"):
        await client.get(POOLS, "a")


async def test_a_batch_becomes_visible_at_once(client: Client) -> None:
    batch = asyncio.create_task(client.batch(creations(client, *(f"p{i}" for i in range(50)))))
    counts = set()
    while not batch.done():
        counts.add(len((await client.list(POOLS)).items))
        await asyncio.sleep(0)
    await batch
    counts.add(len((await client.list(POOLS)).items))
    assert counts <= {0, 50} and 50 in counts


async def test_a_batch_is_watched_object_by_object(client: Client) -> None:
    since = (await client.list(POOLS)).resource_version
    await client.batch(creations(client, "b", "a"))
    async with watching(client, POOLS, resource_version=since) as watch:
        events = await watch.take(2)
    assert [told(e) for e in events] == [("ADDED", "b"), ("ADDED", "a")]


async def test_a_batch_has_each_object_once(client: Client) -> None:
    with refused(400, "BadRequest"):
        await client.batch(creations(client, "a", "a"))
    with refused(404, "NotFound"):
        await client.get(POOLS, "a")


async def test_a_batch_can_be_a_dry_run_as_a_whole(client: Client) -> None:
    await client.create(pool("kept"))
    dry = WriteOptions(manager="tester", dry_run=True)
    creating = Operation("create", POOLS, client.namespace, body=pool("new"), options=dry)
    deleting = Operation("delete", POOLS, client.namespace, "kept", delete=DeleteOptions(dry_run=True))
    assert len(await client.batch([creating, deleting])) == 2
    assert [name_of(obj) for obj in (await client.list(POOLS)).items] == ["kept"]
    with refused(400, "BadRequest"):
        await client.batch([creating, *creations(client, "real")])
    assert [name_of(obj) for obj in (await client.list(POOLS)).items] == ["kept"]
