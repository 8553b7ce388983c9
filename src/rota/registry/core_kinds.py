"""The defaults and checks of core kinds that are beyond their schemas."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Any

from rota.api import Kind
from rota.api import problems as p
from rota.api.problems import Problem
from rota.registry import events
from rota.registry.metadata import LABEL, STANDARD_FINALIZERS, qualified_name_problems

Object = dict[str, Any]

NAMESPACE_FINALIZER = "kubernetes"
NAME_LABEL = "kubernetes.io/metadata.name"
DATA_BYTES_MAX = 1_048_576
"""Bound on the bytes of a Secret or ConfigMap."""
DATA_KEY = re.compile(r"[-._a-zA-Z0-9]+")
DATA_KEY_LENGTH_MAX = 253
MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[-+]\d\d:\d\d)", re.ASCII)
"""A time with all six digits of its microseconds, which some core kinds require."""
INT32_MAX = 2**31 - 1
UNCONDITIONAL = frozenset(("Namespace", "Secret", "ConfigMap", "Event", "Role"))
"""Kinds that can be updated without a resourceVersion."""
BASIC_AUTH = "kubernetes.io/basic-auth"
TYPE_KEYS = {
    BASIC_AUTH: ("username", "password"),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
"""Keys that a Secret of each type must have; one of them for basic-auth."""
CREATED_BY_UPDATE = frozenset(("Lease", "Event"))
"""Kinds of which an update creates an object that does not exist."""


BLANK: dict[str, Object] = {
    "Lease": {"metadata": {}, "spec": {}},
    "Event": {"metadata": {}, "involvedObject": {}, "source": {}, "reportingComponent": "", "reportingInstance": ""},
}
"""Fields that every object of a kind has, and that no writer owns."""


def sent(kind: Kind, obj: Object) -> Object:
    """Return the part of a new object that its writer owns, without the fields that the server sets."""
    return {k: v for k, v in obj.items() if kind.name != "Namespace" or k not in ("spec", "status")}


def prepare_new(kind: Kind, obj: Object) -> None:
    """Set the fields that the server gives a new object of a core kind."""
    if kind.name == "Namespace":
        obj["spec"] = {"finalizers": [NAMESPACE_FINALIZER]}
        obj["status"] = {"phase": "Active"}
        _label_name(obj)
    else:
        _normalize(kind, obj)


def prepare_change(kind: Kind, old: Object, new: Object, subresource: str) -> None:
    """Restore the fields that a change of a core kind must not touch. Only `/finalize` changes a namespace's spec."""
    if kind.name == "Namespace":
        for part in ("status",) if subresource == "finalize" else ("spec", "status"):
            new.pop(part, None)
            if part in old:
                new[part] = old[part]
        _label_name(new)
    else:
        _normalize(kind, new)


def _normalize(kind: Kind, obj: Object) -> None:
    """Normalize an object as Kubernetes does by decoding it into a Go type."""
    for part in ("data", "binaryData", "stringData") if kind.name in ("Secret", "ConfigMap") else ():
        values = obj.get(part)
        if values == {}:
            del obj[part]
        elif isinstance(values, dict) and None in values.values():
            obj[part] = {key: "" if value is None else value for key, value in values.items()}
    _drop_line_ends(obj, "data" if kind.name == "Secret" else "binaryData")
    if kind.name == "Secret":
        _move_string_data(obj)
        obj["type"] = obj.get("type") or "Opaque"
    elif kind.name == "Lease" and obj.get("spec") is None:
        obj["spec"] = {}


def _drop_line_ends(obj: Object, part: str) -> None:
    """Remove line ends from base64, which tools and YAML blocks wrap."""
    values = obj.get(part)
    if isinstance(values, dict):
        for key, value in values.items():
            if isinstance(value, str) and ("\n" in value or "\r" in value):
                values[key] = value.replace("\n", "").replace("\r", "")


def _label_name(obj: Object) -> None:
    meta = obj["metadata"]
    generated_badly = meta.get("generateName") and not LABEL.fullmatch(meta.get("name", ""))
    if meta.get("name") and not generated_badly:
        meta["labels"] = {**meta.get("labels", {}), NAME_LABEL: meta["name"]}


def _move_string_data(obj: Object) -> None:
    text = obj.get("stringData")
    if isinstance(text, dict) and all(isinstance(value, str) for value in text.values()):
        del obj["stringData"]
        data = obj.get("data")
        moved = {key: base64.b64encode(value.encode()).decode() for key, value in text.items()}
        obj["data"] = {**data, **moved} if isinstance(data, dict) else moved


def check(kind: Kind, obj: Object, old: Object | None, found: list[Problem], version: Kind | None = None) -> None:
    """Append problems that the schema of a core kind does not find.

    `version`: the one it was sent in, if not its own.
    """
    # Kubernetes does not check the finalizers of a changed Lease.
    looks = old is None or (kind.name != "Lease" and _finalizers(obj) != _finalizers(old))
    if not kind.custom and looks:
        why = "name is neither a standard finalizer name nor is it fully qualified"
        found.extend(
            p.invalid(f"metadata.finalizers[{i}]", name, why)
            for i, name in enumerate(_finalizers(obj))
            if "/" not in name and name not in STANDARD_FINALIZERS
        )
    if kind.name == "Namespace":
        finalizers = (obj.get("spec") or {}).get("finalizers", ())
        found.extend(
            p.invalid(f"spec.finalizers[{i}]", name, why)
            for i, name in enumerate(finalizers if isinstance(finalizers, list) else ())
            if isinstance(name, str)
            for why in _wrong_with_finalizer(name)
        )
    if kind.name in ("Secret", "ConfigMap"):
        _check_data(kind, obj, found)
        if old is not None:
            _check_immutable(kind, obj, old, found)
    elif kind.name == "Event":
        events.check(obj, old, found, version)
        _check_go_types(obj, "", ("eventTime",), ("count",), found)
        _check_go_types(obj.get("series"), "series.", ("lastObservedTime",), ("count",), found)
    elif kind.name == "Lease":
        _check_lease(obj, found)
    elif kind.name == "Role":
        _check_rules(obj, found)


def _finalizers(obj: Object) -> list[str]:
    finalizers: list[str] = obj["metadata"].get("finalizers", [])
    return finalizers


def _wrong_with_finalizer(name: str) -> list[str]:
    found = qualified_name_problems(name)
    if "/" not in name and name not in STANDARD_FINALIZERS:
        found.append("name is neither a standard finalizer name nor is it fully qualified")
    return found


def _check_lease(obj: Object, found: list[Problem]) -> None:
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return
    _check_go_types(spec, "spec.", ("acquireTime", "renewTime"), ("leaseDurationSeconds", "leaseTransitions"), found)
    for name, least, why in (
        ("leaseDurationSeconds", 1, "must be greater than 0"),
        ("leaseTransitions", 0, "must be greater than or equal to 0"),
    ):
        if isinstance(spec.get(name), int) and spec[name] < least:
            found.append(p.invalid(f"spec.{name}", spec[name], why))


def _check_rules(obj: Object, found: list[Problem]) -> None:
    rules = obj.get("rules")
    for i, rule in enumerate(rules if isinstance(rules, list) else ()):
        for name, why in (
            ("verbs", "verbs must contain at least one value"),
            ("apiGroups", "resource rules must supply at least one api group"),
            ("resources", "resource rules must supply at least one resource"),
        ):
            if isinstance(rule, dict) and not rule.get(name):
                found.append(p.required(f"rules[{i}].{name}", why))


def _check_go_types(
    value: Any, path: str, times: tuple[str, ...], numbers: tuple[str, ...], found: list[Problem]
) -> None:
    """Append problems of values that Kubernetes decodes into narrower types: microseconds, and 32 bits."""
    if not isinstance(value, dict):
        return
    found.extend(
        p.type_invalid(path + name, value[name], "MicroTime")
        for name in times
        if isinstance(value.get(name), str) and not MICRO_TIME.fullmatch(value[name])
    )
    found.extend(
        p.type_invalid(path + name, str(value[name]), "int32")
        for name in numbers
        if isinstance(value.get(name), int) and abs(value[name]) > INT32_MAX
    )


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
            found.extend(p.invalid(f"{part}[{key}]", key, why) for why in _wrong_with_key(key))
            if not isinstance(value, str):
                continue
            if kind.name == "Secret" or part == "binaryData":
                size += len(value) * 3 // 4 - value.count("=", -2)
                _check_base64(kind, f"{part}[{key}]", value, found)
            else:
                size += len(value.encode())
    if size > DATA_BYTES_MAX:
        found.append(p.too_long("data" if kind.name == "Secret" else "[]", DATA_BYTES_MAX))
    if kind.name == "Secret":
        _check_type(obj, found)


def _check_type(obj: Object, found: list[Problem]) -> None:
    """Append a problem for each key that a Secret of a known type lacks."""
    data, type_ = obj.get("data"), obj.get("type", "")
    have = data.keys() if isinstance(data, dict) else ()
    needed = TYPE_KEYS.get(type_, ()) if isinstance(type_, str) else ()
    missing = [key for key in needed if key not in have]
    if missing and (type_ != BASIC_AUTH or len(missing) == len(needed)):
        found.extend(p.required(f"data[{key}]") for key in missing)


def _wrong_with_key(key: str) -> Iterator[str]:
    if len(key) > DATA_KEY_LENGTH_MAX:
        yield f"must be no more than {DATA_KEY_LENGTH_MAX} characters"
    if not DATA_KEY.fullmatch(key):
        yield (
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' "
            "(e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
        )
    if key in (".", ".."):
        yield f"must not be '{key}'"
    elif key.startswith(".."):
        yield "must not start with '..'"


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
