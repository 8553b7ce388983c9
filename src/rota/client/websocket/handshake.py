"""The handshake of a WebSocket (RFC 6455): the request and the answer, for both ends."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
from collections.abc import Mapping, Sequence

VERSION = "13"
_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_TOKEN = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+")


class BadHandshake(ValueError):  # noqa: N818
    """The other end does not follow the standard."""


# The client's part.


def new_key() -> str:
    return base64.b64encode(os.urandom(16)).decode()


def request_headers(key: str, protocols: Sequence[str]) -> dict[str, str]:
    """Return the headers that request a WebSocket."""
    if wrong := [protocol for protocol in protocols if not _TOKEN.fullmatch(protocol)]:
        raise ValueError(f"{wrong[0]!r} is no name of a protocol")
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": VERSION,
        "Sec-WebSocket-Key": key,
    }
    return headers | ({"Sec-WebSocket-Protocol": ", ".join(protocols)} if protocols else {})


def agreed(headers: Mapping[str, str], key: str, protocols: Sequence[str]) -> str:
    """Return the subprotocol that a server chose in an answer with status 101. Headers are in lower case. Raises
    BadHandshake."""
    if headers.get("upgrade", "").lower() != "websocket" or "upgrade" not in _words(headers.get("connection", "")):
        raise BadHandshake("the server changes to another protocol than it was asked for")
    if headers.get("sec-websocket-accept", "") != acceptance(key):
        raise BadHandshake("the server answers another request than the one that was sent")
    if headers.get("sec-websocket-extensions"):
        raise BadHandshake("the server uses extensions that it was not offered")
    chosen = headers.get("sec-websocket-protocol", "")
    if chosen not in protocols and (chosen or protocols):
        offered = ", ".join(protocols) or "none"
        raise BadHandshake(f"the server speaks {chosen or 'none of them'!r}; it was offered {offered}")
    return chosen


# The server's part.


def offered(headers: Mapping[str, str]) -> list[str]:
    """Return the subprotocols that a client offers, the preferred one first."""
    return [word.strip() for word in headers.get("sec-websocket-protocol", "").split(",") if word.strip()]


def refused(method: str, headers: Mapping[str, str]) -> tuple[int, str] | None:
    """Return the status and message for a request that does not open a WebSocket; None if it does."""
    upgrades = "websocket" in _words(headers.get("upgrade", ""))
    if method != "GET" or not upgrades or "upgrade" not in _words(headers.get("connection", "")):
        return 426, "this is a WebSocket: ask for it with Connection: Upgrade and Upgrade: websocket"
    if headers.get("sec-websocket-version", "") != VERSION:
        return 426, f"the version of WebSocket that is spoken here is {VERSION}"
    try:
        size = len(base64.b64decode(headers.get("sec-websocket-key", ""), validate=True))
    except binascii.Error:
        size = 0
    return None if size == 16 else (400, "the header Sec-WebSocket-Key is not 16 bytes in Base64")


def answer(headers: Mapping[str, str], protocol: str) -> bytes:
    """Encode the answer to a valid request. Frames follow it."""
    chosen = f"Sec-WebSocket-Protocol: {protocol}\r\n" if protocol else ""
    return (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {acceptance(headers['sec-websocket-key'])}\r\n{chosen}\r\n"
    ).encode("latin-1")


def acceptance(key: str) -> str:
    """Return the proof that a key was read. It is no secret, and protects from misdirected requests only."""
    return base64.b64encode(hashlib.sha1((key + _GUID).encode(), usedforsecurity=False).digest()).decode()


def _words(value: str) -> list[str]:
    return [word.strip().lower() for word in value.split(",")]
