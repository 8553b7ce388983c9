"""The registry through crashes, failing disks and restarts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rota import ApiError, Client
from rota.api import ConfigMap, Namespace
from rota.client import Operation
from rota.registry import DeleteOptions, Registry
from rota.store import MemoryStore, SqliteStore
from rota.store.delivery import Group

Object = dict[str, Any]


def configmap(name: str, **metadata: Any) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": {"a": "b"}}


class HeldStore(MemoryStore):
    """A store whose disk takes its time: nothing is durable until `release`."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[Group] | None = None

    def _hand_over(self, groups: list[Group]) -> None:
        if self.held is None:
            super()._hand_over(groups)
        else:
            self.held += groups

    def hold(self) -> None:
        self.held = []

    def release(self) -> None:
        groups, self.held = self.held or [], None
        super()._hand_over(groups)


async def held_registry() -> tuple[HeldStore, Registry]:
    store = HeldStore()
    registry = Registry(store)
    await registry.start()
    store.hold()
    return store, registry


async def turns() -> None:
    """Let everything that can run, run."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_an_answer_waits_until_the_write_is_durable() -> None:
    store, registry = await held_registry()
    making = asyncio.create_task(registry.create(ConfigMap.api, "default", configmap("a")))
    await turns()
    assert not making.done()
    with pytest.raises(ApiError, match="not found"):
        registry.get(ConfigMap.api, "default", "a")
    store.release()
    assert (await making).created
    await registry.stop()


async def test_a_refusal_waits_until_what_it_rests_on_is_durable() -> None:
    store, registry = await held_registry()
    first = asyncio.create_task(registry.create(ConfigMap.api, "default", configmap("a")))
    await turns()
    second = asyncio.create_task(registry.create(ConfigMap.api, "default", configmap("a")))
    await turns()
    assert not second.done(), "a crash now would leave no object, but someone would have heard that it exists"
    store.release()
    await first
    with pytest.raises(ApiError) as refusal:
        await second
    assert refusal.value.reason == "AlreadyExists"
    await registry.stop()


async def test_an_answer_that_nothing_changed_waits_until_that_state_is_durable() -> None:
    store, registry = await held_registry()
    first = asyncio.create_task(registry.create(ConfigMap.api, "default", configmap("a")))
    await turns()
    same = asyncio.create_task(registry.patch(ConfigMap.api, "default", "a", {"data": {"a": "b"}}))
    await turns()
    assert not same.done()
    store.release()
    assert (await same).revision == (await first).revision
    await registry.stop()


async def test_writers_of_one_object_never_lose_a_race_within_the_process() -> None:
    store, registry = await held_registry()
    making = asyncio.create_task(registry.create(ConfigMap.api, "default", configmap("a")))
    await turns()
    patching = [
        asyncio.create_task(registry.patch(ConfigMap.api, "default", "a", {"data": {f"k{i}": "v"}})) for i in range(50)
    ]
    await turns()
    store.release()
    await asyncio.gather(making, *patching)
    found = await Client.local(registry).get(ConfigMap, "a")
    assert len(found.data) == 51
    await registry.stop()


async def test_a_stopped_store_refuses_writes_with_503_and_still_answers_reads() -> None:
    store = MemoryStore()
    registry = Registry(store)
    await registry.start()
    await registry.create(ConfigMap.api, "default", configmap("a"))
    await registry.stop()
    await store.close()
    with pytest.raises(ApiError) as refusal:
        await registry.create(ConfigMap.api, "default", configmap("b"))
    assert refusal.value.code == 503
    assert registry.get(ConfigMap.api, "default", "a").value


async def test_unfinished_deletions_are_taken_up_after_a_restart(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "rota.db")
    registry = Registry(store)
    await registry.ensure_namespace("default")
    await registry.ensure_namespace("doomed")
    owners: dict[str, Object] = {}
    client = Client.local(registry)
    for name in ("background", "foreground", "orphan"):
        owners[name] = await client.create(configmap(name))
        ref = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": owners[name]["metadata"]["uid"]}
        blocking = {**ref, "blockOwnerDeletion": True}
        await client.create(configmap(f"of-{name}", ownerReferences=[blocking]))
    await client.create(configmap("content", namespace="doomed"))
    # The collector was never started: this is a crash right after the answers.
    for name, policy in (("background", "Background"), ("foreground", "Foreground"), ("orphan", "Orphan")):
        await registry.delete(ConfigMap.api, "default", name, DeleteOptions(propagation=policy))  # type: ignore[arg-type]
    await registry.delete(Namespace.api, "", "doomed")
    await store.close()

    store = SqliteStore(tmp_path / "rota.db")
    registry = Registry(store)
    await registry.start()
    client = Client.local(registry)
    async with asyncio.timeout(10):
        async for _ in client.watch(ConfigMap, namespace="", resource_version="0"):
            names = {obj.metadata.name for obj in (await client.list(ConfigMap, namespace="")).items}
            if names == {"of-orphan"}:
                break
        async for _ in client.watch(Namespace, resource_version="0"):
            if [ns.metadata.name for ns in (await client.list(Namespace)).items] == ["default"]:
                break
    assert (await client.get(ConfigMap, "of-orphan")).metadata.owner_references == []
    await registry.stop()
    await store.close()


async def test_what_a_cancelled_caller_deleted_is_collected_all_the_same() -> None:
    store = HeldStore()
    registry = Registry(store)
    await registry.start()
    client = Client.local(registry)
    owner = await client.create(configmap("owner"))
    ref = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    await client.create(configmap("owned", ownerReferences=[ref]))
    store.hold()
    deleting = asyncio.create_task(client.delete(ConfigMap, "owner"))
    await turns()
    deleting.cancel()
    await asyncio.gather(deleting, return_exceptions=True)
    store.release()
    async with asyncio.timeout(10):
        async for change in client.watch(ConfigMap, resource_version="0"):
            if change.type == "DELETED" and change.object is not None and change.object.metadata.name == "owned":
                break
    await registry.stop()


async def test_a_batch_with_a_part_that_changes_nothing_never_loses_a_race() -> None:
    store, registry = await held_registry()
    client = Client.local(registry)
    making = asyncio.create_task(client.create(configmap("a")))
    making_other = asyncio.create_task(client.create(configmap("b")))
    await turns()
    operations = [
        Operation("patch", ConfigMap.api, "default", "a", body={"data": {"a": "b"}}),
        Operation("patch", ConfigMap.api, "default", "b", body={"data": {"batch": "yes"}}),
    ]
    batch = asyncio.create_task(client.batch(operations))
    await turns()
    other = asyncio.create_task(client.patch(ConfigMap, "b", {"data": {"other": "yes"}}))
    await turns()
    store.release()
    await asyncio.gather(making, making_other, batch, other)
    assert set((await client.get(ConfigMap, "b")).data) == {"a", "batch", "other"}
    await registry.stop()


async def test_objects_are_answered_and_listed_as_the_bytes_that_are_stored() -> None:
    store = MemoryStore()
    registry = Registry(store)
    await registry.start()
    answer = await registry.create(ConfigMap.api, "default", configmap("a"))
    stored = store.get(ConfigMap.api.key("default", "a"))
    assert stored is not None
    listing = await registry.list(ConfigMap.api, "default")
    assert answer.value is stored.value
    assert registry.get(ConfigMap.api, "default", "a").value is stored.value
    assert listing.items[0] is stored.value
    await registry.stop()
