"""The structural type of JSON values, as every walker of objects sees it.

A `Structure` describes one value for field management, pruning, defaulting and validation: whether it is a struct
with named fields, a map with free keys, a list and the keys of its items, or a leaf. Structures are derived once,
from the types of kinds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

StructureKind = Literal["struct", "map", "list", "scalar", "any"]
ListType = Literal["atomic", "set", "map"]


@dataclass(frozen=True, slots=True, eq=False)
class Structure:
    """The structure of one JSON value. `kind` determines which of the other fields apply."""

    kind: StructureKind
    """`struct`: named fields; `map`: free keys, one type of value; `list`; `scalar`; `any`: free-form JSON."""
    fields: dict[str, Structure] = field(default_factory=dict)
    """Struct: the structure of each field, by its name on the wire."""
    item: Structure | None = None
    """Map: the structure of the values. List: the structure of the items."""
    list_type: ListType = "atomic"
    """List: replaced whole (`atomic`), a set of scalars (`set`), or structs identified by `keys` (`map`)."""
    keys: tuple[str, ...] = ()
    """List of type `map`: the fields that identify an item, in order."""
    key_defaults: dict[str, Any] = field(default_factory=dict)
    """List of type `map`: the static default of a key field that an item may omit."""
    atomic: bool = False
    """Struct, map or `any`: owned and replaced as one value (`x-kubernetes-map-type: atomic`)."""


FREE_FORM_DEPTH_MAX = 64
"""Bound on the nesting of free-form JSON."""
INPUT_DEPTH_MAX = 100
"""Bound on the nesting of a request body."""


def too_deep(value: Any, levels: int = FREE_FORM_DEPTH_MAX) -> bool:
    """Report whether JSON is nested deeper than `levels`. Works level by level: recursion could overflow the stack."""
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


SCALAR = Structure("scalar")
ANY = Structure("any")
ATOMIC_ANY = Structure("any", atomic=True)
