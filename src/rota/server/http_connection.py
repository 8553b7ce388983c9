"""One HTTP/1.1 connection of a client: parse its requests, have them answered, and write the answers."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections import deque
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, cast

import httptools
import msgspec

from rota.client.keepalive import keep_alive
from rota.client.rounds import Rounds
from rota.client.websocket import handshake
from rota.server.heartbeats import Heartbeats, wants_heartbeats
from rota.server.http import Answer, Request, Response, Stream, head
from rota.server.memory import SMALL_BODY_BYTES, Held, Payer, payer_at
from rota.server.request_body import Body
from rota.server.upgrade import Upgrade, Upgraded

if TYPE_CHECKING:
    from rota.server.http_server import HttpServer

log = logging.getLogger(__name__)

HEAD_BYTES_MAX = 64 * 1024
HEADERS_MAX = 128
"""Lines of a head."""
FRAMING_FACTOR_MAX = 8
"""Bytes around each byte of a chunked body, besides its trailers. Chunks of one byte have five."""
PIPELINED_REQUESTS_MAX = 16
"""Requests of a connection that are parsed and wait. What a client sends behind them is kept as it came."""
CONTENT_LENGTH_DIGITS = 16
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
STALLED_SECONDS_MAX = 30.0
"""A client that reads nothing of its answer for this long is cut off."""
LINGER_SECONDS = 5.0
"""Time to read on after an early answer, until the client notices it: closing at once would cut the answer off."""
LINGER_BYTES_MAX = 16 * 1024 * 1024
"""Bytes that are read and dropped meanwhile."""
WRITE_BUFFER_BYTES = 64 * 1024
"""Unsent bytes above which an answer waits. It goes on when three quarters of them are sent."""


class Connection(asyncio.Protocol):
    """The connection of one client."""

    def __init__(self, server: HttpServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self.closed: asyncio.Future[None] = loop.create_future()
        self._peer_uid: int | None = None
        self._target = b""
        self._headers: dict[str, str] = {}
        self._head_bytes = 0
        self._head_done = True
        self._after_head_bytes = 0
        self._body: bytes | bytearray = b""  # a bytearray once there are several pieces
        self._body_bytes = 0
        self._headers_count = 0
        self._coming: Request | None = None  # the request whose body is waited for
        self._began = 0.0  # when the first byte of an unfinished request came; 0 between requests
        self._idle_since = loop.time()
        self._refused: tuple[int, str] | None = None
        self._requests: deque[tuple[Request, bool]] = deque()
        self._busy = False
        self._task: asyncio.Task[None] | None = None
        self._last = False  # no further request is taken
        self._streaming = self._ending = False
        self._writable: asyncio.Future[None] | None = None
        self._stalled_since = 0.0
        self._after: bytes | None = None  # what came after a request to upgrade
        self._upgraded: Upgraded | None = None
        self._incoming: Body | None = None  # the body that is handed over as it comes; its request is the last
        self._lingers_until = 0.0
        self._lingered_bytes = 0
        self._unparsed = b""  # what came behind requests that wait; nothing more is read meanwhile
        self._unparsed_held: Held | None = None
        self._is_paused = False
        self._parsed_bytes = PARSED_BYTES
        self._pieces = 0  # of bodies
        self._is_in_round = False  # it waits for its turn to be parsed
        self._has_answered = False  # in this turn of the loop
        self._goes_on_soon = False  # the next turn is scheduled
        self._is_deaf = False  # the last request is refused in its turn, and nothing after it is taken
        self._has_ended = False  # the client sends nothing more, and waits for its answers
        self._is_known = False  # whether the last request was of somebody with a credential

    @property
    def is_local(self) -> bool:
        return self._peer_uid is not None

    # The transport's callbacks.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        sock = transport.get_extra_info("socket")
        self._peer_uid = _peer_uid(sock)
        if sock is not None:
            # A waiting client may vanish.
            keep_alive(sock)
        server = self._server
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
        if self._incoming is not None:
            self._incoming.lose()
        if self._task is not None:
            self._task.cancel()
        if self._writable is not None and not self._writable.done():
            self._writable.set_exception(ConnectionResetError("the client went away"))
            self._writable.exception()
        self._left()

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()
        self._stalled_since = self._loop.time()

    def resume_writing(self) -> None:
        self._stalled_since = 0.0
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None
        if not self._busy:
            self._go_on()

    def data_received(self, data: bytes) -> None:
        if self._unparsed:
            self._keep_unparsed(self._unparsed + data)
            return
        self._has_answered = False
        self._parse(data)

    def _parse(self, data: bytes) -> None:
        """Parse input until enough requests wait, or others have their turn. The rest is kept for then."""
        at, left = 0, PARSED_STEP_BYTES
        while at < len(data):
            if self._after is not None or self._upgraded is not None:
                self._put_aside(data[at:])
                return
            if self._is_deaf or (self._last and not self._lingers_until):
                return
            if len(self._requests) > PIPELINED_REQUESTS_MAX and self._incoming is None:
                self._keep_unparsed(data[at:])
                return
            if left <= 0:
                self._keep_unparsed(data[at:])
                self._is_in_round = True
                Rounds.of(self._loop).wait(self)
                return
            body_bytes, pieces = self._body_bytes_left(), self._pieces
            size = body_bytes or self._parsed_bytes
            self._feed(data[at : at + size])
            at += size
            # Of a body whose length is known there are no small pieces.
            if not body_bytes:
                left -= self._cost(size, self._pieces - pieces)
        if self._began and self._head_done and self._refused is None and self._incoming is None and not self._last:
            self._hold()

    def _cost(self, size: int, pieces: int) -> int:
        """Return the bytes to count for parsed ones. An upload in large chunks is parsed in larger parts."""
        if self._incoming is None:
            self._parsed_bytes = PARSED_BYTES
            return size
        cost = min(size, pieces * PIECE_COST_BYTES)
        self._parsed_bytes = min(2 * size, PARSED_BYTES_MAX) if cost < PARSED_BYTES // 2 else PARSED_BYTES
        return cost

    def take_step(self) -> bool:
        self._is_in_round = False
        self._go_on()
        return False  # It waits again by itself.

    def _body_bytes_left(self) -> int:
        """Return what is missing of a body whose length is known; 0: none is."""
        length = self._headers.get("content-length", "") if self._began and self._head_done else ""
        return int(length) - self._body_bytes if length.isdigit() and len(length) < CONTENT_LENGTH_DIGITS else 0

    def _feed(self, data: bytes) -> None:
        if not self._began:
            self._began = self._loop.time()
            self._head_bytes = 0
            self._head_done = False
        if self._head_done:
            self._after_head_bytes += len(data)
        else:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._put_aside(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self._refused = self._refused or (400, f"that is not HTTP/1.1: {error}")
        if self._refused is None and not self._head_done and self._head_bytes > HEAD_BYTES_MAX:
            self._refused = (431, f"the request's head is larger than {HEAD_BYTES_MAX} bytes")
        framing_bytes = self._after_head_bytes - self._body_bytes
        if self._refused is None and framing_bytes > HEAD_BYTES_MAX + FRAMING_FACTOR_MAX * self._body_bytes:
            self._refused = (431, f"the request's trailers are larger than {HEAD_BYTES_MAX} bytes")
        if self._lingers_until:
            self._lingered_bytes += len(data)
            if self._refused is not None or self._lingered_bytes > LINGER_BYTES_MAX:
                self._close()
        elif self._refused is not None:
            self._refuse_in_turn(*self._refused)

    def _keep_unparsed(self, data: bytes) -> None:
        """Keep input behind the requests that wait, of somebody's share, and read no more until it is parsed."""
        self._unparsed = data
        if self._unparsed_held is None:
            self._unparsed_held = Held(self._server.memory.bodies, payer_at(self._transport.get_extra_info("peername")))
        if not self._unparsed_held.may_hold(len(data)):
            self._unparsed = b""
            self._refuse_in_turn(429, "more was sent before its answers than there is room for; try again later")
        elif data and not self._transport.is_closing():
            # Said again: a body may have resumed it.
            self._is_paused = True
            self._transport.pause_reading()

    def _read_on(self) -> None:
        """Parse what was kept, as far as few requests wait then. After all of it, read on."""
        data, self._unparsed = self._unparsed, b""
        # The time until now was not the client's.
        self._began = self._began and self._loop.time()
        self._parse(data)
        if not self._unparsed and self._unparsed_held is not None:
            self._unparsed_held.may_hold(0)
        if not self._unparsed and self._is_paused:
            self._is_paused = False
            if not self._transport.is_closing() and (self._incoming is None or not self._incoming.paused):
                self._transport.resume_reading()

    def eof_received(self) -> bool:
        if self._incoming is not None and not self._incoming.is_whole and not self._unparsed:
            return False
        # A client that has sent everything may still want its answer. A TLS transport closes in any case.
        self._has_ended = True
        waits = self._busy or bool(self._requests) or bool(self._unparsed)
        return waits and self._transport.get_extra_info("sslcontext") is None

    # The parser's callbacks.

    def on_message_begin(self) -> None:
        self._target = b""
        self._headers = {}
        self._body = b""
        self._body_bytes = 0
        self._headers_count = 0
        self._after_head_bytes = 0
        self._head_done = False
        if not self._began:
            # It arrived together with the end of the request before it.
            self._began, self._head_bytes = self._loop.time(), 0

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head_done:
            return  # A trailer, which is ignored.
        self._headers_count += 1
        if self._headers_count > HEADERS_MAX:
            self._refused = (431, f"the request's head has more than {HEADERS_MAX} lines")
            return
        key = name.decode("latin-1").lower()
        text = value.decode("latin-1")
        if key in self._headers:
            if key in ("authorization", "host", "content-length", "content-type"):
                self._refused = (400, f"the header {key} is given twice")
            text = f"{self._headers[key]}, {text}"
        self._headers[key] = text

    def on_headers_complete(self) -> None:
        self._head_done = True
        headers = self._headers
        if sum(len(k) + len(v) for k, v in headers.items()) + len(self._target) > HEAD_BYTES_MAX:
            self._refused = (431, f"the request's head is larger than {HEAD_BYTES_MAX} bytes")
            return
        if self._parser.should_upgrade() and (
            "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
        ):
            # The parser would take the body for input after the upgrade.
            self._refused = (400, "a request to upgrade the connection has no body")
            return
        streams = self._server.streams_body
        if streams is not None and streams(self._target) and self._begin_body():
            return
        length = headers.get("content-length", "0")
        limit = self._server.body_bytes_max
        if length.isdigit() and int(length) > limit:
            self._refused = (413, f"the request's body is larger than {limit} bytes")

    def _begin_body(self) -> bool:
        """Hand a request over before its body, if it can have one."""
        if self._parser.get_method() != b"PUT" or self._refused is not None or self._last or self._incoming is not None:
            return False
        expects = self._headers.get("expect", "").lower() == "100-continue"
        proceed = b"HTTP/1.1 100 Continue\r\n\r\n" if expects else b""
        self._incoming = Body(self._transport, lambda: self._transport.write(proceed))
        request = Request("PUT", self._target, self._headers, b"", self._peer_uid)
        request.pieces = self._incoming
        self._requests.append((request, False))
        if not self._busy:
            self._next()
        return True

    def _hold(self) -> None:
        """Count the received bytes of a body that is incomplete or large. Answers at once if the request is refused."""
        request, bodies = self._coming, self._server.memory.bodies
        if request is None:
            request = self._coming = self._request()
            try:
                request.refused = self._server.admit(request)
            except Exception:
                request.refused = self._failed(request)
            request.payer = self._payer(request)
            if request.refused is None and self._headers.get("expect", "").lower() == "100-continue":
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        key, may_use_reserve = cast(Payer, request.payer)
        more = self._body_bytes - request.held
        if request.refused is None and not bodies.has_room(key, more, may_use_reserve=may_use_reserve):
            message = (
                f"the bodies of your requests have {bodies.of(key)} bytes, which is your share while all bodies have "
                f"{bodies.used} of {bodies.total}; try again later"
            )
            request.refused = self._server.refusal(429, message)
        if request.refused is None:
            bodies.take(key, more)
            request.held += more
            return
        self._coming = None
        self._body = b""
        self._release(request)
        # The rest is read and dropped, because a client reads the answer only after it has sent everything.
        self._incoming = Body(self._transport, _nothing)
        self._incoming.discard()
        self._requests.append((request, False))
        if not self._busy:
            self._next()

    def _request(self) -> Request:
        method = self._parser.get_method().decode("ascii")
        return Request(method, self._target, self._headers, b"", self._peer_uid)

    def _payer(self, request: Request) -> Payer:
        return self._server.payer(request) or payer_at(self._transport.get_extra_info("peername"))

    def _release(self, request: Request) -> None:
        """Release the memory of a request's body."""
        if request.held:
            self._server.memory.bodies.give_back(cast(Payer, request.payer).key, request.held)
            request.held = 0
            request.body = b""

    def _forget_requests(self) -> None:
        """Drop the requests that nobody waits for."""
        for request, _ in self._requests:
            self._release(request)
        self._requests.clear()
        self._unparsed = b""
        if self._unparsed_held is not None:
            self._unparsed_held.may_hold(0)
        if self._coming is not None:
            self._release(self._coming)
            self._coming = None

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        self._pieces += 1
        if self._incoming is not None:
            self._incoming.feed(body)
            return
        if self._body_bytes > self._server.body_bytes_max:
            self._refused = (413, f"the request's body is larger than {self._server.body_bytes_max} bytes")
            self._body = b""
        elif self._refused is None:
            if isinstance(self._body, bytearray):
                self._body += body
            else:
                self._body = bytearray(self._body + body) if self._body else body

    def on_message_complete(self) -> None:
        is_small = self._body_bytes <= SMALL_BODY_BYTES and self._coming is None
        if not is_small and self._refused is None and not self._last and self._incoming is None:
            self._hold()
        self._began = 0.0
        if self._incoming is not None:
            self._incoming.end()
            if self._lingers_until:
                self._close()
            return
        if self._refused is not None or self._last:
            return
        request, self._coming = self._coming or self._request(), None
        if self._body:
            request.body, self._body = bytes(self._body), b""
        if "prefer" in self._headers:
            request.wants_heartbeats = wants_heartbeats(self._headers, self._parser.get_http_version())
        # A request to upgrade with an ordinary answer is the last: its client may have sent anything after it.
        self._requests.append((request, self._parser.should_keep_alive() and not self._parser.should_upgrade()))
        if not self._busy:
            self._next()

    # Answering.

    def _go_on(self) -> None:
        """Answer the next request in a new turn of the loop, and parse more if few wait."""
        self._goes_on_soon = self._has_answered = False
        self._next()
        if not self._unparsed or self._is_in_round or self._transport.is_closing():
            return
        if len(self._requests) <= PIPELINED_REQUESTS_MAX or self._incoming is not None:
            self._read_on()

    def _go_on_soon(self) -> None:
        if not self._goes_on_soon:
            self._goes_on_soon = True
            self._loop.call_soon(self._go_on)

    def _next(self) -> None:
        """Answer the next request, if there is one and the client reads its answers.

        At most one in a turn of the loop: others would wait for all that a client has sent at once.
        """
        if self._busy or not self._requests or self._writable is not None or self._transport.is_closing():
            return
        if self._has_answered:
            self._go_on_soon()
            return
        request, keep_alive = self._requests.popleft()
        self._busy = self._has_answered = True
        self._wait_no_more()
        try:
            answer = request.refused or self._server.handler(request)
        except Exception:
            answer = self._failed(request)
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
                answer.on_start(self.finish)
                # As a callback, because a task that is cancelled before its first step does not run at all.
                self._task.add_done_callback(lambda _, end=answer.on_end: end())  # type: ignore[misc]
        if not self._busy and (self._requests or self._unparsed):
            self._go_on_soon()

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
                    final = self._failed(request)
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
                final.on_start(self.finish)
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

    def _failed(self, request: Request) -> Response:
        log.exception("%s %s failed", request.method, request.path)
        return self._server.refusal(500, "an error on the server; its log says more")

    def _send(self, request: Request, response: Response, keep_alive: bool) -> None:
        keep_alive = keep_alive and not self._last and not self._server.closing
        start = head(response.status, response.content_type, response.headers, keep_alive)
        body = b"" if request.method == "HEAD" else response.body
        self._transport.write(b"%bContent-Length: %d\r\n\r\n%b" % (start, len(response.body), body))
        self._sent(request, keep_alive)

    async def _send_large(self, request: Request, response: Response, keep_alive: bool) -> None:
        """Write a large answer no faster than the client reads it. Unread bytes are counted."""
        keep_alive = keep_alive and not self._last and not self._server.closing
        start = head(response.status, response.content_type, response.headers, keep_alive)
        answers, key, size = self._server.memory.answers, self._payer(request).key, len(response.body)
        if request.user is None and not answers.has_room(key, size):
            message = f"{answers.of(key)} bytes of answers to your address are not read yet: read them first"
            self._send(request, self._server.refusal(429, message), keep_alive)
            return
        answers.take(key, size)
        try:
            self._transport.write(b"%bContent-Length: %d\r\n\r\n" % (start, size))
            await self._write_large(b"" if request.method == "HEAD" else response.body)
        finally:
            answers.give_back(key, size)
        self._sent(request, keep_alive)

    async def _write_large(self, data: bytes) -> None:
        """Write no faster than the client reads."""
        view = memoryview(data)
        for start in range(0, len(view), WRITE_BUFFER_BYTES):
            self._transport.write(view[start : start + WRITE_BUFFER_BYTES])
            if self._writable is not None:
                await self._writable

    def _sent(self, request: Request, keep_alive: bool) -> None:
        self._release(request)
        self._busy = False
        self._idle_since = self._loop.time()
        self._wait()
        if not keep_alive or (self._has_ended and not self._requests and not self._unparsed):
            self._last = True
            self._hang_up(request)

    def _hang_up(self, request: Request) -> None:
        body = self._incoming
        sends = body is not None and not body.is_whole
        if body is None or not sends or ("expect" in request.headers and not body.was_asked_for):
            self._close()
            return
        body.discard()
        self._lingers_until = self._loop.time() + LINGER_SECONDS

    async def _stream(self, request: Request, stream: Stream) -> None:
        start = head(stream.status, stream.content_type, stream.headers, keep_alive=False)
        self._transport.write(start + b"Transfer-Encoding: chunked\r\n\r\n")
        self._last = self._streaming = True
        timer = self._loop.call_later(stream.seconds_max, self.finish) if stream.seconds_max else None
        is_whole = True
        try:
            async for chunk in stream.chunks:
                assert chunk, "an empty chunk would end the stream"
                if len(chunk) <= WRITE_BUFFER_BYTES:
                    self._transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                else:
                    is_whole = False
                    self._transport.write(b"%x\r\n" % len(chunk))
                    await self._write_large(chunk)
                    self._transport.write(b"\r\n")
                    is_whole = True
                del chunk  # The next one may be hours away.
                if self._writable is not None:
                    await self._writable
            self._transport.write(b"0\r\n\r\n")
        except asyncio.CancelledError:
            if not self._ending:
                raise
            if stream.endless and is_whole:
                self._transport.write(b"0\r\n\r\n")
            else:
                self.abort()
        except ConnectionError as error:
            # The source of the stream was cut, or the client.
            log.info("%s %s was cut: %s", request.method, request.path, error)
            self.abort()
        except Exception:
            # The head is sent. Cutting the stream shows the client that it is incomplete.
            log.exception("%s %s failed", request.method, request.path)
            self.abort()
        finally:
            if timer is not None:
                timer.cancel()
            await cast(Any, stream.chunks).aclose()
            self._busy = self._streaming = False
            self._close()

    # A WebSocket.

    def _upgrade(self, request: Request, upgrade: Upgrade) -> None:
        """Hand the connection over for good."""
        if wrong := handshake.refused(request.method, request.headers):
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
        if self._after:
            self._put_aside(self._after)
        if self._server.closing:
            self._upgraded.finish()

    def _put_aside(self, data: bytes) -> None:
        """Keep input after a request to upgrade for the WebSocket."""
        if self._upgraded is not None:
            self._upgraded.websocket.data_received(data)
            return
        self._after = (self._after or b"") + data
        if len(self._after) > HEAD_BYTES_MAX:
            self._refuse(400, "a client waits for the answer before it goes on")

    def _left(self) -> None:
        """Release everything that refers to the closed connection."""
        # Break reference cycles, which would last until the garbage collector runs.
        self._parser, self._upgraded = cast(httptools.HttpRequestParser, None), None
        if self in self._server.connections:
            self._server.connections.discard(self)
            self._server.local_connections -= self.is_local
        if not self.closed.done():
            self.closed.set_result(None)

    # Waiting for the client.

    def _wait(self) -> None:
        """List the connection as one that can be closed to make room. Local connections are never closed for that."""
        if not self.is_local:
            (self._server.idle if self._is_known else self._server.strangers)[self] = None

    def _wait_no_more(self) -> None:
        self._server.strangers.pop(self, None)
        self._server.idle.pop(self, None)

    def give_up(self) -> None:
        """Close the connection to make room for another. A client in the middle of a request gets an error."""
        self._wait_no_more()
        if self._began and not self._last:
            self._refuse(429, "the request took too long to arrive, and others need the connection; try again later")
        self.abort()

    # Hanging up.

    def _close(self) -> None:
        """Close the transport once everything is sent. A second call does nothing.

        An asyncio transport of TLS that is closed twice loses its connection and cannot be aborted any more.
        """
        if not self._transport.is_closing():
            self._transport.close()

    def _refuse_in_turn(self, status: int, message: str) -> None:
        """Answer an invalid request after those before it."""
        if not self._requests:
            self._refuse(status, message)
            return
        request = Request("GET", b"", {}, b"", self._peer_uid)
        request.refused = self._server.refusal(status, message)
        self._requests.append((request, False))
        self._is_deaf = True

    def _refuse(self, status: int, message: str) -> None:
        """Answer an invalid request, and hang up."""
        if self._last:
            return
        self._last = True
        response = self._server.refusal(status, message)
        start = head(response.status, response.content_type, response.headers, keep_alive=False)
        self._transport.write(b"%bContent-Length: %d\r\n\r\n%b" % (start, len(response.body), response.body))
        self._close()

    def check_time(self, now: float, idle_seconds_max: float) -> None:
        if self._upgraded is not None:
            return  # A WebSocket has timers of its own.
        body = self._incoming
        if self._lingers_until:
            if now > self._lingers_until:
                self._close()
        elif self._stalled_since:
            if now - self._stalled_since > STALLED_SECONDS_MAX:
                self.abort()
        elif self._unparsed:
            return  # What is missing has arrived, and waits for others, or for the answers before it.
        elif body is not None:
            if body.late_seconds(now) > STALLED_SECONDS_MAX:
                self.abort()
        elif self._began and not self._head_done and now - self._began > HEAD_SECONDS_MAX:
            self._refuse(408, f"the head of the request did not arrive within {HEAD_SECONDS_MAX:.0f} seconds")
        elif self._began and now - self._began > REQUEST_SECONDS_MAX:
            self._refuse(408, f"the request did not arrive whole within {REQUEST_SECONDS_MAX:.0f} seconds")
        elif not self._busy and not self._began and now - self._idle_since > idle_seconds_max:
            self._close()

    def finish(self) -> None:
        """Close when the present request is done; at once if there is none. A stream ends where it is."""
        self._forget_requests()
        if self._upgraded is not None:
            self._upgraded.finish()
        elif self._streaming and self._task is not None and not self._ending:
            self._ending = True
            self._task.cancel()
        elif not self._busy:
            self._last = True
            self._close()

    def abort(self) -> None:
        self._last = True
        if self._upgraded is not None:
            self._upgraded.abort()
        self._transport.abort()


def _nothing() -> None:
    """Do nothing."""


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
