"""One HTTP/1.1 connection of a client: its requests are answered one after the other, at most one in a turn."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Awaitable
from typing import TYPE_CHECKING, cast

import msgspec

from rota.client.keepalive import keep_alive
from rota.client.rounds import Rounds
from rota.client.websocket import handshake
from rota.server.heartbeats import Heartbeats
from rota.server.http import Answer, Request, Response, Stream
from rota.server.http_input import Input, Queued
from rota.server.http_writing import WRITE_BUFFER_BYTES, Writer
from rota.server.memory import Held, Payer, payer_at
from rota.server.upgrade import Upgrade, Upgraded

if TYPE_CHECKING:
    from rota.server.http_server import HttpServer

STALLED_SECONDS_MAX = 30.0
"""A client that reads nothing of its answer for this long is cut off."""
LINGER_SECONDS = 5.0
"""Time to read on after an early answer, until the client notices it: closing at once would cut the answer off."""
LINGER_BYTES_MAX = 16 * 1024 * 1024
"""Bytes that are read and dropped meanwhile."""


class Connection(asyncio.Protocol):
    """The connection of one client."""

    def __init__(self, server: HttpServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._rounds = Rounds.of(loop)
        # These three are made with the transport.
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._input: Input = cast(Input, None)
        self._writer: Writer = cast(Writer, None)
        self.closed: asyncio.Future[None] = loop.create_future()
        self._peer_uid: int | None = None
        self._address = payer_at(None)  # pays for anonymous requests
        self._queue: deque[Queued] = deque()
        self._busy = False  # a request is being answered
        self._task: asyncio.Task[None] | None = None
        self._waits_for_turn = False
        self._last = False  # no further request is taken
        self._has_ended = False  # the client sends nothing more, and waits for its answers
        self._is_known = False  # whether the last request was of somebody with a credential
        self._idle_since = loop.time()
        self._lingers_until = 0.0
        self._lingered_bytes = 0
        self._upgraded: Upgraded | None = None

    @property
    def is_local(self) -> bool:
        return self._peer_uid is not None

    # The transport's callbacks.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        self._peer_uid = _peer_uid(sock)
        self._address = payer_at(transport.get_extra_info("peername"))
        if sock is not None:
            # A waiting client may vanish.
            keep_alive(sock)
        server = self._server
        self._writer = Writer(self._transport)
        self._input = Input(server, self._transport, self._queue, peer_uid=self._peer_uid, stranger=self._address)
        server.connections.add(self)
        is_local = self.is_local
        server.local_connections += is_local
        self._wait()
        if server.is_full(local=is_local) and (is_local or not server.make_room(sparing=self)):
            limit = server.local_connections_max if is_local else server.connections_max
            self._refuse(429, f"there are more than {limit} connections, all of them busy; try again later")

    def connection_lost(self, error: Exception | None) -> None:
        self._last = True
        self._wait_no_more()
        self._forget_requests()
        if self._input.body is not None:
            self._input.body.lose()
        if self._task is not None:
            self._task.cancel()
        self._writer.lose()
        self._left()

    def pause_writing(self) -> None:
        self._writer.pause()

    def resume_writing(self) -> None:
        self._writer.resume()
        self._go_on()

    def data_received(self, data: bytes) -> None:
        if self._lingers_until:
            self._lingered_bytes += len(data)
        elif self._last:
            return
        self._input.take(data)
        self._go_on()

    def eof_received(self) -> bool:
        body = self._input.body
        if body is not None and not body.is_whole and not self._input.waits:
            return False
        # A client that has sent everything may still want its answer. A TLS transport closes in any case.
        self._has_ended = True
        return not self._is_done() and self._transport.get_extra_info("sslcontext") is None

    # Answering.

    def _go_on(self) -> None:
        """Answer the next request now, unless it has to wait for its turn, and have what remains wait for it."""
        if self._waits_for_turn or self._transport.is_closing():
            return
        if self._lingers_until:
            self._linger()
        elif self._may_answer():
            self._answer_next()
        if self._input.after is not None:
            self._input.bound_after()
        refused = self._input.refused
        if refused is not None and not self._queue and (not self._busy or self._input.is_last):
            # Nothing is answered after a request that is not valid to its end.
            self._refuse(*refused)
        elif self._may_answer() or (self._input.may_go_on and self._may_parse()):
            self._waits_for_turn = True
            self._rounds.wait(self)
        elif self._has_ended and self._is_done():
            self._close()

    def take_step(self) -> bool:
        self._waits_for_turn = False
        if not self._transport.is_closing() and self._may_parse():
            self._input.go_on()
        self._go_on()
        return False  # It waits again by itself.

    def _may_answer(self) -> bool:
        """Report whether a request is to be answered now. None is while the client reads no answers."""
        return bool(self._queue) and not self._busy and not self._writer.is_full

    def _may_parse(self) -> bool:
        return not self._last or self._lingers_until > 0

    def _is_done(self) -> bool:
        return not self._busy and not self._queue and not self._input.waits

    def _answer_next(self) -> None:
        request, keep_alive = self._queue.popleft()
        self._busy = True
        self._wait_no_more()
        try:
            answer = request.refused or self._server.handler(request)
        except Exception:
            answer = self._server.failed(request)
        self._is_known = request.user is not None
        if isinstance(answer, Response) and len(answer.body) <= WRITE_BUFFER_BYTES:
            self._send(request, answer, keep_alive)
        elif isinstance(answer, Upgrade):
            self._upgrade(request, answer)
        else:
            self._task = self._loop.create_task(self._finish(request, answer, keep_alive))
            if request.held:
                self._task.add_done_callback(lambda _, request=request: self._release(request))  # type: ignore[misc]
            if isinstance(answer, Stream):
                answer.on_start(self._writer.end_stream)
                # As a callback, because a task that is cancelled before its first step does not run at all.
                self._task.add_done_callback(lambda _, end=answer.on_end: end())  # type: ignore[misc]

    async def _finish(self, request: Request, answer: Awaitable[Answer] | Answer, keep_alive: bool) -> None:
        try:
            final: Answer
            if isinstance(answer, Stream | Response | Upgrade):
                final = answer
            else:
                beats = Heartbeats(self._loop, self._transport) if request.wants_heartbeats else None
                try:
                    final = await answer
                except Exception:
                    final = self._server.failed(request)
                finally:
                    if beats is not None:
                        beats.stop()
            self._release(request)
            if isinstance(final, Response):
                if len(final.body) <= WRITE_BUFFER_BYTES:
                    self._send(request, final, keep_alive)
                else:
                    await self._send_large(request, final, keep_alive)
            elif isinstance(final, Upgrade):
                self._upgrade(request, final)
            elif final is answer:
                await self._stream(request, final)
            else:
                final.on_start(self._writer.end_stream)
                try:
                    await self._stream(request, final)
                finally:
                    final.on_end()
        except ConnectionError:
            self.abort()
        finally:
            # Break the cycle of a cancelled task, its error, the traceback and this connection.
            self._task = None
        self._go_on()

    def _send(self, request: Request, response: Response, keep_alive: bool) -> None:
        keep_alive = keep_alive and self._stays_open()
        self._writer.write(request, response, keep_alive=keep_alive)
        self._sent(request, keep_alive)

    async def _send_large(self, request: Request, response: Response, keep_alive: bool) -> None:
        """Send a large answer, whose unread bytes are counted."""
        answers, key, size = self._server.memory.answers, self._payer(request).key, len(response.body)
        if request.user is None and not answers.has_room(key, size):
            message = f"{answers.of(key)} bytes of answers to your address are not read yet: read them first"
            self._send(request, self._server.refusal(429, message), keep_alive)
            return
        keep_alive = keep_alive and self._stays_open()
        answers.take(key, size)
        try:
            await self._writer.write_large(request, response, keep_alive=keep_alive)
        finally:
            answers.give_back(key, size)
        self._sent(request, keep_alive)

    async def _stream(self, request: Request, stream: Stream) -> None:
        self._last = True
        try:
            await self._writer.write_stream(request, stream)
        finally:
            self._busy = False
            self._close()

    def _stays_open(self) -> bool:
        return not self._last and not self._server.closing

    def _sent(self, request: Request, keep_alive: bool) -> None:
        self._release(request)
        self._busy = False
        self._idle_since = self._loop.time()
        self._wait()
        if not keep_alive:
            self._last = True
            self._hang_up(request)

    def _payer(self, request: Request) -> Payer:
        return self._server.payer(request) or self._address

    def _release(self, request: Request) -> None:
        request.release(self._server.memory.bodies)

    def _forget_requests(self) -> None:
        """Drop the requests that nobody waits for."""
        for request, _ in self._queue:
            self._release(request)
        self._queue.clear()
        self._input.forget()

    # A WebSocket.

    def _upgrade(self, request: Request, upgrade: Upgrade) -> None:
        """Hand the connection over for good."""
        if wrong := self._input.refused or handshake.refused(request.method, request.headers):
            refusal = self._server.refusal(*wrong)
            headers = (*refusal.headers, ("Upgrade", "websocket"), ("Sec-WebSocket-Version", handshake.VERSION))
            self._send(request, msgspec.structs.replace(refusal, headers=headers), keep_alive=False)
            return
        self._last = True
        self._forget_requests()
        self._release(request)
        held = Held(self._server.memory.bodies, upgrade.payer or self._payer(request))
        self._upgraded = Upgraded(
            upgrade,
            request.headers,
            self._transport,
            is_local=self.is_local,
            path=request.path,
            gone=self._left,
            # The server's own runners are at the local socket. They are not limited by shares.
            may_hold=_always if self.is_local else held.may_hold,
        )
        after, self._input.after = self._input.after, None
        if after:
            self._upgraded.websocket.data_received(after)
        if self._server.closing:
            self._upgraded.finish()

    def _left(self) -> None:
        """Release everything that refers to the closed connection."""
        # Break reference cycles, which would last until the garbage collector runs.
        self._input.free()
        self._upgraded = None
        if self in self._server.connections:
            self._server.connections.discard(self)
            self._server.local_connections -= self.is_local
        if not self.closed.done():
            self.closed.set_result(None)

    # Waiting for the client.

    def _wait(self) -> None:
        """Join the connections that are closed when there is no room. Local ones are not."""
        if not self.is_local:
            (self._server.idle if self._is_known else self._server.strangers)[self] = None

    def _wait_no_more(self) -> None:
        self._server.strangers.pop(self, None)
        self._server.idle.pop(self, None)

    def give_up(self) -> None:
        """Close the connection to make room for another. A client in the middle of a request gets an error."""
        self._wait_no_more()
        if self._input.is_in_request and not self._last:
            self._refuse(429, "the request took too long to arrive, and others need the connection; try again later")
        self.abort()

    def check_time(self, now: float, idle_seconds_max: float) -> None:
        if self._upgraded is not None:
            return  # A WebSocket has timers of its own.
        body = self._input.body
        if self._lingers_until:
            if now > self._lingers_until:
                self._close()
        elif self._writer.is_full:
            if self._writer.full_seconds(now) > STALLED_SECONDS_MAX:
                self.abort()
        elif self._input.waits:
            return  # What is missing has arrived, and waits for others, or for the answers before it.
        elif body is not None:
            if body.late_seconds(now) > STALLED_SECONDS_MAX:
                self.abort()
        elif late := self._input.late(now):
            self._input.refuse(408, late)
            self._go_on()
        elif not self._busy and not self._input.is_in_request and now - self._idle_since > idle_seconds_max:
            self._close()

    # Hanging up.

    def _hang_up(self, request: Request) -> None:
        body = self._input.body
        if body is None or body.is_whole or ("expect" in request.headers and not body.was_asked_for):
            self._close()
            return
        body.discard()
        self._lingers_until = self._loop.time() + LINGER_SECONDS

    def _linger(self) -> None:
        """Close if the client has noticed its answer, or never will."""
        body = self._input.body
        is_over = body is None or body.is_whole or self._input.refused is not None
        if is_over or self._lingered_bytes > LINGER_BYTES_MAX:
            self._close()

    def _close(self) -> None:
        """Close the transport once everything is sent. A second call does nothing.

        An asyncio transport of TLS that is closed twice loses its connection and cannot be aborted any more.
        """
        if not self._transport.is_closing():
            self._transport.close()

    def _refuse(self, status: int, message: str) -> None:
        """Answer an invalid request, and hang up."""
        if not self._last:
            self._last = True
            self._writer.write(None, self._server.refusal(status, message), keep_alive=False)
            self._close()

    def finish(self) -> None:
        """Close when the present request is done; at once if there is none. A stream ends where it is."""
        self._forget_requests()
        if self._upgraded is not None:
            self._upgraded.finish()
            return
        self._writer.end_stream()
        if not self._busy:
            self._last = True
            self._close()

    def abort(self) -> None:
        self._last = True
        if self._upgraded is not None:
            self._upgraded.abort()
        self._transport.abort()


def _always(held: int) -> bool:
    return True


def _peer_uid(sock: socket.socket | None) -> int | None:
    """Return the user id of the process at the other end of a Unix socket."""
    if sock is None or sock.family != socket.AF_UNIX:
        return None
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    size = struct.calcsize("3i")
    _, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return cast(int, uid)
