"""The answers to calls of functions: the returned value, or the reason why there is none.

A returned object with `statusCode` is the answer, with its `headers` and its `body`; anything else is JSON. The answer
to a failed call has only the call's id: the rest is in its log.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from rota.control.functions.recording import Identity
from rota.server.http import JSON, Response

CALL_HEADER = "X-Rota-Call"
"""The header with the id of the call, which leads to its record and its log."""
OWN_PREFIX = "x-rota-"
BETWEEN = frozenset(
    (
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "expect",
        "prefer",
    )
)
"""Headers that concern only the connection between a client and the edge."""
NOT_ANSWERED = BETWEEN | {
    "content-length",
    "date",
    "server",
    # These are about all that is served here, which is not one tenant's to say.
    "alt-svc",
    "clear-site-data",
    "service-worker-allowed",
    # All functions have one origin: a cookie of one would be every other's.
    "set-cookie",
    "strict-transport-security",
    "x-content-type-options",
}
HEADERS_MAX = 64
HEADERS_BYTES_MAX = 16 * 1024
BODYLESS = (204, 304)
SHOWN_MAX = 64
"""Characters of an invalid status that are shown."""
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_encode = msgspec.json.Encoder().encode


class BadResult(ValueError):  # noqa: N818 - says what the result is
    """The returned value cannot be an answer."""

    def __init__(self, why: str) -> None:
        super().__init__(f"what the function returned is no answer: {why}")


SAFE = (("X-Content-Type-Options", "nosniff"),)


def error_answer(code: int, message: str, *headers: tuple[str, str]) -> Response:
    """Return an error as JSON."""
    return Response(code, _encode({"error": message}) + b"\n", headers=(*SAFE, *headers))


def answer_of(reason: str, identity: Identity) -> Response:
    """Return the answer to a call without a result, by the reason of its end."""
    if reason == "Timeout":
        return failed(504, "the function took too long", identity)
    if reason == "WorkerLost":
        return failed(502, "the function's worker was lost; the call may have begun", identity)
    return failed(500, "the function failed", identity)


def response_of(result: bytes, *headers: tuple[str, str]) -> Response:
    """Return the answer that a returned value makes. Raises BadResult."""
    if not result:
        return Response(200, b"null", headers=(*SAFE, *headers))
    if b'"statusCode"' not in result:
        return Response(200, result, headers=(*SAFE, *headers))
    try:
        value = msgspec.json.decode(result)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadResult(str(error)) from None
    if not isinstance(value, dict) or "statusCode" not in value:
        return Response(200, result, headers=(*SAFE, *headers))
    status = value["statusCode"]
    if not isinstance(status, int) or isinstance(status, bool) or not 200 <= status <= 599:
        shown = repr(status)[:SHOWN_MAX] if isinstance(status, str | int | float) else type(status).__name__
        raise BadResult(f"statusCode must be a number from 200 to 599, not {shown}")
    content_type, given = _headers(value.get("headers") or {})
    body, default_type = _body(value)
    if status in BODYLESS:
        body = b""
    return Response(status, body, content_type or default_type, (*SAFE, *given, *headers))


def _headers(given: Any) -> tuple[str, list[tuple[str, str]]]:
    """Return the content type and the other headers. Raises BadResult for values that could break out of a header."""
    if not isinstance(given, Mapping):
        raise BadResult("headers must be an object")
    found: list[tuple[str, str]] = []
    content_type, total = "", 0
    for name, value in given.items():
        for each in value if isinstance(value, list) else [value]:
            text = each if isinstance(each, str) else str(each) if isinstance(each, int | float) else None
            if text is None or not _NAME.fullmatch(name) or not _VALUE.fullmatch(text):
                raise BadResult(f"header {name[:64]!r}: a name is a token, and a value one line of text")
            total += len(name) + len(text)
            if len(found) >= HEADERS_MAX or total > HEADERS_BYTES_MAX:
                raise BadResult(f"headers: at most {HEADERS_MAX}, of {HEADERS_BYTES_MAX} bytes together")
            if name.lower() == "content-type":
                content_type = text
            elif name.lower() not in NOT_ANSWERED and not name.lower().startswith(OWN_PREFIX):
                found.append((name, text))
    return content_type, found


def _body(value: Mapping[str, Any]) -> tuple[bytes, str]:
    body = value.get("body")
    if body is None:
        return b"", "text/plain; charset=utf-8"
    if not isinstance(body, str):
        return _encode(body), JSON
    if value.get("isBase64Encoded") is True:
        try:
            return base64.b64decode(body, validate=True), "application/octet-stream"
        except binascii.Error as error:
            raise BadResult(f"body is not base64: {error}") from None
    return body.encode(), "text/plain; charset=utf-8"


def failed(code: int, message: str, identity: Identity) -> Response:
    body = _encode({"error": message, "call": identity.name}) + b"\n"
    return Response(code, body, headers=(*SAFE, (CALL_HEADER, identity.name)))
