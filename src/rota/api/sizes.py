"""Bounds on the number of values of an object, which are checked before anything else.

Later checks visit each part of an object several times and report all its problems. An object that far exceeds a
bound is refused here with that one problem.
"""

from __future__ import annotations

import re
from typing import Any

from rota.api import problems
from rota.api.problems import Problem
from rota.api.schema import PRESERVE, Schema

VALUES_MAX = 50_000
"""Bound on the values of JSON that is sent or stored: each takes far more memory and time than its text."""
PARTS_MAX = 20_000
"""Bound on the fields and items of an object, without its metadata and free-form fields."""
ITEMS_LOOKED_AT_MAX = 1_000
"""A list or map that exceeds both its own bound and this one is reported alone."""
METADATA_ITEMS_MAX = {
    "finalizers": 64,
    "ownerReferences": 64,
    "labels": 1_000,
    "annotations": 4_000,
    "managedFields": 256,
}
"""Bounds that Kubernetes does not have. They bound the time of a write."""


_QUOTED = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


def has_too_many_values(text: bytes) -> bool:
    """Report whether JSON has too many values, without decoding it."""
    if len(text) <= VALUES_MAX or separators(text) <= VALUES_MAX:
        return False
    # The content of strings does not count. A member of an object has at most two strings.
    if (text.count(b'"') - text.count(b"\\")) // 2 > 2 * VALUES_MAX:
        return True
    bare, strings = _QUOTED.subn(b"", text, count=2 * VALUES_MAX + 1)
    return strings > 2 * VALUES_MAX or separators(bare) > VALUES_MAX


def separators(text: bytes) -> int:
    """Return an upper bound on the number of values of JSON, without parsing its strings."""
    return text.count(b",") + text.count(b"{") + text.count(b"[")


def counted(value: Any, most: int) -> int:
    """Return the number of values in a value, itself included. Counting stops soon after `most`."""
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
    """Return the problem of metadata that exceeds a bound; None if it exceeds none."""
    for name, most in METADATA_ITEMS_MAX.items():
        value = meta.get(name)
        if value.__class__ in (list, dict) and len(value) > most:
            return problems.too_many(f"metadata.{name}", len(value), most)
    return None


def of_object(schema: Schema, obj: dict[str, Any]) -> Problem | None:
    """Return the problem of an object that far exceeds a bound; None if it does not.

    Visits at most `PARTS_MAX` parts.
    """
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
