"""To keep the server busy, or to fill its memory, with one request that makes much of little."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

from rota.api import ConfigMap, Kind, Namespace, WorkerPool
from rota.api.sizes import VALUES_MAX
from rota.api.structure import Structure
from rota.client import LocalBackend, Operation
from rota.registry import Answer, ApiError, Registry, WriteOptions, pacing
from rota.registry import registry as registry_module
from rota.registry.decider import Decider
from rota.registry.decisions import Decision
from rota.registry.patches import COPY_VALUES_MAX, JSONPatchError, json_patch
from rota.registry.strategic import strategic_merge
from rota.server.media import decoded
from rota.store import MemoryStore
from tests.attacks.conftest import TENANT, deployer
from tests.server.conftest import Server
from tests.until import until_async

BUSY_SECONDS_MAX = 1.0
"""Processor time. It takes a tenth of this."""
OPTIONS = WriteOptions("m", restricted=True, user="u")


@pytest.fixture
async def registry() -> AsyncIterator[Registry]:
    store = MemoryStore()
    made = Registry(store)
    await made.start()
    yield made
    await made.stop()
    await store.close()


def doubled(times: int, into: str) -> list[dict[str, Any]]:
    first: dict[str, Any] = {"op": "add", "path": "/x", "value": {"a": [[]] * 16}}
    paths = [f"/x/{i}" if into == "map" else "/x/a/-" for i in range(times)]
    return [first, *({"op": "copy", "from": "/x" if into == "map" else "/x/a", "path": path} for path in paths)]


@pytest.mark.parametrize("into", ["map", "list"])
@pytest.mark.parametrize("end", [[], [{"op": "remove", "path": "/x"}]], ids=["kept", "removed"])
def test_to_have_a_patch_copy_its_own_copies(into: str, end: list[dict[str, Any]]) -> None:
    began = time.process_time()
    with pytest.raises(JSONPatchError, match=f"more than {COPY_VALUES_MAX} values"):
        json_patch({}, [*doubled(14, into), *end], max_ops=100)
    assert time.process_time() - began < BUSY_SECONDS_MAX
    json_patch({}, [*doubled(8, into), *end], max_ops=100)


SET_NODE = Structure("struct", fields={"zones": Structure("list", list_type="set", item=Structure("scalar"))})


@pytest.mark.parametrize(
    "patch",
    [
        {"zones": [f"a{i}" for i in range(24_000)], "$deleteFromPrimitiveList/zones": [f"b{i}" for i in range(24_000)]},
        {"$retainKeys": [f"a{i}" for i in range(24_000)], **{f"a{i}": i for i in reversed(range(24_000))}},
    ],
    ids=["delete", "retain"],
)
def test_to_have_a_patch_compare_everything_with_everything(patch: dict[str, Any]) -> None:
    began = time.process_time()
    strategic_merge({"zones": [f"z{i}" for i in range(24_001)]}, patch, SET_NODE)
    assert time.process_time() - began < BUSY_SECONDS_MAX


def test_to_have_protobuf_read_that_json_would_be_refused_for() -> None:
    """Any field counts, also one that is not known: reading it takes as long."""
    known, unknown = b"\x72\x00", b"\xa0\x06\x00"
    for field in (known, unknown):
        meta = field * (VALUES_MAX + 1)
        size = bytes((len(meta) & 0x7F | 0x80, len(meta) >> 7 & 0x7F | 0x80, len(meta) >> 14))
        raw = b"\x0a" + size + meta
        size = bytes((len(raw) & 0x7F | 0x80, len(raw) >> 7 & 0x7F | 0x80, len(raw) >> 14))
        body = b"k8s\x00\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12" + size + raw
        with pytest.raises(ApiError) as refused:
            decoded(body, "application/vnd.kubernetes.protobuf")
        assert refused.value.code == 413


def test_to_break_a_copy_by_depth() -> None:
    deeper: list[dict[str, Any]] = [
        {"op": "add", "path": "/b", "value": {}},
        {"op": "move", "from": "/a", "path": "/b/a"},
        {"op": "move", "from": "/b", "path": "/a"},
    ]
    ops: list[dict[str, Any]] = [{"op": "add", "path": "/a", "value": {}}, *deeper * 1500]
    ops.append({"op": "copy", "from": "/a", "path": "/c"})
    with pytest.raises(JSONPatchError, match="nested deeper than"):
        json_patch({}, ops, max_ops=10_000)


async def test_to_have_a_batch_keep_more_than_there_is_memory_for(registry: Registry) -> None:
    """Objects that are there are large already, and are changed by little."""
    backend = LocalBackend(registry)
    many = 25
    for i in range(many):
        spec = {"worker": {"type": "shell", "podOverrides": {"k": [0] * 20_000}}}
        body = {"apiVersion": WorkerPool.api.api_version, "kind": "WorkerPool", "metadata": {"name": f"p{i}"}}
        await registry.create(WorkerPool.api, "default", {**body, "spec": spec}, OPTIONS)
    change = {"spec": {"replicas": 3}}
    operations = [Operation("patch", WorkerPool.api, "default", f"p{i}", change, OPTIONS) for i in range(many)]
    with pytest.raises(ApiError) as refused:
        await backend.write(operations)
    assert (refused.value.code, "write them in parts" in str(refused.value)) == (413, True)
    assert len(await backend.write(operations[:5])) == 5


async def test_text_with_commas_in_it_does_not_count_as_values(registry: Registry) -> None:
    table = {"metadata": {"name": "table"}, "data": {"csv": "a,b,[c],{d}\n" * 50_000}}
    await LocalBackend(registry).write([Operation("create", ConfigMap.api, "default", "", table, OPTIONS)])


async def test_to_grow_an_object_by_several_managers(registry: Registry) -> None:
    """Each of them applies what an object may have at most."""
    half = 2_500
    for manager in ("a", "b"):
        annotations = {f"{manager}{i}": "" for i in range(half)}
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "annotations": annotations}}
        options = WriteOptions(manager, restricted=True, user="u")
        if manager == "a":
            await registry.apply(ConfigMap.api, "default", "x", config, options)
            continue
        with pytest.raises(ApiError, match=r"metadata\.annotations: Too many: 5001"):
            await registry.apply(ConfigMap.api, "default", "x", config, options)


# A long batch gives way, and is atomic all the same.


def creations(count: int, *, dry_run: bool = False) -> list[Operation]:
    options = WriteOptions("m", dry_run=dry_run)
    return [
        Operation("create", ConfigMap.api, "default", "", {"metadata": {"name": f"n{i}"}}, options)
        for i in range(count)
    ]


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every operation takes as long as a batch may go on without a pause."""
    monkeypatch.setattr(pacing, "OWN_SLICE_SECONDS", -1.0)


async def test_to_keep_everybody_waiting_for_a_batch(registry: Registry, slow: None) -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    waiting = asyncio.create_task(others())
    await asyncio.sleep(0)
    await LocalBackend(registry).write(creations(50, dry_run=True))
    waiting.cancel()
    assert turns >= 50


async def test_what_others_write_in_the_midst_of_a_batch_is_not_lost(registry: Registry, slow: None) -> None:
    kind = ConfigMap.api
    await registry.create(kind, "default", {"metadata": {"name": "x"}, "data": {"a": "1", "same": "1"}})
    patches = [Operation("patch", kind, "default", "x", {"data": {"b": "2"}}, WriteOptions("m"))]
    batch = asyncio.create_task(LocalBackend(registry).write([*patches, *creations(20)]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await registry.patch(kind, "default", "x", {"data": {"a": "3"}})
    await batch
    assert b'"data":{"a":"3","same":"1","b":"2"}' in registry.get(kind, "default", "x").value


async def test_a_batch_that_changes_nothing_says_what_is_there_at_its_end(registry: Registry, slow: None) -> None:
    kind = ConfigMap.api
    await registry.create(kind, "default", {"metadata": {"name": "x"}, "data": {"a": "1"}})
    nothing = [Operation("patch", kind, "default", "x", {"data": {"a": "1"}}, WriteOptions("m"))]
    batch = asyncio.create_task(LocalBackend(registry).write([*nothing, *creations(20)]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await registry.patch(kind, "default", "x", {"data": {"a": "3"}})
    unchanged = (await batch)[0]
    assert isinstance(unchanged, Answer) and b'"data":{"a":"1"}' in unchanged.value
    assert b'"data":{"a":"1"}' in registry.get(kind, "default", "x").value


async def test_a_batch_puts_nothing_into_a_namespace_that_ends_meanwhile(registry: Registry, slow: None) -> None:
    await registry.create(Namespace.api, "", {"metadata": {"name": "ends"}})
    new = Operation("create", ConfigMap.api, "ends", "", {"metadata": {"name": "x"}}, WriteOptions("m"))
    batch = asyncio.create_task(LocalBackend(registry).write([new, *creations(20)]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await registry.delete(Namespace.api, "", "ends")
    with pytest.raises(ApiError) as refused:
        await batch
    assert refused.value.code in (403, 404)
    with pytest.raises(ApiError):
        registry.get(ConfigMap.api, "default", "n0")


async def test_a_batch_that_is_always_overtaken_is_refused(
    registry: Registry, slow: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_module, "BATCH_ROUNDS_MAX", 1)
    kind = ConfigMap.api
    await registry.create(kind, "default", {"metadata": {"name": "x"}})
    patches = [Operation("patch", kind, "default", "x", {"data": {"b": "2"}}, WriteOptions("m"))]
    batch = asyncio.create_task(LocalBackend(registry).write([*patches, *creations(20)]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await registry.patch(kind, "default", "x", {"data": {"a": "1"}})
    with pytest.raises(ApiError) as refused:
        await batch
    assert refused.value.code == 429
    assert b'"b"' not in registry.get(kind, "default", "x").value


async def test_to_keep_everybody_waiting_for_many_batches(bare: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller of many batches has one under way at a time, and other callers run between any two of its operations."""
    for name in ("FREE_SECONDS", "WRITING_SLICE_SECONDS", "OWN_SLICE_SECONDS"):
        monkeypatch.setattr(pacing, name, -1.0)
    mallory, other = await deployer(bare), await deployer(bare, "other")
    decided: list[str] = []
    create = Decider.create

    def noted(self: Decider, kind: Kind, namespace: str, obj: dict[str, Any], *more: Any) -> Decision:
        decided.append(obj["metadata"]["name"])
        return create(self, kind, namespace, obj, *more)

    def batch(namespace: str, name: str, count: int, *, atomic: bool) -> dict[str, Any]:
        about = {"verb": "create", "apiVersion": "v1", "kind": "ConfigMap", "namespace": namespace, "dryRun": True}
        bodies = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}.{i}"}} for i in range(count)]
        return {"atomic": atomic, "operations": [{**about, "body": body} for body in bodies]}

    monkeypatch.setattr(Decider, "create", noted)
    many = [
        asyncio.create_task(mallory.ask("POST", "/v1/batch", batch(TENANT, f"m{i}", 40, atomic=bool(i % 2))))
        for i in range(12)
    ]
    await until_async(lambda: len(decided) >= 20, lambda: f"decided: {len(decided)}", poll_seconds=0)
    assert (await other.ask("POST", "/v1/batch", batch("other", "o", 10, atomic=False))).status == 200
    assert {(await one).status for one in many} == {200}
    # The first of each is decided at once. Those of one batch then come together, but for what others have in between.
    of_many = [name.partition(".")[0] for name in decided if name.startswith("m") and not name.endswith(".0")]
    assert len([1 for one, following in pairwise(of_many) if one != following]) == 11
    meanwhile = decided[decided.index("o.0") : decided.index("o.9")]
    assert len([name for name in meanwhile if not name.endswith(".0")]) <= 2 * 10
