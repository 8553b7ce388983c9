"""Equality of values whose schema says how lists compare.

To a kube-apiserver, lists of type `set` and `map` are equal whatever their order, also deep inside `self == oldSelf`.
"""

from __future__ import annotations

from typing import Any

from rota.api.cel.errors import CelEvalError
from rota.api.cel.operators import equals
from rota.api.structure import Node


def equals_by(node: Node | None, left: Any, right: Any) -> bool:
    """Deep equality of two values, the left of which has this structure."""
    if node is None or type(left) is not type(right):
        return equals(left, right)
    if type(left) is list and node.kind == "list":
        if len(left) != len(right):
            return False
        if node.list_type == "set":
            return _scalars(left) == _scalars(right)
        if node.list_type == "map":
            return _equals_keyed(node, left, right)
        return all(equals_by(node.item, mine, other) for mine, other in zip(left, right, strict=True))
    if type(left) is dict and node.kind in ("struct", "map"):
        if left.keys() != right.keys():
            return False
        return all(equals_by(node.fields.get(key, node.item), value, right[key]) for key, value in left.items())
    return equals(left, right)


def contains_by(node: Node, item: Any, container: list[Any]) -> bool:
    """Whether the list, whose items have this structure, holds the item."""
    return any(equals_by(node, member, item) for member in container)


def _scalars(items: list[Any]) -> set[Any]:
    try:
        return set(items)
    except TypeError:
        raise CelEvalError("a list of type set holds scalars only") from None


def _equals_keyed(node: Node, left: list[Any], right: list[Any]) -> bool:
    known = {_key(node, item): item for item in left}
    seen = set()
    for item in right:
        key = _key(node, item)
        if key not in known or not equals_by(node.item, known[key], item):
            return False
        seen.add(key)
    return len(seen) == len(known)


def _key(node: Node, item: Any) -> tuple[Any, ...]:
    if type(item) is not dict:
        raise CelEvalError("a list of type map holds objects only")
    return tuple(item.get(field) for field in node.keys)
