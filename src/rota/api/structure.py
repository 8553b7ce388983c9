"""The structural type of JSON values, as every walker of objects sees it.

A `Node` says what field management, pruning, defaulting and validation must know of one value: whether it is a struct
with named fields, a map with free keys, a list and how its items are told apart, or a leaf. Kinds derive their nodes
once, from their types.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

NodeKind = Literal["struct", "map", "list", "scalar", "any"]
ListType = Literal["atomic", "set", "map"]


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One JSON value's structure. `kind` says which of the other fields mean anything."""

    kind: NodeKind
    """`struct`: named fields; `map`: free keys, one type of value; `list`; `scalar`; `any`: free-form JSON."""
    fields: dict[str, Node] = field(default_factory=dict)
    """Of a struct: the node of each field, by its name on the wire."""
    item: Node | None = None
    """Of a map: the node of its values. Of a list: the node of its items."""
    list_type: ListType = "atomic"
    """Of a list: replaced whole (`atomic`), a set of scalars (`set`), or structs told apart by `keys` (`map`)."""
    keys: tuple[str, ...] = ()
    """Of a list of type `map`: the fields that identify an item, in order."""
    key_defaults: dict[str, Any] = field(default_factory=dict)
    """Of a list of type `map`: the static default of a key field that an item may omit."""
    atomic: bool = False
    """Of a struct, a map or an `any`: owned and replaced as one value (`x-kubernetes-map-type: atomic`)."""


FREE_FORM_DEPTH_MAX = 64
"""Levels that free-form JSON may be nested, so that whatever walks objects can walk them."""
INPUT_DEPTH_MAX = 100
"""Levels that anything sent may be nested."""


def too_deep(value: Any, levels: int = FREE_FORM_DEPTH_MAX) -> bool:
    """Whether JSON is nested too deep. Level by level, since a recursion is what it is to prevent."""
    level = [value]
    for _ in range(levels):
        level = [
            inner
            for outer in level
            if outer.__class__ is dict or outer.__class__ is list
            for inner in (outer.values() if outer.__class__ is dict else outer)
        ]
        if not level:
            return False
    return True


SCALAR = Node("scalar")
ANY = Node("any")
ATOMIC_ANY = Node("any", atomic=True)
