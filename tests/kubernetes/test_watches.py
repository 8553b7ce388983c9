"""Watches: the same changes are told alike, in every form, from every place to begin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from rota.api import KINDS, Kind
from tests.kubernetes.comparison import Both, path_of, settled
from tests.kubernetes.server import Client

Object = dict[str, Any]
MERGE = "application/merge-patch+json"
PARTS: dict[str, Object] = {"WorkerPool": {"spec": {"worker": {"type": "shell"}}}, "ConfigMap": {"data": {"a": "1"}}}
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


def changes(server: Client, kind: Kind) -> None:
    """Some objects come, change and go."""
    path = path_of(kind)
    for name, labels in (("a", {"x": "1"}), ("b", {"x": "2"}), ("c", {})):
        meta = {"name": f"watched-{name}", "labels": {**labels, "suite": "watches"}}
        obj = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": meta, **PARTS[kind.name]}
        assert server.send("POST", path, obj, fieldManager="tester").code == 201
    for name, patch in (
        ("a", {"metadata": {"labels": {"x": "2"}}}),
        ("b", {"metadata": {"labels": {"x": "1", "y": "1"}}}),
        ("c", {}),
        ("c", {"metadata": {"finalizers": ["example.com/f"]}}),
    ):
        answer = server.send("PATCH", f"{path}/watched-{name}", patch, content_type=MERGE, fieldManager="tester")
        assert answer.code == 200
    for name in ("a", "b", "c"):
        assert server.send("DELETE", f"{path}/watched-{name}").code == 200
    free = {"metadata": {"finalizers": None}}
    assert server.send("PATCH", f"{path}/watched-c", free, content_type=MERGE, fieldManager="tester").code == 200


def version(server: Client, path: str) -> str:
    listed: str = server.send("GET", path, limit="1").body["metadata"]["resourceVersion"]
    return listed


def events(server: Client, path: str, accept: str, query: dict[str, str]) -> list[Object]:
    more: dict[str, Any] = {"watch": "1", "timeoutSeconds": "1", **query}
    answer = server.send("GET", path, accept=accept, **more)
    assert answer.code == 200, answer.body
    return [msgspec.json.decode(line) for line in answer.body.splitlines()]


def alike(both: Both, kind: Kind, accept: str, query: Callable[[str], dict[str, str]]) -> list[Object]:
    """Compare what a watch tells of the changes that were made since a version. Returns the events, settled."""
    told = []
    for server in (both.client, both.rota):
        path = path_of(kind)
        since = version(server, path)
        changes(server, kind)
        told.append([_bare(event) for event in events(server, path, accept, query(since))])
    assert told[1] == told[0]
    return told[0]


def _bare(event: Object) -> Object:
    """An event without what no two servers have in common: identities, versions and ages."""
    obj = event["object"]
    if obj["kind"] != "Table":
        return {**event, "object": settled(obj)}
    rows = [{"cells": row["cells"][:1], "object": settled(row["object"])} for row in obj["rows"]]
    columns = obj["columnDefinitions"] and [column["name"] for column in obj["columnDefinitions"]]
    return {"type": event["type"], "rows": rows, "columns": columns, "apiVersion": obj["apiVersion"]}


SELECTIONS: list[dict[str, str]] = [
    {"labelSelector": "suite=watches,x=1"},
    {"labelSelector": "y"},
    {"fieldSelector": "metadata.name=watched-b"},
    {"fieldSelector": "metadata.name!=watched-b", "labelSelector": "suite=watches"},
]


@pytest.mark.parametrize("kind", PARTS)
@pytest.mark.parametrize("accept", ["application/json", TABLE, METADATA], ids=["whole", "table", "metadata"])
async def test_changes_since_a_version(both: Both, kind: str, accept: str) -> None:
    assert alike(both, KINDS[kind], accept, lambda since: {"resourceVersion": since})


@pytest.mark.parametrize("kind", PARTS)
@pytest.mark.parametrize("selection", SELECTIONS, ids=lambda each: "&".join(each.values()))
async def test_changes_of_what_is_selected(both: Both, kind: str, selection: dict[str, str]) -> None:
    assert alike(both, KINDS[kind], "application/json", lambda since: {"resourceVersion": since, **selection})


@pytest.mark.parametrize("kind", PARTS)
@pytest.mark.parametrize("accept", ["application/json", TABLE, METADATA], ids=["whole", "table", "metadata"])
async def test_what_there_is_and_where_it_ends(both: Both, kind: str, accept: str) -> None:
    both.have(KINDS[kind], "there", **PARTS[kind])
    only = {"fieldSelector": "metadata.name=there"}
    initial = {"sendInitialEvents": "true", "allowWatchBookmarks": "true", "resourceVersionMatch": "NotOlderThan"}
    for query in (only, {**only, "resourceVersion": "0"}, {**only, **initial}):
        told = [
            [_bare(event) for event in events(server, path_of(KINDS[kind]), accept, query)]
            for server in (both.client, both.rota)
        ]
        assert told[1] == told[0], query
        assert told[0][0]["type"] == "ADDED"
