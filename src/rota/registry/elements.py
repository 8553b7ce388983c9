"""One step of a field path, as FieldsV1 spells it.

    f:NAME                     the field NAME of a struct, or the key NAME of a map
    k:{"name":"a","port":80}   the list item with these key fields: compact JSON, keys sorted
    v:"a"                      the item of a set with this value
    i:0                        the item at this index; read from clients, never written

Two items are the same item exactly if their elements are equal strings, so there is one spelling only: `canonical`
brings what a client sent to it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from rota.api.structure import Structure

JSON_CACHE_MAX = 4096
"""Bound on the cached JSON texts of scalars: names of list items recur on every write."""
ELEMENTS_MAX = 4096
"""Bound on the cached elements of one list, and on the cached printed elements of all lists."""
NODES_MAX = 4096
"""Bound on the structures whose compiled form is cached. Kinds have some hundreds."""

_SCRIPT_SAFE = str.maketrans({c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"})


def json_text(value: Any) -> str:
    """Return a value as Kubernetes encodes JSON into strings: compact, keys sorted, safe for HTML."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return text.translate(_SCRIPT_SAFE)


@lru_cache(maxsize=JSON_CACHE_MAX, typed=True)
def _scalar_json(value: str | int | float | bool | None) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # 1.0 and 1 are one item
    return json_text(value)


def _json(value: Any) -> str:
    is_scalar = value.__class__ is not dict and value.__class__ is not list  # others are invalid, but break no write
    return _scalar_json(value) if is_scalar else json_text(value)


@lru_cache(maxsize=NODES_MAX)
def keyer(node: Structure) -> Callable[[Any], str]:
    """Return the function from items to elements for a list of this structure: a set or a list map.

    A key field that the item omits counts with its default; without a default it is left out of the element, so that
    items with and without it are told apart.
    """
    if node.list_type == "set":
        return _value_element
    defaults = node.key_defaults
    keys = sorted(node.keys)
    parts = [(key, f"{json_text(key)}:") for key in keys]

    def by_keys(item: Any) -> str:
        if item.__class__ is not dict:
            return _value_element(item)
        try:
            return "k:{" + ",".join([start + _json(item[key]) for key, start in parts]) + "}"
        except KeyError:
            return _key_element(
                {key: item.get(key, defaults.get(key)) for key in keys if key in item or key in defaults}
            )

    return by_keys if len(keys) > 1 else _single_keyer(keys[0], by_keys)


def _single_keyer(key: str, by_keys: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return `by_keys` for a list with one key, with a cache: the key is mostly a name."""
    known: dict[str, str] = {}

    def by_key(item: Any) -> str:
        try:
            return known[item[key]]
        except (KeyError, TypeError):
            element = by_keys(item)
            if item.__class__ is dict and item.get(key).__class__ is str:
                if len(known) >= ELEMENTS_MAX:
                    known.clear()
                known[item[key]] = element
            return element

    return by_key


def _value_element(item: Any) -> str:
    return "v:" + _json(item)


def _key_element(fields: dict[str, Any]) -> str:
    return "k:{" + ",".join([f"{_json(key)}:{_json(fields[key])}" for key in sorted(fields)]) + "}"


def of_item(item: Any, node: Structure) -> str:
    """Return the element of one item. See `keyer`."""
    return keyer(node)(item)


def of_items(items: Sequence[Any], node: Structure) -> list[str]:
    """Return the elements of items, in order."""
    return [*map(keyer(node), items)]


def canonical(element: str) -> str | None:
    """Return the canonical spelling of an element from a client; None if its type is unknown.

    Raises ValueError if it is malformed.
    """
    if len(element) < 2 or element[1] != ":":
        raise ValueError(f"missing colon: {element}")
    kind, text = element[0], element[2:]
    match kind:
        case "f":
            return element
        case "v":
            return "v:" + _json(json.loads(text))
        case "k":
            keys = json.loads(text)
            if not isinstance(keys, dict):
                raise ValueError(f"expected key fields: {element}")
            return _key_element(keys)
        case "i":
            return f"i:{int(text)}"
    return None


@lru_cache(maxsize=ELEMENTS_MAX)
def human(element: str) -> str:
    """Return an element as messages print it: `.name`, `[name="a",port=80]`, `[="a"]`, `[0]`."""
    kind, text = element[0], element[2:]
    match kind:
        case "f":
            return "." + text
        case "k":
            return "[" + ",".join(f"{key}={_quoted(value)}" for key, value in json.loads(text).items()) + "]"
        case "v":
            return f"[={_quoted(json.loads(text))}]"
    return f"[{text}]"


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def order(element: str) -> tuple[Any, ...]:
    """Return a sort key: fields by name, then items by keys, then items by value."""
    kind, text = element[0], element[2:]
    match kind:
        case "f":
            return (0, text)
        case "k":
            return (1, [(key, *_value_order(value)) for key, value in json.loads(text).items()])
        case "v":
            return (2, _value_order(json.loads(text)))
    return (3, int(text))


def _value_order(value: Any) -> tuple[int, Any]:
    if isinstance(value, bool):
        return (2, value)
    if isinstance(value, int | float):
        return (0, value)
    if isinstance(value, str):
        return (1, value)
    return (3, _json(value))
