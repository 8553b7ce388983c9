"""Writes the reference pages that are derived from the types: `make docs`. A test fails when one is out of date."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rota.api import KINDS, Kind
from rota.api.schema import REFERS, Schema, object_schema

KINDS_PAGE = Path(__file__).parent / "reference" / "kinds.md"

PREAMBLE = """\
# The kinds

This page is generated from the types. `make docs` writes it.

Every object has `apiVersion`, `kind` and `metadata`, as in Kubernetes. A field marked *required* must be set. A default
is stored by the server when the field is omitted. `status` is written by Rota.
"""


def kinds_page() -> str:
    """The reference of all kinds."""
    kinds = sorted(KINDS.values(), key=lambda kind: (not kind.custom, kind.name))
    index = "\n".join(f"- [{kind.name}](#{kind.name.lower()}): {_first_line(kind)}" for kind in kinds)
    return "\n".join([PREAMBLE, index, "", *(_kind_section(kind) for kind in kinds)])


def _first_line(kind: Kind) -> str:
    return (kind.type.__doc__ or "").strip().splitlines()[0]


def _kind_section(kind: Kind) -> str:
    facts = [
        f"`{kind.api_version}`",
        "namespaced" if kind.namespaced else "cluster-wide",
        f"`{kind.plural}`" + "".join(f", `{short}`" for short in kind.short_names),
    ]
    if kind.scale:
        facts.append("has a scale")
    if kind.made:
        facts.append("made by Rota")
    lines = [f"## {kind.name}", "", (kind.type.__doc__ or "").strip(), "", " · ".join(facts), ""]
    schema = object_schema(kind)
    rules = list(_rules(schema, ""))
    lines += ["| field | type | what it is |", "| --- | --- | --- |", *_rows(schema, ""), ""]
    if rules:
        lines += ["Rules:", "", *(f"- `{path or 'the object'}`: {message}" for path, message in rules), ""]
    return "\n".join(lines)


def _rows(schema: Schema, path: str) -> Iterator[str]:
    required = schema.get("required", [])
    for name, prop in schema["properties"].items():
        here = f"{path}{name}"
        if here in ("apiVersion", "kind", "metadata"):
            continue
        notes = [prop.get("description", "").rstrip(".") + "."]
        if name in required:
            notes.append("*Required.*")
        if "default" in prop and not isinstance(prop["default"], dict):
            notes.append(f"Default: `{_shown(prop['default'])}`.")
        if "enum" in prop:
            notes.append("One of " + ", ".join(f"`{value}`" for value in prop["enum"]) + ".")
        if refers := prop.get(REFERS):
            notes.append(f"Refers to [{refers}](#{refers.lower()}).")
        notes.extend(_bounds(prop))
        yield f"| `{here}` | {_type(prop)} | {' '.join(notes)} |"
        inner = prop.get("items", prop.get("additionalProperties", prop))
        if "properties" in inner and inner.get("description") != schema.get("description"):
            suffix = "[]." if "items" in prop else ".*." if "additionalProperties" in prop else "."
            yield from _rows(inner, here + suffix)


def _type(prop: Schema) -> str:
    if prop.get("x-kubernetes-int-or-string"):
        return "quantity"
    if prop.get("format") == "date-time":
        return "time"
    if prop.get("type") == "array":
        keys = prop.get("x-kubernetes-list-map-keys")
        return f"list of {_type(prop['items'])}" + (f", by {', '.join(keys)}" if keys else "")
    if "additionalProperties" in prop:
        return f"map of {_type(prop['additionalProperties'])}"
    return str(prop.get("type", "any"))


def _bounds(prop: Schema) -> Iterator[str]:
    low, high = prop.get("minimum"), prop.get("maximum")
    if low is not None and high is not None:
        yield f"From {low} to {high}."
    elif low is not None:
        yield f"At least {low}."
    if "maxItems" in prop:
        yield f"At most {prop['maxItems']} items."
    if "maxProperties" in prop:
        yield f"At most {prop['maxProperties']} keys."


def _rules(schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    for rule in schema.get("x-kubernetes-validations", ()):
        yield path, rule["message"]
    for name, prop in schema.get("properties", {}).items():
        inner = prop.get("items", prop.get("additionalProperties", prop))
        suffix = "[]" if "items" in prop else ""
        yield from _rules(inner, f"{path}.{name}{suffix}" if path else f"{name}{suffix}")


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    KINDS_PAGE.parent.mkdir(parents=True, exist_ok=True)
    KINDS_PAGE.write_text(kinds_page())
    print(f"wrote {KINDS_PAGE.name}")
