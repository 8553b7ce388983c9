"""The sets of field paths that are present in a value, by its structure.

There are two such sets. `present` has the paths that an author specifies: the claim of an apply. `added` has all
paths, containers included: those that come and go with the value. It is needed on every write, so it is compiled for
each structure.

Invalid values (unknown fields, list items without their keys) have a set too: validation is the one to refuse them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from rota.api.structure import ANY, Structure
from rota.registry.elements import NODES_MAX, keyer

Fields = dict[str, Any]
Adder = Callable[[Any], Fields]
Shape = tuple[Fields, list[tuple[str, str, Adder]]]
"""The set of a map with certain keys, as far as the keys determine it, and the parts to add: key, element, adder."""

SELF = "."
LEAF: Fields = {}
"""A path with nothing below it. All share this dict, which is never changed."""
SHAPES_MAX = 256
"""Bound on the cached combinations of keys of one structure."""
SHAPE_FIELDS_MAX = 64
"""Bound on the size of a cached combination of keys."""

UNTRACKED_ROOT = frozenset({"apiVersion", "kind"})
UNTRACKED_METADATA = frozenset(
    {
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    }
)
"""Fields of metadata without an owner: those that identify an object or that the server sets."""


def present(value: Any, node: Structure) -> Fields:
    """See `fieldset.of`."""
    return _present(value, node) or {}


def _present(value: Any, node: Structure) -> Fields | None:
    """Return the set below one path; LEAF if only the path itself is a member; None if nothing is."""
    kind = node.kind
    if value.__class__ is dict:
        if kind == "scalar" or kind == "list" or node.atomic or not value:
            return LEAF
        named = node.fields
        out: Fields = {}
        for name, child in value.items():
            field = named.get(name)
            below = _present(child, field or node.item or ANY)
            if field is None and kind != "struct":
                below = _with_self(below)
            if below is not None:
                out["f:" + name] = below
        return out or None
    if value.__class__ is list and kind == "list" and node.list_type != "atomic":
        item_node = node.item or ANY
        element_of = keyer(node)
        out = {}
        for item in value:
            element = element_of(item)
            # Items that share an element are not distinguishable: they are owned as one.
            out[element] = LEAF if element in out else _with_self(_present(item, item_node))
        return out or None
    return LEAF


def _with_self(below: Fields | None) -> Fields:
    return below if below and SELF in below else {SELF: LEAF, **below} if below else LEAF


def added(value: Any, node: Structure) -> Fields:
    """Return every path in `value`, itself and all containers included, as the set below the path of `value`."""
    return adder(node)(value)


@lru_cache(maxsize=NODES_MAX)
def adder(node: Structure) -> Adder:
    """Return `added` for values of one structure, compiled."""
    if node.atomic:
        return _leaf
    match node.kind:
        case "struct":
            return _struct_adder(node)
        case "map":
            return _map_adder(node.item or ANY)
        case "any":
            return _add_any
        case "list" if node.list_type != "atomic":
            return _items_adder(node)
    return _leaf


def _leaf(_value: Any) -> Fields:
    return LEAF


def _struct_adder(node: Structure) -> Adder:
    return _by_shape(lambda name: adder(node.fields.get(name, ANY)), {SELF: LEAF})


def _map_adder(item_node: Structure) -> Adder:
    add = adder(item_node)
    if add is _leaf:
        return _by_shape(lambda _name: _leaf, {SELF: LEAF})

    def add_map(value: Any) -> Fields:
        if value.__class__ is not dict or not value:
            return LEAF
        out = {"f:" + name: add(child) for name, child in value.items()}
        out[SELF] = LEAF
        return out

    return add_map


def _by_shape(adder_of: Callable[[str], Adder | None], itself: Fields) -> Adder:
    """Return an adder for maps with few combinations of keys. It caches the part of the set that keys determine.

    `adder_of` returns the adder of a field, or None to leave it out; `itself` is the part for the map itself.
    """
    shapes: dict[tuple[str, ...], Shape] = {}

    def shape_of(names: tuple[str, ...]) -> Shape:
        walks = [(name, "f:" + name, add) for name in names if (add := adder_of(name)) is not None]
        shape = (itself | {element: LEAF for _, element, _ in walks}, [walk for walk in walks if walk[2] is not _leaf])
        if len(names) <= SHAPE_FIELDS_MAX:
            if len(shapes) >= SHAPES_MAX:
                shapes.clear()
            shapes[names] = shape
        return shape

    def add_by_shape(value: Any) -> Fields:
        if value.__class__ is not dict or not value:
            return LEAF
        names = tuple(value)
        template, containers = shapes.get(names) or shape_of(names)
        if not containers:
            return template
        out = template.copy()
        for name, element, add in containers:
            out[element] = add(value[name])
        return out

    return add_by_shape


def claims(value: dict[str, Any], node: Structure) -> Fields:
    """Return every path in an object, containers included, except those without an owner."""
    out = _claimer(node)(value)
    if not out.get("f:metadata", True):
        del out["f:metadata"]
    return out


@lru_cache(maxsize=NODES_MAX)
def _claimer(node: Structure) -> Adder:
    meta_node = node.fields.get("metadata", ANY)

    def meta_adder(name: str) -> Adder | None:
        return None if name in UNTRACKED_METADATA else adder(meta_node.fields.get(name, ANY))

    add_meta = _by_shape(meta_adder, {})

    def root_adder(name: str) -> Adder | None:
        if name in UNTRACKED_ROOT:
            return None
        return add_meta if name == "metadata" else adder(node.fields.get(name, ANY))

    return _by_shape(root_adder, {})


def _add_any(value: Any) -> Fields:
    if value.__class__ is not dict or not value:
        return LEAF
    out = {"f:" + name: _add_any(child) if child.__class__ is dict else LEAF for name, child in value.items()}
    out[SELF] = LEAF
    return out


def _items_adder(node: Structure) -> Adder:
    element_of = keyer(node)
    add = adder(node.item or ANY)

    def add_items(value: Any) -> Fields:
        if value.__class__ is not list or not value:
            return LEAF
        out = {SELF: LEAF}
        for item in value:
            element = element_of(item)
            out[element] = LEAF if element in out else add(item)
        return out

    return add_items
