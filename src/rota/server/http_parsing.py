"""Parses one HTTP/1.1 request after the other, within the bounds of heads, bodies and trailers."""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

import httptools

from rota.server.heartbeats import wants_heartbeats
from rota.server.http import Request
from rota.server.request_body import Body

HEAD_BYTES_MAX = 64 * 1024
"""Checked after each piece that is fed."""
HEADERS_MAX = 128
"""Lines of a head."""
FRAMING_FACTOR_MAX = 8
"""Bytes around each byte of a chunked body, besides its trailers. Chunks of one byte have five."""
CONTENT_LENGTH_DIGITS = 16
GIVEN_ONCE = frozenset({"authorization", "host", "content-length", "content-type"})


class Taker(Protocol):
    """Takes what was parsed."""

    def take_head(self) -> None:
        """Take note of a head. It may give the parser a body to fill."""

    def take_end(self) -> None:
        """Take the request, which is whole."""


class RequestParser:
    """Its attributes are those of the request that is being parsed. After a refusal it is of no more use."""

    def __init__(
        self, taker: Taker, loop: asyncio.AbstractEventLoop, *, body_bytes_max: int, peer_uid: int | None
    ) -> None:
        self._taker = taker
        self._loop = loop
        self._body_bytes_max = body_bytes_max
        self._peer_uid = peer_uid
        self._parser = httptools.HttpRequestParser(self)
        self.refused: tuple[int, str] | None = None
        """The status and the message for an invalid request."""
        self.began = 0.0
        """When its first byte came; 0 between requests."""
        self.head_is_whole = True
        self.target = b""
        self.headers: dict[str, str] = {}
        self.filled: Body | None = None
        """Gets the body as it comes, instead of the request. Nothing after it is a request."""
        self.body_bytes = 0
        self.pieces = 0
        """Pieces of all bodies so far."""
        self._body: bytes | bytearray = b""  # a bytearray once there are several pieces
        self._head_bytes = 0
        self._headers_count = 0
        self._after_head_bytes = 0

    def feed(self, data: bytes) -> bytes | None:
        """Parse more. Returns what comes after a request to upgrade, which is parsed no further."""
        if not self.began:
            self._begin()
        if self.head_is_whole:
            self._after_head_bytes += len(data)
        else:
            self._head_bytes += len(data)
        after = None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            after = data[upgrade.args[0] :]
        except httptools.HttpParserError as error:
            self.refuse(400, f"that is not HTTP/1.1: {error}")
        if not self.head_is_whole and self._head_bytes > HEAD_BYTES_MAX:
            self.refuse(431, f"the request's head is larger than {HEAD_BYTES_MAX} bytes")
        if self._after_head_bytes - self.body_bytes > HEAD_BYTES_MAX + FRAMING_FACTOR_MAX * self.body_bytes:
            self.refuse(431, f"the request's trailers are larger than {HEAD_BYTES_MAX} bytes")
        return after

    def refuse(self, status: int, message: str) -> None:
        """Refuse what is being parsed. The first refusal counts."""
        self.refused = self.refused or (status, message)
        self._body = b""

    @property
    def method(self) -> bytes:
        return self._parser.get_method()

    @property
    def awaits_body(self) -> bool:
        return bool(self.began) and self.head_is_whole

    @property
    def keeps_alive(self) -> bool:
        """False for a request that is the last of its connection."""
        # After a request to upgrade with an ordinary answer, its client may have sent anything.
        return bool(self._parser.should_keep_alive()) and not self._parser.should_upgrade()

    def body_bytes_left(self) -> int:
        """Return what is missing of a body whose length is known; 0: none is."""
        length = self.headers.get("content-length", "") if self.awaits_body else ""
        return int(length) - self.body_bytes if length.isdigit() and len(length) < CONTENT_LENGTH_DIGITS else 0

    def expects_continue(self) -> bool:
        return self.headers.get("expect", "").lower() == "100-continue"

    def request(self) -> Request:
        """Make a request of the head."""
        return Request(self.method.decode("ascii"), self.target, self.headers, b"", self._peer_uid)

    def complete(self, request: Request) -> None:
        """Give a request its body."""
        if self._body:
            request.body, self._body = bytes(self._body), b""
        if "prefer" in self.headers:
            request.wants_heartbeats = wants_heartbeats(self.headers, self._parser.get_http_version())

    def drop_body(self, instead: Body) -> None:
        """Drop what there is of a body. The rest goes elsewhere."""
        self._body = b""
        self.filled = instead

    def free(self) -> None:
        """Break reference cycles, which would last until the garbage collector runs."""
        self._parser, self._taker = cast(httptools.HttpRequestParser, None), cast(Taker, None)

    def _begin(self) -> None:
        self.began = self._loop.time()
        self._head_bytes = self._after_head_bytes = self.body_bytes = 0
        self.head_is_whole = False

    # The callbacks of httptools.

    def on_message_begin(self) -> None:
        self.target = b""
        self.headers = {}
        self._body = b""
        self._headers_count = 0
        if not self.began:
            self._begin()  # It arrived together with the end of the request before it.

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.head_is_whole:
            return  # A trailer, which is ignored.
        self._headers_count += 1
        if self._headers_count > HEADERS_MAX:
            self.refuse(431, f"the request's head has more than {HEADERS_MAX} lines")
            return
        key = name.decode("latin-1").lower()
        text = value.decode("latin-1")
        if key in self.headers:
            if key in GIVEN_ONCE:
                self.refuse(400, f"the header {key} is given twice")
            text = f"{self.headers[key]}, {text}"
        self.headers[key] = text

    def on_headers_complete(self) -> None:
        self.head_is_whole = True
        headers = self.headers
        if self._parser.should_upgrade() and (
            "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
        ):
            # The parser would take the body for input after the upgrade.
            self.refuse(400, "a request to upgrade the connection has no body")
        elif self.refused is None:
            self._taker.take_head()
        length = headers.get("content-length", "0")
        if self.filled is None and length.isdigit() and int(length) > self._body_bytes_max:
            self._refuse_body()

    def on_body(self, body: bytes) -> None:
        self.body_bytes += len(body)
        self.pieces += 1
        if self.filled is not None:
            self.filled.feed(body)
        elif self.body_bytes > self._body_bytes_max:
            self._refuse_body()
        elif self.refused is None:
            if isinstance(self._body, bytearray):
                self._body += body
            else:
                self._body = bytearray(self._body + body) if self._body else body

    def on_message_complete(self) -> None:
        if self.filled is not None:
            self.filled.end()
        elif self.refused is None:
            self._taker.take_end()
        self.began = 0.0

    def _refuse_body(self) -> None:
        self.refuse(413, f"the request's body is larger than {self._body_bytes_max} bytes")
