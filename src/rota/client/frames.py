"""Frames: a log as it is sent to who follows it, so that silence is not taken for a dead server, and a cut is no loss.

Whoever asks for a log with `Accept: application/vnd.rota.log-frames` is answered in frames. Each begins with nine
bytes: its kind, and the lengths of its two parts, in four bytes each, the most significant first. Kinds:

- `DATA`: the position after what was written, as JSON, and what was written. A position that is an object changes the
  one before it as a merge patch does (RFC 7396); any other replaces it. To ask again with it, as `from`, is to go on
  from there.
- `HEARTBEAT`: nothing was written for `HEARTBEAT_SECONDS`. Both parts are empty.
- `END`: nothing more will be written. A stream that ends without it was cut, or the server ended it: ask again.
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
"""Two heartbeats may be late. After that the server hangs, or is out of reach."""
POSITION_BYTES_MAX = 64 * 1024
DATA_BYTES_MAX = 16 * 1024 * 1024
"""More than any log keeps."""
HEARTBEAT, DATA, END = 0, 1, 2

_HEAD = struct.Struct(">BII")
_encode = msgspec.json.Encoder().encode


class Frame(NamedTuple):
    """One frame, whole."""

    kind: int
    position: Any = None
    data: bytes = b""


def encoded(frame: Frame) -> bytes:
    position = _encode(frame.position) if frame.kind == DATA else b""
    return _HEAD.pack(frame.kind, len(position), len(frame.data)) + position + frame.data


class Frames:
    """Takes pieces of a stream, and gives the frames that are complete. Keeps one incomplete frame at most."""

    def __init__(self, place: str) -> None:
        """`place` is where the stream comes from, for people."""
        self._place = place
        self._arrived = bytearray()

    def split(self, piece: bytes) -> Iterator[Frame]:
        """Raises BadAnswer."""
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
    """How far a log was received."""

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
        """As it is asked for; empty: nothing was received."""
        if self._value is None:
            return ""
        return self._value if isinstance(self._value, str) else _encode(self._value).decode()
