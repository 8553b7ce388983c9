"""Sets of field paths, in the JSON form of managedFields.

A set is a tree of nested dicts. A key is one step of a path (see `elements`); below it are the steps that go on from
there:

    {"f:spec": {"f:replicas": {}, "f:ports": {".": {}, 'k:{"port":80}': {".": {}, "f:name": {}}}}}

holds `.spec.replicas`, `.spec.ports`, `.spec.ports[port=80]` and `.spec.ports[port=80].name`, but not `.spec`: a path
is in the set if its dict is empty or has the key ".". At the root `{}` is the empty set, since the whole object is
never a member.

Every set is in normal form: no dict has the key "." alone (it is written `{}`), and a dict is empty only for a path in
the set. So equal sets are equal dicts. Nothing here changes its arguments, and results share sub-dicts with them: never
change a set that you did not build.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rota.api.structure import Structure
from rota.registry import elements
from rota.registry.comparison import compare as compare
from rota.registry.presence import LEAF, SELF, UNTRACKED_METADATA, UNTRACKED_ROOT, present
from rota.registry.presence import claims as claims

FieldSet = dict[str, Any]

UNTRACKED: FieldSet = {f"f:{name}": LEAF for name in UNTRACKED_ROOT} | {
    "f:metadata": {SELF: LEAF} | {f"f:{name}": LEAF for name in UNTRACKED_METADATA}
}
"""Paths that have no owner."""


def of(value: Any, node: Structure) -> FieldSet:
    """Return every path that `value` specifies, which its author claims by applying it.

    Leaves are scalars, atomic values, nulls and empty maps. Items of lists and maps are members themselves; a struct's
    named fields are members by what is in them only.
    """
    return present(value, node)


def is_empty(fields: FieldSet) -> bool:
    """Report whether a set is empty. Not for its sub-dicts."""
    return not fields


def union(a: FieldSet, b: FieldSet) -> FieldSet:
    """Return the paths in `a` or in `b`."""
    if not a:
        return b
    if not b or a is b:
        return a
    return _union(a, b)


def _union(a: FieldSet, b: FieldSet) -> FieldSet:
    if not a:
        return b if not b or SELF in b else {SELF: LEAF, **b}
    if not b:
        return a if SELF in a else {SELF: LEAF, **a}
    out = a.copy()
    for element, theirs in b.items():
        ours = a.get(element)
        out[element] = theirs if ours is None or ours is theirs else _union(ours, theirs)
    return out


def difference(a: FieldSet, b: FieldSet) -> FieldSet:
    """Return the paths in `a` that are not in `b`. A path in `b` removes that path only, not those below it in `a`.

    Returns `a` itself if nothing is removed.
    """
    if not a or not b:
        return a
    out = _difference(a, b)
    return {} if out is None else out


def _difference(a: FieldSet, b: FieldSet) -> FieldSet | None:
    if not a:
        return None if not b or SELF in b else a
    if not b:
        b = _ONLY_SELF
    out = a
    for element, theirs in b.items():
        ours = a.get(element)
        if ours is None:
            continue
        rest = _difference(ours, theirs)
        if rest is ours:
            continue
        if out is a:
            out = a.copy()
        if rest is None:
            del out[element]
        else:
            out[element] = rest
    if out is a:
        return a
    if not out:
        return None
    return LEAF if len(out) == 1 and SELF in out else out


_ONLY_SELF: FieldSet = {SELF: LEAF}


def intersection(a: FieldSet, b: FieldSet) -> FieldSet:
    """Return the paths in both `a` and `b`."""
    if not a or not b:
        return {}
    return _intersection(a, b) or {}


def _intersection(a: FieldSet, b: FieldSet) -> FieldSet | None:
    if not a or not b:
        return LEAF if (not a or SELF in a) and (not b or SELF in b) else None
    out: FieldSet = {}
    for element, theirs in b.items():
        ours = a.get(element)
        if ours is None:
            continue
        both = _intersection(ours, theirs)
        if both is not None:
            out[element] = both
    if not out:
        return None
    return LEAF if len(out) == 1 and SELF in out else out


def contains(fields: FieldSet, steps: tuple[str, ...]) -> bool:
    """Report whether the path of these elements is in the set."""
    for element in steps:
        below = fields.get(element)
        if below is None:
            return False
        fields = below
    return bool(steps) and (not fields or SELF in fields)


def strip(fields: FieldSet) -> FieldSet:
    """Return the set without the paths that managedFields never have."""
    return difference(fields, UNTRACKED)


def members(fields: FieldSet) -> Iterator[tuple[str, ...]]:
    """Yield the paths of the set as tuples of elements: those of one level in order, then those below each."""
    return _members(fields, ())


def _members(fields: FieldSet, prefix: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    ordered = sorted((element for element in fields if element != SELF), key=elements.order)
    for element in ordered:
        if not fields[element] or SELF in fields[element]:
            yield (*prefix, element)
    for element in ordered:
        yield from _members(fields[element], (*prefix, element))


def paths(fields: FieldSet) -> list[str]:
    """Return the paths of the set as messages print them: `.spec.containers[name="a"].image`."""
    return [human(steps) for steps in members(fields)]


def human(steps: tuple[str, ...]) -> str:
    """Return one path as messages print it."""
    return "".join(elements.human(element) for element in steps)


def canonical(fields: Any) -> FieldSet:
    """Return the normal form of a set from a client. Raises ValueError if it is not a set.

    Elements of unknown types are dropped, as a later version may know them and this one cannot keep them right.
    """
    below = _canonical(fields)
    below.pop(SELF, None)
    return below


def _canonical(fields: Any) -> FieldSet:
    if not isinstance(fields, dict):
        raise ValueError(f"expected an object of field paths, got {fields!r}")
    out: FieldSet = {}
    for key, value in fields.items():
        if key == SELF:
            out[SELF] = LEAF
            continue
        element = elements.canonical(key)
        if element is None:
            continue
        below = _canonical(value)
        if value and not below:
            continue
        out[element] = LEAF if len(below) == 1 and SELF in below else below
    return out
