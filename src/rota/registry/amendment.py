"""Amendments: changes of a few fields by controllers of this process, with values of the right type.

An amendment has the effect of an update of these fields: generation, version and managed fields are kept up. The rest
of the object is copied without being decoded or validated. That makes it fast enough for changes that happen many
times a second.

Rules are not evaluated: no status has any. The size of the object is not checked: its types bound it, and a
controller must be able to write the status of an object of the maximum size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from rota.api import Kind
from rota.api.decoding import decoded, keep_decoded
from rota.api.form import form
from rota.registry import errors, fieldset
from rota.registry.managed import after_difference, entry
from rota.registry.options import WriteOptions
from rota.store import Entry, Event

OWNERS_KEPT_MAX = 1_024
OWNERS_BYTES_MAX = 4_096
"""Bounds on the cache of managed fields after a change: many objects have the same."""
NOBODY = b"[]"
"""The managed fields of an untracked object."""

Object = dict[str, Any]
Raws = dict[str, msgspec.Raw]
Test = Callable[[Mapping[str, msgspec.Raw], Mapping[str, msgspec.Raw]], bool]


class Amendment(msgspec.Struct, frozen=True):
    """A change of some fields of one object."""

    uid: str
    version: str = ""
    """The resourceVersion that the object must have; empty for any."""
    spec: Mapping[str, Any] = {}
    """Fields of the spec; None removes a field."""
    status: Object | None = None
    """The whole status; None keeps it."""
    test: Test = lambda metadata, spec: True
    """A precondition on the fields of metadata and spec."""


class _StoredObject(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    metadata: Raws
    spec: Raws
    status: msgspec.Raw = msgspec.Raw()


class _ChangedObject(msgspec.Struct, rename="camel", omit_defaults=True):
    api_version: str
    kind: str
    metadata: dict[str, Any]
    spec: Raws
    status: Any = None


_decode_object = msgspec.json.Decoder(_StoredObject).decode
_text = msgspec.json.Decoder(str).decode
_number = msgspec.json.Decoder(int).decode
_entries = msgspec.json.Decoder(list[Object]).decode
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def amended(
    kind: Kind, name: str, before: Entry | Event, change: Amendment, options: WriteOptions, now: str
) -> Callable[[int], bytes]:
    """Return a function that encodes the changed object for a revision. Raises `ApiError`."""
    old = _decode_object(before.value)
    meta: dict[str, Any] = dict(old.metadata)
    if _text(meta["uid"]) != change.uid:
        raise errors.conflict(kind, name, "it is another object of this name")
    if change.version and _text(meta["resourceVersion"]) != change.version:
        raise errors.conflict(kind, name)
    if not change.test(old.metadata, old.spec):
        raise errors.conflict(kind, name)
    managed = bytes(meta.pop("managedFields", NOBODY))
    spec = dict(old.spec)
    if change.spec:
        was = {field: _decode(spec[field]) for field in change.spec if field in spec}
        new = {field: value for field, value in change.spec.items() if value is not None}
        for field, value in change.spec.items():
            spec.pop(field, None)
            if value is not None:
                spec[field] = msgspec.Raw(_encode(value))
        if was != new:
            meta["generation"] = _number(meta["generation"]) + 1
            managed = _managed(kind, managed, {"spec": was}, {"spec": new}, options, "", now)
    status: Any = old.status if old.status else None
    typed = None
    if change.status is not None:
        shape = form(kind)
        checked = {"status": change.status}
        typed = shape.typed_status(change.status)
        if typed is None and (found := shape.walk_status(checked)[1]):
            raise errors.invalid(kind, name, found)
        status = checked["status"]
        past = {"status": _decode(old.status)} if old.status else {}
        managed = _managed(kind, managed, past, checked, options, "status", now)
    if managed != NOBODY:
        meta["managedFields"] = msgspec.Raw(managed)
    framed = _ChangedObject(old.api_version, old.kind, meta, spec, status)

    def encoded(revision: int) -> bytes:
        meta["resourceVersion"] = str(revision)
        value = _encode(framed)
        if typed is not None and not change.spec:
            before_it = decoded(kind, before.value)
            changed = msgspec.structs.replace(before_it.metadata, resource_version=str(revision))
            keep_decoded(kind, value, msgspec.structs.replace(before_it, metadata=changed, status=typed))
        return value

    return encoded


def _managed(
    kind: Kind, managed: bytes, old: Object, new: Object, options: WriteOptions, subresource: str, now: str
) -> bytes:
    """Return the JSON of managedFields after a change. An object without any is not tracked, and stays so."""
    if managed == NOBODY:
        return managed
    difference = fieldset.compare(old, new, form(kind).node)
    if not any(difference):
        return managed
    changed, removed = map(_encode, difference)
    after = _owners if len(managed) + len(changed) + len(removed) < OWNERS_BYTES_MAX else _owners.__wrapped__
    return after(managed, changed, removed, (options.manager, kind.api_version, subresource, now))


@lru_cache(maxsize=OWNERS_KEPT_MAX)
def _owners(managed: bytes, changed: bytes, removed: bytes, writer: tuple[str, str, str, str]) -> bytes:
    manager, api_version, subresource, now = writer
    fields = _decode(changed)
    mine = entry(manager, "Update", api_version, subresource, now, fields)
    return _encode(after_difference(_entries(managed), fields, _decode(removed), mine))
