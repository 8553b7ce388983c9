"""The merge of a partial object into another by structure, and the removal of a set of field paths from an object.

These are the two halves of an apply. Both return values that share sub-values with their arguments and change none of
them.
"""

from __future__ import annotations

from typing import Any

from rota.api.structure import ANY, Structure
from rota.registry.elements import of_items
from rota.registry.fieldset import FieldSet
from rota.registry.presence import LEAF, SELF

_ABSENT: Any = object()


def merged(live: Any, config: Any, node: Structure) -> Any:
    """Return `live` with everything that `config` specifies; nothing is removed.

    Leaves (scalars, atomic values, nulls in their place) are taken from `config`. A null or empty map or list in
    `config` leaves what `live` has in that place.
    """
    if live is _ABSENT or live is config:
        return config
    if config is _ABSENT:
        return live
    kind = node.kind
    if kind == "scalar" or node.atomic:
        return config
    if kind == "list":
        if node.list_type == "atomic" or not _mergeable(live, config, list):
            return config
        return _merged_items(live or [], config or [], node)
    if not _mergeable(live, config, dict):
        return config
    named, item_node = node.fields, node.item or ANY
    out = dict(live or {})
    for name, value in (config or {}).items():
        out[name] = merged(out.get(name, _ABSENT), value, named.get(name, item_node))
    return out


def _mergeable(live: Any, config: Any, kind: type) -> bool:
    """Report whether both sides are of a type or null, and one of them is not empty."""
    return (
        (live is None or live.__class__ is kind)
        and (config is None or config.__class__ is kind)
        and bool(live or config)
    )


def _merged_items(live: list[Any], config: list[Any], node: Structure) -> list[Any]:
    """Return the items of both lists in the order of `config`.

    Those only in `live` keep their place before shared ones.
    """
    item_node = node.item or ANY
    live_elements, config_elements = of_items(live, node), of_items(config, node)
    ours: dict[str, Any] = {}
    for element, item in zip(live_elements, live, strict=True):
        ours[element] = None if element in ours else item  # items that share an element are replaced, not merged
    theirs = dict(zip(config_elements, config, strict=True))
    shared = [element for element in config_elements if element in ours]
    shared_next = 0
    done: set[str] = set()
    out: list[Any] = []

    def take(element: str) -> None:
        nonlocal shared_next
        done.add(element)
        out.append(merged(ours.get(element, _ABSENT), theirs[element], item_node))
        if shared_next < len(shared) and shared[shared_next] == element:
            shared_next += 1

    at_live = at_config = 0
    while at_live < len(live) or at_config < len(config):
        if at_live < len(live):
            element = live_elements[at_live]
            if at_config < len(config):
                if element == config_elements[at_config]:
                    take(element)
                    at_live += 1
                    at_config += 1
                    continue
                if element in theirs and shared_next < len(shared) and shared[shared_next] != element:
                    at_live += 1  # shared, but the order of config has it elsewhere
                    continue
            if element not in theirs:
                out.append(live[at_live])
                at_live += 1
                continue
            if element in done:
                at_live += 1
        if at_config < len(config):
            take(config_elements[at_config])
            at_config += 1
    return out


def without_items(value: Any, fields: FieldSet, node: Structure) -> Any:
    """Return a value without the fields and items in a set. A container that is not in the set stays, if empty."""
    if not fields:
        return value
    if value.__class__ is dict and node.kind not in ("scalar", "list"):
        return {} if node.atomic else _without_fields(value, fields, node)
    if value.__class__ is list and node.kind == "list":
        return [] if node.list_type == "atomic" else _without_elements(value, fields, node)
    return value


def _without_fields(value: dict[str, Any], fields: FieldSet, node: Structure) -> dict[str, Any]:
    named, item_node = node.fields, node.item or ANY
    out = {}
    for name, child in value.items():
        below = fields.get("f:" + name)
        if below is None:
            out[name] = child
        elif below and SELF not in below:
            out[name] = without_items(child, below, named.get(name, item_node))
    return out


def _without_elements(value: list[Any], fields: FieldSet, node: Structure) -> list[Any]:
    item_node = node.item or ANY
    out = []
    for element, item in zip(of_items(value, node), value, strict=True):
        below = fields.get(element)
        if below is None:
            out.append(item)
        elif below and SELF not in below:
            out.append(without_items(item, below, item_node))
    return out


def with_named_fields(fields: FieldSet, node: Structure) -> FieldSet:
    """Return the set with every named struct field that has members below it: it is removed with the last of them."""
    out: FieldSet = {}
    for element, below in fields.items():
        child, is_named = _below(node, element)
        deeper = with_named_fields(below, child) if below else below
        if deeper and is_named and SELF not in deeper:
            deeper = {SELF: LEAF, **deeper}
        out[element] = deeper
    return out


def _below(node: Structure, element: str) -> tuple[Structure, bool]:
    """Return the structure that an element leads to, and whether the element is a named field."""
    if element.startswith("f:"):
        field = node.fields.get(element[2:])
        return (field, True) if field is not None else (node.item or ANY, False)
    return (node.item or ANY, False) if node.kind == "list" else (ANY, False)
