"""The JSON Schema of the project file, for editors, generated from the types that check the file.

It is never stricter than they are. Rules across several fields are left to `rota compile`.
"""

from __future__ import annotations

from typing import Any

from rota.api.schema import PRESERVE, Schema
from rota.manifest.project_format import ENTRIES_MAX, NESTED, NESTED_KEYS, PROJECT_NAME, SECTIONS, Section

DIALECT = "https://json-schema.org/draft/2020-12/schema"
FROM_ENVIRONMENT = "fromEnvironment"
_KEPT = (
    "description",
    "type",
    "enum",
    "default",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "maxProperties",
    "required",
    "format",
)
"""Keywords with the same meaning in JSON Schema."""


def project_schema() -> dict[str, Any]:
    """Return the schema of a project file."""
    sections = {name: _list_of(name, section) for name, section in SECTIONS.items()}
    return {
        "$schema": DIALECT,
        "title": "Rota project",
        "description": "The project file of Rota, rota.yaml: functions, schedules, pools, workloads and more.",
        "type": "object",
        "additionalProperties": False,
        "required": ["name"],
        "properties": {"name": _value(PROJECT_NAME), **sections},
        "$defs": {
            FROM_ENVIRONMENT: {
                "type": "string",
                "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*\}",
                "description": "A value of the environment: ${NAME}.",
            }
        },
    }


def _list_of(name: str, section: Section) -> Schema:
    entry = _entry(section)
    if name == "functions":
        nested = {"description": NESTED.description, **_entries(_entry(NESTED))}
        entry["properties"] |= dict.fromkeys(NESTED_KEYS, nested)
        entry["not"] = {"required": list(NESTED_KEYS)}
    return {"description": section.description, **_entries(entry)}


def _entries(entry: Schema) -> Schema:
    # A key without a value is an empty list.
    return {"type": ["array", "null"], "maxItems": ENTRIES_MAX, "items": entry}


def _entry(section: Section) -> Schema:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["name", *section.required],
        "properties": {name: _optional(_value(prop), name, section) for name, prop in section.properties.items()},
    }


def _optional(schema: Schema, name: str, section: Section) -> Schema:
    """Allow null for an optional field: a field without a value counts as absent."""
    return schema if name == "name" or name in section.required else _nullable(schema)


def _nullable(schema: Schema) -> Schema:
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    return {**schema, "type": [schema["type"], "null"]} if isinstance(schema.get("type"), str) else schema


def _value(schema: Schema) -> Schema:
    """Convert a structural schema to JSON Schema."""
    out: Schema = {key: schema[key] for key in _KEPT if key in schema}
    if schema.get("x-kubernetes-int-or-string"):
        texts: Schema = {key: out.pop(key) for key in ("pattern", "maxLength") if key in out}
        numbers: Schema = {key: out.pop(key) for key in ("minimum", "maximum") if key in out}
        choices: list[Schema] = [{"type": "integer", **numbers}, {"type": "string", **texts}, _environment()]
        return {**out, "anyOf": choices}
    if schema.get(PRESERVE):
        return out
    if "properties" in schema:
        required = schema.get("required", ())
        inner = {name: _value(prop) for name, prop in schema["properties"].items()}
        out["properties"] = {name: prop if name in required else _nullable(prop) for name, prop in inner.items()}
        out["additionalProperties"] = False
    elif "additionalProperties" in schema:
        out["additionalProperties"] = _nullable(_value(schema["additionalProperties"]))
    elif "items" in schema:
        out["items"] = _value(schema["items"])
        if schema.get("x-kubernetes-list-type") == "set":
            out["uniqueItems"] = True
    elif schema.get("type") != "string" or out.keys() & {"enum", "pattern", "minLength", "maxLength"}:
        return _or_environment(out)
    return out


def _or_environment(schema: Schema) -> Schema:
    said: Schema = {key: schema.pop(key) for key in ("description", "default") if key in schema}
    if schema.get("type") == "string":
        # The expanded value may be longer or shorter than the written one.
        schema = {**schema, "not": _environment()}
    return {**said, "anyOf": [schema, _environment()]}


def _environment() -> Schema:
    return {"$ref": f"#/$defs/{FROM_ENVIRONMENT}"}
