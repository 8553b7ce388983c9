"""Calls of functions over HTTP, at the edge: a request becomes an event, and the returned value becomes the answer.

- `/NAMESPACE/FUNCTION/…`, any method. A function that is not public needs a key of its namespace, in `Authorization:
  Bearer` or `X-Rota-Key`. Without a key, the answer does not reveal whether the function exists.
- `Prefer: respond-async`: the call becomes a Task, and the answer has the URL of its result. If the Task loses its
  worker, it is retried if its method or an `Idempotency-Key` makes that safe.
- A stopping server waits a little for calls under way, and then answers the others with an error.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from rota.api import Function, Task
from rota.control.function import Serving
from rota.control.functions.asynchronous import ASYNCHRONOUS, EVENT_BYTES_MAX
from rota.control.functions.call_tasks import CALL_LABEL
from rota.control.functions.calls import RETRY_SECONDS
from rota.control.functions.recording import Identity, new_identity
from rota.control.functions.served import CallOutcome, CallRequest, NotCalled
from rota.engine.objects import get
from rota.registry.errors import ApiError
from rota.runtime.archive import log_of, result_of
from rota.server.auth import CALL, Tokens, allows
from rota.server.call_answers import (
    BETWEEN,
    CALL_HEADER,
    OWN_PREFIX,
    SAFE,
    BadResult,
    answer_of,
    error_answer,
    failed,
    response_of,
)
from rota.server.http import Answer, Request, Response, TooManyParameters
from rota.server.shares import Shares

KEY_HEADER = "x-rota-key"
ASYNC = "respond-async"
OWN = "-"
"""The first part of the edge's own paths: no namespace has this name."""
REPEATABLE = frozenset(("GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"))
"""Methods that HTTP defines as idempotent."""
REPEATABLE_HEADER = "idempotency-key"
END_SECONDS_MAX = 2.0
"""Time for calls under way to end when the server stops."""
RECORD_SECONDS_MAX = 2.0
"""Time to record and answer the calls that have not ended by then."""
EVENTS_BYTES_MAX = 128 * 1024 * 1024
"""Bytes of the events of all calls under way. They are counted apart from bodies: a call outlives its client, and an
event may be six times as large as its body."""
EVENTS_BYTES_LEAST = 8 * 1024 * 1024
"""One event: the bytes that every namespace may use as long as any are left."""
SECRET = frozenset(("authorization", "cookie"))
TOKEN_PREFIX = "rota-"
"""The prefix of every token of Rota: functions must not get any."""
MAKE_KEY = "`rota token create NAME --scope function -n NAMESPACE`"
"""A fixed text: users paste the command, so it must not contain parts of a request."""
_encode = msgspec.json.Encoder().encode


class CallHandler:
    """Answers calls of functions."""

    def __init__(self, serving: Serving, tokens: Tokens) -> None:
        self._serving = serving
        self._tokens = tokens
        self._under_way: dict[str, asyncio.Task[Answer]] = {}
        """Calls under way, by id."""
        self._events = Shares(EVENTS_BYTES_MAX, 0, least=EVENTS_BYTES_LEAST)
        """Bytes of events, by `_share_key`."""

    def find(self, request: Request, namespace: str, name: str) -> Function | Response:
        """Return the function that a request may call; else the refusal."""
        function = get(self._serving.objects, Function, name, namespace)
        refused = self._refused(request, namespace, function)
        if refused is not None:
            return refused
        return function if function is not None else error_answer(404, f"there is no function {name} in {namespace}")

    def _refused(self, request: Request, namespace: str, function: Function | None) -> Response | None:
        """Return the refusal of a caller without a key, which is the same whether the function exists or not."""
        name = function.metadata.name if function is not None else ""
        if (function is not None and function.spec.public) or self.has_key(request, namespace, name):
            return None
        challenge = ("WWW-Authenticate", 'Bearer realm="functions"')
        return error_answer(401, f"this takes a key of the function's namespace; {MAKE_KEY} makes one", challenge)

    def has_key(self, request: Request, namespace: str, name: str = "") -> bool:
        """Report whether a request has a key for a function; without a name, for any function of the namespace."""
        secret = request.headers.get(KEY_HEADER, "")
        kind, _, bearer = request.headers.get("authorization", "").partition(" ")
        if not secret and kind.lower() == "bearer":
            secret = bearer.strip()
        user = self._tokens.user(secret) if secret else None
        # Admin tokens are not accepted here, where they might travel unencrypted.
        return (
            user is not None and user.scope != "admin" and allows(user, "create", Function.api, namespace, name, CALL)
        )

    async def call(self, function: Function, request: Request, path: str) -> Answer:
        try:
            event = event_of(request, path, is_keyed=not function.spec.public)
        except TooManyParameters as error:
            return error_answer(400, str(error))
        if ASYNC in request.headers.get("prefer", "").lower():
            # Readers of Tasks can read the stored event.
            event["headers"] = {name: value for name, value in event["headers"].items() if name not in SECRET}
            is_repeatable = request.method in REPEATABLE or REPEATABLE_HEADER in request.headers
            return await self._deferred(function, _encode(event), is_repeatable=is_repeatable)
        identity, content, share_key = new_identity(function.metadata.name), _encode(event), _share_key(function)
        del event
        if not self._events.has_room(share_key, len(content)):
            message = f"calls that are not over have {self._events.of(share_key)} bytes, which is the namespace's share"
            return error_answer(429, message, ("Retry-After", str(RETRY_SECONDS)))
        self._events.take(share_key, len(content))
        about = {"method": request.method, "path": path}
        made = asyncio.create_task(self._invoke(function, about, identity, content))
        self._under_way[identity.uid] = made
        made.add_done_callback(lambda _: self._forget_call(identity, share_key, len(content)))
        # A client that goes away does not end its call: each end would cost a restart of a worker.
        return await asyncio.shield(made)

    def _forget_call(self, identity: Identity, share_key: str, event_bytes: int) -> None:
        del self._under_way[identity.uid]
        self._events.give_back(share_key, event_bytes)

    async def _invoke(self, function: Function, about: Mapping[str, str], identity: Identity, event: bytes) -> Answer:
        meta = function.metadata
        log = self._serving.runtime.archive.place(log_of(meta.namespace, identity.name, identity.uid))
        asked = CallRequest(identity.uid, event, float(function.spec.timeout_seconds), log)
        answers: list[Response] = []

        def accept(result: bytes) -> None:
            try:
                answers.append(response_of(result, (CALL_HEADER, identity.name)))
            except BadResult as error:
                answers.append(failed(502, str(error), identity))
                raise

        try:
            ended = await self._serving.calls.call(function, asked, accept=accept)
        except NotCalled as error:
            if error.reason == "NotLoaded":
                # The id in the answer leads to the reason.
                now = time.time()
                ended = CallOutcome("Failed", now, now, message=f"the function cannot be loaded: {error}")
                await self._serving.recorder.record(function, identity, about, ended)
            return _not_called(error, identity)
        await self._serving.recorder.record(function, identity, about, ended)
        return answers[0] if answers else answer_of(ended.reason, identity)

    async def finish(self) -> None:
        """Stop taking calls, and answer all that are under way."""
        self._serving.calls.serves = False
        if self._under_way:
            await asyncio.wait(self._under_way.values(), timeout=END_SECONDS_MAX)
        for id_ in self._under_way:
            self._serving.calls.give_up(id_, "the server was ended while it ran")
        if self._under_way:
            await asyncio.wait(self._under_way.values(), timeout=RECORD_SECONDS_MAX)

    async def _deferred(self, function: Function, event: bytes, *, is_repeatable: bool) -> Answer:
        """Create a Task for a call, and answer with the URL of its result."""
        if len(event) > EVENT_BYTES_MAX:
            return error_answer(413, f"a call that is answered later has at most {EVENT_BYTES_MAX} bytes")
        try:
            name = await self._serving.asynchronous.make(function, event, is_repeatable=is_repeatable)
        except NotCalled as error:
            return error_answer(429, str(error), ("Retry-After", str(RETRY_SECONDS)))
        except ApiError as error:
            return error_answer(error.code, str(error))
        return _pending_answer(function.metadata.namespace, name, "Pending", ("Preference-Applied", ASYNC))

    async def follow(self, request: Request, namespace: str, name: str) -> Answer:
        """Answer a request for the result of an asynchronous call; 202 until it is over."""
        task = get(self._serving.objects, Task, name, namespace)
        call = task.spec.function if task is not None and task.metadata.labels.get(CALL_LABEL) == ASYNCHRONOUS else None
        function = get(self._serving.objects, Function, call.name, namespace) if call is not None else None
        refused = self._refused(request, namespace, function)
        if refused is not None:
            return refused
        if task is None or call is None:
            return error_answer(404, f"there is no call {name} in {namespace} that is answered later")
        status = task.status
        if status is None or not task.over():
            return _pending_answer(namespace, name, str(status.phase) if status is not None else "Pending")
        identity = Identity(name, task.metadata.uid)
        if status.phase != "Succeeded":
            return answer_of(status.reason or "", identity)
        kept = await self._serving.runtime.archive.get(result_of(namespace, name, task.metadata.uid))
        result = _encode(status.result) if kept is None else kept
        try:
            return response_of(result, (CALL_HEADER, name))
        except BadResult as error:
            return failed(502, str(error), identity)


def _share_key(function: Function) -> str:
    """Return the key of a call's share. Public functions have a share apart from those that need a key."""
    return f"{function.metadata.namespace}{'/public' if function.spec.public else ''}"


def _pending_answer(namespace: str, name: str, phase: str, *headers: tuple[str, str]) -> Response:
    body = _encode({"task": name, "namespace": namespace, "phase": phase}) + b"\n"
    where = ("Location", f"/{OWN}/calls/{quote(namespace)}/{quote(name)}")
    retry = ("Retry-After", str(RETRY_SECONDS))
    return Response(202, body, headers=(*SAFE, where, retry, (CALL_HEADER, name), *headers))


def event_of(request: Request, path: str, *, is_keyed: bool) -> dict[str, Any]:
    """Return the event of a request. Raises TooManyParameters."""
    dropped = set(BETWEEN)
    dropped |= {one.strip().lower() for one in request.headers.get("connection", "").split(",") if one}
    kind, _, secret = request.headers.get("authorization", "").partition(" ")
    if is_keyed or (kind.lower() == "bearer" and secret.strip().startswith(TOKEN_PREFIX)):
        # The key that admitted the request is not passed to the function.
        dropped.add("authorization")
    event: dict[str, Any] = {
        "method": request.method,
        "path": path,
        "query": request.query,
        "rawQuery": request.query_text,
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


def _not_called(error: NotCalled, identity: Identity) -> Response:
    retry = ("Retry-After", str(RETRY_SECONDS))
    if error.reason == "TooMany":
        return error_answer(429, "too many calls wait for this function", retry)
    if error.reason == "NoWorker":
        return error_answer(503, "no worker of this function had room in time; nothing was begun", retry)
    if error.reason == "QuotaExceeded":
        return error_answer(503, "the quota has no room for a worker of this function; nothing was begun", retry)
    # The reason is for the deployer, in the status of the function.
    return failed(500, "the function cannot be loaded", identity)
