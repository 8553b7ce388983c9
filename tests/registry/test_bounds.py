"""Requests that no caller may make, in process or not."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from rota import ApiError, Client
from rota.api import ConfigMap, Namespace, Schedule, Secret, Task
from rota.registry import DeleteOptions, ListOptions, Registry, WriteOptions
from rota.registry.admission import OBJECT_BYTES_MAX
from rota.store import MemoryStore
from tests.examples import examples
from tests.until import until_so

Object = dict[str, Any]


@pytest.fixture
async def client() -> Any:
    store = MemoryStore()
    registry = Registry(store)
    await registry.start()
    yield Client.local(registry)
    await registry.stop()
    await store.close()


def configmap(name: str, **metadata: Any) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}


def nested(levels: int) -> Object:
    value: Object = {}
    for _ in range(levels):
        value = {"a": value}
    return value


async def refused(awaitable: Any, code: int) -> ApiError:
    with pytest.raises(ApiError) as refusal:
        await awaitable
    assert refusal.value.code == code, refusal.value
    return refusal.value


async def test_free_form_fields_are_bounded_in_depth_however_they_grow(client: Client) -> None:
    schedule = examples("Schedule")[0]
    schedule["spec"]["payload"] = nested(80)
    await refused(client.create(schedule), 422)
    schedule["spec"]["payload"] = nested(30)
    await client.create(schedule)
    path = "/spec/payload" + "/a" * 30
    grow = [{"op": "add", "path": f"{path}/a", "value": nested(40)}]
    await refused(client.patch(Schedule.api, "example", grow, type="json"), 422)
    status = {"status": {"result": nested(80)}}
    await client.create(examples("Task")[0])
    await refused(client.patch(Task.api, "example", status, subresource="status"), 422)


@pytest.mark.parametrize(
    "value",
    [nested(2000), nested(200), "\ud800", 10**400, {1, 2}, object()],
    ids=["far too deep", "too deep", "surrogate", "huge number", "set", "object"],
)
async def test_what_is_no_json_is_refused_as_such(client: Client, value: Any) -> None:
    await refused(client.create({**configmap("a"), "data": {"a": value}}), 400)


async def test_objects_are_bounded_in_size(client: Client) -> None:
    data = {f"key-{i}": "x" * 2000 for i in range(OBJECT_BYTES_MAX // 2000)}
    error = await refused(client.create({**configmap("a"), "data": data}), 413)
    assert "an object has at most" in str(error)
    await refused(client.get(ConfigMap.api, "a"), 404)
    await client.create(configmap("b"))


@pytest.mark.parametrize("name", ["default", "kube-system"])
async def test_some_namespaces_may_not_be_deleted(client: Client, name: str) -> None:
    if name != "default":
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    error = await refused(client.delete(Namespace.api, name), 403)
    assert str(error) == f'namespaces "{name}" is forbidden: this namespace may not be deleted'


@pytest.mark.parametrize(
    "make",
    [
        lambda: WriteOptions(field_validation="zzz"),  # type: ignore[arg-type]
        lambda: WriteOptions(manager="x" * 129),
        lambda: WriteOptions(manager="a\nb"),
        lambda: DeleteOptions(propagation="zzz"),  # type: ignore[arg-type]
        lambda: ListOptions(resource_version_match="zzz"),  # type: ignore[arg-type]
    ],
)
def test_options_that_there_are_not_are_refused(make: Any) -> None:
    with pytest.raises(ApiError) as refusal:
        make()
    assert refusal.value.code == 422


async def test_patches_and_applies_of_no_known_kind_are_refused(client: Client) -> None:
    await client.create(configmap("a"))
    await refused(client.patch(ConfigMap.api, "a", {}, type="zzz"), 400)  # type: ignore[arg-type]
    nobody = Client(client.backend, manager="")
    await refused(nobody.apply(configmap("a")), 422)


async def test_an_index_of_many_digits_is_refused(client: Client) -> None:
    await client.create(configmap("a"))
    patch = [{"op": "remove", "path": "/metadata/managedFields/" + "9" * 5000}]
    await refused(client.patch(ConfigMap.api, "a", patch, type="json"), 422)


async def test_no_refusal_repeats_what_is_in_a_secret(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    base = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    for part in (
        {"data": "TOPSECRET"},
        {"data": {"k": ["TOPSECRET"]}},
        {"data": {"k": "TOPSECRET!"}},
        {"stringData": {"k": {"a": "TOPSECRET"}}},
        {"stringData": ["TOPSECRET"]},
    ):
        for act in (client.create, client.apply):
            with pytest.raises(ApiError) as refusal:
                await act({**base, **part})
            assert "TOPSECRET" not in str(refusal.value.status())
    assert "TOPSECRET" not in caplog.text
    await refused(client.get(Secret.api, "s"), 404)


async def test_an_object_that_owns_itself_can_be_deleted_in_the_foreground(client: Client) -> None:
    made = await client.create(configmap("a"))
    ref = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": made["metadata"]["uid"]}
    owners = {"metadata": {"ownerReferences": [{**ref, "blockOwnerDeletion": True}]}}
    await client.patch(ConfigMap.api, "a", owners)
    await client.delete(ConfigMap.api, "a", propagation="Foreground")
    await until_so(lambda: client.list(ConfigMap.api), lambda found: not found.items, "no objects", poll_seconds=0)
