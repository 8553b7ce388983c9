"""The input of one client: parsed in small pieces by turns, counted, and put into the queue of its requests."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from rota.server.http import Request, Response
from rota.server.http_parsing import HEAD_BYTES_MAX, RequestParser
from rota.server.memory import SMALL_BODY_BYTES, Held, Payer
from rota.server.request_body import Body

if TYPE_CHECKING:
    from rota.server.http_server import HttpServer

PIPELINED_REQUESTS_MAX = 16
"""Requests of a connection that are parsed and wait. What a client sends behind them is kept as it came."""
PARSED_BYTES = 1024
"""Bytes that are parsed at once where several requests may be: so few wait beyond `PIPELINED_REQUESTS_MAX`."""
PARSED_BYTES_MAX = 16 * PARSED_BYTES
"""The same for an upload in large chunks. It is the last request of its connection."""
PIECE_COST_BYTES = 8
PARSED_STEP_BYTES = 4 * PARSED_BYTES
"""Bytes that are parsed before others have their turn. Chunks of one byte take six each, and a microsecond."""
HEAD_SECONDS_MAX = 10.0
"""Time from the first byte of a request to the end of its head."""
REQUEST_SECONDS_MAX = 30.0
"""Time from the first byte of a request to its end."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Queued(NamedTuple):
    """A request that waits for its answer."""

    request: Request
    keep_alive: bool
    """False for the last request of its connection."""


class Input:
    """Parses what it takes as far as few requests wait. It keeps the rest, and reads no more until that is parsed."""

    def __init__(
        self,
        server: HttpServer,
        transport: asyncio.Transport,
        queue: deque[Queued],
        *,
        peer_uid: int | None,
        stranger: Payer,
    ) -> None:
        """`stranger` pays for what nobody else does."""
        self._server = server
        self._transport = transport
        self._queue = queue
        self._stranger = stranger
        self._loop = asyncio.get_running_loop()
        self._parser = RequestParser(self, self._loop, body_bytes_max=server.body_bytes_max, peer_uid=peer_uid)
        self._coming: Request | None = None  # admitted, and its body is waited for
        self._parsed_bytes = PARSED_BYTES
        self._unparsed = b""  # nothing more is read meanwhile
        self._unparsed_held = Held(server.memory.bodies, stranger)
        self.after: bytes | None = None
        """The bytes that came after a request to upgrade."""

    @property
    def refused(self) -> tuple[int, str] | None:
        """The status and the message for invalid input. It is behind all requests of the queue, and ends the input."""
        return self._parser.refused

    @property
    def body(self) -> Body | None:
        """The body that is handed over as it comes. Its request is the last."""
        return self._parser.filled

    @property
    def is_last(self) -> bool:
        """True if nothing is taken after the newest request, of which something may be missing."""
        return self._parser.filled is not None or self.after is not None

    @property
    def is_in_request(self) -> bool:
        """True after the first byte of an unfinished request."""
        return bool(self._parser.began)

    @property
    def waits(self) -> bool:
        """True if something waits to be parsed."""
        return bool(self._unparsed)

    @property
    def may_go_on(self) -> bool:
        """True if something waits to be parsed, and few requests wait for their answers."""
        return bool(self._unparsed) and not self._is_ahead()

    def take(self, data: bytes) -> None:
        if self._unparsed:
            self._keep(self._unparsed + data)
        else:
            self._parse(data)

    def go_on(self) -> None:
        """Parse more of what was kept. After all of it, read on."""
        if not self.may_go_on:
            return
        data, self._unparsed = self._unparsed, b""
        if self._parser.began:
            self._parser.began = self._loop.time()  # The time until now was not the client's.
        self._parse(data)
        if not self._unparsed:
            self._unparsed_held.may_hold(0)
            if not self._transport.is_closing() and (self.body is None or not self.body.paused):
                self._transport.resume_reading()

    def late(self, now: float) -> str:
        """Return what is missing of a request for too long; empty: nothing is."""
        began = self._parser.began
        if began and not self._parser.head_is_whole and now - began > HEAD_SECONDS_MAX:
            return f"the head of the request did not arrive within {HEAD_SECONDS_MAX:.0f} seconds"
        if began and now - began > REQUEST_SECONDS_MAX:
            return f"the request did not arrive whole within {REQUEST_SECONDS_MAX:.0f} seconds"
        return ""

    def refuse(self, status: int, message: str) -> None:
        """Take nothing more. The client gets this as its last answer, unless there is another refusal."""
        self._parser.refuse(status, message)

    def bound_after(self) -> None:
        """Refuse what came after a request to upgrade that was not answered at once, if it is too much."""
        if self.after is not None and len(self.after) > HEAD_BYTES_MAX:
            self.refuse(400, "a client waits for the answer before it goes on")

    def forget(self) -> None:
        """Drop what is not handed over yet."""
        self._unparsed = b""
        self._unparsed_held.may_hold(0)
        if self._coming is not None:
            self._coming.release(self._server.memory.bodies)
            self._coming = None

    def free(self) -> None:
        self._parser.free()

    def _parse(self, data: bytes) -> None:
        """Parse until enough requests wait, or others have their turn. The rest is kept for then."""
        parser, at, left = self._parser, 0, PARSED_STEP_BYTES
        while at < len(data) and parser.refused is None:
            if self.after is not None:
                self._put_aside(data[at:])
                return
            if left <= 0 or self._is_ahead():
                self._keep(data[at:])
                return
            body_bytes, pieces = parser.body_bytes_left(), parser.pieces
            size = body_bytes or self._parsed_bytes
            after = parser.feed(data[at : at + size])
            if after is not None:
                self._put_aside(after)
            at += size
            # Of a body whose length is known there are no small pieces.
            if not body_bytes:
                left -= self._cost(size, parser.pieces - pieces)
        if parser.began and parser.head_is_whole and parser.refused is None and parser.filled is None:
            self._hold()

    def _is_ahead(self) -> bool:
        return len(self._queue) > PIPELINED_REQUESTS_MAX and self._parser.filled is None

    def _cost(self, size: int, pieces: int) -> int:
        """Return the bytes to count for parsed ones. An upload in large chunks is parsed in larger parts."""
        if self._parser.filled is None:
            return size
        cost = min(size, pieces * PIECE_COST_BYTES)
        self._parsed_bytes = min(2 * size, PARSED_BYTES_MAX) if cost < PARSED_BYTES // 2 else PARSED_BYTES
        return cost

    def _keep(self, data: bytes) -> None:
        """Keep input of somebody's share, and read no more until it is parsed."""
        if self._unparsed_held.may_hold(len(data)):
            self._unparsed = data
            if not self._transport.is_closing():
                # Said again each time: a body may have resumed it.
                self._transport.pause_reading()
        else:
            self._unparsed = b""
            self.refuse(429, "more was sent before its answers than there is room for; try again later")

    def _put_aside(self, data: bytes) -> None:
        """Keep input after a request to upgrade for the WebSocket."""
        self.after = (self.after or b"") + data

    # The parser's callbacks.

    def take_head(self) -> None:
        """Hand a request over before its body, if its target takes that in pieces."""
        parser, transport, streams = self._parser, self._transport, self._server.streams_body
        if parser.filled is not None or not streams(parser.target) or parser.method != b"PUT":
            return
        proceed = CONTINUE if parser.expects_continue() else b""
        request = parser.request()
        request.pieces = parser.filled = Body(transport, lambda: transport.write(proceed))
        self._queue.append(Queued(request, keep_alive=False))

    def take_end(self) -> None:
        parser = self._parser
        if parser.body_bytes > SMALL_BODY_BYTES or self._coming is not None:
            self._hold()
            if parser.filled is not None:
                parser.filled.end()
                return
        request, self._coming = self._coming or parser.request(), None
        parser.complete(request)
        self._queue.append(Queued(request, parser.keeps_alive))

    def _hold(self) -> None:
        """Count the received bytes of a body that is incomplete or large. If it may not come, it is not waited for."""
        parser, server, request = self._parser, self._server, self._coming
        if request is None:
            request = self._coming = parser.request()
            try:
                request.refused = server.admit(request)
            except Exception:
                request.refused = server.failed(request)
            request.payer = server.payer(request) or self._stranger
            if request.refused is None and parser.expects_continue():
                self._transport.write(CONTINUE)
        if request.refused is None:
            request.refused = self._count(request, parser.body_bytes - request.held)
        if request.refused is not None:
            self._coming = None
            request.release(server.memory.bodies)
            # The rest is read and dropped, because a client reads the answer only after it has sent everything.
            rest = Body(self._transport, _nothing)
            rest.discard()
            parser.drop_body(rest)
            self._queue.append(Queued(request, keep_alive=False))

    def _count(self, request: Request, more: int) -> Response | None:
        """Count bytes of a body, or return a refusal because there is no room for them."""
        bodies = self._server.memory.bodies
        key, may_use_reserve = request.payer or self._stranger
        if bodies.has_room(key, more, may_use_reserve=may_use_reserve):
            bodies.take(key, more)
            request.held += more
            return None
        message = (
            f"the bodies of your requests have {bodies.of(key)} bytes, which is your share while all bodies have "
            f"{bodies.used} of {bodies.total}; try again later"
        )
        return self._server.refusal(429, message)


def _nothing() -> None:
    """Do nothing."""
