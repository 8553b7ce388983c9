"""The thorough walk over an object by its schema: prune, fill in defaults, and report every problem.

It runs when the quick check (`fitting`) has found that something is not plainly right, so it is written to be
complete, not fast.
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import cache
from typing import Any

import msgspec

from rota.api import problems
from rota.api.problems import Problem
from rota.api.schema import PRESERVE, Schema

TYPE_NAMES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    dict: "object",
    list: "array",
    type(None): "null",
}


def prune(schema: Schema, value: Any, path: str, unknown: list[str]) -> None:
    """Remove, in place, fields that the schema does not have (their paths go to `unknown`) and fields that are null."""
    if isinstance(value, dict):
        if "properties" in schema:
            known = schema["properties"]
            for name in [n for n, v in value.items() if n not in known or v is None]:
                if name not in known:
                    unknown.append(_below(path, name))
                del value[name]
            for name, inner in value.items():
                prune(known[name], inner, _below(path, name), unknown)
        elif "additionalProperties" in schema:
            for name, inner in value.items():
                prune(schema["additionalProperties"], inner, _below(path, name), unknown)
    elif isinstance(value, list) and "items" in schema:
        for i, inner in enumerate(value):
            prune(schema["items"], inner, f"{path}[{i}]", unknown)


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
    if schema.get("x-kubernetes-int-or-string"):
        return _check_int_or_string(schema, value, path, found)
    want = schema.get("type")
    if want is None:
        return value
    got = TYPE_NAMES[type(value)]
    if want == "integer" and isinstance(value, float) and value.is_integer():
        value, got = int(value), "integer"
    if got != want and not (want == "number" and got == "integer"):
        found.append(problems.type_invalid(path, got, want))
        return value
    if isinstance(value, dict):
        _check_object(schema, value, path, found)
    elif isinstance(value, list):
        _check_list(schema, value, path, found)
    elif isinstance(value, str):
        _check_text(schema, value, path, found)
    elif want in ("integer", "number"):
        _check_number(schema, value, path, found)
    return value


def _check_object(schema: Schema, value: dict[str, Any], path: str, found: list[Problem]) -> None:
    if "properties" in schema:
        known = schema["properties"]
        found.extend(problems.required(_below(path, name)) for name in schema.get("required", ()) if name not in value)
        for name, inner in value.items():
            if name in known:
                value[name] = check(known[name], inner, _below(path, name), found)
    elif "additionalProperties" in schema:
        most = schema.get("maxProperties")
        if most is not None and len(value) > most:
            found.append(problems.too_many(path, len(value), most))
        for name, inner in value.items():
            value[name] = check(schema["additionalProperties"], inner, _below(path, name), found)
    else:
        assert schema.get(PRESERVE) or path == "metadata", f"{path} has no structure"


def _check_list(schema: Schema, value: list[Any], path: str, found: list[Problem]) -> None:
    if len(value) > schema.get("maxItems", len(value)):
        found.append(problems.too_many(path, len(value), schema["maxItems"]))
    if len(value) < schema.get("minItems", 0):
        least = schema["minItems"]
        found.append(problems.invalid(path, len(value), f"{path} in body should have at least {least} items"))
    for i, inner in enumerate(value):
        value[i] = check(schema["items"], inner, f"{path}[{i}]", found)
    list_type = schema.get("x-kubernetes-list-type")
    if list_type == "set":
        _check_unique(value, value, path, found)
    elif list_type == "map" and all(isinstance(item, dict) for item in value):
        keys = schema["x-kubernetes-list-map-keys"]
        _check_unique([{k: item.get(k) for k in keys} for item in value], value, path, found)


def _check_unique(identities: list[Any], value: list[Any], path: str, found: list[Problem]) -> None:
    seen: set[bytes] = set()
    for i, identity in enumerate(identities):
        encoded = msgspec.json.encode(identity)
        if encoded in seen:
            found.append(problems.duplicate(f"{path}[{i}]", identity))
        seen.add(encoded)


def _check_text(schema: Schema, value: str, path: str, found: list[Problem]) -> None:
    if len(value) > schema.get("maxLength", len(value)):
        found.append(problems.too_long(path, schema["maxLength"]))
    if len(value) < schema.get("minLength", 0):
        least = schema["minLength"]
        found.append(problems.invalid(path, value, f"{path} in body should be at least {least} chars long"))
    if "pattern" in schema and not _pattern(schema["pattern"]).search(value):
        found.append(problems.invalid(path, value, f"{path} in body should match '{schema['pattern']}'"))
    if "enum" in schema and value not in schema["enum"]:
        found.append(problems.not_supported(path, value, schema["enum"]))
    if schema.get("format") == "date-time" and not _is_time(value):
        found.append(problems.type_invalid(path, value, "date-time"))


def _check_number(schema: Schema, value: int | float, path: str, found: list[Problem]) -> None:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and value < least:
        found.append(problems.invalid(path, value, f"{path} in body should be greater than or equal to {least}"))
    if most is not None and value > most:
        found.append(problems.invalid(path, value, f"{path} in body should be less than or equal to {most}"))


def _check_int_or_string(schema: Schema, value: Any, path: str, found: list[Problem]) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str):
        _check_text(schema, value, path, found)
    elif type(value) is not int:
        found.append(problems.type_invalid(path, TYPE_NAMES[type(value)], "integer,string"))
    return value


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


@cache
def _pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _is_time(value: str) -> bool:
    try:
        msgspec.convert(value, datetime)
    except msgspec.ValidationError:
        return False
    return True
