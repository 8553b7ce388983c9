"""Heartbeats while an answer is being worked on, for clients that request them with `Prefer: heartbeat`.

They are interim answers, `102 Processing` (RFC 9110, 15.2). Not every client of HTTP/1.1 accepts them, so only those
that request them get any. Streams have heartbeats of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

PREFERENCE = "heartbeat"
INTERIM = b"HTTP/1.1 102 Processing\r\n\r\n"
SECONDS = 15.0


def wants_heartbeats(headers: Mapping[str, str], version: str) -> bool:
    """Report whether a client requests heartbeats. Versions before HTTP/1.1 have no interim answers."""
    prefer = headers.get("prefer", "")
    return bool(prefer) and version == "1.1" and PREFERENCE in [one.strip().lower() for one in prefer.split(",")]


class Heartbeats:
    """Sends heartbeats until `stop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport) -> None:
        self._loop = loop
        self._transport = transport
        self._timer = loop.call_later(SECONDS, self._beat)

    def _beat(self) -> None:
        if not self._transport.is_closing():
            self._transport.write(INTERIM)
            self._timer = self._loop.call_later(SECONDS, self._beat)

    def stop(self) -> None:
        self._timer.cancel()
