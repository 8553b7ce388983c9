"""Frames of a followed log, so that silence is not taken for a dead server, and a cut stream can be continued.

A request for a log with `Accept: application/vnd.rota.log-frames` is answered in frames. Each begins with nine bytes:
its kind, and the lengths of its two parts, in four bytes each, the most significant first. Kinds:

- `DATA`: the position after the output, as JSON, and the output. A position that is an object changes the one before it
  as a merge patch does (RFC 7396); any other replaces it. A request with this position as `from` continues there.
- `HEARTBEAT`: there was no output for `HEARTBEAT_SECONDS`. Both parts are empty.
- `END`: there will be no more output. A stream that ends without it was cut, or the server ended it: request it again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from rota.api.problems import NOT_JSON
from rota.client.failures import BadAnswer

CONTENT_TYPE = "application/vnd.rota.log-frames"
HEARTBEAT_SECONDS = 15.0
SILENCE_SECONDS_MAX = 45.0
"""Seconds of silence after which the server counts as hanging or out of reach. Two heartbeats may be late."""
POSITION_BYTES_MAX = 64 * 1024
DATA_BYTES_MAX = 16 * 1024 * 1024
"""Bound on the bytes of one frame. It is more than any log keeps."""
HEARTBEAT, DATA, END = 0, 1, 2

_HEAD = struct.Struct(">BII")
_encode = msgspec.json.Encoder().encode


class Frame(NamedTuple):
    """A complete frame."""

    kind: int
    position: Any = None
    data: bytes = b""


def encoded(frame: Frame) -> bytes:
    position = _encode(frame.position) if frame.kind == DATA else b""
    return _HEAD.pack(frame.kind, len(position), len(frame.data)) + position + frame.data


class Frames:
    """Splits a stream into frames. Keeps at most one incomplete frame."""

    def __init__(self, place: str) -> None:
        """`place` is the source of the stream, for error messages."""
        self._place = place
        self._arrived = bytearray()

    def split(self, piece: bytes) -> Iterator[Frame]:
        """Yield the complete frames. Raises BadAnswer."""
        self._arrived += piece
        while len(self._arrived) >= _HEAD.size:
            kind, position_bytes, data_bytes = _HEAD.unpack_from(self._arrived)
            if kind > END or position_bytes > POSITION_BYTES_MAX or data_bytes > DATA_BYTES_MAX:
                raise BadAnswer(f"{self._place} does not send a log in frames: is it another version of Rota?")
            begin = _HEAD.size + position_bytes
            if len(self._arrived) < begin + data_bytes:
                return
            position, data = bytes(self._arrived[_HEAD.size : begin]), bytes(self._arrived[begin : begin + data_bytes])
            del self._arrived[: begin + data_bytes]
            try:
                yield Frame(kind, msgspec.json.decode(position) if position else None, data)
            except NOT_JSON as error:
                raise BadAnswer(f"{self._place} sent a position that is not JSON: {error}") from None


class Position:
    """The position up to which a log was received."""

    def __init__(self) -> None:
        self._value: Any = None

    def take(self, change: Any) -> None:
        if not isinstance(change, dict):
            self._value = change
            return
        value = self._value if isinstance(self._value, dict) else {}
        self._value = {name: each for name, each in {**value, **change}.items() if each is not None}

    @property
    def text(self) -> str:
        """The position as a request sends it; empty if nothing was received."""
        if self._value is None:
            return ""
        return self._value if isinstance(self._value, str) else _encode(self._value).decode()
