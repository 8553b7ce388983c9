"""WebSocket frames (RFC 6455) without I/O: bytes to events and back.

Strict: a violation of the standard ends the connection with the code that the standard has for it. Extensions are not
supported.
"""

from __future__ import annotations

import math
import os
import struct
import sys
from typing import Final, Literal, NamedTuple

Role = Literal["client", "server"]
"""The role of this end: a client masks what it sends, a server does not."""

MESSAGE_BYTES_MAX = 8 * 1024 * 1024
"""Bytes of one message, in both directions."""
FRAGMENTS_FREE = 1024
FRAGMENT_BYTES_MIN = 128
"""A message may have `FRAGMENTS_FREE` fragments, and one more for each `FRAGMENT_BYTES_MIN` bytes: each takes time."""
CONTROL_BYTES_MAX = 125
REASON_BYTES_MAX = CONTROL_BYTES_MAX - 2

NORMAL, GOING_AWAY, PROTOCOL_ERROR, UNSUPPORTED = 1000, 1001, 1002, 1003
NO_CODE, ABNORMAL, BAD_DATA, POLICY, TOO_BIG, SERVER_ERROR = 1005, 1006, 1007, 1008, 1009, 1011
TRY_LATER = 1013

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
_KNOWN = frozenset((CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG))

MASK_PIECE_BYTES = 16 * 1024
"""Bytes that are masked at once. Larger numbers exceed the processor's nearest cache, and take four times as long."""


class Violation(Exception):  # noqa: N818
    """The other end violated the protocol. Send a close frame with this code."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Ping(NamedTuple):
    payload: bytes


class Pong(NamedTuple):
    payload: bytes


class Close(NamedTuple):
    """The last frame of an end. `NO_CODE` stands for a frame without a code."""

    code: int
    reason: str


Event = str | bytes | Ping | Pong | Close


class Framing:
    """One end of one connection. `feed` input, then `take` events until there is none."""

    def __init__(self, role: Role, message_bytes_max: int = MESSAGE_BYTES_MAX) -> None:
        self._masks = role == "client"
        self._message_bytes_max = message_bytes_max
        self._came = bytearray()
        self._opcode = 0  # of the message that is being put together; 0: none
        self._parts = bytearray()
        self._fragments = 0
        self._closed = False
        self.frames = 0
        """The number of frames that were taken, fragments of messages among them."""

    # Input.

    @property
    def held(self) -> int:
        """The number of bytes of incomplete frames and messages."""
        return len(self._came) + len(self._parts)

    def forget(self) -> None:
        """Drop incomplete input, and accept no more."""
        self._closed = True
        self._came, self._parts = bytearray(), bytearray()

    def feed(self, data: bytes) -> None:
        if not self._closed:
            self._came += data

    def take(self, frames_max: float = math.inf) -> Event | None:
        """Return the next event; None if more input is needed. There is nothing after a Close. Raises Violation.

        Also returns None once `frames` is `frames_max`: an event may have many.
        """
        while not self._closed and self.frames < frames_max:
            frame = self._frame()
            if frame is None:
                return None
            self.frames += 1
            final, opcode, payload = frame
            if opcode >= CLOSE:
                return self._control(opcode, payload)
            if final and opcode:
                return _message(opcode, payload)
            self._opcode = opcode or self._opcode
            self._parts += payload
            self._fragments += 1
            if self._fragments > FRAGMENTS_FREE + len(self._parts) // FRAGMENT_BYTES_MIN:
                raise Violation(POLICY, f"a message comes in pieces of {FRAGMENT_BYTES_MIN} bytes or more")
            if final:
                self._fragments = 0
                opcode, payload = self._opcode, bytes(self._parts)
                self._opcode, self._parts = 0, bytearray()
                return _message(opcode, payload)
        return None

    def _frame(self) -> tuple[bool, int, bytes] | None:
        came = self._came
        if len(came) < 2:
            return None
        final, opcode, masked, length = bool(came[0] & 0x80), came[0] & 0x0F, came[1] & 0x80, came[1] & 0x7F
        self._check(came[0], final, opcode, bool(masked), length)
        start = 2
        if length >= 126:
            form, least = ("!H", 126) if length == 126 else ("!Q", 1 << 16)
            start += struct.calcsize(form)
            if len(came) < start:
                return None
            (length,) = struct.unpack_from(form, came, 2)
            if length < least:
                raise Violation(PROTOCOL_ERROR, "a length is longer than it has to be")
        if opcode < CLOSE and length + len(self._parts) > self._message_bytes_max:
            raise Violation(TOO_BIG, f"a message has at most {self._message_bytes_max} bytes")
        if masked:
            start += 4
        end = start + length
        if len(came) < end:
            return None
        with memoryview(came) as view:
            payload = bytes(view[start:end])
        if masked:
            payload = mask(payload, bytes(came[start - 4 : start]))
        del came[:end]
        return final, opcode, payload

    def _check(self, first: int, final: bool, opcode: int, masked: bool, length: int) -> None:
        """Check the first two bytes of a frame before more is waited for. Raises Violation."""
        if first & 0x70:
            raise Violation(PROTOCOL_ERROR, "a reserved bit is set")
        if opcode not in _KNOWN:
            raise Violation(PROTOCOL_ERROR, f"the opcode {opcode} is not known")
        if masked is self._masks:
            raise Violation(PROTOCOL_ERROR, "a client masks its frames, and a server does not")
        if opcode >= CLOSE:
            if not final or length > CONTROL_BYTES_MAX:
                raise Violation(PROTOCOL_ERROR, "a control frame is in one piece and small")
        elif bool(self._opcode) is bool(opcode):
            wrong = "a message begins within another" if opcode else "a message goes on that did not begin"
            raise Violation(PROTOCOL_ERROR, wrong)

    def _control(self, opcode: int, payload: bytes) -> Event:
        if opcode == PING:
            return Ping(payload)
        if opcode == PONG:
            return Pong(payload)
        self._closed = True
        self._came.clear()
        if not payload:
            return Close(NO_CODE, "")
        if len(payload) == 1:
            raise Violation(PROTOCOL_ERROR, "half a close code")
        code = int.from_bytes(payload[:2], "big")
        if not may_be_sent(code):
            raise Violation(PROTOCOL_ERROR, f"{code} is no close code")
        return Close(code, _text(payload[2:]))

    # Output.

    def message(self, message: str | bytes) -> bytes:
        """Encode a message as one frame."""
        payload, opcode = (message.encode(), TEXT) if isinstance(message, str) else (message, BINARY)
        if len(payload) > self._message_bytes_max:
            raise ValueError(f"a message has at most {self._message_bytes_max} bytes, not {len(payload)}")
        return self._encoded(opcode, payload)

    def ping(self, payload: bytes = b"") -> bytes:
        return self._encoded(PING, payload)

    def pong(self, payload: bytes) -> bytes:
        return self._encoded(PONG, payload)

    def close(self, code: int, reason: str = "") -> bytes:
        """Encode the last frame. A reason that is too long is cut."""
        if code == NO_CODE:
            return self._encoded(CLOSE, b"")
        if not may_be_sent(code):
            raise ValueError(f"{code} is no close code")
        text = reason.encode()[:REASON_BYTES_MAX].decode(errors="ignore").encode()
        return self._encoded(CLOSE, code.to_bytes(2, "big") + text)

    def _encoded(self, opcode: int, payload: bytes) -> bytes:
        length, masked = len(payload), 0x80 if self._masks else 0
        if length < 126:
            head = bytes((0x80 | opcode, masked | length))
        elif length < 1 << 16:
            head = struct.pack("!BBH", 0x80 | opcode, masked | 126, length)
        else:
            head = struct.pack("!BBQ", 0x80 | opcode, masked | 127, length)
        if not masked:
            return head + payload
        key = os.urandom(4)
        return b"%b%b%b" % (head, key, mask(payload, key))


def may_be_sent(code: int) -> bool:
    """Report whether a close frame can carry this code."""
    return (1000 <= code <= 1014 and code not in (1004, NO_CODE, ABNORMAL)) or 3000 <= code <= 4999


ORDER: Final = sys.byteorder


def mask(payload: bytes, key: bytes) -> bytes:
    """Mask or unmask a payload. It is combined as one large number, not byte by byte."""
    length = len(payload)
    if length <= MASK_PIECE_BYTES:
        return _xor(payload, (key * (length // 4 + 1))[:length])
    pieces = []
    full = key * (MASK_PIECE_BYTES // 4)
    for start in range(0, length, MASK_PIECE_BYTES):
        piece = payload[start : start + MASK_PIECE_BYTES]
        pieces.append(_xor(piece, full if len(piece) == MASK_PIECE_BYTES else full[: len(piece)]))
    return b"".join(pieces)


def _xor(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one, ORDER) ^ int.from_bytes(other, ORDER)).to_bytes(len(one), ORDER)


def _message(opcode: int, payload: bytes) -> str | bytes:
    return _text(payload) if opcode == TEXT else payload


def _text(payload: bytes) -> str:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        raise Violation(BAD_DATA, "that is not UTF-8") from None
