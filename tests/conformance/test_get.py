from __future__ import annotations

from rota import Client
from rota.api import WorkerPool
from tests.conformance.expecting import refused
from tests.conformance.objects import CONFIG_MAPS, POOLS, pool


async def test_what_was_created_is_read_back(client: Client) -> None:
    made = await client.create(pool("a"))
    assert await client.get(POOLS, "a") == made


async def test_a_typed_read_has_the_same_content(client: Client) -> None:
    made = await client.create(pool("a", {"replicas": 2}))
    read = await client.get(WorkerPool, "a")
    assert (read.metadata.uid, read.spec.replicas) == (made["metadata"]["uid"], 2)


async def test_a_read_sees_the_last_write(client: Client) -> None:
    await client.create(pool("a"))
    for replicas in range(5):
        await client.patch(POOLS, "a", {"spec": {"replicas": replicas}})
        assert (await client.get(POOLS, "a"))["spec"]["replicas"] == replicas


async def test_an_absent_object_is_not_found(client: Client) -> None:
    with refused(404, "NotFound") as refusal:
        await client.get(POOLS, "absent")
    assert refusal.value.message == 'workerpools.rota.dev "absent" not found'
    assert refusal.value.details == {"name": "absent", "group": "rota.dev", "kind": "workerpools"}


async def test_an_absent_object_of_the_core_group_has_no_group_in_its_refusal(client: Client) -> None:
    with refused(404, "NotFound") as refusal:
        await client.get(CONFIG_MAPS, "absent")
    assert refusal.value.message == 'configmaps "absent" not found'
    assert refusal.value.details == {"name": "absent", "kind": "configmaps"}


async def test_an_object_of_an_absent_namespace_is_what_is_not_found(client: Client) -> None:
    with refused(404, "NotFound") as refusal:
        await client.get(POOLS, "a", namespace="no-such-namespace")
    assert refusal.value.message == 'workerpools.rota.dev "a" not found'


async def test_an_object_is_found_in_its_own_namespace_only(client: Client) -> None:
    await client.create(pool("a"))
    with refused(404, "NotFound"):
        await client.get(POOLS, "a", namespace="default")
