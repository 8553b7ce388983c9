"""Requests and answers of HTTP/1.1, as handlers get and return them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, unquote

import msgspec

from rota.registry import ApiError
from rota.server.memory import Payer
from rota.server.request_body import Body
from rota.server.shares import Shares
from rota.server.upgrade import Upgrade

QUERY_PARAMETERS_MAX = 100
JSON = "application/json"
REASONS = {status.value: status.phrase.encode() for status in HTTPStatus}


class TooManyParameters(ApiError):  # noqa: N818 - says what the request has
    """A query with more parameters than any request needs. It is answered like any other invalid request."""

    def __init__(self) -> None:
        super().__init__(400, "BadRequest", f"a request has at most {QUERY_PARAMETERS_MAX} query parameters")


class Request:
    """One complete request."""

    __slots__ = (
        "_query",
        "body",
        "headers",
        "held",
        "method",
        "path",
        "payer",
        "peer_uid",
        "pieces",
        "query_text",
        "refused",
        "user",
        "wants_heartbeats",
    )

    def __init__(self, method: str, target: bytes, headers: dict[str, str], body: bytes, peer_uid: int | None) -> None:
        path, _, query = target.decode("ascii", "replace").partition("?")
        self.method = method
        self.path = unquote(path) if "%" in path else path
        self.query_text = query
        self.headers = headers
        self.body = body
        self.peer_uid = peer_uid
        """The user id of the client at a Unix socket, else None."""
        self.pieces: Body | None = None
        """The body in pieces, if it is not handed over whole."""
        self.user: Any = None
        """The authenticated user, set by the handler."""
        self.refused: Response | None = None
        """The answer, if there is one before the body has arrived."""
        self.held = 0
        """Bytes of the body that are counted for `payer`."""
        self.payer: Payer | None = None
        self.wants_heartbeats = False
        """True if interim answers may be sent while the request is processed."""
        self._query: dict[str, str] | None = None

    @property
    def query(self) -> dict[str, str]:
        """The query parameters; of repeated ones the last. Raises TooManyParameters."""
        if self._query is None:
            if self.query_text.count("&") >= QUERY_PARAMETERS_MAX:
                raise TooManyParameters
            self._query = dict(parse_qsl(self.query_text, keep_blank_values=True))
        return self._query

    def release(self, bodies: Shares) -> None:
        """Release the memory of the body."""
        if self.held and self.payer is not None:
            bodies.give_back(self.payer.key, self.held)
            self.held = 0
            self.body = b""

    def values(self, name: str) -> list[str]:
        """Return all values of a query parameter. Raises TooManyParameters."""
        if name not in self.query:
            return []
        return [value for each, value in parse_qsl(self.query_text, keep_blank_values=True) if each == name]


class Response(msgspec.Struct, frozen=True):
    """A whole answer."""

    status: int
    body: bytes
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


class Stream(msgspec.Struct, frozen=True):
    """An answer in chunks, each of which is sent as it comes."""

    chunks: AsyncIterator[bytes]
    content_type: str = JSON
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    seconds_max: float = 0.0
    """Time after which it is ended in good order; 0 for never."""
    endless: bool = False
    """True if the stream is complete wherever it ends, like a watch. Other streams are cut, so that the client notices.
    """
    on_start: Callable[[Callable[[], None]], None] = lambda end: None
    """Called before anything is sent, with a function that ends it early."""
    on_end: Callable[[], None] = lambda: None
    """Called once, at the end in any case."""


Answer = Response | Stream | Upgrade


def head(status: int, content_type: str, headers: tuple[tuple[str, str], ...], keep_alive: bool) -> bytes:
    """Encode the head of an answer, up to the headers about its length."""
    text = b"HTTP/1.1 %d %b\r\nContent-Type: %b\r\n" % (
        status,
        REASONS.get(status, b""),
        content_type.encode("latin-1"),
    )
    if not headers or not any(name.lower() == "cache-control" for name, _ in headers):
        text += b"Cache-Control: no-cache, private\r\n"
    for name, value in headers:
        text += f"{name}: {value}\r\n".encode()
    return text if keep_alive else text + b"Connection: close\r\n"
