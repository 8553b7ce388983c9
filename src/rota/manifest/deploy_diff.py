"""The difference between a live object and its declaration: pure, objects in, changes out.

Declared fields are enforced; omitted fields belong to the server. Maps are compared field by field. A list, or
free-form JSON such as a payload, is one value: compared as a whole, as canonical JSON, with the server's defaults
filled in.

One kind of omitted field is removed: a field that a rule of the kind forbids beside what is declared. Declaring
`template` where the object has `worker`, or a `max` below the live `min`, implies that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from rota.api import Kind, cel
from rota.api.form import form
from rota.api.rules import RuleTree
from rota.api.schema import PRESERVE, Schema, object_schema
from rota.api.validation import fill

Object = dict[str, Any]
Path = tuple[str, ...]

DECLARED_PARTS = ("metadata", "spec")
"""The parts of an object that a file declares; the status belongs to the server."""
METADATA: Schema = {
    "properties": {
        "labels": {"additionalProperties": {"type": "string"}},
        "annotations": {"additionalProperties": {"type": "string"}},
    }
}
ROUNDS_MAX = 16
"""Passes over the rules: each removes a field, or is the last."""
_FIELD = re.compile(r"\bself\.(?:__)?(\w+?)(?:__)?\b")
"""A field in a rule. Fields named like a CEL keyword are written between underscores."""
_encode = msgspec.json.Encoder(order="sorted").encode


class _Absent:
    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Any = _Absent()
"""The value of a field that is not there."""


class Change(NamedTuple):
    """One field that changes. A missing value is `ABSENT`."""

    path: Path
    before: Any
    after: Any


def canonical(value: Any) -> bytes:
    """Encode as canonical JSON: sorted names, whole numbers without a fraction. `true` and 1 differ."""
    return _encode(_normalized(value))


def _normalized(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _normalized(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_normalized(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def diff(kind: Kind, declared: Object, live: Object) -> list[Change]:
    """Return the changes that make a live object match its declaration, in the order of the declaration."""
    schema = _schema(kind)
    before = {name: live[name] for name in DECLARED_PARTS if name in live}
    chosen = {name: declared[name] for name in DECLARED_PARTS if name in declared}
    meta = declared.get("metadata", {})
    chosen["metadata"] = {name: meta[name] for name in METADATA["properties"] if meta.get(name)}
    wanted = _overlay(schema, before, chosen)
    _remove_contradictions(kind, wanted, chosen)
    return list(_differences(schema, before, wanted, ()))


def _schema(kind: Kind) -> Schema:
    properties = object_schema(kind)["properties"]
    return {"properties": {"metadata": METADATA, "spec": properties["spec"]}}


def _is_atomic(schema: Schema) -> bool:
    """Report whether a value is compared and replaced as a whole."""
    return bool(schema.get(PRESERVE)) or not ("properties" in schema or "additionalProperties" in schema)


def _field_schema(schema: Schema, name: str) -> Schema:
    inner: Schema = schema.get("properties", {}).get(name) or schema.get("additionalProperties") or {}
    return inner


def _overlay(schema: Schema, live: Any, declared: Any) -> Any:
    """Merge a declaration over a live value. Returns the live value itself where both are equal."""
    if isinstance(live, dict) and isinstance(declared, dict) and not _is_atomic(schema):
        out = dict(live)
        for name, value in declared.items():
            known = live.get(name, ABSENT)
            out[name] = value if known is ABSENT else _overlay(_field_schema(schema, name), known, value)
        return out
    return live if _is_same(schema, live, declared) else declared


def _is_same(schema: Schema, live: Any, declared: Any) -> bool:
    one, other = canonical(live), canonical(declared)
    if one == other:
        return True
    if not isinstance(live, list) or not isinstance(declared, list):
        return False
    one, other = (canonical(_with_defaults(schema, items)) for items in (live, declared))
    return one == other


def _with_defaults(schema: Schema, items: list[Any]) -> list[Any]:
    """Return a list with the server's defaults, sorted if its order has no meaning."""
    filled: list[Any] = msgspec.json.decode(msgspec.json.encode(items))
    for item in filled:
        fill(schema.get("items", {}), item)
    ordered = schema.get("x-kubernetes-list-type", "atomic") == "atomic"
    return filled if ordered else sorted(filled, key=canonical)


def _differences(schema: Schema, before: Any, after: Any, path: Path) -> Iterator[Change]:
    if before is after:
        return
    if isinstance(before, dict) and isinstance(after, dict) and not _is_atomic(schema):
        for name in dict.fromkeys((*after, *before)):
            inner = _field_schema(schema, name)
            yield from _differences(inner, before.get(name, ABSENT), after.get(name, ABSENT), (*path, name))
    elif before is ABSENT or after is ABSENT or not _is_same(schema, before, after):
        yield Change(path, before, after)


# Contradictions.


def _remove_contradictions(kind: Kind, wanted: Object, declared: Object) -> None:
    """Remove, in place, undeclared fields that break a rule together with declared ones."""
    rules = dict(form(kind).rules.fields).get("spec")
    if rules is None or not isinstance(wanted.get("spec"), dict):
        return
    schema = object_schema(kind)["properties"]["spec"]
    for _ in range(ROUNDS_MAX):
        # Defaults come before rules, as they do on a server.
        filled = msgspec.json.decode(msgspec.json.encode(wanted["spec"]))
        fill(schema, filled)
        if not _remove_first_contradiction(rules, filled, wanted["spec"], declared.get("spec")):
            return


def _remove_first_contradiction(tree: RuleTree, filled: Any, wanted: Any, declared: Any) -> bool:
    """Remove the undeclared fields of the first broken rule. Returns whether any were removed."""
    if not (isinstance(wanted, dict) and isinstance(declared, dict) and isinstance(filled, dict)):
        return False
    for program, _, _ in tree.rules:
        if program.uses_old or _holds(program, filled):
            continue
        named = set(_FIELD.findall(program.source))
        surplus = [name for name in wanted if name in named and name not in declared]
        for name in surplus:
            del wanted[name]
        if surplus:
            return True
    for name, inner in tree.fields:
        if name in declared and name in wanted:
            # A copy: the live object shares this map.
            wanted[name] = dict(wanted[name]) if isinstance(wanted[name], dict) else wanted[name]
            if _remove_first_contradiction(inner, filled.get(name), wanted[name], declared[name]):
                return True
    return False


def _holds(program: cel.Program, value: Any) -> bool:
    try:
        return program(value, None) is True
    except cel.CelEvalError:
        return False


# As a patch.


def json_patch(found: list[Change], uid: str) -> list[Object]:
    """Return the changes as a JSON patch that fails if the object has been replaced.

    It tests the uid only and not the old values, so that other writes to the object do not make it fail.
    """
    out: list[Object] = [{"op": "test", "path": "/metadata/uid", "value": uid}]
    for path, _, after in found:
        where = "".join(f"/{step.replace('~', '~0').replace('/', '~1')}" for step in path)
        if after is ABSENT:
            out.append({"op": "remove", "path": where})
        else:
            out.append({"op": "add", "path": where, "value": after})
    return out
