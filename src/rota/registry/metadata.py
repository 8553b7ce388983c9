"""Checks and defaults of `metadata`: names, labels, finalizers, owners, and the fields that only the server sets."""

from __future__ import annotations

import os
import re
import secrets
from functools import lru_cache
from typing import Any

import msgspec

from rota.api import Kind, ObjectMeta, OwnerReference
from rota.api import problems as p
from rota.api.problems import Problem
from rota.api.schema import schema_of
from rota.api.validation import prune
from rota.registry.selectors import LABEL_KEY, LABEL_VALUE

ANNOTATIONS_BYTES_MAX = 262_144
GENERATED_SUFFIX_LENGTH = 5
GENERATED_BASE_LENGTH_MAX = 63 - GENERATED_SUFFIX_LENGTH
SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
random_bytes = os.urandom
"""The source of uids. Simulations replace it by a seeded one."""

SERVER_FIELDS = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
"""Fields that clients cannot change."""
NOT_FOR_CREATORS = frozenset((*SERVER_FIELDS, "selfLink", "resourceVersion"))
"""Fields that are dropped from a new object."""

SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
ALPHANUMERIC_ENDS = "and must start and end with an alphanumeric character"
SUBDOMAIN_HELP = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    f"{ALPHANUMERIC_ENDS} (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL_HELP = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    f"{ALPHANUMERIC_ENDS} (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
QUALIFIED_HELP = (
    f"name part must consist of alphanumeric characters, '-', '_' or '.', {ALPHANUMERIC_ENDS} "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE_HELP = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    f"{ALPHANUMERIC_ENDS} (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)

KEYS_REMEMBERED_MAX = 4096
"""Bound on the cached checks of label and annotation keys, which recur."""

CONTAINERS: dict[str, type] = {"labels": dict, "annotations": dict, "finalizers": list, "ownerReferences": list}
STANDARD_FINALIZERS = ("orphan", "foregroundDeletion", "kubernetes")
ZEROS: dict[str, type] = {"labels": str, "annotations": str, "finalizers": str, "ownerReferences": dict}
"""The type whose zero value replaces a null inside of each field."""

KNOWN = frozenset(f.encode_name for f in msgspec.structs.fields(ObjectMeta))
KNOWN_OF_OWNER = frozenset(f.encode_name for f in msgspec.structs.fields(OwnerReference))


def _is_plain_owner(owner: Any) -> bool:
    return isinstance(owner, dict) and KNOWN_OF_OWNER.issuperset(owner) and None not in owner.values()


def tidy(meta: dict[str, Any], unknown: list[str]) -> None:
    """Remove unknown and null fields, in place. A null inside of a field becomes its zero value, as in Go."""
    for name, zero in ZEROS.items():
        value = meta.get(name)
        if value == CONTAINERS[name]():
            del meta[name]
        elif isinstance(value, dict) and None in value.values():
            meta[name] = {key: zero() if inner is None else inner for key, inner in value.items()}
        elif isinstance(value, list) and None in value:
            meta[name] = [zero() if inner is None else inner for inner in value]
    owners = meta.get("ownerReferences", [])
    is_plain = isinstance(owners, list) and all(map(_is_plain_owner, owners))
    if None in meta.values() or not KNOWN.issuperset(meta) or not is_plain:
        prune(schema_of(ObjectMeta), meta, "metadata", unknown)


def deduplicate_owners(meta: dict[str, Any], *, created: bool) -> list[str]:
    """Drop duplicate owner references. Return warnings."""
    owners = meta.get("ownerReferences")
    if not owners:
        return []
    first: dict[bytes, Any] = {}
    repeated = [o for o in owners if first.setdefault(msgspec.json.encode(o, order="sorted"), o) is not o]
    twice = [str(owner.get("uid", "")) for owner in repeated]
    if not twice:
        return []
    meta["ownerReferences"] = list(first.values())
    return [
        ".metadata.ownerReferences contains duplicate entries"
        f"{'' if created else ' after mutating admission happens'}; "
        "API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; "
        f"please fix your requests; duplicate UID(s) observed: {', '.join(twice)}"
    ]


def generated_name(base: str) -> str:
    """Return a unique name with the prefix that a client gave."""
    suffix = "".join(secrets.choice(SUFFIX_ALPHABET) for _ in range(GENERATED_SUFFIX_LENGTH))
    return base[:GENERATED_BASE_LENGTH_MAX] + suffix


def new_uid() -> str:
    """Return a random UUID. Faster than the uuid module."""
    b = bytearray(random_bytes(16))
    b[6] = (b[6] & 0x0F) | 0x40
    b[8] = (b[8] & 0x3F) | 0x80
    h = b.hex()
    return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


def check_new(kind: Kind, meta: dict[str, Any], found: list[Problem]) -> None:
    """Append the problems of a new object's metadata."""
    name, prefix = meta.get("name", ""), meta.get("generateName")
    if prefix:
        # A final dash is followed by the suffix.
        masked = f"{prefix[:-1]}a" if prefix.endswith("-") else prefix
        _check_name(kind, masked, "metadata.generateName", prefix, found)
    if not name:
        found.append(p.required("metadata.name", "name or generateName is required"))
    else:
        _check_name(kind, name, "metadata.name", name, found)
    check(meta, found)


def _check_name(kind: Kind, name: str, field: str, sent: str, found: list[Problem]) -> None:
    form, help_, most = (LABEL, LABEL_HELP, 63) if kind.name == "Namespace" else (SUBDOMAIN, SUBDOMAIN_HELP, 253)
    if not form.fullmatch(name):
        found.append(p.invalid(field, sent, help_))
    if len(name) > most:
        found.append(p.invalid(field, sent, f"must be no more than {most} bytes"))


def check(meta: dict[str, Any], found: list[Problem]) -> None:
    """Append the problems of labels, annotations, finalizers and owner references."""
    for key, value in meta.get("labels", {}).items():
        if not _is_qualified(key):
            found.append(p.invalid("metadata.labels", key, QUALIFIED_HELP))
        if not _is_label_value(value):
            found.append(p.invalid("metadata.labels", value, VALUE_HELP))
    annotations = meta.get("annotations")
    if annotations:
        found.extend(
            p.invalid("metadata.annotations", key, QUALIFIED_HELP)
            for key in annotations
            if not _is_qualified(key.lower())
        )
        if sum(len(k.encode()) + len(v.encode()) for k, v in annotations.items()) > ANNOTATIONS_BYTES_MAX:
            found.append(p.too_long("metadata.annotations", ANNOTATIONS_BYTES_MAX))
    if finalizers := meta.get("finalizers"):
        found.extend(
            p.invalid("metadata.finalizers", finalizer, QUALIFIED_HELP)
            for finalizer in finalizers
            if not _is_qualified(finalizer)
        )
        if {"orphan", "foregroundDeletion"} <= set(finalizers):
            why = "finalizer orphan and foregroundDeletion cannot be both set"
            found.append(p.invalid("metadata.finalizers", finalizers, why))
    if owners := meta.get("ownerReferences"):
        _check_owners(owners, found)


def qualified_name_problems(name: str) -> list[str]:
    """Return the problems of a qualified name such as `example.com/name`, with Kubernetes' messages."""
    *prefixes, last = name.split("/")
    if len(prefixes) > 1:
        help_ = QUALIFIED_HELP.removeprefix("name part ")
        return [f"a valid label key {help_} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
    found = []
    if prefixes and not prefixes[0]:
        found.append("prefix part must be non-empty")
    elif prefixes:
        if len(prefixes[0]) > 253:
            found.append("prefix part must be no more than 253 bytes")
        if not SUBDOMAIN.fullmatch(prefixes[0]):
            found.append(f"prefix part {SUBDOMAIN_HELP}")
    if not last:
        found.append("name part must be non-empty")
    elif len(last) > 63:
        found.append("name part must be no more than 63 bytes")
    if not QUALIFIED.fullmatch(last):
        found.append(QUALIFIED_HELP)
    return found


@lru_cache(KEYS_REMEMBERED_MAX)
def _is_label_value(value: str) -> bool:
    return bool(LABEL_VALUE.fullmatch(value))


@lru_cache(KEYS_REMEMBERED_MAX)
def _is_qualified(key: str) -> bool:
    prefix, slash, _ = key.rpartition("/")
    return bool(LABEL_KEY.fullmatch(key)) and (not slash or (len(prefix) <= 253 and bool(SUBDOMAIN.fullmatch(prefix))))


def _check_owners(owners: list[dict[str, Any]], found: list[Problem]) -> None:
    for i, owner in enumerate(owners):
        field = f"metadata.ownerReferences[{i}]"
        version = owner.get("apiVersion", "")
        if version.count("/") > 1 or version.endswith("/"):
            found.append(p.invalid(f"{field}.apiVersion", version, "must be <group>/<version> or <version>"))
        elif (version, owner.get("kind")) == ("v1", "Event"):
            found.append(p.invalid(field, owner, "/v1, Kind=Event is disallowed from being an owner"))
        found.extend(
            p.required(f"{field}.{name}", "must not be empty")
            for name in ("apiVersion", "kind", "name", "uid")
            if not owner.get(name)
        )
    controllers = [f"{owner.get('kind')}/{owner.get('name')}" for owner in owners if owner.get("controller") is True]
    if len(controllers) > 1:
        why = 'Only one reference can have Controller set to true. Found "true" in references for'
        found.append(p.invalid("metadata.ownerReferences", owners, f"{why} {controllers[0]} and {controllers[1]}"))


def check_change(meta: dict[str, Any], old: dict[str, Any], found: list[Problem]) -> None:
    """Append the problems of a change of metadata. Unchanged parts are not checked again."""
    if any(meta.get(part) != old.get(part) for part in ("labels", "annotations", "finalizers", "ownerReferences")):
        check(meta, found)
    found.extend(
        p.invalid(f"metadata.{name}", meta.get(name, ""), "field is immutable")
        for name in ("name", "namespace")
        if meta.get(name, "") != old.get(name, "")
    )
    if "deletionTimestamp" in old:
        added = [f for f in meta.get("finalizers", ()) if f not in old.get("finalizers", ())]
        if added:
            what = "no new finalizers can be added if the object is being deleted, found new finalizers"
            found.append(p.forbidden("metadata.finalizers", f"{what} {added}"))


def check_not_marked(meta: dict[str, Any], old: dict[str, Any], found: list[Problem]) -> None:
    """Append a problem if a client sets the fields of a deletion itself."""
    if "deletionTimestamp" not in old and meta.get("deletionTimestamp"):
        found.append(p.invalid("metadata.deletionTimestamp", meta["deletionTimestamp"], "field is immutable"))
    seconds = meta.get("deletionGracePeriodSeconds")
    if seconds is not None and seconds != old.get("deletionGracePeriodSeconds"):
        found.append(p.invalid("metadata.deletionGracePeriodSeconds", seconds, "field is immutable"))


def finalizer_warnings(kind: Kind, meta: dict[str, Any], old: dict[str, Any]) -> list[str]:
    """Return warnings about new finalizers without a domain. For core kinds these are problems."""
    if not kind.custom:
        return []
    return [
        f'metadata.finalizers: "{f}": prefer a domain-qualified finalizer name '
        f"{'including a path (/) ' if '.' in f else ''}to avoid accidental conflicts with other finalizer writers"
        for f in sorted(set(meta.get("finalizers", ())) - set(old.get("finalizers", ())))
        if "/" not in f and f not in STANDARD_FINALIZERS
    ]
