"""Decode Kubernetes' protobuf bodies to JSON. Stock clients send core kinds in this form."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from rota.api import sizes
from rota.server.protobuf_messages import (
    BASE64,
    BASE64_MAP,
    BOOL,
    ENVELOPE,
    FIELDS,
    LISTS_MAP,
    MAGIC,
    MICRO_TIME,
    NUMBER,
    OPTIONAL_TEXT,
    TEXT,
    TEXT_MAP,
    TIME,
    Message,
    message_of,
)

DEPTH_MAX = 16
UINT64_MAX = 2**64 - 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAPS: dict[str, Any] = {TEXT_MAP: TEXT, BASE64_MAP: BASE64, LISTS_MAP: {1: ("items", ("list", TEXT))}}
"""The maps that clients send, with the types of their values."""


class TooMany(ValueError):  # noqa: N818
    """A body has too many values."""


class _Budget:
    """The number of values that a body may still have, unknown ones included: each takes time to read."""

    def __init__(self) -> None:
        self._left = sizes.VALUES_MAX

    def spend(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise TooMany


def decode(body: bytes) -> dict[str, Any]:
    """Decode a body to JSON. Raises ValueError for invalid bodies and unknown kinds, TooMany for too many values."""
    if not body.startswith(MAGIC):
        raise ValueError("it does not begin as protobuf of Kubernetes does")
    budget = _Budget()
    envelope = _message(body[len(MAGIC) :], ENVELOPE, 0, budget)
    type_meta = envelope.get("typeMeta", {})
    kind = type_meta.get("kind", "")
    message = message_of(type_meta.get("apiVersion", ""), kind)
    if message is None:
        raise ValueError(f"the kind {kind!r} is not taken in this form; send JSON")
    return {**type_meta, **_message(envelope.get("raw", b""), message, 0, budget)}


def _message(data: bytes, message: Message, depth: int, budget: _Budget) -> dict[str, Any]:
    if depth > DEPTH_MAX:
        raise ValueError("it is nested too deeply")
    out: dict[str, Any] = {}
    at = 0
    while at < len(data):
        budget.spend()
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
            _set(out, name, type_, value, depth, budget)
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


def _set(out: dict[str, Any], name: str, type_: Any, value: int | bytes, depth: int, budget: _Budget) -> None:
    if isinstance(type_, tuple):
        out.setdefault(name, []).append(_value(type_[1], value, depth, budget))
    elif isinstance(type_, str) and type_ in MAPS:
        pair = _message(_bytes(value), {1: ("key", TEXT), 2: ("value", MAPS[type_])}, depth + 1, budget)
        inner = pair.get("value", "")
        out.setdefault(name, {})[pair.get("key", "")] = inner if type_ != LISTS_MAP else (inner or {}).get("items", [])
    else:
        decoded = _value(type_, value, depth, budget)
        # Kubernetes always writes structs and texts, even empty ones, except optional ones.
        if type_ == OPTIONAL_TEXT or decoded not in ("", None, {}):
            out[name] = decoded


def _value(type_: Any, value: int | bytes, depth: int, budget: _Budget) -> Any:
    if isinstance(type_, dict):
        return _message(_bytes(value), type_, depth + 1, budget)
    if type_ in (NUMBER, BOOL):
        if not isinstance(value, int):
            raise ValueError("a number was expected")
        signed = value - (1 << 64) if value >= 1 << 63 else value
        return bool(value) if type_ == BOOL else signed
    data = _bytes(value)
    if type_ in (TEXT, OPTIONAL_TEXT):
        return data.decode()
    if type_ == BASE64:
        return base64.b64encode(data).decode()
    if type_ == FIELDS:
        raw = _message(data, {1: ("raw", "raw")}, depth + 1, budget).get("raw", b"{}")
        if sizes.has_too_many_values(raw):
            raise TooMany
        try:
            return msgspec.json.decode(raw)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
    if type_ in (TIME, MICRO_TIME):
        return _time(data, micro=type_ == MICRO_TIME, depth=depth, budget=budget)
    return data


def _time(data: bytes, *, micro: bool, depth: int, budget: _Budget) -> str | None:
    if not data:
        return None  # Go's zero time
    parts = _message(data, {1: ("seconds", NUMBER), 2: ("nanos", NUMBER)}, depth + 1, budget)
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
