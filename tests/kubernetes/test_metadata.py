"""Odd names, labels, annotations, finalizers and owners."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from rota.api import KINDS
from tests.corpus import shown
from tests.examples import examples
from tests.kubernetes.comparison import Both, path_of

Meta = dict[str, Any]

NAMES = (
    *("a", "A", "a-b", "a.b", "a..b", "-a", "a-", ".a", "a_b", "a/b", "a b", "a\n", "é", "0", "", ".", ".."),
    *("%", "a%2fb", "a" * 63, "a" * 64, "a" * 253, "a" * 254, ".".join(["a" * 63] * 4), "true", "1.5"),
)
KEYS = (
    *("a", "A", "a.b", "a_b", "a-b", "-a", "a-", ".a", "a b", "", "/", "a/", "/a", "a/b", "a/b/c", "A/b", "é"),
    *("a\n", "0", "a.example/b", "a_b.example/c", "-a.example/b", "a" * 63, "a" * 64, "a/" + "b" * 63, "a/" + "b" * 64),
    *("a" * 253 + "/b", "a" * 254 + "/b", "kubernetes.io/a", "a..b/c"),
)
LABEL_VALUES = ("", "a", "A", "-a", "a-", "a.b", "a_b", "a b", "a/b", "é", "a\n", "a" * 63, "a" * 64, "0")
OWNER: Meta = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u"}

ODD: list[Meta] = [
    *({"name": name} for name in NAMES),
    *({"generateName": name} for name in NAMES if not name or name[:1] in "-.A_/%é"),
    *({"labels": {key: "a"}} for key in KEYS),
    *({"labels": {"a": value}} for value in LABEL_VALUES),
    *({"annotations": {key: "a"}} for key in KEYS),
    *({"annotations": {"a": value}} for value in ("", "é", "a\n", "a" * 200_000)),
    {"annotations": {"a": "b" * 262_143}},
    {"annotations": {"a": "b" * 262_144}},
    {"annotations": {"a": "é" * 140_000}},
    *({"finalizers": [key]} for key in KEYS),
    {"finalizers": ["orphan", "foregroundDeletion"]},
    {"finalizers": ["orphan"]},
    {"finalizers": ["a.example/b", "a.example/b"]},
    {"finalizers": ["kubernetes"]},
    {"finalizers": []},
    *({"ownerReferences": [owner]} for owner in ({}, {"name": "a"}, OWNER, {**OWNER, "controller": True})),
    *({"ownerReferences": [{**OWNER, "apiVersion": version}]} for version in ("", "a/b", "a/b/c", "/", "a/", "/a")),
    *({"ownerReferences": [{**OWNER, name: ""}]} for name in OWNER),
    *({"ownerReferences": [{**OWNER, name: None}]} for name in OWNER),
    {"ownerReferences": [{**OWNER, "kind": "Event"}]},
    {"ownerReferences": [OWNER, OWNER]},
    {"ownerReferences": [OWNER, {**OWNER, "name": "b"}]},
    {"ownerReferences": [{**OWNER, "controller": True}, {**OWNER, "uid": "v", "controller": True}]},
    {"ownerReferences": [{**OWNER, "controller": True}, {**OWNER, "uid": "v", "controller": False}]},
    {"ownerReferences": [{**OWNER, "blockOwnerDeletion": True}]},
    {"ownerReferences": []},
    {"namespace": "other"},
    {"namespace": ""},
    {"namespace": "default"},
    {"uid": "a"},
    {"resourceVersion": ""},
    {"generation": 7},
    {"generation": -7},
    {"creationTimestamp": None},
    {"creationTimestamp": "2020-01-01T00:00:00Z"},
    {"deletionTimestamp": "2020-01-01T00:00:00Z"},
    {"deletionGracePeriodSeconds": 5},
    {"selfLink": "a"},
    {"labels": None, "annotations": None, "finalizers": None, "ownerReferences": None},
    {"labels": {}, "annotations": {}},
    {"labels": {"a": None}},
    {"name": None, "generateName": None},
    {"clusterName": "a"},
    {"managedFields": []},
    {"managedFields": [{"manager": "a", "operation": "Update", "apiVersion": "v1"}]},
]
WRONG_VALUES: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("name", "namespace", "generateName", "uid", "resourceVersion"), (7, [], {})),
    **dict.fromkeys(("labels", "annotations"), (7, "a", [], {"a": 7}, {"a": {}}, {"a": True})),
    "finalizers": (7, "a", {}, [7], [None], [{}]),
    "ownerReferences": (7, {}, [7], [None], [{"name": 7}], [{**OWNER, "controller": "true"}]),
    "creationTimestamp": (7, "", "now", "2020-01-01", {}),
    "generation": ("7", 1.5, True),
    "deletionGracePeriodSeconds": ("5",),
    "managedFields": (7,),
}
FRAMES: list[Meta] = [
    {"metadata": None},
    {"metadata": 7},
    {"metadata": []},
    {"metadata": {}},
    {"apiVersion": "v2"},
    {"apiVersion": "a/b/c"},
    {"apiVersion": "rota.dev/v1"},
    {"apiVersion": ""},
    {"apiVersion": 7},
    {"apiVersion": None},
]


@pytest.mark.parametrize("kind", ["Quota", "Location", "Task", "ConfigMap", "Namespace"])
async def test_odd_metadata(both: Both, kind: str) -> None:
    for meta in ODD:
        obj = examples(kind)[0]
        obj["metadata"] |= meta
        if "generateName" in meta:
            del obj["metadata"]["name"]
        await both.create(f"metadata {shown(meta)}", obj)


@pytest.mark.parametrize("kind", ["Quota", "Location", "ConfigMap"])
async def test_metadata_of_wrong_types(both: Both, kind: str) -> None:
    for name, wrong in WRONG_VALUES.items():
        for value in wrong:
            obj = examples(kind)[0]
            obj["metadata"][name] = value
            await both.create(f"metadata.{name} = {shown(value)}", obj)


@pytest.mark.parametrize("kind", ["Quota", "ConfigMap"])
async def test_odd_frames(both: Both, kind: str) -> None:
    obj = examples(kind)[0]
    for change in FRAMES:
        await both.create(str(change), {**obj, **change})
    for name in ("apiVersion", "metadata"):
        await both.create(f"without {name}", {k: v for k, v in obj.items() if k != name})


async def test_a_version_of_what_does_not_exist_yet(both: Both) -> None:
    obj = examples("Quota")[0]
    obj["metadata"]["resourceVersion"] = "1"
    await both.create("with a version", obj, dry_run=False)


async def test_finalizers_of_what_is_being_deleted(both: Both) -> None:
    kind = KINDS["Quota"]
    obj = examples("Quota")[0]
    obj["metadata"]["finalizers"] = ["a.example/b"]
    await both.create("held", obj, dry_run=False)
    both.client.send("DELETE", f"{path_of(kind)}/example")
    both.rota.send("DELETE", f"{path_of(kind)}/example")

    def finalizers(names: list[str], live: Meta) -> None:
        live["metadata"]["finalizers"] = names

    for names in (["a.example/b", "a.example/c"], ["a.example/c"], ["a.example/b"]):
        await both.update(f"finalizers {names}", kind, "example", partial(finalizers, names))
    await both.update("let go", kind, "example", partial(finalizers, []), dry_run=False)
