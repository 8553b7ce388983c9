"""The OpenAPI documents are complete and hold together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from rota.api import KINDS
from rota.api.openapi import base_path, component, document
from rota.api.served import group_versions, kinds_of


def refs(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for inner in value.values():
            yield from refs(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from refs(inner)


@pytest.mark.parametrize("gv", group_versions(), ids=lambda gv: "/".join(gv))
def test_every_reference_leads_to_a_schema(gv: tuple[str, str]) -> None:
    doc = document(*gv)
    known = {f"#/components/schemas/{name}" for name in doc["components"]["schemas"]}
    assert set(refs(doc)) <= known


@pytest.mark.parametrize("gv", group_versions(), ids=lambda gv: "/".join(gv))
def test_operation_ids_are_unique(gv: tuple[str, str]) -> None:
    ids = [
        operation["operationId"]
        for path in document(*gv)["paths"].values()
        for verb, operation in path.items()
        if verb != "parameters"
    ]
    assert len(ids) == len(set(ids))


def test_every_kind_has_its_schema_and_its_paths() -> None:
    for kind in KINDS.values():
        doc = document(kind.group, kind.version)
        schema = doc["components"]["schemas"][component(kind)]
        gvk = {"group": kind.group, "kind": kind.name, "version": kind.version}
        assert schema["x-kubernetes-group-version-kind"] == [gvk]
        middle = "/namespaces/{namespace}" if kind.namespaced else ""
        path = f"/{base_path(kind.group, kind.version)}{middle}/{kind.plural}/{{name}}"
        assert {"get", "put", "patch", "delete"} <= doc["paths"][path].keys()
        assert (path + "/status" in doc["paths"]) == kind.has_status
        assert (path + "/scale" in doc["paths"]) == (kind.scale is not None)


def test_marks_of_our_own_do_not_leave() -> None:
    text = json.dumps([document(*gv) for gv in group_versions()])
    assert "x-rota" not in text


def test_kinds_are_listed_by_group() -> None:
    assert [kind.name for kind in kinds_of("coordination.k8s.io", "v1")] == ["Lease"]
    assert component(KINDS["WorkerPool"]) == "dev.rota.v1alpha1.WorkerPool"
    assert component(KINDS["Secret"]) == "io.k8s.api.core.v1.Secret"
