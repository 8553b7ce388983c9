"""The thorough walk over an object by its schema: prune, fill in defaults, and report every problem.

It runs when the quick check (`quick_check`) has refused an object, so it is written to be complete,
not fast. Every check that can be made of a value is made, also of one of the wrong type: that is what Kubernetes does.
"""

from __future__ import annotations

import math
import re
from datetime import date
from decimal import Decimal
from functools import cache
from typing import Any

import msgspec

from rota.api import problems
from rota.api.kind import SCALE_MAX
from rota.api.model import Time, exact
from rota.api.printing import number, plain
from rota.api.problems import Problem
from rota.api.quick_check import INTEGER_MAX, INTEGER_MIN
from rota.api.schema import PRESERVE, Schema
from rota.api.structure import FREE_FORM_DEPTH_MAX, too_deep

TYPE_NAMES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    dict: "object",
    list: "array",
    type(None): "null",
}
FORMATS: dict[type, str] = {int: "int64", float: "float64"}

GO_TYPES: dict[type, str] = {
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
    dict: "map[string]interface {}",
    list: "[]interface {}",
}

WHOLE_FLOAT_MAX = 2**53 - 1
"""Beyond this a float is not taken for a whole number."""
WHOLE_FLOAT_ERROR = 1e-9
PROBLEMS_MAX = 1_000
"""Bound on reported problems: the items of a list or map are checked until there are so many."""
TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[tT](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:.[0-9]+)?(?:[zZ]|[-+][0-9]{2}:[0-9]{2})"
    r"(?:[tT].*)?",
    re.DOTALL,
)
"""Times that Kubernetes accepts, except that the day is not checked."""


def prune(schema: Schema, value: Any, path: str, unknown: list[str]) -> None:
    """Remove, in place, fields that the schema does not have (their paths go to `unknown`) and fields that are null."""
    if schema.get(PRESERVE):
        return
    if isinstance(value, dict):
        known, rest = schema.get("properties", {}), schema.get("additionalProperties")
        for name in [n for n, v in value.items() if v is None or (n not in known and rest is None)]:
            if name not in known and rest is None:
                unknown.append(_below(path, name))
            del value[name]
        for name, inner in value.items():
            # An object's metadata is the registry's matter.
            if path or name != "metadata":
                prune(known.get(name, rest), inner, _below(path, name), unknown)
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            prune(schema.get("items", {}), inner, f"{path}[{i}]", unknown)


def fill(schema: Schema, value: Any) -> None:
    """Fill in static defaults, in place."""
    if isinstance(value, dict):
        if "properties" in schema:
            for name, prop in schema["properties"].items():
                if name not in value and "default" in prop:
                    value[name] = msgspec.json.decode(msgspec.json.encode(prop["default"]))
                if name in value:
                    fill(prop, value[name])
        elif "additionalProperties" in schema:
            for inner in value.values():
                fill(schema["additionalProperties"], inner)
    elif isinstance(value, list) and "items" in schema:
        for inner in value:
            fill(schema["items"], inner)


def check(schema: Schema, value: Any, path: str, found: list[Problem]) -> Any:
    """Report every problem of a value.

    Returns the value to store: whole numbers as integers where the schema wants them.
    """
    value = _as_json_number(value)
    _check_type(schema, value, path, found)
    if schema.get(PRESERVE):
        if too_deep(value):
            why = f"must not be nested more than {FREE_FORM_DEPTH_MAX} levels deep"
            found.append(Problem("FieldValueInvalid", path, f"Invalid value: {why}"))
        return value
    if isinstance(value, str):
        _check_text(schema, value, path, found)
    elif type(value) in (int, float):
        _check_number(schema, value, path, found)
    elif isinstance(value, list):
        _check_list(schema, value, path, found)
    if "enum" in schema and value not in schema["enum"]:
        found.append(problems.not_supported(path, value, schema["enum"]))
    if isinstance(value, dict):
        _check_object(schema, value, path, found)
    wants_whole = schema.get("type") == "integer" or schema.get("x-kubernetes-int-or-string")
    return int(value) if wants_whole and isinstance(value, float) and value.is_integer() else value


def _as_json_number(value: Any) -> Any:
    """Return whole numbers beyond 64 bits as floats, as Go decodes them."""
    if type(value) is not int or INTEGER_MIN <= value <= INTEGER_MAX:
        return value
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _check_type(schema: Schema, value: Any, path: str, found: list[Problem]) -> None:
    wanted = ("integer", "string") if schema.get("x-kubernetes-int-or-string") else (schema.get("type"),)
    got = TYPE_NAMES[type(value)]
    if wanted == (None,) or got in wanted:
        return
    if (got == "integer" and "number" in wanted) or ("integer" in wanted and _is_whole(value)):
        return
    if "format" in schema and got not in ("string", "array", "null"):
        found.append(problems.type_invalid(path, FORMATS.get(type(value), ""), schema["format"]))
    else:
        found.append(problems.type_invalid(path, got, ",".join(map(str, wanted))))


def _is_whole(value: Any) -> bool:
    """Report whether a float is a whole number, with Kubernetes' tolerance."""
    if not isinstance(value, float) or abs(value) > WHOLE_FLOAT_MAX:
        return False
    return value.is_integer() or abs(value - round(value)) < WHOLE_FLOAT_ERROR * abs(round(value))


def _check_text(schema: Schema, value: str, path: str, found: list[Problem]) -> None:
    if len(value) > schema.get("maxLength", len(value)):
        found.append(problems.too_long(path, schema["maxLength"]))
    elif len(value) < schema.get("minLength", 0):
        least = schema["minLength"]
        found.append(problems.invalid(path, value, f"{path} in body should be at least {least} chars long"))
    elif "pattern" in schema and not _pattern(schema["pattern"]).search(value):
        found.append(problems.invalid(path, value, f"{path} {problems.NO_MATCH} '{schema['pattern']}'"))
    elif schema.get("format") == "date-time" and _is_time(value) and not _is_readable(value):
        # Rounded to microseconds it would be in the year 10000.
        found.append(problems.type_invalid(path, value, "date-time"))
    if schema.get("format") == "date-time" and not _is_time(value):
        found.append(problems.type_invalid(path, value, "date-time"))


def _check_number(schema: Schema, value: int | float, path: str, found: list[Problem]) -> None:
    if schema.get("type") == "integer" and not _is_int64(value):
        detail = f"Checked value must be of type integer with format {schema['format']} in {path}"
        found.append(problems.invalid(problems.NO_FIELD, "", detail))
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and value < least:
        bound = _bound(least, value)
        found.append(problems.invalid(path, value, f"{path} in body should be greater than or equal to {bound}"))
    if most is not None and value > most:
        bound = _bound(most, value)
        found.append(problems.invalid(path, value, f"{path} in body should be less than or equal to {bound}"))


def _is_int64(value: int | float) -> bool:
    """Report whether a number is whole and fits into 64 bits."""
    exactly = Decimal(repr(value))
    return exactly == exactly.to_integral_value() and INTEGER_MIN <= exactly <= INTEGER_MAX


def _bound(bound: int, value: int | float) -> str:
    return number(bound) if isinstance(value, float) else str(bound)


def _check_list(schema: Schema, value: list[Any], path: str, found: list[Problem]) -> None:
    if "items" in schema:
        for i, inner in enumerate(value):
            if len(found) > PROBLEMS_MAX:
                break
            value[i] = check(schema["items"], inner, f"{path}[{i}]", found)
    if len(value) < schema.get("minItems", 0):
        least = schema["minItems"]
        found.append(problems.invalid(path, len(value), f"{path} in body should have at least {least} items"))
    if len(value) > schema.get("maxItems", len(value)):
        found.append(problems.too_many(path, len(value), schema["maxItems"]))


def _check_object(schema: Schema, value: dict[str, Any], path: str, found: list[Problem]) -> None:
    if len(value) > schema.get("maxProperties", len(value)):
        found.append(problems.too_many(path, len(value), schema["maxProperties"]))
    known, rest = schema.get("properties", {}), schema.get("additionalProperties")
    for name, inner in value.items():
        inner_schema = known.get(name, rest)
        if len(found) > PROBLEMS_MAX:
            break
        if inner_schema is not None:
            value[name] = check(inner_schema, inner, _below(path, name), found)
    found.extend(problems.required(_below(path, name)) for name in schema.get("required", ()) if name not in value)


def check_lists(schema: Schema, value: Any, path: str, found: list[Problem]) -> None:
    """Append duplicates: items of sets, and keys of lists of type map."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name in schema.get("properties", {}):
                check_lists(schema["properties"][name], inner, _below(path, name), found)
            elif "additionalProperties" in schema:
                check_lists(schema["additionalProperties"], inner, f"{path}[{name}]", found)
    elif isinstance(value, list) and "items" in schema:
        list_type = schema.get("x-kubernetes-list-type")
        if list_type == "set":
            _check_unique(value, path, found)
        elif list_type == "map":
            _check_keys(schema["x-kubernetes-list-map-keys"], value, path, found)
        for i, inner in enumerate(value):
            check_lists(schema["items"], inner, f"{path}[{i}]", found)


def _check_keys(keys: list[str], value: list[Any], path: str, found: list[Problem]) -> None:
    for i, item in enumerate(value):
        if not isinstance(item, dict | None):
            found.append(problems.invalid(f"{path}[{i}]", item, "must be an object for an array of list-type map"))
            return
    _check_unique([{key: item[key] for key in keys if key in item} if item else {} for item in value], path, found)


def _check_unique(identities: list[Any], path: str, found: list[Problem]) -> None:
    """Append a problem for each identity that occurs more than once, at its second occurrence."""
    counts: dict[bytes, int] = {}
    for i, identity in enumerate(identities):
        encoded = msgspec.json.encode(identity, order="sorted")
        counts[encoded] = counts.get(encoded, 0) + 1
        if counts[encoded] == 2:
            found.append(problems.duplicate(f"{path}[{i}]", identity))


def check_scale(path: str, want: type, obj: dict[str, Any], found: list[Problem]) -> None:
    """Append a problem if the scale subresource cannot show the value at a path, as API servers require."""
    value: Any = obj
    steps = path.removeprefix(".").split(".")
    for i, step in enumerate(steps):
        if not isinstance(value, dict):
            found.append(_inaccessible(path, want, ".".join(["", *steps[: i + 1]]), value, dict))
            return
        if value.get(step) is None:
            return
        value = value[step]
    value = _as_json_number(value)
    if type(value) is not want:
        found.append(_inaccessible(path, want, path, value, want))
    elif isinstance(value, int) and value < 0:
        found.append(problems.invalid(path, value, "should be a non-negative integer"))
    elif isinstance(value, int) and value > SCALE_MAX:
        found.append(problems.invalid(path, value, f"should be less than or equal to {SCALE_MAX}"))


def _inaccessible(path: str, want: type, at: str, value: Any, expected: type) -> Problem:
    got = GO_TYPES[type(value)]
    wanted = GO_TYPES[expected].replace("interface {", "interface{")
    why = f"{at} accessor error: {plain(value)} is of the type {got}, expected {wanted}"
    return problems.invalid(path, want(), why)


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


@cache
def _pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(exact(pattern))


def _is_time(value: str) -> bool:
    """Report whether Kubernetes accepts a text as a time. It accepts more than RFC 3339."""
    found = TIME.fullmatch(value)
    # The year 0, which Python does not have, is a leap year like 2000.
    return found is not None and _is_day(re.sub("^0000", "2000", found[1]))


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_readable(value: str) -> bool:
    try:
        msgspec.convert(value, Time)
    except msgspec.ValidationError:
        return False
    return True
