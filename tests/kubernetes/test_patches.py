"""Patches of every type, good and bad."""

from __future__ import annotations

from typing import Any

import pytest

from rota.api import KINDS
from rota.registry.options import FieldValidation
from tests.kubernetes.comparison import MANAGER, Both

Object = dict[str, Any]
MERGE, JSON = "application/merge-patch+json", "application/json-patch+json"
STRATEGIC, APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
VALIDATIONS: tuple[FieldValidation, ...] = ("Strict", "Warn", "Ignore")

SUBJECTS: dict[str, Object] = {
    "WorkerPool": {"spec": {"worker": {"type": "shell"}, "replicas": 1}},
    "ConfigMap": {"data": {"a": "1"}},
    "Secret": {"data": {"a": "YQ=="}},
    "Lease": {"spec": {"holderIdentity": "me"}},
}
"""The kinds that are patched: a custom one, with a status, and some of Kubernetes' own."""

MERGES: list[Any] = [
    {},
    {"metadata": {"labels": {"a": "b"}}},
    {"metadata": {"labels": {"a": "b c"}}},
    {"metadata": {"labels": None}},
    {"metadata": {"annotations": {"a": None, "b": "c"}}},
    {"metadata": {"finalizers": ["example.com/f"]}},
    {"metadata": {"finalizers": ["f"]}},
    {"metadata": {"name": "other"}},
    {"metadata": {"namespace": "other"}},
    {"metadata": {"uid": "other"}},
    {"metadata": {"resourceVersion": "1"}},
    {"metadata": {"generation": 7, "creationTimestamp": None, "selfLink": "x"}},
    {"metadata": {"managedFields": [{}]}},
    {"metadata": {"stray": 1}},
    {"metadata": 7},
    {"metadata": None},
    {"metadata": {"name": None}},
    {"kind": "Other"},
    {"kind": None},
    {"apiVersion": "other/v1"},
    {"stray": 1},
    {"spec": None},
    {"spec": 7},
    {"status": {"replicas": 7}},
    [],
    "a",
    7,
    None,
]
POOL_MERGES: list[Any] = [
    {"spec": {"replicas": 3}},
    {"spec": {"replicas": None}},
    {"spec": {"replicas": "3"}},
    {"spec": {"replicas": 5000}},
    {"spec": {"worker": None}},
    {"spec": {"worker": {"type": "other"}}},
    {"spec": {"stray": 1}},
]
DATA_MERGES: list[Any] = [
    {"data": {"b": "Yg=="}},
    {"data": {"a": None}},
    {"data": None},
    {"data": {"b": 7}},
    {"data": {"b c": "Yg=="}},
    {"immutable": True},
]


def operation(op: str, path: str, **more: Any) -> Object:
    return {"op": op, "path": path, **more}


OPERATIONS: list[Any] = [
    [],
    [operation("add", "/metadata/labels", value={"a": "b"})],
    [operation("add", "/metadata/labels/a", value="b")],
    [operation("add", "/metadata/annotations", value={"a~b": "1"}), operation("remove", "/metadata/annotations/a~0b")],
    [operation("remove", "/metadata/labels")],
    [operation("replace", "/metadata/labels", value={})],
    [operation("replace", "/metadata/name", value="other")],
    [operation("replace", "/metadata/uid", value="other")],
    [operation("test", "/metadata/name", value="patched")],
    [operation("test", "/metadata/name", value="other")],
    [operation("test", "/metadata/nothing", value=1)],
    [operation("test", "/metadata/nothing", value=None)],
    [operation("copy", "/metadata/labels", **{"from": "/metadata/nothing"})],
    [operation("move", "/metadata/generateName", **{"from": "/metadata/name"})],
    [operation("replace", "", value={})],
    [operation("remove", "")],
    [operation("other", "/metadata/labels", value={})],
    [{"op": "add"}],
    [7],
    {},
    "a",
    None,
]


@pytest.mark.parametrize("validation", VALIDATIONS)
@pytest.mark.parametrize("kind", SUBJECTS)
async def test_merge_patches(both: Both, kind: str, validation: FieldValidation) -> None:
    path = both.have(KINDS[kind], "patched", **SUBJECTS[kind])
    own = POOL_MERGES if kind == "WorkerPool" else DATA_MERGES if kind != "Lease" else []
    # What is not validated is merged as it is, so that Kubernetes answers a list with 422 then.
    merges = [patch for patch in MERGES if patch != [] or validation != "Ignore"]
    for patch in (*merges, *own):
        await _patch(both, path, patch, MERGE, validation)


@pytest.mark.parametrize("kind", SUBJECTS)
async def test_json_patches(both: Both, kind: str) -> None:
    path = both.have(KINDS[kind], "patched", **SUBJECTS[kind])
    for patch in OPERATIONS:
        await _patch(both, path, patch, JSON, "Strict")


@pytest.mark.parametrize("kind", SUBJECTS)
async def test_strategic_merge_patches(both: Both, kind: str) -> None:
    path = both.have(KINDS[kind], "patched", **SUBJECTS[kind])
    for patch in (
        *MERGES,
        *DATA_MERGES,
        {"$patch": "delete"},
        {"metadata": {"$patch": "replace", "labels": {"a": "b"}}},
    ):
        await _patch(both, path, patch, STRATEGIC, "Strict")


@pytest.mark.parametrize("part", ["status", "scale", "other"])
async def test_patches_of_a_part(both: Both, part: str) -> None:
    path = both.have(KINDS["WorkerPool"], "patched", **SUBJECTS["WorkerPool"])
    for patch in (
        {"spec": {"replicas": 2}},
        {"spec": {"replicas": -1}},
        {"spec": {"replicas": None}},
        {"status": {"replicas": 2}},
        {"status": None},
        {"status": {"replicas": "2"}},
        {"metadata": {"labels": {"a": "b"}}},
        {},
    ):
        await _patch(both, f"{path}/{part}", patch, MERGE, "Strict")


@pytest.mark.parametrize("type_", [MERGE, JSON, STRATEGIC])
async def test_patches_of_what_is_not_there(both: Both, type_: str) -> None:
    for kind in ("WorkerPool", "ConfigMap"):
        path = both.have(KINDS[kind], "patched", **SUBJECTS[kind]).replace("patched", "missing")
        await _patch(both, path, [] if type_ == JSON else {}, type_, "Strict")


@pytest.mark.parametrize("type_", ["application/json", "text/plain", "", MERGE + "; charset=utf-8"])
async def test_patches_of_types_that_there_are_not(both: Both, type_: str) -> None:
    for kind in ("WorkerPool", "ConfigMap"):
        path = both.have(KINDS[kind], "patched", **SUBJECTS[kind])
        await _patch(both, path, {"metadata": {"labels": {"a": "b"}}}, type_, "Strict")


DUPLICATES = {
    "replicas": b'{"spec":{"replicas":2,"replicas":3}}',
    "twice": b'{"spec":{"replicas":2},"spec":{"replicas":3}}',
    "label": b'{"metadata":{"labels":{"a":"b","a":"c"}}}',
    "unknown beside it": b'{"spec":{"replicas":2,"replicas":3,"stray":1}}',
    "in a text": b'{"metadata":{"annotations":{"a":"{\\"b\\":1,\\"b\\":2}"}}}',
}


@pytest.mark.parametrize("validation", VALIDATIONS)
@pytest.mark.parametrize("body", DUPLICATES.values(), ids=DUPLICATES)
async def test_patches_with_a_field_twice(both: Both, body: bytes, validation: FieldValidation) -> None:
    path = both.have(KINDS["WorkerPool"], "patched", **SUBJECTS["WorkerPool"])
    await _patch(both, path, body, MERGE, validation)


NEW_DUPLICATES = {
    "spec": b'"spec":{"worker":{"type":"shell"},"replicas":2,"replicas":3}',
    "deep": b'"spec":{"worker":{"type":"shell","type":"shell"}}',
    "in a list": b'"spec":{"worker":{"type":"shell","env":[{"name":"A","value":"1","value":"2"}]}}',
    "with an unknown one": b'"spec":{"worker":{"type":"shell"},"stray":1,"replicas":2,"replicas":3}',
}


@pytest.mark.parametrize("validation", VALIDATIONS)
@pytest.mark.parametrize("part", NEW_DUPLICATES.values(), ids=NEW_DUPLICATES)
async def test_new_objects_with_a_field_twice(both: Both, part: bytes, validation: FieldValidation) -> None:
    frame = b'{"apiVersion":"rota.dev/v1alpha1","kind":"WorkerPool","metadata":{"name":"twice"},%b}'
    path = "/apis/rota.dev/v1alpha1/namespaces/default/workerpools"
    query = {"fieldManager": MANAGER, "fieldValidation": validation, "dryRun": "All"}
    await both.ask("twice", "POST", path, frame % part, **query)


@pytest.mark.parametrize("validation", VALIDATIONS)
async def test_new_core_objects_with_a_field_twice(both: Both, validation: FieldValidation) -> None:
    body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","name":"twice"},"data":{"a":"1","a":"2"}}'
    query = {"fieldManager": MANAGER, "fieldValidation": validation, "dryRun": "All"}
    await both.ask("twice", "POST", "/api/v1/namespaces/default/configmaps", body, **query)


async def _patch(both: Both, path: str, patch: Any, type_: str, validation: FieldValidation) -> None:
    query = {"fieldManager": MANAGER, "fieldValidation": validation, "dryRun": "All"}
    await both.ask(f"{type_} {patch!r}", "PATCH", path, patch, content_type=type_, **query)
