"""The structural schemas of kinds, derived from their types, and the structures derived from those.

The schema is the one intermediate form: OpenAPI v3 as Kubernetes wants it (no `$ref`, every level typed), with rules
as `x-kubernetes-validations`, static defaults, bounds and list types. `x-rota-…` marks references and checks, and
never leaves this package.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

from rota.api.kind import Kind
from rota.api.model import TIME_PATTERN, Model, Rule, as_written
from rota.api.structure import ANY, ATOMIC_ANY, SCALAR, Structure

Schema = dict[str, Any]
REFERS = "x-rota-refers"
NEEDS = "x-rota-needs"
CHECKS = "x-rota-checks"
OWN = (REFERS, NEEDS, CHECKS)
"""Marks that are not part of the exported schemas."""
PRESERVE = "x-kubernetes-preserve-unknown-fields"


@cache
def schema_of(type_: type[Model]) -> Schema:
    """Return the structural schema of a model. It is shared: do not change it."""
    info = inspect.type_info(type_)
    assert isinstance(info, inspect.StructType)
    return _struct(info)


@cache
def object_schema(kind: Kind) -> Schema:
    """Return the structural schema of an object, with `apiVersion`, `kind` and a free-form `metadata`."""
    own = schema_of(kind.type)
    properties = {
        "apiVersion": {"type": "string", "description": "Group and version of this form of the object."},
        "kind": {"type": "string", "description": "Kind of the object."},
        "metadata": {"type": "object"},
        **{name: prop for name, prop in own["properties"].items() if name != "metadata"},
    }
    schema = {**own, "properties": properties}
    required = [name for name in own.get("required", []) if name != "metadata"]
    schema.pop("required", None)
    if required:
        schema["required"] = required
    return schema


def _struct(info: inspect.StructType) -> Schema:
    model = info.cls
    assert issubclass(model, Model), f"{model} is not a model"
    properties: dict[str, Schema] = {}
    required: list[str] = []
    for f in info.fields:
        properties[f.encode_name] = prop = _of(f.type)
        if f.required:
            required.append(f.encode_name)
        else:
            default = _default(f, prop)
            if default is not None:
                prop["default"] = default
    schema: Schema = {"type": "object", "description": (model.__doc__ or "").strip(), "properties": properties}
    if required:
        schema["required"] = required
    rules = (*model.rules, *(rule for check in model.checks for rule in check.rules))
    if rules:
        schema["x-kubernetes-validations"] = [_rule(rule) for rule in rules]
    if model.checks:
        schema[CHECKS] = model.checks
    return schema


def _rule(rule: Rule) -> dict[str, str]:
    exported = {"rule": rule.cel, "message": rule.message}
    if rule.field:
        exported["fieldPath"] = "." + rule.field
    return exported


def _default(f: inspect.Field, prop: Schema) -> Any:
    """Return the static default that the server stores, or None. An empty list or map in a type means "absent"."""
    if f.default is not msgspec.NODEFAULT:
        return f.default
    if f.default_factory is msgspec.NODEFAULT or f.default_factory in (list, dict):
        return None
    made = f.default_factory()
    if isinstance(made, Model):
        # Written out in full: an API server checks a default against the rules before it fills in nested defaults.
        return {name: inner["default"] for name, inner in prop["properties"].items() if "default" in inner}
    return msgspec.to_builtins(made)


def _of(info: inspect.Type) -> Schema:
    if isinstance(info, inspect.Metadata):
        schema = _of(info.type)
        schema.update(info.extra_json_schema or {})
        if info.extra and info.extra.get("refers"):
            schema[REFERS] = info.extra["refers"]
        if info.extra and info.extra.get("needs"):
            schema[NEEDS] = info.extra["needs"]
        if "x-kubernetes-map-type" in schema and schema.get("type") != "object":
            raise TypeError(f"only maps can be atomic: {schema}")
        return schema
    if isinstance(info, inspect.UnionType):
        members = [t for t in info.types if not isinstance(t, inspect.NoneType)]
        if len(members) == 1:
            return _of(members[0])
        both = {schema["type"]: schema for schema in map(_of, members)}
        assert both.keys() == {"integer", "string"}, info
        bounds = {k: v for k, v in {**both["integer"], **both["string"]}.items() if k not in ("type", "format")}
        return {"x-kubernetes-int-or-string": True, **bounds}
    if isinstance(info, inspect.StructType):
        return dict(_struct(info))
    if isinstance(info, inspect.DictType):
        return _map(info)
    if isinstance(info, inspect.ListType):
        return _bounded({"type": "array", "items": _of(info.item_type)}, info.min_length, info.max_length, "Items")
    return _leaf(info)


def _map(info: inspect.DictType) -> Schema:
    if isinstance(info.value_type, inspect.AnyType):
        return {"type": "object", PRESERVE: True}
    return _bounded(
        {"type": "object", "additionalProperties": _of(info.value_type)}, None, info.max_length, "Properties"
    )


def _leaf(info: inspect.Type) -> Schema:
    if isinstance(info, inspect.AnyType):
        return {PRESERVE: True}
    if isinstance(info, inspect.StrType):
        schema = _bounded({"type": "string"}, info.min_length, info.max_length, "Length")
        return {**schema, "pattern": as_written(info.pattern)} if info.pattern else schema
    if isinstance(info, inspect.LiteralType):
        return {"type": "string", "enum": list(info.values)}
    if isinstance(info, inspect.BoolType):
        return {"type": "boolean"}
    if isinstance(info, inspect.DateTimeType):
        return {"type": "string", "format": "date-time", "pattern": TIME_PATTERN}
    if isinstance(info, inspect.IntType | inspect.FloatType):
        whole = isinstance(info, inspect.IntType)
        schema = {"type": "integer", "format": "int64"} if whole else {"type": "number"}
        return schema | {k: v for k, v in (("minimum", info.ge), ("maximum", info.le)) if v is not None}
    raise TypeError(f"no schema for {info}")


def _bounded(schema: Schema, least: int | None, most: int | None, suffix: str) -> Schema:
    if least:
        schema["min" + suffix] = least
    if most is not None:
        schema["max" + suffix] = most
    return schema


def node_of(schema: Schema) -> Structure:
    """Return the structure of values of a schema."""
    atomic = schema.get("x-kubernetes-map-type") == "atomic"
    if schema.get("type") == "array":
        item = schema["items"]
        keys = tuple(schema.get("x-kubernetes-list-map-keys", ()))
        defaults = {k: item["properties"][k]["default"] for k in keys if "default" in item["properties"][k]}
        list_type = schema.get("x-kubernetes-list-type", "atomic")
        return Structure("list", item=node_of(item), list_type=list_type, keys=keys, key_defaults=defaults)
    if "properties" in schema:
        return Structure("struct", fields={k: node_of(v) for k, v in schema["properties"].items()}, atomic=atomic)
    if "additionalProperties" in schema:
        return Structure("map", item=node_of(schema["additionalProperties"]), atomic=atomic)
    if schema.get(PRESERVE):
        return ATOMIC_ANY if atomic else ANY
    return SCALAR


METADATA_NODE = Structure(
    "struct",
    fields={
        **dict.fromkeys(
            ("name", "generateName", "namespace", "uid", "resourceVersion", "selfLink", "generation"), SCALAR
        ),
        **dict.fromkeys(("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"), SCALAR),
        "labels": Structure("map", item=SCALAR),
        "annotations": Structure("map", item=SCALAR),
        "finalizers": Structure("list", item=SCALAR, list_type="set"),
        # In Kubernetes each owner reference is owned as a whole: the items are atomic maps with the key uid.
        "ownerReferences": Structure(
            "list",
            item=Structure("struct", fields=dict.fromkeys(("uid", "name", "kind", "apiVersion"), SCALAR), atomic=True),
            list_type="map",
            keys=("uid",),
        ),
    },
)


@cache
def object_node(kind: Kind) -> Structure:
    """Return the structure of objects of a kind."""
    node = node_of(object_schema(kind))
    return Structure("struct", fields={**node.fields, "metadata": METADATA_NODE})
