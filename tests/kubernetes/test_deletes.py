"""Deletions: options, preconditions, finalizers and collections."""

from __future__ import annotations

from typing import Any

import pytest

from rota.api import KINDS
from tests.kubernetes.comparison import Both, path_of
from tests.kubernetes.verdict import Verdict

Object = dict[str, Any]
POOL = {"spec": {"worker": {"type": "shell"}}}
KINDS_AND_PARTS: dict[str, Object] = {"WorkerPool": POOL, "ConfigMap": {"data": {"a": "1"}}, "Lease": {"spec": {}}}

OPTIONS: list[Any] = [
    None,
    {},
    {"propagationPolicy": "Background"},
    {"propagationPolicy": "Foreground"},
    {"propagationPolicy": "Orphan"},
    {"propagationPolicy": "Other"},
    {"propagationPolicy": ""},
    {"orphanDependents": True},
    {"orphanDependents": False},
    {"orphanDependents": True, "propagationPolicy": "Orphan"},
    {"orphanDependents": False, "propagationPolicy": "Foreground"},
    {"orphanDependents": True, "propagationPolicy": "Other"},
    {"gracePeriodSeconds": 0},
    {"gracePeriodSeconds": 30},
    {"gracePeriodSeconds": -1},
    {"gracePeriodSeconds": "0"},
    {"preconditions": {}},
    {"preconditions": {"uid": "other"}},
    {"preconditions": {"uid": ""}},
    {"preconditions": {"resourceVersion": ""}},
    {"preconditions": {"resourceVersion": "1"}},
    {"preconditions": 7},
    {"dryRun": ["All"]},
    {"dryRun": ["Some"]},
    {"dryRun": []},
    {"kind": "DeleteOptions", "apiVersion": "v1"},
    {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"},
    {"kind": "Other", "apiVersion": "v1"},
    {"kind": "DeleteOptions", "apiVersion": "other/v1"},
    {"stray": 1},
    [],
    b"{",
    b"a",
]


@pytest.mark.parametrize("kind", KINDS_AND_PARTS)
@pytest.mark.parametrize("finalizers", [[], ["example.com/f"]], ids=["free", "held"])
async def test_options(both: Both, kind: str, finalizers: list[str]) -> None:
    for i, options in enumerate(OPTIONS):
        obj = {"metadata": {"name": f"deleted-{i}", "finalizers": finalizers}, **KINDS_AND_PARTS[kind]}
        path = both.have(KINDS[kind], f"deleted-{i}", **obj)
        answer = await both.ask(f"{options!r}", "DELETE", path, options)
        if not _goes_on(answer):
            await both.ask(f"after {options!r}", "GET", path)
            await both.ask(f"again {options!r}", "DELETE", path, options)
        _release(both, path)


async def test_options_in_the_query(both: Both) -> None:
    queries: list[dict[str, str]] = [
        {"propagationPolicy": "Orphan"},
        {"propagationPolicy": "Other"},
        {"orphanDependents": "true"},
        {"orphanDependents": "true", "propagationPolicy": "Background"},
        {"gracePeriodSeconds": "0"},
        {"gracePeriodSeconds": "x"},
        {"dryRun": "All"},
        {"dryRun": "Some"},
    ]
    for i, query in enumerate(queries):
        path = both.have(KINDS["ConfigMap"], f"deleted-{i}", metadata={"name": f"deleted-{i}"})
        answer = await both.ask(f"{query}", "DELETE", path, **query)
        if not _goes_on(answer):
            await both.ask(f"after {query}", "GET", path)
        _release(both, path)


async def test_what_is_not_there(both: Both) -> None:
    for kind in (*KINDS_AND_PARTS, "Namespace", "Location"):
        await both.ask("missing", "DELETE", f"{path_of(KINDS[kind])}/missing")
    await both.ask("protected", "DELETE", "/api/v1/namespaces/default")


@pytest.mark.parametrize("kind", KINDS_AND_PARTS)
async def test_collections(both: Both, kind: str) -> None:
    for name, labels in (("a", {"x": "1"}), ("b", {"x": "2"}), ("c", {"x": "1", "y": "1"})):
        meta = {"name": name, "labels": {**labels, "suite": "deletes"}}
        both.have(KINDS[kind], name, **{"metadata": meta, **KINDS_AND_PARTS[kind]})
    path = path_of(KINDS[kind])
    for selector in ("suite=deletes,y", "suite=deletes,x=3", "suite=deletes,x in (", "suite=deletes,x=1"):
        await both.ask(selector, "DELETE", path, labelSelector=selector)
        await both.ask(f"left after {selector}", "GET", path, labelSelector="suite=deletes")
    await both.ask("no such policy", "DELETE", path, {"propagationPolicy": "Other"}, labelSelector="suite=deletes")
    await both.ask("by field", "DELETE", path, labelSelector="suite=deletes", fieldSelector="metadata.name=b")
    await both.ask("left", "GET", path, labelSelector="suite=deletes")


async def test_collections_that_cannot_be_deleted(both: Both) -> None:
    for path in ("/api/v1/namespaces", "/api/v1/configmaps", "/apis/rota.dev/v1alpha1/workerpools"):
        await both.ask("whole", "DELETE", path, labelSelector="suite=none")


async def test_finalizers_of_what_is_being_deleted(both: Both) -> None:
    merge = "application/merge-patch+json"
    for kind in ("WorkerPool", "ConfigMap"):
        meta = {"name": "held", "finalizers": ["example.com/a", "example.com/b"]}
        path = both.have(KINDS[kind], "held", **{"metadata": meta, **KINDS_AND_PARTS[kind]})
        await both.ask("marked", "DELETE", path)
        for finalizers in (["example.com/a", "example.com/b", "example.com/c"], ["example.com/b"], []):
            patch = {"metadata": {"finalizers": finalizers}}
            await both.ask(f"{finalizers}", "PATCH", path, patch, content_type=merge, fieldManager="tester")
        await both.ask("gone", "GET", path)


def _goes_on(answer: Verdict) -> bool:
    """Return whether a deletion is left to the garbage collector, which Rota has and this Kubernetes has not."""
    finalizers = (answer.stored or {}).get("metadata", {}).get("finalizers", ())
    return not {"orphan", "foregroundDeletion"}.isdisjoint(finalizers)


def _release(both: Both, path: str) -> None:
    """Let go of what is held."""
    for server in (both.client, both.rota):
        patch = {"metadata": {"finalizers": None}}
        server.send("PATCH", path, patch, content_type="application/merge-patch+json")
        server.send("DELETE", path)
