"""CustomResourceDefinitions: the same kinds, for a real Kubernetes API server."""

from __future__ import annotations

from typing import Any

from rota.api.kind import KINDS, Column, Kind
from rota.api.schema import OWN, Schema, object_schema


def crd(kind: Kind) -> dict[str, Any]:
    """Return the CustomResourceDefinition of a kind, with the same fields, bounds, defaults and rules."""
    version: dict[str, Any] = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": exported(object_schema(kind))},
        "additionalPrinterColumns": [_column(column) for column in kind.columns],
        "subresources": _subresources(kind),
    }
    if kind.selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in kind.selectable]
    names: dict[str, Any] = {
        "kind": kind.name,
        "listKind": f"{kind.name}List",
        "plural": kind.plural,
        "singular": kind.singular,
        "categories": list(kind.categories),
    }
    if kind.short_names:
        names["shortNames"] = list(kind.short_names)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.bucket},
        "spec": {
            "group": kind.group,
            "names": names,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [version],
        },
    }


def crds() -> list[dict[str, Any]]:
    """Return the CustomResourceDefinitions of all kinds of Rota's group, by name."""
    return [crd(kind) for kind in sorted(KINDS.values(), key=lambda k: k.name) if kind.custom]


def exported(schema: Schema) -> Schema:
    """Return the schema without the marks of `OWN`."""
    out: Schema = {}
    for key, value in schema.items():
        if key in OWN:
            continue
        if key == "properties":
            value = {name: exported(prop) for name, prop in value.items()}
        elif key in ("items", "additionalProperties"):
            value = exported(value)
        out[key] = value
    return out


def _column(column: Column) -> dict[str, Any]:
    exported: dict[str, Any] = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.wide:
        exported["priority"] = 1
    return exported


def _subresources(kind: Kind) -> dict[str, Any]:
    out: dict[str, Any] = {"status": {}} if kind.has_status else {}
    if kind.scale:
        out["scale"] = {"specReplicasPath": kind.scale.spec_replicas, "statusReplicasPath": kind.scale.status_replicas}
        if kind.scale.selector:
            out["scale"]["labelSelectorPath"] = kind.scale.selector
    return out
