"""How much an object may have of everything, looked at before anything else of it.

Whatever comes later looks at each part of an object, several times, and reports all that is wrong with it. What has far
too much of something is refused here with that alone.
"""

from __future__ import annotations

import re
from typing import Any

from rota.api import problems
from rota.api.problems import Problem
from rota.api.schema import PRESERVE, Schema

VALUES_MAX = 50_000
"""Values of what is sent or stored: each takes far more memory and time than its text."""
PARTS_MAX = 20_000
"""Fields and items of an object, beside its metadata and what is free-form."""
ITEMS_LOOKED_AT_MAX = 1_000
"""A list or map that has more than it may, and more than this, is the only thing that is said of its object."""
METADATA_ITEMS_MAX = {
    "finalizers": 64,
    "ownerReferences": 64,
    "labels": 1_000,
    "annotations": 4_000,
    "managedFields": 256,
}
"""Kubernetes bounds the bytes alone: with these, no single write keeps the server busy."""


_QUOTED = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


def has_too_many_values(text: bytes) -> bool:
    """Report whether JSON has too many values, without decoding it."""
    if len(text) <= VALUES_MAX or separators(text) <= VALUES_MAX:
        return False
    # Of what is in strings nothing counts. A member of an object has two of them at most.
    if (text.count(b'"') - text.count(b"\\")) // 2 > 2 * VALUES_MAX:
        return True
    bare, strings = _QUOTED.subn(b"", text, count=2 * VALUES_MAX + 1)
    return strings > 2 * VALUES_MAX or separators(bare) > VALUES_MAX


def separators(text: bytes) -> int:
    """Return a number of values that JSON does not have more of, without looking for what is in its strings."""
    return text.count(b",") + text.count(b"{") + text.count(b"[")


def counted(value: Any, most: int) -> int:
    """Return how many values something has, itself included. Counting ends soon after there are more than `most`."""
    waiting, count = [value], 0
    while waiting and count <= most:
        one = waiting.pop()
        count += 1
        if one.__class__ is dict:
            waiting += one.values()
        elif one.__class__ is list:
            waiting += one
        if len(waiting) > most:
            return count + len(waiting)
    return count


def of_metadata(meta: dict[str, Any]) -> Problem | None:
    """Report what metadata has too much of."""
    for name, most in METADATA_ITEMS_MAX.items():
        value = meta.get(name)
        if value.__class__ in (list, dict) and len(value) > most:
            return problems.too_many(f"metadata.{name}", len(value), most)
    return None


def of_object(schema: Schema, obj: dict[str, Any]) -> Problem | None:
    """Report what an object has far too much of. It looks at no more parts than an object may have."""
    known = schema.get("properties", {})
    waiting: list[tuple[Schema, Any, str]] = [
        (known[name], value, name) for name, value in obj.items() if name in known and name != "metadata"
    ]
    parts = 0
    while waiting:
        here, value, path = waiting.pop()
        if here.get(PRESERVE) or value.__class__ not in (list, dict):
            continue
        count = len(value)
        most = here.get("maxItems" if value.__class__ is list else "maxProperties")
        if most is not None and count > max(most, ITEMS_LOOKED_AT_MAX):
            return problems.too_many(path, count, most)
        parts += count
        if parts > PARTS_MAX:
            return problems.too_many(path, parts, PARTS_MAX)
        if isinstance(value, list):
            item = here.get("items")
            if item is not None:
                waiting += [(item, inner, f"{path}[{i}]") for i, inner in enumerate(value) if _has_parts(inner)]
            continue
        fields, rest = here.get("properties", {}), here.get("additionalProperties")
        for name, inner in value.items():
            if _has_parts(inner) and (inner_schema := fields.get(name, rest)):
                waiting.append((inner_schema, inner, f"{path}.{name}"))
    return None


def _has_parts(value: Any) -> bool:
    return value.__class__ in (list, dict)
