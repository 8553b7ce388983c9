"""References between objects, as their kinds declare them."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, NamedTuple

from rota.api.kind import KINDS, Kind
from rota.api.schema import NEEDS, REFERS, Schema, object_schema

Need = Literal["readiness", "existence"]


class Reference(NamedTuple):
    """One place in an object that names another object."""

    path: str
    kind: Kind
    name: str
    needs: Need = "readiness"


def references(kind: Kind, obj: dict[str, Any]) -> list[Reference]:
    """Return the references in an object's spec, in the order of its fields."""
    found: list[Reference] = []
    tree = _tree(kind)
    if tree is not None:
        _walk(tree, obj.get("spec"), "spec", found)
    return found


@cache
def referring_kinds() -> frozenset[Kind]:
    """Return the kinds that have references."""
    return frozenset(kind for kind in KINDS.values() if _tree(kind) is not None)


@cache
def targets_of(kind: Kind) -> tuple[Kind, ...]:
    """Return the kinds that objects of a kind may refer to, by name."""
    tree = _tree(kind)
    return tuple(sorted(set(_targets(tree)), key=lambda kind: kind.name)) if tree is not None else ()


class _ReferringField(NamedTuple):
    """A field that is a reference, or that contains some."""

    target: Kind | None
    needs: Need
    fields: dict[str, _ReferringField]
    item: _ReferringField | None


@cache
def _tree(kind: Kind) -> _ReferringField | None:
    return _node(object_schema(kind)["properties"].get("spec", {}), "readiness")


def _node(schema: Schema, needs: Need) -> _ReferringField | None:
    """Return the parts of a schema that lead to references; None if there are none."""
    needs = schema.get(NEEDS) or needs
    inside = {name: _node(prop, needs) for name, prop in schema.get("properties", {}).items()}
    fields = {name: node for name, node in inside.items() if node is not None}
    item = _node(schema["items"], needs) if "items" in schema else None
    target = KINDS[schema[REFERS]] if REFERS in schema else None
    return _ReferringField(target, needs, fields, item) if target or fields or item else None


def _targets(node: _ReferringField) -> list[Kind]:
    inner = [*node.fields.values(), *([node.item] if node.item else [])]
    return [*([node.target] if node.target else []), *(kind for one in inner for kind in _targets(one))]


def _walk(node: _ReferringField, value: Any, path: str, found: list[Reference]) -> None:
    if node.target is not None:
        names = [(f"{path}[{i}]", one) for i, one in enumerate(value)] if isinstance(value, list) else [(path, value)]
        for where, one in names:
            name = one.get("name") if isinstance(one, dict) else one
            if isinstance(name, str):
                found.append(Reference(where, node.target, name, node.needs))
    elif isinstance(value, dict):
        for name, inner in node.fields.items():
            below = value.get(name)
            if below is not None:
                _walk(inner, below, f"{path}.{name}", found)
    elif isinstance(value, list) and node.item is not None:
        for i, one in enumerate(value):
            _walk(node.item, one, f"{path}[{i}]", found)
