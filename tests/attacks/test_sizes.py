"""To keep the server busy with what it refuses in the end: objects that have far too much of something."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from rota.api import KINDS, Kind
from rota.api.sizes import METADATA_ITEMS_MAX, VALUES_MAX, has_too_many_values
from rota.registry import ApiError, Registry, WriteOptions
from rota.server import media
from rota.store import MemoryStore
from tests.attacks.conftest import TENANT, Deployer

BUSY_SECONDS_MAX = 1.0
"""Processor time. It takes a tenth of this, and took up to ten times as much."""
MANY = 45_000
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a"}
TYPED = "rota.dev/v1alpha1"


def config(meta: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", **meta}, **more}


def pool(**template: Any) -> dict[str, Any]:
    spec = {"replicas": 0, "template": template}
    return {"apiVersion": TYPED, "kind": "WorkerPool", "metadata": {"name": "x"}, "spec": spec}


def contained(**more: Any) -> dict[str, Any]:
    return pool(containers=[{"name": "a", "command": ["x"], **more}])


HUGE: dict[str, dict[str, Any]] = {
    "finalizers": config({"finalizers": [f"a.b/{i}" for i in range(MANY)]}),
    "the same finalizer": config({"finalizers": ["a.b/c"] * MANY}),
    "owners": config({"ownerReferences": [{**OWNER, "uid": str(i)} for i in range(8000)]}),
    "owners of nothing": config({"ownerReferences": [{}] * 24_000}),
    "labels": config({"labels": {f"-{i}": "-" for i in range(MANY)}}),
    "annotations": config({"annotations": {f"-{i}": "-" for i in range(MANY)}}),
    "managed fields": config({"managedFields": [{"manager": "m", "fieldsV1": {}}] * 10_000}),
    "keys": config({}, data={f"a/{i}": "" for i in range(MANY)}),
    "containers": pool(containers=[{}] * 24_000),
    "variables": contained(env=[{}] * 24_000),
    "containers with variables": pool(containers=[{"env": [{}] * 900} for _ in range(25)]),
    "words": contained(command=["x"] * MANY),
    "unknown fields": contained(**{f"u{i}": 0 for i in range(MANY)}),
}


async def write(registry: Registry, verb: str, kind: Kind, body: bytes) -> None:
    """As a request does."""
    options = WriteOptions("m", restricted=True, user="u", field_validation="Strict")
    value = media.json_value(body)
    media.duplicates(body, value, "application/json")
    if verb == "create":
        await registry.create(kind, "default", value, options)
    elif verb == "apply":
        await registry.apply(kind, "default", "x", value, options)
    else:
        await registry.patch(kind, "default", "x", value, options)


@pytest.mark.parametrize("what", HUGE)
@pytest.mark.parametrize("verb", ["create", "apply", "patch"])
async def test_to_keep_the_server_busy_with_one_write(what: str, verb: str) -> None:
    sent = HUGE[what]
    kind = KINDS[sent["kind"]]
    store = MemoryStore()
    registry = Registry(store)
    await registry.start()
    if verb == "patch":
        small = config({}) if kind.name == "ConfigMap" else contained()
        await registry.create(kind, "default", small)
    body = json.dumps(sent, separators=(",", ":")).encode()
    began = time.process_time()
    with pytest.raises(ApiError) as refused:
        await write(registry, verb, kind, body)
    assert time.process_time() - began < BUSY_SECONDS_MAX
    assert refused.value.code in (400, 413, 422)
    assert len(str(refused.value)) < 10_000
    await registry.stop()
    await store.close()


async def test_a_number_of_finalizers_and_owners_is_what_an_object_has_at_most(attacker: Deployer) -> None:
    where = f"/api/v1/namespaces/{TENANT}/configmaps"
    for name in ("finalizers", "ownerReferences"):
        most = METADATA_ITEMS_MAX[name]
        many: list[Any] = [f"a.b/{i}" if name == "finalizers" else {**OWNER, "uid": f"u{i}"} for i in range(most + 1)]
        refused = await attacker.ask("POST", where, {"metadata": {"name": name.lower(), name: many}})
        assert refused.status == 422
        assert f"metadata.{name}: Too many: {most + 1}: must have at most {most} items" in refused.json["message"]
        made = await attacker.ask("POST", where, {"metadata": {"name": name.lower(), name: many[:most]}})
        assert made.status == 201


async def test_to_make_an_object_too_large_bit_by_bit() -> None:
    """Free-form values are not counted by their fields: so are all values of what is stored."""
    store = MemoryStore()
    registry = Registry(store)
    await registry.start()
    kind = KINDS["WorkerPool"]
    pool = {"apiVersion": TYPED, "kind": "WorkerPool", "metadata": {"name": "x"}, "spec": {"worker": {"type": "shell"}}}
    await registry.create(kind, "default", pool)
    for number in range(3):
        change = {"spec": {"worker": {"podOverrides": {f"k{number}": [0] * (VALUES_MAX * 2 // 5)}}}}
        if number < 2:
            await registry.patch(kind, "default", "x", change)
            continue
        with pytest.raises(ApiError) as refused:
            await registry.patch(kind, "default", "x", change)
        assert (refused.value.code, f"more than {VALUES_MAX} values" in str(refused.value)) == (413, True)
    await registry.stop()
    await store.close()


async def test_text_is_no_attack_whatever_it_has_in_it(attacker: Deployer) -> None:
    note = {"metadata": {"name": "text"}, "data": {"text": '{[,"' * VALUES_MAX}}
    assert (await attacker.ask("POST", f"/api/v1/namespaces/{TENANT}/configmaps", note)).status == 201


@pytest.mark.parametrize(
    ("text", "many"),
    [
        (b'["%b"]' % (b"," * 2 * VALUES_MAX), False),
        (b'["%b"]' % (b'\\",{' * 2 * VALUES_MAX), False),
        (b"[%b0]" % (b"0," * (VALUES_MAX - 2)), False),
        (b"[%b0]" % (b"0," * VALUES_MAX), True),
        (b'{"a":"\\\\",%b"b":0}' % (b'"a":{},' * VALUES_MAX), True),
        (b"[%b0]" % (b'"",' * 3 * VALUES_MAX), True),
    ],
)
def test_values_are_counted_and_text_is_not(text: bytes, many: bool) -> None:
    assert has_too_many_values(text) is many


async def test_to_keep_the_server_busy_with_yaml(attacker: Deployer) -> None:
    body = b"data:\n" + b"".join(b" a%d: x\n" % i for i in range(30_000))
    kind = {"Content-Type": "application/yaml"}
    reply = await attacker.ask("POST", f"/api/v1/namespaces/{TENANT}/configmaps", body, headers=kind)
    assert (reply.status, "send JSON" in reply.json["message"]) == (400, True)


@pytest.mark.parametrize("body", [[], "a", 1, None, True, [[]]], ids=repr)
async def test_to_break_the_look_at_sizes_by_what_is_no_object(body: Any) -> None:
    registry, kind = Registry(MemoryStore()), KINDS["WorkerPool"]
    options = WriteOptions("me")
    await registry.create(KINDS["Namespace"], "", {"metadata": {"name": "default"}}, options)
    await registry.create(kind, "default", contained(), options)
    for writing in (
        registry.create(kind, "default", body, options),
        registry.update(kind, "default", "x", body, options),
        registry.apply(kind, "default", "x", body, options),
    ):
        with pytest.raises(ApiError) as refused:
            await writing
        assert refused.value.code == 400
