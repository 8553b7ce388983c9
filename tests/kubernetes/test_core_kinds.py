"""The kinds of Kubernetes' own groups that Rota serves too: Namespace, Secret, ConfigMap, Lease and Event."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from rota.api import KINDS
from tests.corpus import shown
from tests.examples import TIME, example, examples
from tests.kubernetes.comparison import Both

Object = dict[str, Any]

DATA_KEYS = ("a", "A_b.c-d", "", ".", "..", "...", "..a", "a b", "a/b", "é", "a\n", "a" * 253, "a" * 254)
BASE64 = ("", "YQ==", "YQ", "YQ=", "Y Q==", "YQ==\n", "*", "é", "_-==", "//8=", "YWI=YWI=")
WRONG: tuple[Any, ...] = (7, 1.5, True, "a", [], ["a"], {"a": 7}, {"a": {}}, {"a": []}, {"a": True})
MEBIBYTE = 1_048_576
SPECS: tuple[Any, ...] = (None, {}, 7, [], "a")
NAMESPACE_SPECS: tuple[Any, ...] = (None, {}, {"finalizers": []}, {"unheardOf": 1})
ABOUTS: tuple[Any, ...] = ({}, None, 7, {"namespace": "other"}, {"namespace": "default"})
LEASE_TIMES = (TIME, "2024-05-06T07:08:09.000001Z", "2024-05-06T07:08:09.1Z", "2024-05-06", "", "now", 7)

NEW: dict[str, list[Object]] = {
    "ConfigMap": [
        *({part: value} for part in ("data", "binaryData") for value in WRONG if value != "a" or part == "data"),
        *({"data": {key: "a"}} for key in DATA_KEYS),
        *({"binaryData": {key: "YQ=="}} for key in DATA_KEYS),
        *({"binaryData": {"a": value}} for value in BASE64),
        *({"immutable": value} for value in (True, False, None, "true", 1)),
        {"data": {"a": ""}},
        {"data": {"a": None}},
        {"data": {}},
        {"data": None},
        {"data": {"a": "b"}, "binaryData": {"a": "YQ=="}},
        {"data": {"a": "b" * (MEBIBYTE - 1)}},
        {"data": {"a": "b" * MEBIBYTE}},
        {"data": {"a": "b" * (MEBIBYTE + 1)}},
        {"data": {"a": "é" * (MEBIBYTE // 2 + 1)}},
        {"stringData": {"a": "b"}},
        {"spec": {}},
    ],
    "Secret": [
        *({part: value} for part in ("data", "stringData") for value in WRONG if value != "a" or part == "data"),
        *({"data": {key: "YQ=="}} for key in DATA_KEYS),
        *({"stringData": {key: "a"}} for key in DATA_KEYS),
        *({"data": {"a": value}} for value in BASE64),
        *({"type": value} for value in ("", "a", "Opaque", "a b", 7, None)),
        *({"immutable": value} for value in (True, False, None, "true")),
        {"data": {"a": "YQ=="}, "stringData": {"a": "b"}},
        {"data": {"a": None}},
        {"stringData": {"a": "é"}},
        {"stringData": {}},
        {"data": {}},
        {"stringData": {"a": "b" * MEBIBYTE}},
        {"stringData": {"a": "b" * (MEBIBYTE + 1)}},
        {"binaryData": {"a": "YQ=="}},
    ],
    "Lease": [
        *({"spec": value} for value in SPECS),
        *({"spec": {"leaseDurationSeconds": value}} for value in (1, 0, -1, 1.5, "1", None, 2**31 - 1, 2**31)),
        *({"spec": {"leaseTransitions": value}} for value in (1, 0, -1, "1", 2**31)),
        *({"spec": {"renewTime": value}} for value in LEASE_TIMES),
        *({"spec": {"holderIdentity": value}} for value in ("a", "", None, 7, "a" * 2000)),
        {"spec": {"unheardOf": 1}},
    ],
    "Event": [
        *({"involvedObject": value} for value in ABOUTS),
        *({"involvedObject": {"namespace": "default", "name": value}} for value in ("", "a" * 2000, 7)),
        *({"type": value} for value in ("Normal", "Warning", "Other", "", 7)),
        *({"count": value} for value in (0, -1, 7, "7", 2**31)),
        *({"reason": value} for value in ("", "a" * 2000, 7)),
        *({"message": value} for value in ("", "a" * 2000, 7)),
        *({"firstTimestamp": value} for value in (TIME, None, "", "now", 7)),
        {"unheardOf": 1},
    ],
    "Namespace": [
        *({"spec": value} for value in NAMESPACE_SPECS),
        *({"status": value} for value in (None, {}, {"phase": "Active"})),
    ],
}


@pytest.mark.parametrize("kind", NEW)
async def test_new_objects(both: Both, kind: str) -> None:
    for obj in examples(kind):
        assert (await both.create("example", obj)).accepted
    for change in NEW[kind]:
        await both.create(shown(change), examples(kind)[0] | change, validation="Strict")


def put(change: Object, live: Object) -> None:
    for name, value in change.items():
        if value is None:
            live.pop(name, None)
        else:
            live[name] = value


CHANGES: list[Object] = [
    {},
    {"data": {"key": "b3RoZXI="}},
    {"data": {}},
    {"data": None},
    {"immutable": True},
    {"immutable": False},
    {"immutable": None},
    {"data": None, "immutable": None},
]


@pytest.mark.parametrize("immutable", [True, False, None])
@pytest.mark.parametrize("kind", ["Secret", "ConfigMap"])
async def test_changes_of_data(both: Both, kind: str, immutable: bool | None) -> None:
    obj = example(kind, data={"key": "dmFsdWU="}) | ({} if immutable is None else {"immutable": immutable})
    await both.create("example", obj, dry_run=False)
    more: list[Object] = [{"type": "other"}, {"type": None}, {"stringData": {"a": "b"}}] if kind == "Secret" else []
    for change in (*CHANGES, *more):
        await both.update(str(change), KINDS[kind], "example", partial(put, change))


async def test_changes_of_a_lease(both: Both) -> None:
    await both.create("example", examples("Lease")[1], dry_run=False)
    for spec in ({}, {"holderIdentity": "b"}, {"leaseDurationSeconds": 0}, {"renewTime": TIME}, None):
        await both.update(str(spec), KINDS["Lease"], "example", partial(put, {"spec": spec}))


NEW_EVENT: Object = {
    "apiVersion": "events.k8s.io/v1",
    "kind": "Event",
    "metadata": {"name": "example"},
    "eventTime": "2024-05-06T07:08:09.000001Z",
    "reportingController": "example.com/controller",
    "reportingInstance": "controller-0",
    "action": "Testing",
    "reason": "Tested",
    "regarding": {"namespace": "default", "kind": "WorkerPool", "name": "pool"},
    "note": "a note",
    "type": "Normal",
}
NEW_EVENT_CHANGES: list[Object] = [
    *({"eventTime": value} for value in (None, TIME, "", "now", 7)),
    *({"reportingController": value} for value in ("a", "", None, "a/b/c", "/a", "a/", "a b", "A_b/c", "a" * 64, 7)),
    *({"reportingInstance": value} for value in ("", None, "a" * 128, "a" * 129)),
    *({"action": value} for value in ("", None, "a" * 129)),
    *({"reason": value} for value in ("", None, "a" * 129)),
    *({"note": value} for value in ("", None, "a" * 1024, "a" * 1025, 7)),
    *({"type": value} for value in ("Warning", "Other", "", None)),
    *({"regarding": value} for value in ({}, None, 7, {"namespace": "other"})),
    *({"series": value} for value in ({}, {"count": 2}, {"count": 1, "lastObservedTime": TIME}, None)),
    {"series": {"count": 2, "lastObservedTime": "2024-05-06T07:08:09.000001Z"}},
    {"related": {"kind": "Task", "name": "task"}},
    {"deprecatedCount": 1},
    {"deprecatedSource": {"component": "a"}},
    {"deprecatedSource": {}},
    {"deprecatedFirstTimestamp": TIME},
    {"deprecatedLastTimestamp": TIME},
    {"message": "unknown here"},
    {"involvedObject": {}},
]


async def test_new_events_of_their_own_group(both: Both) -> None:
    assert (await both.create("example", NEW_EVENT)).accepted
    for change in NEW_EVENT_CHANGES:
        for validation in ("Strict", "Warn"):
            await both.create(shown(change), NEW_EVENT | change, validation=validation)
