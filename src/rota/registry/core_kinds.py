"""What the kinds of Kubernetes' own groups do beside their schemas."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from rota.api import Kind
from rota.api import problems as p
from rota.api.problems import Problem

Object = dict[str, Any]

NAMESPACE_FINALIZER = "kubernetes"
NAME_LABEL = "kubernetes.io/metadata.name"
DATA_BYTES_MAX = 1_048_576
"""Bytes of a Secret or ConfigMap at most."""
DATA_KEY = re.compile(r"^[-._a-zA-Z0-9]+$")
UNCONDITIONAL = frozenset(("Namespace", "Secret", "ConfigMap", "Event"))
"""Kinds that may be updated without saying which version is meant."""
CREATED_BY_UPDATE = frozenset(("Lease", "Event"))
"""Kinds of which an update makes what is not there."""


def prepare_new(kind: Kind, obj: Object) -> None:
    """What a new object of a core kind gets."""
    if kind.name == "Namespace":
        obj["spec"] = {"finalizers": [NAMESPACE_FINALIZER]}
        obj["status"] = {"phase": "Active"}
        _label_name(obj)
    elif kind.name == "Secret":
        _move_string_data(obj)


def prepare_change(kind: Kind, old: Object, new: Object) -> None:
    """What a changed object of a core kind keeps."""
    if kind.name == "Namespace":
        for part in ("spec", "status"):
            if part in old:
                new[part] = old[part]
        _label_name(new)
    elif kind.name == "Secret":
        _move_string_data(new)


def _label_name(obj: Object) -> None:
    meta = obj["metadata"]
    if isinstance(meta.get("name"), str) and meta["name"]:
        meta["labels"] = {**meta.get("labels", {}), NAME_LABEL: meta["name"]}


def _move_string_data(obj: Object) -> None:
    text = obj.get("stringData")
    if isinstance(text, dict) and all(isinstance(value, str) for value in text.values()):
        del obj["stringData"]
        data = obj.get("data")
        moved = {key: base64.b64encode(value.encode()).decode() for key, value in text.items()}
        obj["data"] = {**data, **moved} if isinstance(data, dict) else moved
    if obj.get("data") == {}:
        del obj["data"]


def check(kind: Kind, obj: Object, old: Object | None, found: list[Problem]) -> None:
    """Problems that the schema of a core kind does not tell."""
    if kind.name in ("Secret", "ConfigMap"):
        _check_data(kind, obj, found)
        if old is not None:
            _check_immutable(kind, obj, old, found)
    elif kind.name == "Event":
        about = obj.get("involvedObject") or {}
        namespace = obj["metadata"].get("namespace")
        if isinstance(about, dict) and about.get("namespace") and about["namespace"] != namespace:
            found.append(p.invalid("involvedObject.namespace", about["namespace"], "does not match event.namespace"))


def _check_data(kind: Kind, obj: Object, found: list[Problem]) -> None:
    size = 0
    text, bytes_ = obj.get("data"), obj.get("binaryData")
    if kind.name == "ConfigMap" and isinstance(text, dict) and isinstance(bytes_, dict):
        why = "duplicate of key present in binaryData"
        found.extend(p.invalid(f"data[{key}]", key, why) for key in text if key in bytes_)
    for part in ("data", "binaryData"):
        values = obj.get(part)
        if not isinstance(values, dict):
            continue
        for key, value in values.items():
            if not DATA_KEY.fullmatch(key) or len(key) > 253 or key in (".", ".."):
                help_ = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
                found.append(p.invalid(f"{part}[{key}]", key, help_))
            if not isinstance(value, str):
                continue
            size += len(value)
            if kind.name == "Secret" or part == "binaryData":
                _check_base64(kind, f"{part}[{key}]", value, found)
    if size > DATA_BYTES_MAX * 4 // 3:
        found.append(p.too_long("data", DATA_BYTES_MAX))


def _check_base64(kind: Kind, field: str, value: str, found: list[Problem]) -> None:
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        # The value is a secret, or may be: it is not repeated.
        found.append(p.Problem("FieldValueTypeInvalid", field, "Invalid value: illegal base64 data"))


def _check_immutable(kind: Kind, obj: Object, old: Object, found: list[Problem]) -> None:
    if kind.name == "Secret" and obj.get("type") != old.get("type"):
        found.append(p.invalid("type", obj.get("type"), "field is immutable"))
    if not old.get("immutable"):
        return
    if not obj.get("immutable"):
        found.append(p.forbidden("immutable", "field is immutable when `immutable` is set"))
    found.extend(
        p.forbidden(part, "field is immutable when `immutable` is set")
        for part in ("data", "binaryData")
        if obj.get(part) != old.get(part)
    )
