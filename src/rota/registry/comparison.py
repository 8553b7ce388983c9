"""The differences between two objects, as sets of field paths.

This runs on every update, so it descends only where two values differ, and walks invalid values too (see `presence`).
"""

from __future__ import annotations

from typing import Any

from rota.api.structure import ANY, Structure
from rota.registry.elements import keyer
from rota.registry.presence import LEAF, SELF, Fields, added

_ABSENT: Any = object()


def same(a: Any, b: Any) -> bool:
    """Report whether two values that Python compares as equal are equal as JSON, where 1 is not true."""
    if a.__class__ is dict:
        return all(same(value, b[name]) for name, value in a.items())
    if a.__class__ is list:
        return all(map(same, a, b))
    return (a.__class__ is bool) is (b.__class__ is bool)


def compare(old: Any, new: Any, node: Structure) -> tuple[Fields, Fields]:
    """Return the paths added or modified in `new`, and the paths of `old` that are gone.

    The order of items in sets and list maps has no owner, so it is no difference; nor are 1 and 1.0 (or, as in all of
    Python, 1 and True).
    """
    changed: Fields = {}
    removed: Fields = {}
    if old is not new:
        _compare_fields(old or {}, new or {}, node, changed, removed)
    return changed, removed


def _compare_fields(old: Any, new: Any, node: Structure, changed: Fields, removed: Fields) -> None:
    named = node.fields
    item_node = node.item or ANY
    shared = 0
    for name, value in new.items():
        before = old.get(name, _ABSENT)
        if before is _ABSENT:
            changed["f:" + name] = added(value, named.get(name, item_node))
            continue
        shared += 1
        if before is not value and before != value:
            _compare(before, value, named.get(name, item_node), "f:" + name, changed, removed)
    if shared < len(old):
        for name in old:
            if name not in new:
                removed["f:" + name] = added(old[name], named.get(name, item_node))


def _compare(old: Any, new: Any, node: Structure, element: str, changed: Fields, removed: Fields) -> None:
    """Compare two different values at one path. Differences are added to `changed` and `removed` under `element`."""
    kind = node.kind
    if kind == "scalar" or node.atomic:
        changed[element] = LEAF
        return
    below_changed: Fields = {}
    below_removed: Fields = {}
    if kind == "list":
        if node.list_type == "atomic" or not _lists(old, new):
            changed[element] = LEAF
            return
        _compare_items(old or [], new or [], node, below_changed, below_removed)
    else:
        old_is_map, new_is_map = old.__class__ is dict, new.__class__ is dict
        if not (old_is_map or new_is_map) or not (old or new):
            changed[element] = LEAF
            return
        _compare_fields(old if old_is_map else {}, new if new_is_map else {}, node, below_changed, below_removed)
        if not (old_is_map or old is None) or not (new_is_map or new is None):
            # The type of the value has changed: its own path is modified, too, beside the paths below it.
            changed[element] = below_changed = {SELF: LEAF, **below_changed} if below_changed else LEAF
    if below_changed:
        changed[element] = below_changed
    if below_removed:
        removed[element] = below_removed


def _lists(old: Any, new: Any) -> bool:
    """Report whether two values compare item by item: lists, of which one may be null, and not both empty."""
    return (old is None or old.__class__ is list) and (new is None or new.__class__ is list) and bool(old or new)


def _compare_items(old: list[Any], new: list[Any], node: Structure, changed: Fields, removed: Fields) -> None:
    item_node = node.item or ANY
    element_of = keyer(node)
    before = {element_of(item): item for item in old}
    after = {element_of(item): item for item in new}
    if len(before) != len(old) or len(after) != len(new):
        _compare_duplicates(old, new, node, changed, removed)
        return
    for element, item in after.items():
        if element in before:
            was = before[element]
            if was is not item and was != item:
                _compare(was, item, item_node, element, changed, removed)
        else:
            changed[element] = added(item, item_node)
    for element, item in before.items():
        if element not in after:
            removed[element] = added(item, item_node)


def _compare_duplicates(old: list[Any], new: list[Any], node: Structure, changed: Fields, removed: Fields) -> None:
    """Compare lists in which some items share an element. Such items count as one indivisible value."""
    item_node = node.item or ANY
    before = _grouped(old, node)
    after = _grouped(new, node)
    for element in before.keys() | after.keys():
        was, now = before.get(element, []), after.get(element, [])
        if was == now:
            continue
        if len(was) == 1 and len(now) == 1:
            _compare(was[0], now[0], item_node, element, changed, removed)
        elif len(was) > 1 and len(now) > 1:
            changed[element] = LEAF
        else:
            if now:
                changed[element] = LEAF if len(now) > 1 else added(now[0], item_node)
            if was:
                removed[element] = LEAF if len(was) > 1 else added(was[0], item_node)


def _grouped(items: list[Any], node: Structure) -> dict[str, list[Any]]:
    element_of = keyer(node)
    out: dict[str, list[Any]] = {}
    for item in items:
        out.setdefault(element_of(item), []).append(item)
    return out
