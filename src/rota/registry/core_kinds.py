"""What the kinds of Kubernetes' own groups do beside their schemas."""

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
"""Bytes of a Secret or ConfigMap at most."""
DATA_KEY = re.compile(r"[-._a-zA-Z0-9]+")
DATA_KEY_LENGTH_MAX = 253
MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[-+]\d\d:\d\d)", re.ASCII)
"""A time as some core kinds must have it: with all six digits of its microseconds."""
INT32_MAX = 2**31 - 1
UNCONDITIONAL = frozenset(("Namespace", "Secret", "ConfigMap", "Event", "Role"))
"""Kinds that may be updated without saying which version is meant."""
BASIC_AUTH = "kubernetes.io/basic-auth"
TYPE_KEYS = {
    BASIC_AUTH: ("username", "password"),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
"""What a Secret of each type must have; one of basic-auth either."""
CREATED_BY_UPDATE = frozenset(("Lease", "Event"))
"""Kinds of which an update makes what is not there."""


BLANK: dict[str, Object] = {
    "Lease": {"metadata": {}, "spec": {}},
    "Event": {"metadata": {}, "involvedObject": {}, "source": {}, "reportingComponent": "", "reportingInstance": ""},
}
"""What every object of a kind has, so that no writer owns it."""


def sent(kind: Kind, obj: Object) -> Object:
    """The part of a new object that its writer owns: not what the server gave it."""
    return {k: v for k, v in obj.items() if kind.name != "Namespace" or k not in ("spec", "status")}


def prepare_new(kind: Kind, obj: Object) -> None:
    """What a new object of a core kind gets."""
    if kind.name == "Namespace":
        obj["spec"] = {"finalizers": [NAMESPACE_FINALIZER]}
        obj["status"] = {"phase": "Active"}
        _label_name(obj)
    else:
        _settle(kind, obj)


def prepare_change(kind: Kind, old: Object, new: Object, subresource: str) -> None:
    """What a changed object of a core kind keeps. The spec of a namespace is changed by `/finalize` alone."""
    if kind.name == "Namespace":
        for part in ("status",) if subresource == "finalize" else ("spec", "status"):
            new.pop(part, None)
            if part in old:
                new[part] = old[part]
        _label_name(new)
    else:
        _settle(kind, new)


def _settle(kind: Kind, obj: Object) -> None:
    """Give an object the form in which Kubernetes, which decodes it into a Go type, has it."""
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
    """base64 that was wrapped to lines, as tools and YAML blocks have it, means the same without them."""
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
    """Problems that the schema of a core kind does not tell. `version`: in which it was sent, if not its own."""
    # Kubernetes does not look at the finalizers of a Lease that is changed.
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
    """Problems of values that Kubernetes decodes more narrowly: to the microsecond, and into 32 bits."""
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
    """A Secret of a type that Kubernetes knows has the keys that are looked for."""
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
