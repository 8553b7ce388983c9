"""Check an object as a server would, without a server, and locate each problem in the text."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Any

import msgspec

from rota.api import KINDS, Kind, ObjectMeta
from rota.api import problems as p
from rota.api.form import form
from rota.api.schema import PRESERVE, Schema, object_schema
from rota.manifest.yaml_text import Node, Problem
from rota.registry import core_kinds, metadata

Object = dict[str, Any]

NOT_MATCHED = re.compile(f'Invalid value: "([^"]*)": .* {p.NO_MATCH} \'(.*)\'')
SERVER_FIELDS = ("uid", "resourceVersion", "managedFields", "selfLink")
STEP = re.compile(r"\.?([^.\[\]]+)|\[([^\]]*)\]")


def resolve_kind(node: Node, source: str, path: str = "") -> tuple[Kind | None, list[Problem]]:
    """Return the kind that a document names, or the problems with its apiVersion and kind."""

    def wrong(where: Node, field: str, message: str) -> Problem:
        return Problem(source, where.line_number, where.column, _join(path, field), message)

    if node.fields is None:
        return None, [wrong(node, "", "an object with apiVersion, kind and metadata is expected here")]
    missing = [name for name in ("apiVersion", "kind") if _text(node, name) is None]
    if missing:
        return None, [wrong(node, name, "required") for name in missing]
    name, version = str(_text(node, "kind")), str(_text(node, "apiVersion"))
    kind = KINDS.get(name)
    if kind is None:
        return None, [wrong(node.fields["kind"], "kind", describe_unknown_kind(name))]
    if version != kind.api_version:
        return None, [wrong(node.fields["apiVersion"], "apiVersion", f"{name} is of {kind.api_version}, not {version}")]
    return kind, []


def _text(node: Node, name: str) -> str | None:
    inner = (node.fields or {}).get(name)
    return inner.value if inner is not None and isinstance(inner.value, str) and inner.value else None


def describe_unknown_kind(name: str) -> str:
    """Return the message about an unknown kind, with the nearest known one."""
    near = {known.lower(): known for known in KINDS}
    match = get_close_matches(name.lower(), near, 1)
    hint = f"did you mean {near[match[0]]}?" if match else f"there are {', '.join(sorted(KINDS))}"
    return f'no kind "{name}"; {hint}'


def check(kind: Kind, node: Node, source: str, path: str = "") -> list[Problem]:
    """Return every problem of an object."""
    obj = node.plain()
    found, unknown = _problems(kind, obj)
    schema = object_schema(kind)
    out = []
    for field in unknown:
        steps = _steps(node, field)
        line, column = _position(node, steps, at_key=True)
        out.append(Problem(source, line, column, _join(path, field), _unknown_field(schema, steps)))
    for problem in found:
        if problem.message.endswith(p.NOT_CHECKED):
            continue
        field = "" if problem.field == p.NO_FIELD else problem.field.removeprefix(".")
        line, column = _position(node, _steps(node, field), at_key=False)
        out.append(
            Problem(source, line, column, _join(path, field), problem.message + _lower_case_hint(problem.message))
        )
    return out


def _lower_case_hint(message: str) -> str:
    """Return a hint for a name that would be valid in lower case, else an empty text."""
    found = NOT_MATCHED.fullmatch(message)
    if found is None or not found[1].isupper() or not re.fullmatch(found[2], found[1].lower()):
        return ""
    return f'; write it in lower case: "{found[1].lower()}"'


def _problems(kind: Kind, obj: Object) -> tuple[list[p.Problem], list[str]]:
    """Return the problems of a new object and the paths of its unknown fields. Modifies the object."""
    unknown: list[str] = []
    found: list[p.Problem] = []
    meta = obj.setdefault("metadata", {})
    if not isinstance(meta, dict):
        return [p.invalid("metadata", meta, "must be an object")], []
    metadata.tidy(meta, unknown)
    for name in (*metadata.SERVER_FIELDS, *SERVER_FIELDS):
        meta.pop(name, None)
    _remove_mistyped(meta, found)
    if kind.has_status and kind.custom:
        obj.pop("status", None)
    core_kinds.prepare_new(kind, obj)
    shape = form(kind)
    more, wrong = shape.conform(obj)
    metadata.check_new(kind, meta, found)
    if all(each.reason != "FieldValueTypeInvalid" for each in wrong):
        # These checks only work on values of the right types.
        core_kinds.check(kind, obj, None, found)
    found = shape.break_rules(obj, None, [*found, *wrong])
    # What the scale subresource could not show (`.spec.replicas`) is wrong by its type, too.
    fields = {problem.field for problem in found}
    found = [each for each in found if not each.field.startswith(".") or each.field[1:] not in fields]
    return found, [*unknown, *more]


def _remove_mistyped(meta: Object, found: list[p.Problem]) -> None:
    """Report and remove metadata fields of the wrong type."""
    for name, value in [*meta.items()]:
        try:
            msgspec.convert({name: value}, ObjectMeta)
        except msgspec.ValidationError as error:
            what, _, where = str(error).partition(" - at `$.")
            field = f"metadata.{where.rstrip('`').replace('[...]', '')}" if where else f"metadata.{name}"
            if field in ("metadata.labels", "metadata.annotations") and isinstance(value, dict):
                key = next(key for key, inner in value.items() if not isinstance(inner, str))
                field, what = f"{field}[{key}]", f"{what}; put it in quotes"
            found.append(p.Problem("FieldValueTypeInvalid", field, f"Invalid value: {what.replace('`', '')}"))
            del meta[name]


def _unknown_field(schema: Schema, steps: list[str | int]) -> str:
    *parents, name = steps
    for step in parents:
        if isinstance(step, int):
            schema = schema.get("items", {})
        else:
            schema = schema.get("properties", {}).get(step) or schema.get("additionalProperties", {})
    known = list(schema.get("properties", {}))
    if not known and not schema.get(PRESERVE) and parents == ["metadata"]:
        known = sorted(metadata.KNOWN)
    near = get_close_matches(str(name), known, 1, 0.6)
    hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}" if known else ""
    return f"unknown field{hint}"


# Positions of field paths in the text.


def _steps(node: Node, path: str) -> list[str | int]:
    """Split a path into keys and indexes. Keys may contain dots, so the document decides where a step ends."""
    steps: list[str | int] = []
    here: Node | None = node
    while path:
        step, path = _step(here, path)
        steps.append(step)
        here = _below(here, step)
    return steps


def _step(node: Node | None, path: str) -> tuple[str | int, str]:
    rest = path.removeprefix(".")
    keys = [] if node is None or node.fields is None else list(node.fields)
    for key in sorted(keys, key=len, reverse=True):
        if rest.startswith(key) and rest[len(key) :][:1] in ("", ".", "["):
            return key, rest[len(key) :]
        if rest.startswith(f"[{key}]"):
            return key, rest[len(key) + 2 :]
    found = STEP.match(path)
    if found is None:
        return path, ""
    index = found[2]
    if index is not None and index.isdigit() and (node is None or node.items is not None):
        return int(index), path[found.end() :]
    return (found[1] if index is None else index), path[found.end() :]


def _below(node: Node | None, step: str | int) -> Node | None:
    if node is None:
        return None
    if isinstance(step, int):
        return node.items[step] if node.items is not None and step < len(node.items) else None
    return (node.fields or {}).get(step)


def _position(node: Node, steps: list[str | int], *, at_key: bool) -> tuple[int, int]:
    """Return the position of a value or of its key; if it is missing, of its parent."""
    position = (node.line_number, node.column)
    for i, step in enumerate(steps):
        inner = _below(node, step)
        if inner is None:
            return position
        last = i == len(steps) - 1
        missing_below = not last and _below(inner, steps[i + 1]) is None
        if isinstance(step, str) and ((last and at_key) or missing_below):
            position = node.keys[step]
        else:
            position = (inner.line_number, inner.column)
        node = inner
    return position


def _join(path: str, field: str) -> str:
    return ".".join(part for part in (path, field) if part)
