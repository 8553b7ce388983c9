"""Server-side apply: what several managers make of one object, step by step."""

from __future__ import annotations

from typing import Any

import pytest

from rota.api import KINDS
from rota.registry.options import FieldValidation
from tests.kubernetes.comparison import Both, path_of

Object = dict[str, Any]
APPLY = "application/apply-patch+yaml"
VALIDATIONS: tuple[FieldValidation, ...] = ("Strict", "Warn", "Ignore")
POOL = {"apiVersion": "rota.dev/v1alpha1", "kind": "WorkerPool", "metadata": {"name": "applied"}}
CONFIG = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}}
WORKLOAD = {"apiVersion": "rota.dev/v1alpha1", "kind": "Workload", "metadata": {"name": "applied"}}
SHELL = {"worker": {"type": "shell"}}


class Applying:
    """Applies the same to both servers, one configuration after the other."""

    def __init__(self, both: Both, frame: Object) -> None:
        self.both, self.frame = both, frame
        self.path = f"{path_of(KINDS[frame['kind']])}/applied"
        both.made.append(self.path)

    async def __call__(self, manager: str, parts: Any, part: str = "", **query: str) -> None:
        body = {**self.frame, **parts} if isinstance(parts, dict) else parts
        path = f"{self.path}/{part}" if part else self.path
        shown = f"{manager} {parts!r} {query}"
        await self.both.ask(shown, "PATCH", path, body, content_type=APPLY, fieldManager=manager, **query)


def container(name: str, **parts: Any) -> Object:
    return {"name": name, **parts}


def workload(*containers: Object, cities: tuple[str, ...] = ("ams",)) -> Object:
    placements = [{"name": "east", "cityCodes": list(cities)}]
    return {"spec": {"template": {"spec": {"containers": list(containers)}}, "placements": placements}}


async def test_managers_of_one_object(both: Both) -> None:
    apply = Applying(both, POOL)
    await apply("one", {"spec": {**SHELL, "replicas": 1}})
    await apply("one", {"spec": {**SHELL, "replicas": 1}})
    await apply("two", {"spec": {"replicas": 2}})
    await apply("two", {"spec": {"replicas": 1}})
    await apply("two", {"spec": {"replicas": 2}}, force="true")
    await apply("one", {"spec": {**SHELL, "replicas": 1}})
    await apply("one", {"spec": SHELL})
    await apply("two", {"spec": {}})
    await apply("one", {"spec": {**SHELL, "replicas": 5}})
    await apply("one", {"spec": {**SHELL}, "metadata": {"name": "applied", "labels": {"a": "1"}}})
    await apply("two", {"metadata": {"name": "applied", "labels": {"b": "2"}, "annotations": {"c": "3"}}})
    await apply("one", {"spec": SHELL})
    await apply("two", {})
    await apply("one", {"spec": {"replicas": 3}})


async def test_updates_between_applies(both: Both) -> None:
    apply = Applying(both, POOL)
    await apply("one", {"spec": {**SHELL, "replicas": 1}})
    merge = "application/merge-patch+json"
    patch = {"spec": {"replicas": 4}, "metadata": {"labels": {"x": "y"}}}
    await both.ask("update", "PATCH", apply.path, patch, content_type=merge, fieldManager="updater")
    await apply("one", {"spec": {**SHELL, "replicas": 1}})
    await apply("one", {"spec": {**SHELL, "replicas": 4}})
    await both.ask(
        "remove", "PATCH", apply.path, {"spec": {"replicas": None}}, content_type=merge, fieldManager="updater"
    )
    await apply("one", {"spec": {**SHELL, "replicas": 1}}, force="true")


async def test_items_of_lists_with_keys(both: Both) -> None:
    apply = Applying(both, WORKLOAD)
    await apply("one", workload(container("a", image="x"), container("b")))
    await apply("two", {"spec": {"template": {"spec": {"containers": [container("c", image="z")]}}}})
    await apply("two", {"spec": {"template": {"spec": {"containers": [container("a", image="z")]}}}})
    await apply("two", {"spec": {"template": {"spec": {"containers": [container("a", command=["true"])]}}}})
    await apply("one", workload(container("b"), container("a", image="x")))
    await apply("one", workload(container("a", image="x"), cities=("ams", "fra")))
    await apply("one", workload(container("a", image="x"), container("a", image="y")))
    await apply("one", workload({"image": "x"}))
    await apply("two", {"spec": {"template": {"spec": {"containers": []}}}})


async def test_maps_of_a_core_kind(both: Both) -> None:
    apply = Applying(both, CONFIG)
    await apply("one", {"data": {"a": "1", "b": "2"}})
    await apply("two", {"data": {"b": "2", "c": "3"}})
    await apply("two", {"data": {"b": "3"}})
    await apply("one", {"data": {"a": "1"}})
    await apply("two", {"data": {"c": "3"}})
    await apply("one", {"data": None})
    await apply("one", {"data": {"a": None}})


async def test_applied_status(both: Both) -> None:
    apply = Applying(both, POOL)
    await apply("one", {"spec": SHELL, "status": {"replicas": 1}})
    await apply("controller", {"status": {"replicas": 2}}, "status")
    await apply("controller", {"spec": {"replicas": 9}, "status": {"replicas": 2}}, "status")
    await apply("other", {"status": {"replicas": 3}}, "status")
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "Up"}
    await apply("controller", {"status": {"conditions": [ready]}}, "status")
    await apply("other", {"status": {"conditions": [{**ready, "type": "Other"}]}}, "status")
    await apply("controller", {"status": {}}, "status")


@pytest.mark.parametrize("kind", ["WorkerPool", "ConfigMap"])
async def test_metadata_that_cannot_be_applied(both: Both, kind: str) -> None:
    frame, parts = (POOL, {"spec": SHELL}) if kind == "WorkerPool" else (CONFIG, {"data": {"a": "1"}})
    apply = Applying(both, frame)
    metas: list[Any] = [
        {"name": "other"},
        {"name": "applied", "namespace": "other"},
        {"name": "applied", "uid": "other"},
        {"name": "applied", "managedFields": [{"manager": "a"}]},
        {"name": "applied", "labels": {"a": "b c"}},
        {"name": "applied", "labels": 7},
        {"name": "applied", "finalizers": ["example.com/f", "example.com/f"]},
        {"generateName": "applied-"},
        {},
    ]
    for round_ in ("new", "there"):
        for meta in metas:
            await apply("one", {**parts, "metadata": meta}, dryRun="All")
        if round_ == "new":
            await apply("one", parts)


@pytest.mark.parametrize("validation", VALIDATIONS)
async def test_configurations_that_cannot_be_applied(both: Both, validation: FieldValidation) -> None:
    apply = Applying(both, POOL)
    bodies: list[Any] = [
        {"spec": {**SHELL, "replicas": "x"}},
        {"spec": {**SHELL, "replicas": 5000}},
        {"spec": {}},
        {"spec": 7},
        {"spec": []},
        {"kind": "Other", "spec": SHELL},
        {"apiVersion": "rota.dev/v2", "spec": SHELL},
        {"apiVersion": None, "spec": SHELL},
        b"[]",
        b"a",
        b"{",
        b"a: b: c",
    ]
    for body in bodies:
        await apply("one", body, dryRun="All", fieldValidation=validation)


async def test_applies_without_a_manager_or_with_odd_options(both: Both) -> None:
    apply = Applying(both, POOL)
    body = {**POOL, "spec": SHELL}
    await both.ask("no manager", "PATCH", apply.path, body, content_type=APPLY, dryRun="All")
    await apply("m" * 200, {"spec": SHELL}, dryRun="All")
    await apply("one", {"spec": SHELL}, dryRun="Some")
    await apply("one", {"spec": SHELL}, dryRun="All", fieldValidation="Odd")
