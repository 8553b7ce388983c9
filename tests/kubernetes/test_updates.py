"""Changes of objects: what may never change, what changes once, and what counts as a change."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from rota.api import KINDS, Kind
from rota.api.schema import Schema, object_schema
from tests.corpus import Path, Spot, at, shown, spots
from tests.examples import examples
from tests.kubernetes.comparison import Both
from tests.kubernetes.test_rules import messages

Object = dict[str, Any]

CUSTOM = [kind for kind in KINDS.values() if kind.custom]
DEPTH_MAX = 4
"""Deeper fields are parts of what is changed as a whole here."""


def other(spot: Spot) -> Any:
    """Another good value."""
    value, schema = spot.value, spot.schema
    if isinstance(value, bool):
        return not value
    if "enum" in schema:
        return schema["enum"][schema["enum"].index(value) - 1]
    if schema.get("format") == "date-time":
        return "2025-01-01T00:00:00Z"
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return "2" if schema.get("x-kubernetes-int-or-string") else f"{value}2"
    if isinstance(value, list):
        return value[::-1] if len(value) > 1 else []
    return {**value, "more": "a"} if "additionalProperties" in schema or not schema.get("properties") else {}


def put(path: Path, value: Any, live: Object) -> None:
    parent = at(live, path[:-1])
    parent[path[-1]] = copy.deepcopy(value)


def drop(path: Path, live: Object) -> None:
    parent = at(live, path[:-1])
    del parent[path[-1]]


def additions(schema: Schema, least: Object, full: Object) -> Iterator[Spot]:
    """Fields of the spec that the least example lacks."""
    for spot in spots(schema, full):
        if len(spot.path) == 2 and spot.path[0] == "spec" and spot.path[1] not in least["spec"]:
            yield spot


SWITCHES = {"Task": {"a cancelled task cannot be revived"}, "Claim": {"a released claim cannot be held again"}}
"""Rules that only an object which was switched can break."""


@pytest.mark.parametrize("kind", CUSTOM, ids=lambda kind: kind.name)
async def test_each_field_set_changed_and_removed(both: Both, kind: Kind) -> None:
    schema = object_schema(kind)
    causes: set[tuple[str, str, str]] = set()
    everything = examples(kind.name)
    for i, obj in enumerate(everything):
        obj["metadata"]["name"] = name = f"changing-{i}"
        await both.create("example", obj, dry_run=False)
        causes |= (await both.update("nothing", kind, name, lambda live: None)).causes
        for spot in spots(schema, obj):
            if spot.path[0] == "spec" and len(spot.path) <= DEPTH_MAX:
                where, value = ".".join(map(str, spot.path)), other(spot)
                verdict = await both.update(f"{where} = {shown(value)}", kind, name, partial(put, spot.path, value))
                causes |= verdict.causes
                causes |= (await both.update(f"without {where}", kind, name, partial(drop, spot.path))).causes
        for full in everything:
            for spot in additions(schema, obj, full):
                change = partial(put, spot.path, spot.value)
                causes |= (await both.update(f"with {spot.path[1]}", kind, name, change)).causes
    broken = {message.removeprefix("Invalid value: ") for _, _, message in causes}
    assert set(messages(schema, of_changes=True)) - SWITCHES.get(kind.name, set()) <= broken


@pytest.mark.parametrize(("kind", "switch"), [("Task", "cancel"), ("Claim", "release")])
async def test_what_can_be_switched_once(both: Both, kind: str, switch: str) -> None:
    api = KINDS[kind]
    await both.create("example", examples(kind)[0], dry_run=False)
    on, off = partial(put, ("spec", switch), True), partial(put, ("spec", switch), False)
    assert (await both.update("off again", api, "example", off)).accepted
    assert (await both.update("on", api, "example", on, dry_run=False)).accepted
    assert (await both.update("on again", api, "example", on)).accepted
    verdict = await both.update("off after on", api, "example", off)
    assert verdict.code == 422
    verdict = await both.update("removed after on", api, "example", partial(drop, ("spec", switch)))
    assert verdict.code == 422
    assert {message.removeprefix("Invalid value: ") for _, _, message in verdict.causes} == SWITCHES[kind]


@pytest.mark.parametrize("kind", ["Quota", "Location", "WorkerPool", "Task"])
async def test_generation_counts_changes_of_the_spec(both: Both, kind: str) -> None:
    api = KINDS[kind]
    await both.create("example", examples(kind)[0], dry_run=False)

    def label(live: Object) -> None:
        live["metadata"]["labels"] = {"a": "b"}

    def generation(live: Object) -> None:
        live["metadata"]["generation"] = 7

    def status(live: Object) -> None:
        live["status"] = {"observedGeneration": 1}

    def several(live: Object) -> None:
        live["metadata"]["annotations"] = {"a": "b"}
        live["metadata"]["labels"] = {"c": "d"}
        live["status"] = {"observedGeneration": 2}

    for change in (label, generation, status, several):
        for subresource in ("", "status"):
            verdict = await both.update(change.__name__, api, "example", change, subresource=subresource, dry_run=False)
            assert verdict.stored["metadata"]["generation"] == 1
    if kind == "Quota":
        more = partial(put, ("spec", "hard", "instances"), 5)
        assert (await both.update("spec", api, "example", more, dry_run=False)).stored["metadata"]["generation"] == 2


META: list[tuple[Path, Any]] = [
    (("metadata", "name"), "other"),
    (("metadata", "name"), ""),
    (("metadata", "name"), None),
    (("metadata", "namespace"), "other"),
    (("metadata", "namespace"), ""),
    (("metadata", "uid"), "other"),
    (("metadata", "uid"), ""),
    (("metadata", "resourceVersion"), ""),
    (("metadata", "resourceVersion"), "1"),
    (("metadata", "resourceVersion"), "a"),
    (("metadata", "creationTimestamp"), "2020-01-01T00:00:00Z"),
    (("metadata", "creationTimestamp"), None),
    (("metadata", "deletionTimestamp"), "2020-01-01T00:00:00Z"),
    (("metadata", "deletionGracePeriodSeconds"), 5),
    (("metadata", "generateName"), "a-"),
    (("metadata", "selfLink"), "a"),
    (("metadata", "generation"), -1),
    (("metadata", "labels"), {"-": "a"}),
    (("metadata", "labels"), {"a": "b", "c": "-"}),
    (("metadata", "finalizers"), ["a"]),
    (("metadata", "finalizers"), ["a.example/b"]),
    (("metadata", "managedFields"), []),
    (("metadata", "managedFields"), [{}]),
    (("metadata",), {}),
    (("metadata",), None),
    (("apiVersion",), "v1"),
    (("apiVersion",), "rota.dev/v2"),
    (("apiVersion",), ""),
    (("kind",), "Pod"),
    (("kind",), ""),
]


@pytest.mark.parametrize("subresource", ["", "status"])
@pytest.mark.parametrize("kind", ["Quota", "Location"])
async def test_metadata_that_is_the_servers(both: Both, kind: str, subresource: str) -> None:
    await both.create("example", examples(kind)[0], dry_run=False)
    for path, value in META:
        what = f"{'.'.join(map(str, path))} = {shown(value)}"
        await both.update(what, KINDS[kind], "example", partial(put, path, value), subresource=subresource)
