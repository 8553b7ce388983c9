"""What of a live object has to change for it to be as a file declares: pure, objects in, changes out.

Declared is enforced, omitted is the server's. A field that the file has is what the file says; a field that it has not
is whatever the object has. Maps are compared field by field; a list, and free-form JSON such as a payload, is one
value, compared as a whole and as canonical JSON, the server's defaults aside.

One thing goes that the file does not mention: what could not stand beside what it does say, because a rule of the kind
forbids it. Who declares `template` where there was `worker`, or a `max` below the live `min`, means that.
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

PARTS = ("metadata", "spec")
"""What a file says of an object; its status is the server's."""
METADATA: Schema = {
    "properties": {
        "labels": {"additionalProperties": {"type": "string"}},
        "annotations": {"additionalProperties": {"type": "string"}},
    }
}
ROUNDS_MAX = 16
"""Times that what contradicts a declaration is looked for: each takes a field away, or is the last."""
_FIELD = re.compile(r"\bself\.(?:__)?(\w+?)(?:__)?\b")
"""A field in a rule; CEL's own words are written between underscores there."""
_encode = msgspec.json.Encoder(order="sorted").encode


class _Absent:
    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Any = _Absent()
"""The value of a field that is not there."""


class Change(NamedTuple):
    """One field that is to be another. What is not there is `ABSENT`."""

    path: Path
    before: Any
    after: Any


def canonical(value: Any) -> bytes:
    """JSON in one form: names sorted, whole numbers without a fraction. `true` and 1 are not the same."""
    return _encode(_whole(value))


def _whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _whole(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_whole(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def changes(kind: Kind, declared: Object, live: Object) -> list[Change]:
    """What of a live object is not as it is declared, in the order of the declaration."""
    schema = _schema(kind)
    before = {name: live[name] for name in PARTS if name in live}
    said = {name: declared[name] for name in PARTS if name in declared}
    meta = declared.get("metadata", {})
    said["metadata"] = {name: meta[name] for name in METADATA["properties"] if meta.get(name)}
    wanted = _overlaid(schema, before, said)
    _take_out_contradictions(kind, wanted, said)
    return list(_differences(schema, before, wanted, ()))


def _schema(kind: Kind) -> Schema:
    properties = object_schema(kind)["properties"]
    return {"properties": {"metadata": METADATA, "spec": properties["spec"]}}


def _is_whole(schema: Schema) -> bool:
    """Whether a value is declared as a whole, or not at all."""
    return bool(schema.get(PRESERVE)) or not ("properties" in schema or "additionalProperties" in schema)


def _below(schema: Schema, name: str) -> Schema:
    inner: Schema = schema.get("properties", {}).get(name) or schema.get("additionalProperties") or {}
    return inner


def _overlaid(schema: Schema, live: Any, declared: Any) -> Any:
    """What is declared, on top of what there is. Where both are the same it is what there is."""
    if isinstance(live, dict) and isinstance(declared, dict) and not _is_whole(schema):
        out = dict(live)
        for name, value in declared.items():
            known = live.get(name, ABSENT)
            out[name] = value if known is ABSENT else _overlaid(_below(schema, name), known, value)
        return out
    return live if _is_same(schema, live, declared) else declared


def _is_same(schema: Schema, live: Any, declared: Any) -> bool:
    one, other = canonical(live), canonical(declared)
    if one == other:
        return True
    if not isinstance(live, list) or not isinstance(declared, list):
        return False
    one, other = (canonical(_listed(schema, items)) for items in (live, declared))
    return one == other


def _listed(schema: Schema, items: list[Any]) -> list[Any]:
    """A list as the server would have it, in an order of its own where the order means nothing."""
    filled: list[Any] = msgspec.json.decode(msgspec.json.encode(items))
    for item in filled:
        fill(schema.get("items", {}), item)
    ordered = schema.get("x-kubernetes-list-type", "atomic") == "atomic"
    return filled if ordered else sorted(filled, key=canonical)


def _differences(schema: Schema, before: Any, after: Any, path: Path) -> Iterator[Change]:
    if before is after:
        return
    if isinstance(before, dict) and isinstance(after, dict) and not _is_whole(schema):
        for name in dict.fromkeys((*after, *before)):
            inner = _below(schema, name)
            yield from _differences(inner, before.get(name, ABSENT), after.get(name, ABSENT), (*path, name))
    elif before is ABSENT or after is ABSENT or not _is_same(schema, before, after):
        yield Change(path, before, after)


# What contradicts a declaration.


def _take_out_contradictions(kind: Kind, wanted: Object, declared: Object) -> None:
    """Remove, in place, what is not declared and breaks a rule together with what is."""
    rules = dict(form(kind).rules.fields).get("spec")
    if rules is None or not isinstance(wanted.get("spec"), dict):
        return
    schema = object_schema(kind)["properties"]["spec"]
    for _ in range(ROUNDS_MAX):
        # Defaults come before rules, as they do on a server.
        filled = msgspec.json.decode(msgspec.json.encode(wanted["spec"]))
        fill(schema, filled)
        if not _take_out(rules, filled, wanted["spec"], declared.get("spec")):
            return


def _take_out(tree: RuleTree, filled: Any, wanted: Any, declared: Any) -> bool:
    """Whether something was taken out."""
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
            # What is shared with the live object must not change with it.
            wanted[name] = dict(wanted[name]) if isinstance(wanted[name], dict) else wanted[name]
            if _take_out(inner, filled.get(name), wanted[name], declared[name]):
                return True
    return False


def _holds(program: cel.Program, value: Any) -> bool:
    try:
        return program(value, None) is True
    except cel.CelEvalError:
        return False


# As a patch.


def operations(found: list[Change], uid: str) -> list[Object]:
    """The changes as a JSON patch. It fails when the object is another one by now.

    Plain values are simply set, so that nothing else that happens to the object gets in the way.
    """
    out: list[Object] = [{"op": "test", "path": "/metadata/uid", "value": uid}]
    for path, _, after in found:
        where = "".join(f"/{step.replace('~', '~0').replace('/', '~1')}" for step in path)
        if after is ABSENT:
            out.append({"op": "remove", "path": where})
        else:
            out.append({"op": "add", "path": where, "value": after})
    return out
