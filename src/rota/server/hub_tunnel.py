"""The hub's end of the tunnels to its cells: logs, commands and files of instances that run in cells.

The cells open all connections. Each keeps one open, over which the hub sends requests; for each request it opens
another one, over which the answer passes at the pace of the slower side.

Requests are authorized before any function here is called, as for an instance of this server. The answers of a cell are
not trusted: only known forms of answers are passed on.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from rota import __version__
from rota.api import Cell, Instance
from rota.api.problems import NOT_JSON
from rota.client import frames
from rota.client.channels import ERROR, PROTOCOL, STDERR, STDIN, STDOUT
from rota.client.websocket import Closed, WebSocket, framing, handshake
from rota.control.cells import tunnel_messages
from rota.control.cells.counting import TunnelCounting
from rota.control.cells.names import shown_identity, store_identity
from rota.control.cells.tunnel_messages import (
    ANSWER_HEADERS,
    STATUSES,
    Ask,
    BodyEnd,
    Continue,
    FromCell,
    Head,
    Hello,
    Refusal,
    Welcome,
)
from rota.engine.objects import Objects, get
from rota.registry.errors import ApiError, bad_request, too_busy
from rota.server.audit import Audit, noting
from rota.server.auth import User
from rota.server.execution import DRAIN_SECONDS_MAX
from rota.server.execution import MESSAGE_BYTES_MAX as EXEC_BYTES_MAX
from rota.server.files import BYTES, TAR, VERBS
from rota.server.http import JSON, Answer, Request, Response, Stream
from rota.server.log_streams import FOLLOW_SECONDS_MAX, TEXT
from rota.server.shares import Shares
from rota.server.unread_answers import payer_of
from rota.server.upgrade import Upgrade

OPEN_SECONDS_MAX = 10.0
"""Time for a cell to open the connection for a request."""
SESSIONS_OF_CELL_MAX = 128
"""Requests under way in one cell."""
SESSIONS_OF_CELL_RESERVED = 16
"""Requests among these that are reserved for admins."""
SESSIONS_OF_CREDENTIAL_MAX = 64
"""Requests of one credential under way, in all cells together."""
CONTROL_BYTES_MAX = 512 * 1024
"""Bytes of one message over the control connection: the head of a request, in any encoding."""
WHOLE_BYTES_MAX = 1024 * 1024
"""A larger answer is sent in pieces."""
REASONS = {502: "BadGateway", 503: "ServiceUnavailable", 504: "Timeout"}
BAD_GATEWAY = 1014
"""The close code of a WebSocket that was cut off between this server and the cell."""
TYPES = frozenset((JSON, TEXT, BYTES, TAR, frames.CONTENT_TYPE))
"""Content types that are passed on. None of them is executed by a browser."""

_from_cell: msgspec.json.Decoder[Continue | Head | BodyEnd] = msgspec.json.Decoder(FromCell)
_hello = msgspec.json.Decoder(Hello).decode
_refusal = msgspec.json.Decoder(Refusal).decode


class Control:
    """The permanent connection of a cell."""

    def __init__(self, websocket: WebSocket, boot: int) -> None:
        self.websocket = websocket
        self.boot = boot


class TunnelSession:
    """One request to a cell, and the connection that the cell opens for it."""

    def __init__(
        self,
        cell: str,
        city: str,
        ask: Ask,
        user: User,
        counting: TunnelCounting,
        forget: Callable[[TunnelSession], None],
    ) -> None:
        self.cell = cell
        self.where = f'cell "{cell}" in {city}'
        self.ask = ask
        self.user = user
        self._forget = forget
        self._counting = counting
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._websocket: WebSocket | None = None
        self.opened: asyncio.Future[WebSocket] = asyncio.get_running_loop().create_future()

    async def serve(self, websocket: WebSocket) -> None:
        """Keep the cell's connection open until the request is over."""
        if self._websocket is not None or self._over.done():
            return
        self._websocket = websocket
        if not self.opened.done():
            self.opened.set_result(websocket)
        await asyncio.wait((self._over, websocket.lost), return_when=asyncio.FIRST_COMPLETED)

    def fail(self, error: ApiError) -> None:
        if not self.opened.done():
            self.opened.set_exception(error)
            # Mark it as retrieved: nobody may wait for it.
            self.opened.exception()

    def end(self) -> None:
        """End the request on both sides. A second call does nothing."""
        if self._over.done():
            return
        self._over.set_result(None)
        self.opened.cancel()
        self._forget(self)
        if self._websocket is not None and self._websocket.closed is None:
            # The cell may still be working for a client that is gone.
            self._websocket.abort()

    def sent(self, size: int) -> None:
        """Count bytes that went to the cell."""
        self._counting.sent(self.cell, size)

    def received(self, size: int) -> None:
        """Count bytes that came from the cell."""
        self._counting.received(self.cell, size)

    def cut(self) -> ConnectionError:
        """Return the error for a connection that the cell ended too early."""
        return ConnectionError(f"the connection to {self.where} was cut")


Begun = tuple[TunnelSession, WebSocket]
"""A request, and the connection over which it is sent to its cell."""


class Tunnels:
    """The connections of all cells to this hub, and the requests over them."""

    def __init__(self, audit: Audit, clock: Callable[[], float] = time.time) -> None:
        self._audit = audit
        self._clock = clock
        self._controls: dict[str, Control] = {}
        self._sessions: dict[tuple[str, str], TunnelSession] = {}
        self._shares: dict[str, Shares] = {}
        """Requests under way, by cell."""
        self._of_credential: dict[str, int] = {}
        self.counting = TunnelCounting(lambda: {cell: shares.used for cell, shares in self._shares.items()})

    # For cells.

    def control(self, objects: Objects, request: Request, cell: str) -> Upgrade:
        """Accept the permanent connection of a cell."""
        _check_protocol(request)

        async def serve(websocket: WebSocket) -> None:
            try:
                async with asyncio.timeout(OPEN_SECONDS_MAX):
                    hello = _hello(await websocket.receive())
            except (*NOT_JSON, TimeoutError):
                await websocket.close(framing.POLICY, "a cell says first who it is")
                return
            if why := self._refused(objects, cell, hello):
                await websocket.close(framing.POLICY, why)
                return
            websocket.send(tunnel_messages.said(Welcome(store_identity(objects))))
            await self._keep(cell, Control(websocket, hello.boot))

        return Upgrade(serve, tunnel_messages.PROTOCOL, message_bytes_max=CONTROL_BYTES_MAX)

    def _refused(self, objects: Objects, cell: str, hello: Hello) -> str:
        found = get(objects, Cell, cell)
        known = found.status.identity if found is not None and found.status is not None else None
        if known != shown_identity(hello.identity):
            return f"this is not the home that has joined as {cell}"
        before = self._controls.get(cell)
        if before is not None and hello.boot < before.boot:
            return f"a later start of {cell} is connected"
        return ""

    async def _keep(self, cell: str, control: Control) -> None:
        before = self._controls.get(cell)
        self._controls[cell] = control
        if before is not None:
            before.websocket.start_closing(framing.GOING_AWAY, "another connection of this cell has taken its place")
        try:
            async for message in control.websocket:
                self._on_refusal(cell, message)
        except NOT_JSON:
            await control.websocket.close(framing.POLICY, "this is no message of a cell")
        finally:
            if self._controls.get(cell) is control:
                del self._controls[cell]
                cut = _away(503, cell, f'the connection to cell "{cell}" was cut: try again')
                for session in [one for one in self._sessions.values() if one.cell == cell]:
                    session.fail(cut)

    def _on_refusal(self, cell: str, message: str | bytes) -> None:
        refusal = _refusal(message)
        session = self._sessions.get((cell, refusal.id))
        if session is not None:
            session.fail(_refused_by(cell, refusal.code, refusal.reason, refusal.message, None))

    def session(self, request: Request, cell: str, id_: str) -> Upgrade:
        """Accept the connection that a cell opens for one request."""
        _check_protocol(request)
        session = self._sessions.get((cell, id_))
        if session is None or session.opened.done():
            raise ApiError(404, "NotFound", "nobody waits for this connection", details={"name": cell, "kind": "cells"})
        return Upgrade(
            session.serve,
            tunnel_messages.PROTOCOL,
            message_bytes_max=tunnel_messages.MESSAGE_BYTES_MAX,
            waiting_bytes_max=tunnel_messages.WAITING_BYTES_MAX,
            payer=payer_of(session.user),
        )

    # For those who ask.

    async def answer(self, objects: Objects, request: Request, user: User, instance: Instance, what: str) -> Answer:
        """Answer a request about an instance of a cell with the cell's answer."""
        if what == "logs":
            return await self._answer(objects, request, user, instance, what)
        verb = "create" if what == "exec" else VERBS[request.method]
        meta = instance.metadata
        with noting(self._audit, user, verb, Instance.api.bucket, meta.namespace, meta.name, what) as note:
            note.code = 499  # If the client goes away before the answer, in the convention of web servers.
            answer = await self._answer(objects, request, user, instance, what)
            note.code = 101 if isinstance(answer, Upgrade) else answer.status
            return answer

    async def _answer(self, objects: Objects, request: Request, user: User, instance: Instance, what: str) -> Answer:
        if what == "exec":
            if wrong := handshake.refused(request.method, request.headers):
                raise ApiError(wrong[0], "BadRequest", wrong[1])
            if PROTOCOL not in handshake.offered(request.headers):
                raise bad_request(f"this is a WebSocket that speaks {PROTOCOL}")
        session, control = self._open(objects, request, user, instance, what)
        try:
            async with asyncio.timeout(user.seconds_left or None):
                websocket = await _opened(session, control)
                head = await _exchange(session, websocket, request)
                answer = await self._begun(session, websocket, head)
        except TimeoutError:
            session.end()
            raise ApiError(401, "Unauthorized", "the credential is no longer good") from None
        except ConnectionError:
            session.end()
            message = f"{session.cut()} before it answered. Whether it has begun is not known"
            raise _away(503, session.cell, message) from None
        except BaseException:
            session.end()
            raise
        if isinstance(answer, Response):
            session.end()
        return answer

    def _open(self, objects: Objects, request: Request, user: User, instance: Instance, what: str) -> Begun:
        """Begin a request to the cell of an instance. Raises ApiError if there is no room, or no connection."""
        cell = instance.spec.cell_name or ""
        known, control = get(objects, Cell, cell), self._controls.get(cell)
        if known is None or control is None or control.websocket.closed is not None:
            raise tunnel_messages.absent(known, cell, __version__, self._clock())
        admin = user.scope == "admin"
        shares = self._shares.get(cell) or Shares(SESSIONS_OF_CELL_MAX, SESSIONS_OF_CELL_RESERVED)
        if not shares.has_room(_share_key(user), may_use_reserve=admin):
            own = shares.of(_share_key(user))
            raise too_busy(
                f'{shares.used} requests to cell "{cell}" are under way, {own} of them yours:'
                f" {SESSIONS_OF_CELL_MAX} are the most, and all who ask share them"
            )
        count = self._of_credential.get(_share_key(user), 0)
        if count >= SESSIONS_OF_CREDENTIAL_MAX:
            raise too_busy(f"{SESSIONS_OF_CREDENTIAL_MAX} requests to cells are under way with this credential already")
        id_ = secrets.token_urlsafe(16)
        ask = tunnel_messages.asked(
            instance, id_, request.method, what, request.query_text, request.headers, user.name, admin=admin
        )
        session = TunnelSession(cell, known.spec.city_code, ask, user, self.counting, self._forget)
        self._sessions[cell, id_] = session
        self._shares[cell] = shares
        shares.take(_share_key(user))
        self._of_credential[_share_key(user)] = count + 1
        self.counting.opened(cell)
        return session, control.websocket

    def _forget(self, session: TunnelSession) -> None:
        del self._sessions[session.cell, session.ask.id]
        share_key = _share_key(session.user)
        shares = self._shares[session.cell]
        shares.give_back(share_key)
        if not shares.used:
            del self._shares[session.cell]
        left = self._of_credential.pop(share_key) - 1
        if left:
            self._of_credential[share_key] = left

    async def _begun(self, session: TunnelSession, websocket: WebSocket, head: Head) -> Answer:
        """Return the answer that begins with a head."""
        what = session.ask.what
        if (head.status == 101) != (what == "exec" and head.status < 400) or head.status not in STATUSES:
            raise _rubbish(session.cell)
        if head.status == 101:
            return Upgrade(
                lambda user: _relay(session, user, websocket),
                PROTOCOL,
                message_bytes_max=EXEC_BYTES_MAX,
                on_end=session.end,
            )
        if head.content_type not in TYPES:
            raise _rubbish(session.cell)
        chunks = _chunks(session, websocket)
        if head.status >= 400 or 0 <= head.length <= WHOLE_BYTES_MAX:
            body = await _whole(session, chunks)
            if head.status >= 400:
                raise _failure(session.cell, head.status, body)
            return Response(head.status, body, head.content_type, _headers(head))
        return Stream(
            chunks,
            head.content_type,
            head.status,
            _headers(head),
            seconds_max=FOLLOW_SECONDS_MAX if what == "logs" else 0.0,
            endless=what == "logs",
            on_end=session.end,
        )


def _check_protocol(request: Request) -> None:
    if tunnel_messages.PROTOCOL not in handshake.offered(request.headers):
        raise bad_request(f"this is a WebSocket that speaks {tunnel_messages.PROTOCOL}")


def _share_key(user: User) -> str:
    return user.share_key or user.name


# Answers of cells.


def _rubbish(cell: str) -> ApiError:
    return _away(502, cell, f'cell "{cell}" answers with what is no answer: is it another version of Rota?')


def _away(code: int, cell: str, message: str) -> ApiError:
    return ApiError(code, REASONS[code], message, details={"name": cell, "kind": "cells"})


def _refused_by(cell: str, code: int, reason: str, message: str, details: dict[str, Any] | None) -> ApiError:
    """Return the error for a refusal by a cell. It does not depend on the client of the hub."""
    if code not in STATUSES or code < 400:
        return _rubbish(cell)
    return ApiError(code, reason, message, details=details)


class _Status(msgspec.Struct):
    message: str = ""
    reason: str = ""
    details: dict[str, Any] = {}


def _failure(cell: str, code: int, body: bytes) -> ApiError:
    try:
        sent = msgspec.json.decode(body, type=_Status)
    except NOT_JSON:
        return _rubbish(cell)
    retry = sent.details.get("retryAfterSeconds")
    kept = {name: sent.details[name] for name in ("name", "kind", "group") if isinstance(sent.details.get(name), str)}
    if isinstance(retry, int) and 0 < retry < 3600:
        kept["retryAfterSeconds"] = retry
    return _refused_by(cell, code, sent.reason, sent.message, kept)


def _headers(head: Head) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in head.headers.items() if name in ANSWER_HEADERS)


def _message(session: TunnelSession, text: str) -> Continue | Head | BodyEnd:
    try:
        return _from_cell.decode(text)
    except NOT_JSON:
        raise _rubbish(session.cell) from None


async def _opened(session: TunnelSession, control: WebSocket) -> WebSocket:
    """Send the request to the cell, and wait for the connection that it opens."""
    try:
        async with asyncio.timeout(OPEN_SECONDS_MAX):
            # Do not queue messages for a cell that reads none.
            await control.drain()
            control.send(tunnel_messages.said(session.ask))
            return await session.opened
    except TimeoutError:
        message = f"{session.where} did not answer within {OPEN_SECONDS_MAX:g} s: it hangs, or is out of reach"
        raise _away(504, session.cell, message) from None


async def _exchange(session: TunnelSession, websocket: WebSocket, request: Request) -> Head:
    """Send the body of a request if the cell asks for it, until its answer begins."""
    sending: asyncio.Future[None] | None = None
    try:
        while True:
            came = await websocket.receive()
            message = _message(session, came) if isinstance(came, str) else None
            if isinstance(message, Head):
                return message
            if not isinstance(message, Continue) or sending is not None or request.pieces is None:
                raise _rubbish(session.cell)
            sending = asyncio.ensure_future(_send(session, websocket, request.pieces))
    finally:
        if sending is not None:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)


async def _send(session: TunnelSession, websocket: WebSocket, pieces: AsyncIterator[bytes]) -> None:
    with contextlib.suppress(Closed):
        async for piece in pieces:
            session.sent(len(piece))
            for at in range(0, len(piece), tunnel_messages.PIECE_BYTES):
                websocket.send(piece[at : at + tunnel_messages.PIECE_BYTES])
                await websocket.drain()
        websocket.send(tunnel_messages.said(BodyEnd()))


async def _chunks(session: TunnelSession, websocket: WebSocket) -> AsyncIterator[bytes]:
    """Yield the body of an answer. Raises ConnectionError if it ends too early."""
    while True:
        try:
            came = await websocket.receive()
        except Closed:
            raise session.cut() from None
        if isinstance(came, bytes):
            session.received(len(came))
            if came:
                yield came
        elif isinstance(_message(session, came), BodyEnd):
            return
        else:
            raise session.cut()


async def _whole(session: TunnelSession, chunks: AsyncIterator[bytes]) -> bytes:
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > WHOLE_BYTES_MAX:
            raise _rubbish(session.cell)
    return bytes(body)


# Commands.


async def _relay(session: TunnelSession, user: WebSocket, cell: WebSocket) -> None:
    """Pass messages of a command both ways, until either side ends."""
    up = asyncio.ensure_future(_up(session, user, cell))
    down = asyncio.ensure_future(_down(session, cell, user))
    try:
        await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (up, down):
            task.cancel()
        await asyncio.gather(up, down, return_exceptions=True)
    ended = cell.closed
    if user.closed is not None or ended is None:
        return
    if ended.code == framing.ABNORMAL:
        await user.close(BAD_GATEWAY, str(session.cut()))
    else:
        code = ended.code if framing.may_be_sent(ended.code) else framing.NORMAL
        await user.close(code, ended.reason, seconds_max=DRAIN_SECONDS_MAX)


async def _up(session: TunnelSession, user: WebSocket, cell: WebSocket) -> None:
    """Pass on messages of a client until it goes away."""
    with contextlib.suppress(Closed):
        while True:
            message = await user.receive()
            if isinstance(message, str) or not message:
                continue
            if message[0] != STDIN:
                # Other messages are short. Long ones are invalid, and dropped.
                pieces = [message] if len(message) <= tunnel_messages.PIECE_BYTES else []
            else:
                pieces = [
                    bytes((STDIN,)) + message[at : at + tunnel_messages.PIECE_BYTES]
                    for at in range(1, len(message), tunnel_messages.PIECE_BYTES)
                ]
            with contextlib.suppress(Closed):
                # A command may end before its input. Its output is still passed on.
                for piece in pieces:
                    session.sent(len(piece))
                    cell.send(piece)
                    await cell.drain()


async def _down(session: TunnelSession, cell: WebSocket, user: WebSocket) -> None:
    """Pass on the output of a command to its end."""
    with contextlib.suppress(Closed):
        while True:
            message = await cell.receive()
            if isinstance(message, bytes) and message and message[0] in (STDOUT, STDERR, ERROR):
                session.received(len(message))
                user.send(message)
                await user.drain()
