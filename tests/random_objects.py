"""Random objects of a kind: built from its schema, then damaged here and there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from rota.api import Kind
from rota.api.schema import PRESERVE, Schema, object_schema
from tests.corpus import QUANTITIES, TIMES, WHOLE_NUMBERS, Spot, replaced, spots, values, without
from tests.examples import examples

Object = dict[str, Any]

DAMAGES_MAX = 3
ITEMS_MAX = 3

TEXT = st.text("aAz09-_./: é日", max_size=5)
"""Texts of characters that every version of Unicode has, and that a header can carry. The corpus has others."""
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**64), 2**64) | st.floats(-1e20, 1e20) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)


def objects(kind: Kind) -> st.SearchStrategy[Object]:
    """Objects of a kind, most of them with something wrong."""
    return st.one_of(st.sampled_from(examples(kind.name)), _built(kind)).flatmap(_damaged(object_schema(kind)))


def _built(kind: Kind) -> st.SearchStrategy[Object]:
    schema = object_schema(kind)
    parts = {name: _of(prop) for name, prop in schema["properties"].items() if name in ("spec", "status")}
    frame = {name: st.just(value) for name, value in examples(kind.name)[0].items() if name not in parts}
    return st.fixed_dictionaries({**frame, **parts})


def mostly(usual: st.SearchStrategy[Any], odd: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Odd values are few, so that one is often all that is wrong with an object."""
    return st.one_of(*[usual] * 15, odd)


def _of(schema: Schema) -> st.SearchStrategy[Any]:
    """Values of the right type, mostly within bounds."""
    if schema.get("x-kubernetes-int-or-string"):
        return mostly(st.integers(0, 10) | st.sampled_from(["1", "500m", "2Gi"]), st.sampled_from(QUANTITIES))
    if schema.get(PRESERVE):
        return st.dictionaries(TEXT, JSON, max_size=2)
    return _BY_TYPE[schema["type"]](schema)


def _object(schema: Schema) -> st.SearchStrategy[Object]:
    if "additionalProperties" in schema:
        return st.dictionaries(TEXT, _of(schema["additionalProperties"]), max_size=ITEMS_MAX)
    required = set(schema.get("required", ()))
    properties = {name: _of(prop) for name, prop in schema["properties"].items()}
    return st.fixed_dictionaries(
        {name: value for name, value in properties.items() if name in required},
        optional={name: value for name, value in properties.items() if name not in required},
    )


def _text(schema: Schema) -> st.SearchStrategy[str]:
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("format") == "date-time":
        return mostly(st.datetimes().map(lambda moment: f"{moment.isoformat()}Z"), st.sampled_from(TIMES))
    plain = st.sampled_from(["a", "ab-c", "https://a", "/a", "a/b", "a:b", "* * * * *", "0644"])
    return plain | TEXT


def _list(schema: Schema) -> st.SearchStrategy[list[Any]]:
    return st.lists(_of(schema["items"]), min_size=schema.get("minItems", 0), max_size=ITEMS_MAX)


_BY_TYPE: dict[str, Callable[[Schema], st.SearchStrategy[Any]]] = {
    "object": _object,
    "array": _list,
    "string": _text,
    "boolean": lambda _: st.booleans(),
    "integer": lambda schema: mostly(
        st.integers(schema.get("minimum", -10), schema.get("maximum", 10)), st.sampled_from(WHOLE_NUMBERS)
    ),
    "number": lambda schema: st.floats(schema.get("minimum", -10), schema.get("maximum", 10)),
}


def _damaged(schema: Schema) -> Callable[[Object], st.SearchStrategy[Object]]:
    """From an object to variants of it: something dropped, added, of another type, or out of bounds."""

    @st.composite
    def damaged(draw: st.DrawFn, obj: Object) -> Object:
        for _ in range(draw(st.integers(0, DAMAGES_MAX))):
            places = list(spots(schema, obj))
            if places:
                obj = _damage(draw, obj, draw(st.sampled_from(places)))
        return obj

    return damaged


def _damage(draw: st.DrawFn, obj: Object, spot: Spot) -> Object:
    what = draw(st.sampled_from(["drop", "replace", "stretch", "add"]))
    if what == "drop":
        return without(obj, spot.path)
    if what == "stretch":
        return replaced(obj, spot.path, draw(st.sampled_from(list(values(spot)))))
    if what == "add" and isinstance(spot.value, dict):
        return replaced(obj, spot.path, {**spot.value, draw(TEXT): draw(JSON)})
    if what == "add" and isinstance(spot.value, list):
        return replaced(obj, spot.path, [*spot.value, draw(JSON | st.sampled_from(spot.value or [None]))])
    return replaced(obj, spot.path, draw(JSON))
