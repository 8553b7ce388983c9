"""Send logs as text, or in frames with heartbeats and positions if the client accepts them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, NamedTuple

from rota.client import frames
from rota.client.frames import Frame
from rota.registry.errors import bad_request
from rota.server.http import Request, Stream

LOOK_SECONDS_MIN = 0.01
LOOK_SECONDS_MAX = 0.2
"""Time between two reads of a followed log: short after output, longer in silence."""
FOLLOW_SECONDS_MAX = 4 * 3600.0
TEXT = "text/plain; charset=utf-8"

_NUMBER = re.compile(r"[0-9]{1,15}")


class Piece(NamedTuple):
    """A piece of output, and the position after it."""

    data: bytes
    position: Any


Pieces = AsyncGenerator[Piece | None, None]
"""Pieces of a log. None stands for a silence that is long enough for a heartbeat."""


def as_stream(request: Request, pieces: Pieces) -> Stream:
    """Return the answer to a request for a log, in the form that it accepts."""
    if frames.CONTENT_TYPE in request.headers.get("accept", ""):
        return Stream(_framed(pieces), frames.CONTENT_TYPE, seconds_max=FOLLOW_SECONDS_MAX, endless=True)
    return Stream(_plain(pieces), TEXT, seconds_max=FOLLOW_SECONDS_MAX, endless=True)


async def _framed(pieces: Pieces) -> AsyncIterator[bytes]:
    async with aclosing(pieces):
        async for piece in pieces:
            if piece is None:
                yield frames.encoded(Frame(frames.HEARTBEAT))
            else:
                yield frames.encoded(Frame(frames.DATA, piece.position, piece.data))
    yield frames.encoded(Frame(frames.END))


async def _plain(pieces: Pieces) -> AsyncIterator[bytes]:
    async with aclosing(pieces):
        async for piece in pieces:
            if piece is not None and piece.data:
                yield piece.data


class Rhythm:
    """The pauses of a followed log, and its heartbeats."""

    def __init__(self) -> None:
        self._clock = asyncio.get_running_loop().time
        self.had_output()

    def had_output(self) -> None:
        """Record that something was sent."""
        self._pause_seconds = LOOK_SECONDS_MIN
        self._silent_since = self._clock()

    async def rest(self) -> bool:
        """Pause before the next read. Returns True if a heartbeat is due."""
        await asyncio.sleep(self._pause_seconds)
        self._pause_seconds = min(2 * self._pause_seconds, LOOK_SECONDS_MAX)
        if self._clock() - self._silent_since < frames.HEARTBEAT_SECONDS:
            return False
        self._silent_since = self._clock()
        return True


# Query parameters.


def follows(query: Mapping[str, str]) -> bool:
    return query.get("follow") == "true"


def begin_of(query: Mapping[str, str]) -> str:
    """Return the position from which to continue; empty for none."""
    if "from" in query and "tail" in query:
        raise bad_request("tail does not go with from")
    return query.get("from", "")


def number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "")
    if text and not _NUMBER.fullmatch(text):
        raise bad_request(f"{name}: {text!r} is no number")
    return int(text) if text else None
