"""Calls over HTTP, on the edge: a request becomes an event, and what the function returns becomes the answer.

- `/NAMESPACE/FUNCTION/…`, any method. A function that is not public is called with a key of its namespace, in
  `Authorization: Bearer` or `X-Rota-Key`. Whoever has none is not told whether there is such a function.
- A returned object with `statusCode` is the answer, with its `headers` and its `body`; anything else is JSON.
- What goes wrong in a function is told by the id of the call alone: the rest is in its log.
- `Prefer: respond-async`: the answer is a Task, which runs when it can. If its worker is lost it is made again when its
  method, or an `Idempotency-Key`, says that this does no harm; else not.
- A server that ends lets calls end that do so soon, and tells the callers of the others that they are lost.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
import time
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from rota.api import Function
from rota.control.function import Serving
from rota.control.functions.calls import RETRY_SECONDS
from rota.control.functions.later import EVENT_BYTES_MAX
from rota.control.functions.line import Asked, Ended, NotCalled
from rota.control.functions.recording import Identity, new_identity
from rota.engine.objects import get
from rota.registry import ApiError
from rota.server.auth import Tokens
from rota.server.http import JSON, Answer, Request, Response, TooManyParameters

KEY_HEADER = "x-rota-key"
CALL_HEADER = "X-Rota-Call"
"""By which the record and the log of a call are found."""
ASYNC = "respond-async"
REPEATABLE = frozenset(("GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"))
"""Methods of which HTTP says that to ask twice is to ask once."""
REPEATABLE_HEADER = "idempotency-key"
END_SECONDS_MAX = 2.0
"""How long calls that are under way may take when the server ends."""
TOLD_SECONDS_MAX = 2.0
"""How long it may then take to write down and to tell that the others are lost."""
NOT_PASSED_ON = frozenset(
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
"""Headers that are between a client and the edge."""
OWN_PREFIX = "x-rota-"
TOKEN_PREFIX = "rota-"
"""What every token of Rota's begins with: none is for a function's eyes."""
NOT_ANSWERED = NOT_PASSED_ON | {
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
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_encode = msgspec.json.Encoder().encode


class BadResult(ValueError):  # noqa: N818 - says what the result is
    """What a function returned cannot be an answer."""

    def __init__(self, why: str) -> None:
        super().__init__(f"what the function returned is no answer: {why}")


class Calling:
    """Answers requests to functions."""

    def __init__(self, serving: Serving, tokens: Tokens) -> None:
        self._serving = serving
        self._tokens = tokens
        self._under_way: dict[str, asyncio.Task[Answer]] = {}
        """By the id of the call."""

    def find(self, request: Request, namespace: str, name: str) -> Function | Response:
        """The function that a request is for, if it may be called; else what it is told."""
        function = get(self._serving.objects, Function, name, namespace)
        if function is not None and function.spec.public:
            return function
        if not self._has_key(request, namespace):
            # Alike whether there is one or not.
            challenge = ("WWW-Authenticate", 'Bearer realm="functions"')
            return said(
                401, "this takes a key of the function's namespace: rota token create --scope function", challenge
            )
        return function if function is not None else said(404, f"there is no function {name} in {namespace}")

    def _has_key(self, request: Request, namespace: str) -> bool:
        secret = request.headers.get(KEY_HEADER, "")
        kind, _, bearer = request.headers.get("authorization", "").partition(" ")
        if not secret and kind.lower() == "bearer":
            secret = bearer.strip()
        user = self._tokens.user(secret) if secret else None
        return user is not None and user.scope == "function" and user.namespace in ("", namespace)

    async def call(self, function: Function, request: Request, path: str) -> Answer:
        try:
            event = _encode(event_of(request, path, is_keyed=not function.spec.public))
        except TooManyParameters as error:
            return said(400, str(error))
        if ASYNC in request.headers.get("prefer", "").lower():
            is_repeatable = request.method in REPEATABLE or REPEATABLE_HEADER in request.headers
            return await self._later(function, event, is_repeatable=is_repeatable)
        identity = new_identity(function.metadata.name)
        made = asyncio.create_task(self._made(function, request, path, identity, event))
        self._under_way[identity.uid] = made
        made.add_done_callback(lambda _: self._under_way.pop(identity.uid))
        # A client that goes away does not end what it began: or many that do would keep all workers starting anew.
        return await asyncio.shield(made)

    async def _made(self, function: Function, request: Request, path: str, identity: Identity, event: bytes) -> Answer:
        meta = function.metadata
        log = str(self._serving.runtime.task_log(meta.namespace, identity.name, identity.uid))
        asked = Asked(identity.uid, event, float(function.spec.timeout_seconds), log)
        about = {"method": request.method, "path": path}
        answers: list[Response] = []

        def accept(result: bytes) -> None:
            try:
                answers.append(response_of(result, (CALL_HEADER, identity.name)))
            except BadResult as error:
                answers.append(_failed(502, str(error), identity))
                raise

        try:
            ended = await self._serving.calls.call(function, asked, accept=accept)
        except NotCalled as error:
            if error.reason == "NotLoaded":
                # The answer has its id: it leads to why.
                now = time.time()
                ended = Ended("Failed", now, now, message=f"the function cannot be loaded: {error}")
                await self._serving.recorder.record(function, identity, about, ended)
            return _not_called(error, identity)
        await self._serving.recorder.record(function, identity, about, ended)
        return answers[0] if answers else answer_of(ended, identity)

    async def finish(self) -> None:
        """The server is about to end: take no more calls, and have an answer for each that there is."""
        self._serving.calls.serves = False
        if self._under_way:
            await asyncio.wait(self._under_way.values(), timeout=END_SECONDS_MAX)
        for id_ in self._under_way:
            self._serving.calls.give_up(id_, "the server was ended while it ran")
        if self._under_way:
            await asyncio.wait(self._under_way.values(), timeout=TOLD_SECONDS_MAX)

    async def _later(self, function: Function, event: bytes, *, is_repeatable: bool) -> Answer:
        """A Task for it, which is there before the answer is."""
        if len(event) > EVENT_BYTES_MAX:
            return said(413, f"a call that is answered later has at most {EVENT_BYTES_MAX} bytes")
        try:
            name = await self._serving.later.make(function, event, is_repeatable=is_repeatable)
        except NotCalled as error:
            return said(429, str(error), ("Retry-After", str(RETRY_SECONDS)))
        except ApiError as error:
            return said(error.code, str(error))
        body = _encode({"task": name, "namespace": function.metadata.namespace}) + b"\n"
        return Response(202, body, headers=(*SAFE, ("Preference-Applied", ASYNC), (CALL_HEADER, name)))


SAFE = (("X-Content-Type-Options", "nosniff"),)


def said(code: int, message: str, *headers: tuple[str, str]) -> Response:
    """Why nothing came of a request."""
    return Response(code, _encode({"error": message}) + b"\n", headers=(*SAFE, *headers))


def event_of(request: Request, path: str, *, is_keyed: bool) -> dict[str, Any]:
    """What a function is given of a request. Raises TooManyParameters."""
    dropped = set(NOT_PASSED_ON)
    dropped |= {one.strip().lower() for one in request.headers.get("connection", "").split(",") if one}
    kind, _, secret = request.headers.get("authorization", "").partition(" ")
    if is_keyed or (kind.lower() == "bearer" and secret.strip().startswith(TOKEN_PREFIX)):
        # It is what let the request in, and not for the function's eyes.
        dropped.add("authorization")
    event: dict[str, Any] = {
        "method": request.method,
        "path": path,
        "query": request.query,
        "headers": {name: value for name, value in request.headers.items() if _is_passed_on(name, dropped)},
    }
    try:
        event["body"] = request.body.decode()
        event["isBase64Encoded"] = False
    except UnicodeDecodeError:
        event["body"] = base64.b64encode(request.body).decode()
        event["isBase64Encoded"] = True
    return event


def _is_passed_on(name: str, dropped: Collection[str]) -> bool:
    return name not in dropped and not name.startswith(OWN_PREFIX)


def answer_of(ended: Ended, identity: Identity) -> Response:
    """What the caller is told of a call that returned nothing."""
    if ended.reason == "Timeout":
        return _failed(504, "the function took too long", identity)
    if ended.reason == "WorkerLost":
        return _failed(502, "the function's worker was lost; the call may have begun", identity)
    return _failed(500, "the function failed", identity)


def response_of(result: bytes, *headers: tuple[str, str]) -> Response:
    """What a function returned, as an answer. Raises BadResult."""
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
        raise BadResult(f"statusCode must be a number from 200 to 599, not {status!r}")
    content_type, given = _headers(value.get("headers") or {})
    body, default_type = _body(value)
    if status in BODYLESS:
        body = b""
    return Response(status, body, content_type or default_type, (*SAFE, *given, *headers))


def _headers(given: Any) -> tuple[str, list[tuple[str, str]]]:
    """The type of the content, and all other headers. What would break out of a header is refused."""
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
            elif _is_passed_on(name.lower(), NOT_ANSWERED):
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


def _failed(code: int, message: str, identity: Identity) -> Response:
    body = _encode({"error": message, "call": identity.name}) + b"\n"
    return Response(code, body, headers=(*SAFE, (CALL_HEADER, identity.name)))


def _not_called(error: NotCalled, identity: Identity) -> Response:
    retry = ("Retry-After", str(RETRY_SECONDS))
    if error.reason == "TooMany":
        return said(429, "too many calls wait for this function", retry)
    if error.reason == "NoWorker":
        return said(503, "no worker of this function had room in time; nothing was begun", retry)
    # Why is for who deployed it: it is in the status of the function.
    return _failed(500, "the function cannot be loaded", identity)
