"""Variants of valid objects: for every field, values just inside and just outside of what its schema allows."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from rota.api import KINDS
from rota.api.crd import exported
from rota.api.form import form
from rota.api.schema import PRESERVE, Schema

Object = dict[str, Any]
Path = tuple[str | int, ...]

WRONG_TYPES: tuple[Any, ...] = ("", "7", 7, 1.5, 7.0, True, [], {}, [7], {"a": 7}, None)
TOUCHES: tuple[Any, ...] = ("é", 1.5, {"unheardOf": [None]})
WHOLE_NUMBERS: tuple[Any, ...] = (
    *(-1.0, 1e3, 1e18, 1e19, 1.00000000001, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1),
)
TEXTS = (
    *("a", "A-b_c.d", "-a", "a\n", "\n", " a ", "é", "ß/ü", "../a", "/a", "/", ".", "a/b", "a:b", "1", "\0", "a\u2028"),
    *("https://a", "file://é", ".git", ".git/a", "a/../b", "..", "...", "@daily", "* * * * *", "* * * *", "a:b.c", "٣"),
)
TEXTS_OF_ANY_FORM = ("é", "a\n", "\0")
QUANTITIES: tuple[Any, ...] = (
    *(0, -1, 5.0, "0", "1", "+1", "-1", "1.5", ".5", "1.", ".", "", " 1", "1 ", "1\n"),
    *("1k", "1K", "1Ki", "1ki", "1Mi", "1m", "1n", "1u", "1E", "1Ei", "1e3", "1E3", "1e-3", "1e+3", "1e", "1ee3"),
    *("0x1", "١", "9" * 64, "9" * 65),
)
TIMES = (
    *("2024-05-06T07:08:09Z", "2024-05-06t07:08:09z", "2024-05-06T07:08:09+02:00", "2024-05-06T07:08:09-23:59"),
    *("2024-05-06T07:08:09.1Z", "2024-05-06T07:08:09.123456Z", "2024-05-06T07:08:09.123456789Z"),
    *("2024-05-06T07:08:09", "2024-05-06", "2024-05-06 07:08:09Z", "20240506T070809Z", "", "now", "1714979289"),
    *("2024-13-06T07:08:09Z", "2024-02-30T07:08:09Z", "2023-02-29T00:00:00Z", "2024-02-29T00:00:00Z"),
    *("2024-05-06T24:00:00Z", "2024-05-06T07:60:09Z", "2024-05-06T07:08:60Z", "2024-05-06T07:08Z"),
    *("2024-05-06T07:08:09+24:00", "2024-05-06T07:08:09+99:99", "2024-05-06T07:08:09+0200", "2024-05-06T07:08:09,5Z"),
    *("2024-05-06T07:08:09.Z", "2024-05-06T07:08:09.1234567891234Z", "0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
    *("9999-12-31T23:59:59Z", "9999-12-31T23:59:59.9999999Z", "10000-01-01T00:00:00Z", "2024-05-06T07:08:09ZTail"),
    *("2024-05-06T07:08:09Z\n", " 2024-05-06T07:08:09Z", "+2024-05-06T07:08:09Z", "2024-5-6T7:8:9Z"),
)


class Variant(NamedTuple):
    """An object, and what was done to it."""

    what: str
    obj: Object


class Spot(NamedTuple):
    """One value within an object, and its schema."""

    path: Path
    schema: Schema
    value: Any

    @property
    def place(self) -> tuple[str, ...]:
        """The same for every item of a list and every value of a map."""
        return tuple("[]" if isinstance(step, int) else step for step in self.path)


def spots(schema: Schema, value: Any, path: Path = ()) -> Iterator[Spot]:
    """Every value within an object, outermost first, without what every kind has."""
    if path:
        yield Spot(path, schema, value)
    if isinstance(value, dict):
        for name, inner in value.items():
            if path or name not in ("apiVersion", "kind", "metadata"):
                inner_schema = schema.get("properties", {}).get(name) or schema.get("additionalProperties")
                if inner_schema:
                    yield from spots(inner_schema, inner, (*path, name))
    elif isinstance(value, list) and "items" in schema:
        for i, inner in enumerate(value):
            yield from spots(schema["items"], inner, (*path, i))


def places(schema: Schema, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every place that a schema has, as `Spot.place` names it; values of maps are left out."""
    if path:
        yield path
    for name, inner in schema.get("properties", {}).items():
        if path or name not in ("apiVersion", "kind", "metadata"):
            yield from places(inner, (*path, name))
    if "items" in schema:
        yield from places(schema["items"], (*path, "[]"))


class Corpus:
    """Makes variants of objects, without repeating itself.

    Kinds share parts. What was varied in full in one of them is only touched in the others.
    """

    def __init__(self) -> None:
        self._done: set[tuple[str, ...]] = set()
        self._schemas: set[bytes] = set()

    def variants(self, schema: Schema, obj: Object, under: str) -> Iterator[Variant]:
        """Variants of an object in the part named `under`; each place of the kind's schema is taken once."""
        for spot in spots(schema, obj):
            place = (obj["kind"], *spot.place)
            if spot.path[0] != under or place in self._done:
                continue
            self._done.add(place)
            where = ".".join(map(str, spot.path))
            base = lean(obj, spot.path)
            yield Variant(f"without {where}", without(base, spot.path))
            for value in self._values(spot):
                yield Variant(f"{where} = {shown(value)}", replaced(base, spot.path, value))

    def _values(self, spot: Spot) -> Iterator[Any]:
        identity = msgspec.json.encode((spot.path[-1] if isinstance(spot.path[-1], str) else "", exported(spot.schema)))
        if identity in self._schemas:
            yield from TOUCHES
        else:
            self._schemas.add(identity)
            yield from values(spot)


def lean(obj: Object, path: Path) -> Object:
    """The object without whatever it can do without, beside what is at a path. Smaller objects are judged sooner."""
    for depth in range(1, len(path)):
        parent = at(obj, path[:depth])
        if isinstance(parent, dict):
            for name in parent.keys() - {path[depth]}:
                less = without(obj, (*path[:depth], name))
                if is_valid(less):
                    obj = less
    return obj


def is_valid(obj: Object) -> bool:
    shape, tried = form(KINDS[obj["kind"]]), copy.deepcopy(obj)
    unknown, found = shape.conform(tried)
    return not unknown and not shape.break_rules(tried, None, found)


def values(spot: Spot) -> Iterator[Any]:
    """Values for a spot, good and bad."""
    schema = spot.schema
    yield from WRONG_TYPES
    if schema.get("x-kubernetes-int-or-string"):
        yield from QUANTITIES
    elif schema.get("type") in ("integer", "number"):
        yield from _numbers(schema)
    elif schema.get("format") == "date-time":
        yield from TIMES
    elif schema.get("type") == "string":
        yield from _texts(schema)
    elif schema.get("type") == "array" and isinstance(spot.value, list) and spot.value:
        yield from _lists(schema, spot.value)
    elif schema.get("type") == "object" and isinstance(spot.value, dict) and spot.value:
        yield from _objects(schema, spot.value)


def _numbers(schema: Schema) -> Iterator[Any]:
    yield from WHOLE_NUMBERS
    for bound in ("minimum", "maximum"):
        if bound in schema:
            yield from (schema[bound] - 1, schema[bound] - 0.5, schema[bound], schema[bound] + 0.5, schema[bound] + 1)


def _texts(schema: Schema) -> Iterator[str]:
    yield from schema.get("enum", TEXTS if "pattern" in schema else TEXTS_OF_ANY_FORM)
    if "enum" in schema:
        yield from (schema["enum"][0].swapcase(), schema["enum"][0] + " ")
    for bound in ("minLength", "maxLength"):
        if bound in schema:
            for length in (schema[bound] - 1, schema[bound], schema[bound] + 1):
                yield from ("a" * length, "é" * length, "/" + "a" * (length - 1))


def _lists(schema: Schema, value: list[Any]) -> Iterator[list[Any]]:
    first = value[0]
    yield from ([*value, None], [*value, 7], [*value, "7"], [*value, {}], [*value, []], [*value, copy.deepcopy(first)])
    yield [copy.deepcopy(first) for _ in range(3)]
    yield [*value[::-1]]
    for bound in ("minItems", "maxItems"):
        if bound in schema:
            yield from (
                [_numbered(schema, first, i) for i in range(n)]
                for n in (schema[bound] - 1, schema[bound], schema[bound] + 1)
            )


def _numbered(schema: Schema, item: Any, number: int) -> Any:
    """A copy of an item that differs from its other copies where it must."""
    if not isinstance(item, dict):
        return f"a{number}" if schema.get("x-kubernetes-list-type") == "set" else item
    keys = schema.get("x-kubernetes-list-map-keys", ())
    return {**copy.deepcopy(item), **dict.fromkeys(keys, f"a{number}")}


def _objects(schema: Schema, value: Object) -> Iterator[Object]:
    yield {**value, "unheardOf": 7}
    yield {**value, "metadata": {"name": "a"}, "kind": "A"}
    if schema.get(PRESERVE):
        yield {"a": None, "b": [None, {"c": None}], "d": {"e": 1.0, "f": -0.0, "g": 1e100}, "": ""}
    if "additionalProperties" in schema:
        inner = next(iter(value.values()))
        yield from ({**value, key: inner} for key in ("", "a.b/c", "é", "[0]", "a" * 300))
        if "maxProperties" in schema:
            yield from ({f"a{i}": inner for i in range(schema["maxProperties"] + more)} for more in (-1, 0, 1))


def replaced(obj: Object, path: Path, value: Any) -> Object:
    """The object with another value at a path."""
    out = copy.deepcopy(obj)
    at(out, path[:-1])[path[-1]] = copy.deepcopy(value)
    return out


def without(obj: Object, path: Path) -> Object:
    """The object without what is at a path."""
    out = copy.deepcopy(obj)
    del at(out, path[:-1])[path[-1]]
    return out


def at(value: Any, path: Path) -> Any:
    """Return the value at a path."""
    for step in path:
        value = value[step]
    return value


def shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
