"""OpenAPI v3 of the API: one document for each group and version, as Kubernetes' own clients read them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from rota.api.crd import exported
from rota.api.kind import Kind
from rota.api.meta import ObjectMeta
from rota.api.schema import Schema, object_schema, schema_of
from rota.api.served import kinds_of

META = "io.k8s.apimachinery.pkg.apis.meta.v1"
SCALE = "io.k8s.api.autoscaling.v1.Scale"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


def base_path(group: str, version: str) -> str:
    """Return the path that a group and version is served at."""
    return f"apis/{group}/{version}" if group else f"api/{version}"


def component(kind: Kind) -> str:
    """Return the name of a kind's schema."""
    if kind.custom:
        reverse = ".".join(reversed(kind.group.split(".")))
        return f"{reverse}.{kind.version}.{kind.name}"
    return f"io.k8s.api.{kind.group.partition('.')[0] or 'core'}.{kind.version}.{kind.name}"


@cache
def document(group: str, version: str) -> dict[str, Any]:
    """Return the OpenAPI document of a group and version. It is shared: do not change it."""
    kinds = kinds_of(group, version)
    schemas: dict[str, Schema] = dict(_meta_schemas())
    for kind in kinds:
        schemas[component(kind)] = _object(kind)
        schemas[component(kind) + "List"] = _list(kind)
    paths: dict[str, Any] = {}
    for kind in kinds:
        paths.update(_paths(kind))
    return {
        "openapi": "3.0.0",
        "info": {"title": "Rota", "version": version},
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": dict(sorted(schemas.items()))},
    }


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _gvk(kind: Kind, name: str) -> list[dict[str, str]]:
    return [{"group": kind.group, "kind": name, "version": kind.version}]


def _object(kind: Kind) -> Schema:
    schema = exported(object_schema(kind))
    metadata = {"description": "Name, identity, version and lifecycle.", "allOf": [_ref(f"{META}.ObjectMeta")]}
    properties = {**schema["properties"], "metadata": metadata}
    return {**schema, "properties": properties, "x-kubernetes-group-version-kind": _gvk(kind, kind.name)}


def _list(kind: Kind) -> Schema:
    name = f"{kind.name}List"
    return {
        "type": "object",
        "description": f"A list of objects of kind {kind.name}.",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"allOf": [_ref(f"{META}.ListMeta")]},
            "items": {"type": "array", "items": _ref(component(kind))},
        },
        "x-kubernetes-group-version-kind": _gvk(kind, name),
    }


def _meta_schemas() -> Iterator[tuple[str, Schema]]:
    text, number = {"type": "string"}, {"type": "integer", "format": "int64"}
    yield f"{META}.ObjectMeta", _open(schema_of(ObjectMeta))
    yield (
        f"{META}.ListMeta",
        _struct({"resourceVersion": text, "continue": text, "remainingItemCount": number, "selfLink": text}),
    )
    cause = _struct({"reason": text, "message": text, "field": text})
    details = _struct(
        {
            "name": text,
            "group": text,
            "kind": text,
            "uid": text,
            "retryAfterSeconds": number,
            "causes": {"type": "array", "items": cause},
        }
    )
    status = {"status": text, "message": text, "reason": text, "code": number, "details": details}
    frame = {"apiVersion": text, "kind": text}
    yield f"{META}.Status", _struct({**frame, "metadata": {"allOf": [_ref(f"{META}.ListMeta")]}, **status})
    yield (
        f"{META}.DeleteOptions",
        _struct(
            {
                **frame,
                "propagationPolicy": text,
                "gracePeriodSeconds": number,
                "orphanDependents": {"type": "boolean"},
                "preconditions": _struct({"uid": text, "resourceVersion": text}),
                "dryRun": {"type": "array", "items": text},
            }
        ),
    )
    yield f"{META}.Patch", {"type": "object", "description": "A patch, in the form that its content type names."}
    yield (
        SCALE,
        _struct(
            {
                **frame,
                "metadata": {"allOf": [_ref(f"{META}.ObjectMeta")]},
                "spec": _struct({"replicas": number}),
                "status": _struct({"replicas": number, "selector": text}),
            }
        ),
    )


def _struct(properties: dict[str, Schema]) -> Schema:
    return {"type": "object", "properties": properties}


def _open(schema: Schema) -> Schema:
    """Return a schema for documentation, in which every field is optional and may be null, as metadata is on the
    wire."""
    out = exported(schema)
    out.pop("required", None)
    return {**out, "properties": {k: {**v, "nullable": True} for k, v in out["properties"].items()}}


def _paths(kind: Kind) -> Iterator[tuple[str, Any]]:
    root = f"/{base_path(kind.group, kind.version)}"
    collection = f"{root}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"
    scope = [_parameter("namespace", "path")] if kind.namespaced else []
    if kind.namespaced and "list" in kind.verbs:
        yield f"{root}/{kind.plural}", {"get": _operation(kind, "list", "AllNamespaces")}
    whole = {"get": "list", "post": "post", "delete": "deletecollection"}
    yield (
        collection,
        {
            **{method: _operation(kind, verb) for method, verb in whole.items() if VERB_OF[verb] in kind.verbs},
            **({"parameters": scope} if scope else {}),
        },
    )
    if "get" not in kind.verbs:
        return
    named = [*scope, _parameter("name", "path")]
    main = {verb: _operation(kind, verb) for verb in ("get", "put", "patch", "delete") if VERB_OF[verb] in kind.verbs}
    yield f"{collection}/{{name}}", {**main, "parameters": named}
    subresources = (["status"] if kind.has_status else []) + (["scale"] if kind.scale else [])
    for part in subresources:
        verbs = {verb: _operation(kind, verb, part) for verb in ("get", "put", "patch") if VERB_OF[verb] in kind.verbs}
        yield f"{collection}/{{name}}/{part}", {**verbs, "parameters": named}


def _parameter(name: str, where: str, type_: str = "string") -> dict[str, Any]:
    parameter: dict[str, Any] = {"name": name, "in": where, "schema": {"type": type_}}
    return {**parameter, "required": True} if where == "path" else parameter


WRITE_PARAMETERS = [_parameter(name, "query") for name in ("dryRun", "fieldManager", "fieldValidation")]
LIST_PARAMETERS = [
    *(
        _parameter(n, "query")
        for n in ("labelSelector", "fieldSelector", "continue", "resourceVersion", "resourceVersionMatch")
    ),
    *(_parameter(n, "query", "integer") for n in ("limit", "timeoutSeconds")),
    *(_parameter(n, "query", "boolean") for n in ("watch", "allowWatchBookmarks", "sendInitialEvents")),
]
DELETE_PARAMETERS = [
    _parameter("dryRun", "query"),
    _parameter("propagationPolicy", "query"),
    _parameter("gracePeriodSeconds", "query", "integer"),
    _parameter("orphanDependents", "query", "boolean"),
]
VERB_OF = {
    "get": "get",
    "list": "list",
    "post": "create",
    "put": "update",
    "patch": "patch",
    "delete": "delete",
    "deletecollection": "deletecollection",
}
"""The verb of access rules for each action."""
ACTIONS = {"get": "get", "list": "list", "post": "post", "put": "put", "patch": "patch", "delete": "delete"}
WORDS = {"get": "read", "list": "list", "post": "create", "put": "replace", "patch": "patch", "delete": "delete"}


def _operation(kind: Kind, verb: str, part: str = "") -> dict[str, Any]:
    words = WORDS.get(verb, verb)
    scope = "Namespaced" if kind.namespaced else ""
    body = _ref(SCALE if part == "scale" else component(kind))
    operation: dict[str, Any] = {
        "operationId": f"{words}{_camel(kind.group)}{_camel(kind.version)}{scope}{kind.name}{_camel(part, '')}",
        "description": f"{words} {part + ' of ' if part in ('status', 'scale') else ''}{kind.plural}",
        "x-kubernetes-action": ACTIONS.get(verb, verb),
        "x-kubernetes-group-version-kind": _gvk(kind, kind.name)[0],
        "responses": _responses(kind, verb, body),
    }
    if verb in ("list", "deletecollection"):
        operation["parameters"] = LIST_PARAMETERS
    elif verb in ("post", "put"):
        operation["parameters"] = WRITE_PARAMETERS
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    elif verb == "patch":
        operation["parameters"] = [*WRITE_PARAMETERS, _parameter("force", "query", "boolean")]
        types = [JSON_PATCH, MERGE_PATCH, APPLY, *([] if kind.custom else [STRATEGIC_PATCH])]
        patch = {"schema": _ref(f"{META}.Patch")}
        operation["requestBody"] = {"required": True, "content": dict.fromkeys(types, patch)}
    elif verb == "delete":
        operation["parameters"] = DELETE_PARAMETERS
        options = {"schema": _ref(f"{META}.DeleteOptions")}
        operation["requestBody"] = {"content": {"application/json": options}}
    return operation


def _responses(kind: Kind, verb: str, body: Schema) -> dict[str, Any]:
    listed = _ref(component(kind) + "List")
    answers = {"list": listed, "deletecollection": listed}
    good = {"description": "OK", "content": {"application/json": {"schema": answers.get(verb, body)}}}
    if verb == "delete":
        either = {"anyOf": [_ref(f"{META}.Status"), body]}
        good = {"description": "OK", "content": {"application/json": {"schema": either}}}
    refusal = {"description": "Refused", "content": {"application/json": {"schema": _ref(f"{META}.Status")}}}
    code = {"post": ["201"], "put": ["200", "201"], "patch": ["200", "201"]}.get(verb, ["200"])
    return {**dict.fromkeys(code, good), "default": refusal}


def _camel(text: str, empty: str = "Core") -> str:
    return "".join(part[:1].upper() + part[1:] for part in text.replace("-", ".").split(".")) or empty
