"""Kubernetes' protobuf bodies of the core kinds, as JSON. Stock clients send those in this form, and read JSON.

Only what clients send is here, and only to read. A field is `number: (name, type)`; the types are the few that occur.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

MAGIC = b"k8s\x00"
MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
DEPTH_MAX = 16
UINT64_MAX = 2**64 - 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Field = tuple[str, Any]
Message = dict[int, Field]
TEXT, NUMBER, BOOL, BASE64, TIME, MICRO_TIME, TEXT_MAP, BASE64_MAP, FIELDS = (
    "text",
    "number",
    "bool",
    "base64",
    "time",
    "microtime",
    "textmap",
    "base64map",
    "fields",
)


def _list_of(type_: Any) -> tuple[str, Any]:
    return ("list", type_)


OWNER: Message = {
    1: ("kind", TEXT),
    3: ("name", TEXT),
    4: ("uid", TEXT),
    5: ("apiVersion", TEXT),
    6: ("controller", BOOL),
    7: ("blockOwnerDeletion", BOOL),
}
MANAGED: Message = {
    1: ("manager", TEXT),
    2: ("operation", TEXT),
    3: ("apiVersion", TEXT),
    4: ("time", TIME),
    6: ("fieldsType", TEXT),
    7: ("fieldsV1", FIELDS),
    8: ("subresource", TEXT),
}
META: Message = {
    1: ("name", TEXT),
    2: ("generateName", TEXT),
    3: ("namespace", TEXT),
    4: ("selfLink", TEXT),
    5: ("uid", TEXT),
    6: ("resourceVersion", TEXT),
    7: ("generation", NUMBER),
    8: ("creationTimestamp", TIME),
    9: ("deletionTimestamp", TIME),
    10: ("deletionGracePeriodSeconds", NUMBER),
    11: ("labels", TEXT_MAP),
    12: ("annotations", TEXT_MAP),
    13: ("ownerReferences", _list_of(OWNER)),
    14: ("finalizers", _list_of(TEXT)),
    17: ("managedFields", _list_of(MANAGED)),
}
REFERENCE: Message = {
    1: ("kind", TEXT),
    2: ("namespace", TEXT),
    3: ("name", TEXT),
    4: ("uid", TEXT),
    5: ("apiVersion", TEXT),
    6: ("resourceVersion", TEXT),
    7: ("fieldPath", TEXT),
}
EVENT: Message = {
    1: ("metadata", META),
    2: ("involvedObject", REFERENCE),
    3: ("reason", TEXT),
    4: ("message", TEXT),
    5: ("source", {1: ("component", TEXT), 2: ("host", TEXT)}),
    6: ("firstTimestamp", TIME),
    7: ("lastTimestamp", TIME),
    8: ("count", NUMBER),
    9: ("type", TEXT),
    10: ("eventTime", MICRO_TIME),
    11: ("series", {1: ("count", NUMBER), 2: ("lastObservedTime", MICRO_TIME)}),
    12: ("action", TEXT),
    13: ("related", REFERENCE),
    14: ("reportingComponent", TEXT),
    15: ("reportingInstance", TEXT),
}
LEASE_SPEC: Message = {
    1: ("holderIdentity", TEXT),
    2: ("leaseDurationSeconds", NUMBER),
    3: ("acquireTime", MICRO_TIME),
    4: ("renewTime", MICRO_TIME),
    5: ("leaseTransitions", NUMBER),
    6: ("strategy", TEXT),
    7: ("preferredHolder", TEXT),
}
CONDITION: Message = {
    1: ("type", TEXT),
    2: ("status", TEXT),
    4: ("lastTransitionTime", TIME),
    5: ("reason", TEXT),
    6: ("message", TEXT),
}
ATTRIBUTES: Message = {
    1: ("namespace", TEXT),
    2: ("verb", TEXT),
    3: ("group", TEXT),
    4: ("version", TEXT),
    5: ("resource", TEXT),
    6: ("subresource", TEXT),
    7: ("name", TEXT),
}
ACCESS_SPEC: Message = {
    1: ("resourceAttributes", ATTRIBUTES),
    2: ("nonResourceAttributes", {1: ("path", TEXT), 2: ("verb", TEXT)}),
}
MESSAGES: dict[str, Message] = {
    "Namespace": {
        1: ("metadata", META),
        2: ("spec", {1: ("finalizers", _list_of(TEXT))}),
        3: ("status", {1: ("phase", TEXT), 2: ("conditions", _list_of(CONDITION))}),
    },
    "ConfigMap": {
        1: ("metadata", META),
        2: ("data", TEXT_MAP),
        3: ("binaryData", BASE64_MAP),
        4: ("immutable", BOOL),
    },
    "Secret": {
        1: ("metadata", META),
        2: ("data", BASE64_MAP),
        3: ("type", TEXT),
        4: ("stringData", TEXT_MAP),
        5: ("immutable", BOOL),
    },
    "Event": EVENT,
    "Lease": {1: ("metadata", META), 2: ("spec", LEASE_SPEC)},
    "DeleteOptions": {
        1: ("gracePeriodSeconds", NUMBER),
        2: ("preconditions", {1: ("uid", TEXT), 2: ("resourceVersion", TEXT)}),
        3: ("orphanDependents", BOOL),
        4: ("propagationPolicy", TEXT),
        5: ("dryRun", _list_of(TEXT)),
    },
    "SelfSubjectAccessReview": {1: ("metadata", META), 2: ("spec", ACCESS_SPEC)},
    "SelfSubjectRulesReview": {1: ("metadata", META), 2: ("spec", {1: ("namespace", TEXT)})},
}
ENVELOPE: Message = {1: ("typeMeta", {1: ("apiVersion", TEXT), 2: ("kind", TEXT)}), 2: ("raw", "raw")}


def decode(body: bytes) -> dict[str, Any]:
    """The JSON of a body. Raises ValueError for what is not a body of a kind that is known here."""
    if not body.startswith(MAGIC):
        raise ValueError("it does not begin as protobuf of Kubernetes does")
    envelope = _message(body[len(MAGIC) :], ENVELOPE, 0)
    type_meta = envelope.get("typeMeta", {})
    kind = type_meta.get("kind", "")
    if kind not in MESSAGES:
        raise ValueError(f"the kind {kind!r} is not taken in this form; send JSON")
    return {**type_meta, **_message(envelope.get("raw", b""), MESSAGES[kind], 0)}


def _message(data: bytes, message: Message, depth: int) -> dict[str, Any]:
    if depth > DEPTH_MAX:
        raise ValueError("it is nested too deeply")
    out: dict[str, Any] = {}
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise ValueError("there is no field 0")
        value: int | bytes
        if wire == 0:
            value, at = _varint(data, at)
        elif wire == 2:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            value, at = data[at : at + size], at + size
        else:
            raise ValueError(f"wire type {wire} is not known")
        if at > len(data):
            raise ValueError("it ends too early")
        if number in message:
            name, type_ = message[number]
            _set(out, name, type_, value, depth)
    return out


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("a number in it does not end")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value & UINT64_MAX, at
        shift += 7


def _set(out: dict[str, Any], name: str, type_: Any, value: int | bytes, depth: int) -> None:
    if isinstance(type_, tuple):
        out.setdefault(name, []).append(_value(type_[1], value, depth))
    elif type_ in (TEXT_MAP, BASE64_MAP):
        inner = TEXT if type_ == TEXT_MAP else BASE64
        pair = _message(_bytes(value), {1: ("key", TEXT), 2: ("value", inner)}, depth + 1)
        out.setdefault(name, {})[pair.get("key", "")] = pair.get("value", "")
    else:
        decoded = _value(type_, value, depth)
        # Kubernetes always writes its structs and texts, also when they are empty.
        if decoded not in ("", None, {}):
            out[name] = decoded


def _value(type_: Any, value: int | bytes, depth: int) -> Any:
    if isinstance(type_, dict):
        return _message(_bytes(value), type_, depth + 1)
    if type_ in (NUMBER, BOOL):
        if not isinstance(value, int):
            raise ValueError("a number was expected")
        signed = value - (1 << 64) if value >= 1 << 63 else value
        return bool(value) if type_ == BOOL else signed
    data = _bytes(value)
    if type_ == TEXT:
        return data.decode()
    if type_ == BASE64:
        return base64.b64encode(data).decode()
    if type_ == FIELDS:
        raw = _message(data, {1: ("raw", "raw")}, depth + 1).get("raw", b"{}")
        try:
            return msgspec.json.decode(raw)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
    if type_ in (TIME, MICRO_TIME):
        return _time(data, micro=type_ == MICRO_TIME, depth=depth)
    return data


def _time(data: bytes, *, micro: bool, depth: int) -> str | None:
    if not data:
        return None  # Go's zero time
    parts = _message(data, {1: ("seconds", NUMBER), 2: ("nanos", NUMBER)}, depth + 1)
    nanos = parts.get("nanos", 0)
    if not 0 <= nanos < 1_000_000_000:
        raise ValueError("a time has less than a second of nanoseconds")
    try:
        at = EPOCH + timedelta(seconds=parts.get("seconds", 0), microseconds=nanos // 1000)
    except OverflowError:
        raise ValueError("a time is before the year 1 or after the year 9999") from None
    return at.isoformat(timespec="microseconds" if micro else "seconds").replace("+00:00", "Z")


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("bytes were expected")
    return value
