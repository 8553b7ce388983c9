"""Checks of an applied configuration against its structure.

An apply merges item by item, so every item of a configuration must have one place: declared fields only,
values of the declared form, no two items of one list with the same keys. A configuration that cannot be merged is
refused, with the path.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import NoneType
from typing import Any

from rota.api.structure import ANY, Structure
from rota.registry import elements

_SCALARS = frozenset((str, int, float, bool, NoneType))


def problems(value: Any, node: Structure, path: str = "") -> Iterator[str]:
    """Yield the problems of a value, each with its path."""
    if value is None:
        return
    match node.kind:
        case "struct" | "map":
            if not isinstance(value, dict):
                yield _at(path, f"expected map, got {_shown(value)}")
                return
            yield from _field_problems(value, node, path)
        case "list":
            if not isinstance(value, list):
                yield _at(path, f"expected list, got {_shown(value)}")
                return
            yield from _item_problems(value, node, path)
        case "scalar":
            if isinstance(value, dict | list):
                yield _at(path, f"expected any scalar, got {_shown(value)}")


def _field_problems(value: dict[str, Any], node: Structure, path: str) -> Iterator[str]:
    for name, child in sorted(value.items()):
        field = node.fields.get(name)
        if field is None and node.kind == "struct":
            yield _at(f"{path}.{name}", "field not declared in schema")
        elif child.__class__ not in _SCALARS or (field or node.item or ANY).kind not in ("scalar", "any"):
            yield from problems(child, field or node.item or ANY, f"{path}.{name}")


def _item_problems(value: list[Any], node: Structure, path: str) -> Iterator[str]:
    found: set[str] = set()
    for index, item in enumerate(value):
        if node.list_type == "atomic":
            yield from problems(item, node.item or ANY, f"{path}[{index}]")
            continue
        if why := _unidentified(item, node):
            yield _at(path, f"element {index}: {why}")
            return
        element = elements.of_item(item, node)
        shown = elements.human(element)
        if element in found:
            yield _at(path, f"duplicate entries for key {shown}")
        found.add(element)
        yield from problems(item, node.item or ANY, path + shown)


def _unidentified(item: Any, node: Structure) -> str | None:
    """Return why an item cannot be identified; None if it can."""
    if node.list_type == "set":
        if isinstance(item, dict):
            return "associative list without keys has an element that's a map type"
        if isinstance(item, list):
            return "not supported: associative list with lists as elements"
        if item is None:
            return "associative list without keys has an element that's an explicit null"
        return None
    if item is None:
        return "associative list with keys may not have a null element"
    if not isinstance(item, dict):
        return "associative list with keys may not have non-map elements"
    if not any(key in item or key in node.key_defaults for key in node.keys):
        keys = "[" + " ".join(json.dumps(key) for key in node.keys) + "]"
        return (
            f"associative list with keys has an element that omits all key fields {keys} "
            "(and doesn't have default values for any key fields)"
        )
    return None


def _at(path: str, problem: str) -> str:
    return f"{path}: {problem}" if path else problem


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
