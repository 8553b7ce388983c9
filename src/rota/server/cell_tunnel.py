"""The cell's end of the tunnel to its hub. It opens all connections, and answers the hub's requests about its
instances.

- The hub reaches the logs, commands and files of instances that this cell runs for it, and nothing else. It acts here
  with the scope `hub`, which no token has and which allows only that.
- Connections that end are opened again, after a growing and randomized pause.
- When the connection of a request ends, the request and all that it started end at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from inspect import isawaitable
from typing import Any, cast
from urllib.parse import quote

import msgspec

from rota.api import Cell, Instance
from rota.api.problems import NOT_JSON
from rota.client.connection import Limits
from rota.client.http import HttpBackend
from rota.client.target import Target
from rota.client.websocket import Closed, WebSocket, framing
from rota.control.cells import tunnel_messages
from rota.control.cells.link import About
from rota.control.cells.tunnel_messages import Ask, BodyEnd, Continue, Head, Hello, Refusal, Welcome
from rota.engine.objects import Objects, get
from rota.registry.errors import ApiError, too_busy
from rota.server.audit import Audit
from rota.server.auth import User
from rota.server.http import Answer, Request, Response, Stream
from rota.server.upgrade import SERVE_END_SECONDS_MAX, Upgrade

AGAIN_SECONDS_FIRST = 0.2
AGAIN_SECONDS_MAX = 5.0
"""The longest pause between two attempts to connect."""
REFUSED_SECONDS_MAX = 30.0
"""The pause if the hub does not know this cell, or does not support tunnels."""
WELCOME_SECONDS_MAX = 10.0
STEADY_SECONDS = 10.0
"""A connection that lasted this long resets the pause."""
NOT_FOUND = 404
REFUSED = frozenset((401, 403, NOT_FOUND))
SERVED_MAX = 160
"""Requests under way. A correct hub sends fewer."""
CONTROL_BYTES_MAX = 512 * 1024
HUB = "hub"
"""The credential in the audit trail for refused requests of a hub."""

log = logging.getLogger(__name__)

Serve = Callable[[Request, User], Answer | Awaitable[Answer]]
"""Answers a request of a user. Raises ApiError if it is not allowed."""

_from_hub: msgspec.json.Decoder[Welcome | Ask] = msgspec.json.Decoder(tunnel_messages.FromHub)
_end = msgspec.json.Decoder(BodyEnd).decode


class Tunnel:
    """Keeps a cell connected to its hub while `run` runs."""

    def __init__(self, about: About, target: Target, objects: Objects, serve: Serve, audit: Audit) -> None:
        self._about = about
        self._target = target
        self._objects = objects
        self._serve = serve
        self._audit = audit
        self._path = f"/v1/cells/{quote(about.cell, safe='')}/reach"
        self._serving: set[asyncio.Task[None]] = set()
        self.trouble = ""
        """The reason why the hub is not connected; empty if it is."""

    async def run(self) -> None:
        limits = {"streams": SERVED_MAX + 8, "message_buffer_bytes": tunnel_messages.WAITING_BYTES_MAX}
        asking = HttpBackend(self._target, limits=Limits(message_bytes=CONTROL_BYTES_MAX, **limits))
        answering = HttpBackend(self._target, limits=Limits(message_bytes=tunnel_messages.MESSAGE_BYTES_MAX, **limits))
        clock, delay = asyncio.get_running_loop().time, AGAIN_SECONDS_FIRST
        try:
            while True:
                began, delay_max = clock(), AGAIN_SECONDS_MAX
                try:
                    await self._listen(asking, answering)
                except ApiError as error:
                    delay_max = REFUSED_SECONDS_MAX if error.code in REFUSED else AGAIN_SECONDS_MAX
                    self._note(_reason(error))
                except (OSError, TimeoutError) as error:
                    self._note(str(error) or "it does not answer")
                if clock() - began > STEADY_SECONDS:
                    delay = AGAIN_SECONDS_FIRST
                await asyncio.sleep(min(delay, delay_max) * random.uniform(0.5, 1.0))
                delay = min(delay * 2, REFUSED_SECONDS_MAX)
        finally:
            for task in self._serving:
                task.cancel()
            await asyncio.gather(*self._serving, return_exceptions=True)
            await asking.close()
            await answering.close()

    def _note(self, trouble: str) -> None:
        """Record the trouble, and log it if it has changed."""
        if trouble and trouble != self.trouble:
            log.warning("the hub cannot reach what runs here: %s", trouble)
        elif self.trouble and not trouble:
            log.info("the hub can reach what runs here again")
        self.trouble = trouble

    async def _listen(self, asking: HttpBackend, answering: HttpBackend) -> None:
        """Receive requests of the hub until the connection ends."""
        about = self._about
        async with asking.websocket(self._path, protocols=(tunnel_messages.PROTOCOL,)) as control:
            control.send(tunnel_messages.said(Hello(about.identity, about.boot, about.version)))
            await self._welcomed(control)
            while True:
                try:
                    ask = _from_hub.decode(await control.receive())
                except NOT_JSON as error:
                    # A newer hub may send unknown messages. It gets no answer, and times out.
                    log.warning("the hub asks for what this cell does not know: %s", error)
                    continue
                if isinstance(ask, Welcome):
                    continue
                if len(self._serving) >= SERVED_MAX:
                    _refuse(control, ask, too_busy(f"{SERVED_MAX} requests of the hub are under way in this cell"))
                    continue
                task = asyncio.create_task(self._answer(control, answering, ask), name=f"reach {ask.what}")
                self._serving.add(task)
                task.add_done_callback(self._serving.discard)

    async def _welcomed(self, control: WebSocket) -> None:
        """Wait for the hub's identity. Raises OSError unless it is the hub of this cell."""
        try:
            async with asyncio.timeout(WELCOME_SECONDS_MAX):
                welcome = _from_hub.decode(await control.receive())
        except NOT_JSON:
            raise ConnectionError("the hub does not say which one it is") from None
        cell = get(self._objects, Cell, self._about.cell)
        own = cell.status.hub_id if cell is not None and cell.status is not None else None
        if own is None or not isinstance(welcome, Welcome) or welcome.hub != own:
            raise ConnectionError("another hub answers than the one that this cell belongs to")
        self._note("")

    async def _answer(self, control: WebSocket, hub: HttpBackend, ask: Ask) -> None:
        """Answer one request, on a connection of its own."""
        user = User(ask.user, "hub", ask.namespace, ask.uid)
        try:
            tunnel_messages.sought(self._objects, ask)
        except ApiError as error:
            # All under one credential, so that refusals cannot push other lines out of the trail.
            asking = User(ask.user, "hub", ask.namespace, HUB)
            self._audit.refused(asking, ask.method.lower(), Instance.api.bucket, ask.namespace, ask.name, ask.what)
            _refuse(control, ask, error)
            return
        try:
            async with hub.websocket(f"{self._path}/{ask.id}", protocols=(tunnel_messages.PROTOCOL,)) as websocket:
                await self._until_over(websocket, ask, user)
        except ApiError as error:
            # The hub does not take the answer. If its client still waits, this ends the wait.
            _refuse(control, ask, ApiError(503, "ServiceUnavailable", f"the hub does not take the answer: {error}"))
        except (OSError, TimeoutError) as error:
            log.info("a request of the hub was cut: %s", error)

    async def _until_over(self, websocket: WebSocket, ask: Ask, user: User) -> None:
        serving = asyncio.ensure_future(self._served(websocket, ask, user))
        try:
            await asyncio.wait((serving, websocket.lost), return_when=asyncio.FIRST_COMPLETED)
            if not serving.done() and ask.what == "exec":
                # Let it end its command.
                await asyncio.wait((serving,), timeout=SERVE_END_SECONDS_MAX)
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    async def _served(self, websocket: WebSocket, ask: Ask, user: User) -> None:
        code, reason = framing.NORMAL, ""
        try:
            await self._send(websocket, await self._made(websocket, ask, user))
        except Closed:
            return
        except Exception:
            log.exception("a request of the hub for %s failed", ask.what)
            code, reason = framing.SERVER_ERROR, "an error in the cell; the log of its server says more"
        await websocket.close(code, reason)

    async def _made(self, websocket: WebSocket, ask: Ask, user: User) -> Answer:
        """Return this server's own answer to a request."""
        request = _request(ask)
        if ask.method == "PUT":
            request.pieces = cast(Any, _TunnelBody(websocket))
        if ask.what == "logs":
            self._audit.record(user, "get", Instance.api.bucket, ask.namespace, ask.name, ask.what, 200)
        try:
            answer = self._serve(request, user)
            return await answer if isawaitable(answer) else answer
        except ApiError as error:
            return _failed(error)

    async def _send(self, websocket: WebSocket, answer: Answer) -> None:
        if isinstance(answer, Upgrade):
            websocket.send(tunnel_messages.said(Head(101)))
            try:
                await answer.serve(websocket)
            finally:
                answer.on_end()
            return
        length = len(answer.body) if isinstance(answer, Response) else -1
        headers = {name: value for name, value in answer.headers if name in tunnel_messages.ANSWER_HEADERS}
        websocket.send(tunnel_messages.said(Head(answer.status, answer.content_type, headers, length)))
        if isinstance(answer, Response):
            await _send(websocket, answer.body)
        else:
            await _send_stream(websocket, answer)
        websocket.send(tunnel_messages.said(BodyEnd()))


def _reason(error: ApiError) -> str:
    if error.code == NOT_FOUND:
        return "the hub is of a version that reaches no instances of cells: upgrade it"
    return str(error)


async def _send_stream(websocket: WebSocket, stream: Stream) -> None:
    try:
        async for chunk in stream.chunks:
            await _send(websocket, chunk)
    finally:
        await cast(Any, stream.chunks).aclose()
        stream.on_end()


async def _send(websocket: WebSocket, data: bytes) -> None:
    for at in range(0, len(data), tunnel_messages.PIECE_BYTES):
        websocket.send(data[at : at + tunnel_messages.PIECE_BYTES])
        await websocket.drain()


def _request(ask: Ask) -> Request:
    place = f"{quote(ask.namespace, safe='')}/{quote(ask.name, safe='')}"
    path = f"/v1/instances/{place}/{ask.what}" if ask.what in ("files", "archive") else f"/v1/{ask.what}/{place}"
    headers = {name: value for name, value in ask.headers.items() if name in tunnel_messages.HEADERS}
    return Request(ask.method, f"{path}?{ask.query}".encode("ascii", "replace"), headers, b"", None)


def _failed(error: ApiError) -> Response:
    return Response(error.code, msgspec.json.encode(error.status()))


def _refuse(control: WebSocket, ask: Ask, error: ApiError) -> None:
    with contextlib.suppress(Closed):
        control.send(tunnel_messages.said(Refusal(ask.id, error.code, error.reason, error.message[:4096])))


class _TunnelBody:
    """The body of a request, which the hub sends when it is read. Raises ConnectionResetError if it is cut."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket
        self._begun = self._whole = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if not self._begun:
            self._begun = True
            self._websocket.send(tunnel_messages.said(Continue()))
        while not self._whole:
            try:
                message = await self._websocket.receive()
            except Closed:
                raise ConnectionResetError("the connection to the hub was cut") from None
            if isinstance(message, bytes):
                if message:
                    return message
                continue
            with contextlib.suppress(*NOT_JSON):
                _end(message)
                self._whole = True
        raise StopAsyncIteration
