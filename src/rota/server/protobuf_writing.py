"""Encode JSON objects as Kubernetes' protobuf, for clients that accept nothing else."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from rota.server.protobuf_messages import (
    BASE64,
    BASE64_MAP,
    BOOL,
    FIELDS,
    LIST_META,
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

VARINT, BYTES = 0, 2
FRAME_LENGTH_BYTES = 4
UINT64_MASK = 2**64 - 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EMPTY: tuple[Any, ...] = (None, "", {}, [])
TYPE_META: Message = {1: ("apiVersion", TEXT), 2: ("kind", TEXT)}

_encode_json = msgspec.json.Encoder().encode


def encode(obj: dict[str, Any]) -> bytes:
    """Encode an object, or a list of objects, as the body of an answer."""
    api_version, kind = obj["apiVersion"], obj["kind"]
    message = message_of(api_version, kind) or {1: ("metadata", LIST_META)}
    type_meta = _message({"apiVersion": api_version, "kind": kind}, TYPE_META)
    return MAGIC + _field(1, type_meta) + _field(2, _message(obj, message))


def event_frame(type_: str, obj: dict[str, Any]) -> bytes:
    """Encode an event of a watch, after its length."""
    event = _field(1, type_.encode()) + _field(2, _field(1, encode(obj)))
    return len(event).to_bytes(FRAME_LENGTH_BYTES, "big") + event


def _message(value: dict[str, Any], message: Message) -> bytes:
    return b"".join(
        part
        for number, (name, type_) in message.items()
        if (inner := value.get(name)) not in EMPTY or (type_ == OPTIONAL_TEXT and inner == "")
        for part in _values(number, type_, inner)
    )


def _values(number: int, type_: Any, value: Any) -> Iterator[bytes]:
    if isinstance(type_, tuple):
        for item in value:
            yield from _values(number, type_[1], item)
    elif type_ in (TEXT_MAP, BASE64_MAP, LISTS_MAP):
        for key, inner in value.items():
            yield _field(number, _field(1, key.encode()) + _field(2, _map_value(type_, inner)))
    elif type_ in (NUMBER, BOOL):
        yield _varint(number << 3 | VARINT) + _varint(int(value) & UINT64_MASK)
    else:
        yield _field(number, _bytes(type_, value))


def _map_value(type_: str, value: Any) -> bytes:
    if type_ == LISTS_MAP:
        return b"".join(_field(1, text.encode()) for text in value)
    return _bytes(BASE64 if type_ == BASE64_MAP else TEXT, value)


def _bytes(type_: Any, value: Any) -> bytes:
    if isinstance(type_, dict):
        return _message(value, type_)
    if type_ == BASE64:
        return base64.b64decode(value)
    if type_ == FIELDS:
        return _field(1, _encode_json(value))
    if type_ in (TIME, MICRO_TIME):
        return _time(value)
    text: str = value
    return text.encode()


def _time(text: str) -> bytes:
    since = datetime.fromisoformat(text) - EPOCH
    seconds = since.days * 86400 + since.seconds
    out = _varint(1 << 3 | VARINT) + _varint(seconds & UINT64_MASK)
    return out + _varint(2 << 3 | VARINT) + _varint(since.microseconds * 1000)


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | BYTES) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
