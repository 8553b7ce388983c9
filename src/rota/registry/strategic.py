"""Strategic merge patch: a merge patch that knows which lists are merged item by item.

Besides values a patch may hold directives:

    $patch: replace | delete | merge     in a map: take the patch as it is, or empty the map; in an item of a list map:
    drop that
                                         item from the target, or (an item of `$patch: replace` alone) replace the whole
                                         list
    $retainKeys: [...]                   in a map: drop the fields of the target that are not listed
    $deleteFromPrimitiveList/NAME: [...] drop these values from the set NAME
    $setElementOrder/NAME: [...]         the order of the items of NAME that are listed; others keep their place among
    them

List maps are merged by their keys and sets by value; atomic lists are replaced. Maps are always merged: that a map is
atomic says who owns it, not how it is patched.
"""

from __future__ import annotations

import json
from typing import Any

from rota.api.structure import ANY, Structure
from rota.registry.elements import of_item

_PATCH = "$patch"
_RETAIN = "$retainKeys"
_DELETE_FROM = "$deleteFromPrimitiveList"
_ORDER = "$setElementOrder"
_MISSING: Any = object()


class StrategicPatchError(ValueError):
    """A strategic merge patch that is malformed or does not fit its target."""


def strategic_merge(target: dict[str, Any], patch: dict[str, Any], node: Structure) -> dict[str, Any]:
    """Return `target` with `patch` merged in.

    Null removes. The result shares sub-values with both; neither is changed.
    """
    if _PATCH in patch:
        return _directed(patch)
    out = dict(target)
    if _RETAIN in patch:
        _retain(out, patch)
    for key, value in patch.items():
        if key == _RETAIN or key.startswith(_ORDER):
            continue
        if key.startswith(_DELETE_FROM):
            _delete_from(out, key, value)
        elif value is None:
            out.pop(key, None)
        else:
            merged = _merged(out.get(key), value, _child(node, key))
            if merged is _MISSING:
                out.pop(key, None)
            else:
                out[key] = merged
    for key, value in patch.items():
        if key.startswith(_ORDER):
            _reorder(out, target, patch, key, value, node)
    return out


def _directed(patch: dict[str, Any]) -> dict[str, Any]:
    match patch[_PATCH]:
        case "replace":
            return {key: value for key, value in patch.items() if key != _PATCH}
        case "delete":
            return {}
    raise StrategicPatchError(f"unknown patch type: {patch[_PATCH]} in map: {_shown(patch)}")


def _child(node: Structure, name: str) -> Structure:
    return node.fields.get(name) or node.item or ANY


def _retain(out: dict[str, Any], patch: dict[str, Any]) -> None:
    retained = patch[_RETAIN]
    if not isinstance(retained, list):
        raise StrategicPatchError("invalid patch format of retainKeys")
    names = {name for name in retained if isinstance(name, str)}
    for key, value in patch.items():
        is_directive = key == _RETAIN or key.startswith((_DELETE_FROM, _ORDER))
        if value is not None and not is_directive and key not in names:
            raise StrategicPatchError("invalid patch format of retainKeys")
    for key in [key for key in out if key not in names]:
        del out[key]


def _delete_from(out: dict[str, Any], directive: str, gone: Any) -> None:
    name = _named(directive, _DELETE_FROM, "invalid patch format of primitive list")
    if gone is None:
        out.pop(name, None)
    elif isinstance(out.get(name), list):
        if not isinstance(gone, list):
            raise StrategicPatchError("invalid patch format of primitive list")
        # Primitives only, as the directive says; these are hashable.
        values = {value for value in gone if not isinstance(value, dict | list)}
        out[name] = [item for item in out[name] if isinstance(item, dict | list) or item not in values]


def _named(directive: str, prefix: str, problem: str) -> str:
    before, slash, name = directive.partition("/")
    if before != prefix or not slash:
        raise StrategicPatchError(problem)
    return name


def _merged(target: Any, patch: Any, node: Structure) -> Any:
    if isinstance(target, dict) and isinstance(patch, dict):
        return strategic_merge(target, patch, node)
    if isinstance(target, list) and isinstance(patch, list):
        if node.kind == "list" and node.list_type == "map":
            return _merged_items(target, patch, node)
        if node.kind == "list" and node.list_type == "set":
            both = {_identified(item, node): item for item in [*target, *patch]}
            return _ordered(list(both.values()), patch, target, node)
        return patch
    return _plain(patch)


def _plain(value: Any) -> Any:
    """Return a value of the patch that is not merged, without directives and nulls; _MISSING if it is a directive."""
    if isinstance(value, dict):
        if _PATCH in value:
            return _MISSING
        plain = {key: _plain(child) for key, child in value.items() if child is not None and not key.startswith("$")}
        return {key: child for key, child in plain.items() if child is not _MISSING}
    if isinstance(value, list):
        return [item for item in map(_plain, value) if item is not _MISSING]
    return value


def _merged_items(target: list[Any], patch: list[Any], node: Structure) -> list[Any]:
    items = {_identified(item, node): item for item in target}
    merging = []
    is_replaced = False
    for item in patch:
        directive = item.get(_PATCH) if isinstance(item, dict) else None
        match directive:
            case None:
                merging.append(item)
            case "delete":
                items.pop(_identified(item, node), None)
            case "replace":
                is_replaced = True
            case "merge":
                raise StrategicPatchError("merging lists cannot yet be specified in the patch")
            case _:
                raise StrategicPatchError(f"unknown patch type: {directive} in map: {_shown(item)}")
    if is_replaced:
        return merging
    for item in merging:
        element = _identified(item, node)
        if element in items:
            items[element] = strategic_merge(items[element], item, node.item or ANY)
        else:
            items[element] = item
    return _ordered(list(items.values()), merging, target, node)


def _identified(item: Any, node: Structure) -> str:
    if node.list_type == "map":
        if not isinstance(item, dict):
            raise StrategicPatchError(f"expected a map, but received {_shown(item)}")
        if node.keys[0] not in item and node.keys[0] not in node.key_defaults:
            raise StrategicPatchError(f"map: {_shown(item)} does not contain declared merge key: {node.keys[0]}")
    return of_item(item, node)


def _ordered(items: list[Any], patch_order: list[Any], target_order: list[Any], node: Structure) -> list[Any]:
    """Return `items` in the order of `patch_order`.

    An item that is not in `patch_order` stays before the first item that followed it in the target.
    """
    wanted = _places(patch_order, node)
    before = _places(target_order, node)
    named = sorted(
        (item for item in items if _identified(item, node) in wanted), key=lambda i: wanted[_identified(i, node)]
    )
    rest = [item for item in items if _identified(item, node) not in wanted]
    out = []
    at = 0
    for item in named:
        place = before.get(_identified(item, node), -1)
        while at < len(rest) and before[_identified(rest[at], node)] < place:
            out.append(rest[at])
            at += 1
        out.append(item)
    return out + rest[at:]


def _places(items: list[Any], node: Structure) -> dict[str, int]:
    out: dict[str, int] = {}
    for index, item in enumerate(items):
        out.setdefault(_identified(item, node), index)
    return out


def _reorder(
    out: dict[str, Any], target: dict[str, Any], patch: dict[str, Any], directive: str, order: Any, node: Structure
) -> None:
    problem = "invalid patch format of setElementOrder list"
    name = _named(directive, _ORDER, problem)
    child = _child(node, name)
    if not isinstance(order, list):
        raise StrategicPatchError(problem)
    if child.kind != "list" or child.list_type == "atomic" or not isinstance(out.get(name), list):
        return
    patched = [item for item in patch.get(name) or [] if not (isinstance(item, dict) and _PATCH in item)]
    _check_order(patched, order, child)
    out[name] = _ordered(out[name], order, target.get(name) or [], child)


def _check_order(patched: list[Any], order: list[Any], node: Structure) -> None:
    """Raise StrategicPatchError unless the items of the patch are among those of `order`, in that order."""
    remaining = iter([_identified(item, node) for item in order])
    if order and any(_identified(item, node) not in remaining for item in patched):
        raise StrategicPatchError(
            f"The order in patch list:\n{_shown(patched)}\n doesn't match {_ORDER} list:\n{_shown(order)}\n"
        )


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
