"""One HTTP/1.1 connection: a request and its answer, then the next request.

- An answer is read whole, or piece by piece; then the buffer is bounded, and the server has to wait.
- A connection is not reused if its answer was not read to the end, or if the server sent something unrequested.
- A body may be sent while it is made: the server must accept it first, and stops it by an answer.
- A connection may become a WebSocket, which then owns the transport.
- Silence ends it: during an answer with `TimedOut`, between answers by closing it. The silence allowed before an answer
  is up to the request, until the server gives signs of life by interim answers.
"""

from __future__ import annotations

import asyncio
import select
import zlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, cast

import httptools

from rota.client.failures import BadAnswer, ConnectionCut, ConnectionFailed, TimedOut
from rota.client.websocket.connection import BYTES_WAITING_MAX, WebSocket
from rota.client.websocket.framing import MESSAGE_BYTES_MAX

Headers = list[tuple[bytes, bytes]]
"""Names are in lower case."""

GZIP_WINDOW_BITS: Final = 16 + zlib.MAX_WBITS
GZIP_PARTS_MAX: Final = 64
"""Parts of one answer. Servers send one."""
CONTINUE: Final = 100
SWITCHING_PROTOCOLS: Final = 101


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a client's connections."""

    connections: int = 32
    """Requests under way at once; further ones wait."""
    streams: int = 256
    """Watches and downloads open at once; further ones are refused."""
    connect_seconds: float = 10.0
    read_seconds: float = 75.0
    """Silence during an answer. Longer than a Kubernetes API server works on a request (60 s)."""
    take_seconds: float = 90.0
    """Time in which a server must take some of a body."""
    answer_seconds: float = 300.0
    """Silence after a body that was sent while it was made: the server may still have work to do."""
    idle_seconds: float = 30.0
    """Time that an unused connection is kept. It is shorter than that of servers and proxies (a minute and more), so
    that a request does not use a connection that is just being closed."""
    header_bytes: int = 64 * 1024
    response_bytes: int = 128 * 1024 * 1024
    """Bytes of an answer that is read whole, after decompression."""
    stream_buffer_bytes: int = 1024 * 1024
    line_bytes: int = 8 * 1024 * 1024
    """Bytes of one event of a watch. Servers keep objects below 3 MiB."""
    message_bytes: int = MESSAGE_BYTES_MAX
    """Bytes of one message of a WebSocket."""
    message_buffer_bytes: int = BYTES_WAITING_MAX
    """Bytes of received messages of one WebSocket above which reading pauses."""


Upgrade = Callable[[Headers], WebSocket]
"""Makes a WebSocket of the headers of an answer that switches to it. Raises BadAnswer."""


class Response(NamedTuple):
    """A whole answer."""

    status: int
    headers: Headers
    body: bytes

    def header(self, name: str) -> str:
        """Return the first header of this name; empty if there is none."""
        return header(self.headers, name)


def header(headers: Headers, name: str) -> str:
    wanted = name.lower().encode()
    return next((value.decode("utf-8", "replace") for key, value in headers if key == wanted), "")


class Gunzip:
    """Decompresses in steps of bounded size."""

    def __init__(self) -> None:
        self._decoder = zlib.decompressobj(GZIP_WINDOW_BITS)
        self._rest = b""
        self._parts = 1

    def feed(self, data: bytes) -> None:
        self._rest += data

    def take(self, bytes_max: int) -> bytes:
        """Return what can be decompressed now, at most so many bytes."""
        while True:
            try:
                out = self._decoder.decompress(self._rest, bytes_max)
            except zlib.error as error:
                raise BadAnswer(f"the answer is not the gzip that it says it is: {error}") from None
            self._rest = self._decoder.unconsumed_tail
            if not (self._decoder.eof and self._decoder.unused_data):
                return out
            # Each part costs a copy of what is left.
            self._parts += 1
            if self._parts > GZIP_PARTS_MAX:
                raise BadAnswer(f"the answer is gzip of more than {GZIP_PARTS_MAX} parts")
            self._rest = self._decoder.unused_data
            self._decoder = zlib.decompressobj(GZIP_WINDOW_BITS)
            if out:
                return out

    @property
    def complete(self) -> bool:
        return self._decoder.eof and not self._rest


class _Awaited(IntEnum):
    HEAD = 1
    DATA = 2
    END = 3
    CONTINUE = 4
    """A 100 Continue, or the head of an answer instead of it."""


class Connection(asyncio.Protocol):
    """Carries one exchange at a time: `send`, then `response`, or `head` and `piece` until nothing is left."""

    def __init__(self, place: str, limits: Limits) -> None:
        self._place = place
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        """Set while the other end takes no more."""
        self._upgrade: Upgrade | None = None
        self.websocket: WebSocket | None = None
        """The WebSocket that the connection has become."""
        self._awaited = _Awaited.HEAD
        self._failure: ConnectionFailed | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._patience_seconds = limits.idle_seconds
        self.lost: asyncio.Future[None] = self._loop.create_future()
        """Done when the connection is gone."""
        self._begin(busy=False)

    def _begin(self, *, busy: bool, streaming: bool = False) -> None:
        self._busy = busy
        self._streaming = streaming
        self._complete = not busy
        self._continued = False
        self._uploading = False
        self._is_sent = True
        self._head_complete = False
        self._status = 0
        self._fed_bytes = 0
        self._header_bytes = 0
        self._headers: Headers = []
        self._pieces: list[bytes] = []
        self._buffered_bytes = 0
        self._paused = False
        self._reusable = False

    # The exchange.

    @property
    def usable(self) -> bool:
        """True if a request can be sent now. Asks the kernel, which may know that the server has closed the
        connection."""
        if self._busy or self._transport.is_closing() or self._loop.time() >= self._due:
            return False
        return not self._unread.poll(0)

    def send(self, request: bytes, *, streaming: bool = False, upgrade: Upgrade | None = None) -> None:
        """Send a request. `upgrade` makes a WebSocket of the headers of its answer."""
        assert not self._busy
        self._begin(busy=True, streaming=streaming)
        self._upgrade = upgrade
        self.expect(self._limits.read_seconds)
        self._transport.write(request)

    async def upload(self, body: AsyncIterator[bytes]) -> bool:
        """Send the announced body of a request in pieces. Returns whether the server accepted it.

        An answer of the server before the end of the body stops the upload.
        """
        self._is_sent = False
        while not self._continued and not self._head_complete:
            await self._until(_Awaited.CONTINUE)
        if self._head_complete:
            return False
        answering, sending = asyncio.ensure_future(self.head()), asyncio.ensure_future(self._send(body))
        self._uploading = True
        try:
            await asyncio.wait((answering, sending), return_when=asyncio.FIRST_COMPLETED)
            self._uploading = False
            if sending.done():
                sending.result()
                self._is_sent = not self._transport.is_closing()
                self.expect(self._limits.answer_seconds)
            await answering
        finally:
            self._uploading = False
            for task in (answering, sending):
                task.cancel()
            await asyncio.gather(answering, sending, return_exceptions=True)
        return True

    async def _send(self, body: AsyncIterator[bytes]) -> None:
        async for piece in body:
            if self._transport.is_closing():
                return  # The reason is raised where the answer is awaited.
            if piece:
                self._transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await self._drained()
        self._transport.write(b"0\r\n\r\n")

    async def _drained(self) -> None:
        if self._writable is not None:
            try:
                async with asyncio.timeout(self._limits.take_seconds):
                    await self._writable
            except TimeoutError:
                waited = f"took nothing for {self._limits.take_seconds:g} s"
                raise TimedOut(f"{self._place} {waited}: it hangs, or is out of reach") from None

    async def response(self) -> Response:
        """Return the whole answer."""
        await self._until(_Awaited.END)
        body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        if any(name == b"content-encoding" for name, _ in self._headers):
            body = self._decoded(body)
        return Response(self._status, self._headers, body)

    async def head(self) -> tuple[int, Headers]:
        """Return the status and the headers of the answer."""
        await self._until(_Awaited.HEAD)
        return self._status, self._headers

    async def piece(self) -> bytes:
        """Return the body received since the last piece; empty at its end."""
        while not self._pieces and not self._complete:
            await self._until(_Awaited.DATA)
        out = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._buffered_bytes = 0
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        return out

    def finish(self) -> bool:
        """End the exchange. Returns whether the connection can carry another; if not, it is closed."""
        reusable = (
            self._complete
            and self._reusable
            and self._is_sent
            and not self._transport.is_closing()
            # After an early answer, the unsent rest of the request would be read as the next one.
            and self._transport.get_write_buffer_size() == 0
        )
        self._busy = False
        self._pieces = []
        if reusable:
            self.expect(self._limits.idle_seconds)
        else:
            self.abort()
        return reusable

    def close(self) -> None:
        """Close an unused connection."""
        if not self._transport.is_closing():  # an asyncio transport of TLS that is closed twice cannot be aborted
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once, whatever is under way."""
        self._transport.abort()

    def _decoded(self, body: bytes) -> bytes:
        coding = header(self._headers, "content-encoding").lower()
        if coding == "identity" or not body:
            return body
        if coding != "gzip":
            raise BadAnswer(f"{self._place} answered in the encoding {coding!r}, which was not asked for")
        gunzip = Gunzip()
        gunzip.feed(body)
        out = gunzip.take(self._limits.response_bytes + 1)
        while more := gunzip.take(self._limits.response_bytes + 1):
            out += more
            if len(out) > self._limits.response_bytes:
                break
        if len(out) > self._limits.response_bytes:
            raise self._too_large()
        if not gunzip.complete:
            raise BadAnswer(f"{self._place} answered with gzip that ends too early")
        return out

    def _too_large(self) -> BadAnswer:
        return BadAnswer(
            f"the answer of {self._place} is larger than {self._limits.response_bytes} bytes: "
            "ask for less at once, e.g. with a limit"
        )

    # Waiting.

    async def _until(self, awaited: _Awaited) -> None:
        if self._complete or (awaited in (_Awaited.HEAD, _Awaited.CONTINUE) and self._head_complete):
            return
        if self._failure is not None:
            raise self._failure
        self._awaited = awaited
        self._waiter = self._loop.create_future()
        self._due = self._loop.time() + self._patience_seconds
        try:
            await self._waiter
        finally:
            self._waiter = None
        if self._failure is not None and not self._complete:
            raise self._failure

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, failure: ConnectionFailed) -> None:
        if self._failure is None:
            self._failure = failure
        self._wake()
        self._transport.abort()

    # Silence. The connection has one timer, which is reset only if it would come too late.

    def expect(self, patience_seconds: float) -> None:
        """Set the time of silence after which the connection ends."""
        self._patience_seconds = patience_seconds
        self._due = self._loop.time() + patience_seconds
        if self._timer is None or self._timer.when() > self._due:
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._due, self._on_timer)

    def _on_timer(self) -> None:
        if self._transport.is_closing():
            return
        if self._busy and (self._waiter is None or self._uploading):
            # The caller takes the time, or `_drained` watches an upload.
            self._due = self._loop.time() + self._patience_seconds
        elif self._loop.time() >= self._due:
            if self._busy:
                waited = f"said nothing for {self._patience_seconds:g} s"
                self._fail(TimedOut(f"{self._place} {waited}: it hangs, or is out of reach"))
            else:
                self.close()
            return
        self._set_timer()

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._unread = select.poll()
        self._unread.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
        self.expect(self._limits.idle_seconds)

    def data_received(self, data: bytes) -> None:
        if not self._busy or self._failure is not None:
            self._transport.abort()
            return
        self._due = self._loop.time() + self._patience_seconds
        if not self._head_complete:
            self._fed_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._reusable = False
            if isinstance(error, httptools.HttpParserUpgrade) and self._status == SWITCHING_PROTOCOLS and self._upgrade:
                self._switch(self._upgrade, data[error.args[0] :])
                return
            if self._complete:
                self._transport.abort()
            else:
                self._fail(self._failure or BadAnswer(f"{self._place} does not answer in HTTP/1.1: {error}"))
            return
        if not self._head_complete and self._fed_bytes > self._limits.header_bytes:
            self._fail(self._headers_too_large())

    def _switch(self, upgrade: Upgrade, rest: bytes) -> None:
        """Hand the transport over to a WebSocket."""
        try:
            self.websocket = upgrade(self._headers)
        except BadAnswer as error:
            self._fail(error)
            return
        if self._timer is not None:
            self._timer.cancel()
        self._busy, self._complete = False, True
        self._transport.set_protocol(self.websocket)
        self.websocket.connection_made(self._transport)
        self.lost.set_result(None)
        self._wake()
        if rest:
            self.websocket.data_received(rest)

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    def _headers_too_large(self) -> BadAnswer:
        return BadAnswer(f"{self._place} answered with headers of more than {self._limits.header_bytes} bytes")

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.resume_writing()
        if self._busy and not self._complete:
            if error is None and self._failure is None and self._head_complete and self._until_closed():
                self._complete = True
            elif self._failure is None:
                why = f": {error}" if error is not None else ""
                self._failure = ConnectionCut(
                    f"the connection to {self._place} was cut before the answer was complete{why}"
                )
            self._wake()
        if not self.lost.done():
            self.lost.set_result(None)

    def _until_closed(self) -> bool:
        """Report whether the end of the connection is the end of the answer."""
        return not any(name in (b"content-length", b"transfer-encoding") for name, _ in self._headers)

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        if self._complete:
            raise BadAnswer(f"{self._place} said more than it was asked for")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > self._limits.header_bytes:
            self._failure = self._headers_too_large()
            raise self._failure

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()
        if self._status < 200:
            return
        self._head_complete = True
        if self._awaited in (_Awaited.HEAD, _Awaited.CONTINUE):
            self._wake()

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)
        self._buffered_bytes += len(data)
        if not self._streaming:
            if self._buffered_bytes > self._limits.response_bytes:
                self._failure = self._too_large()
                raise self._failure
        elif not self._paused and self._buffered_bytes > self._limits.stream_buffer_bytes:
            self._paused = True
            self._transport.pause_reading()
        if self._awaited is _Awaited.DATA:
            self._wake()

    def on_message_complete(self) -> None:
        if not self._head_complete:
            if self._status == SWITCHING_PROTOCOLS and self._upgrade:
                return
            # An interim answer (1xx): the real one follows.
            self._headers = []
            self._fed_bytes = self._header_bytes = 0
            if self._status == CONTINUE:
                self._continued = True
                if self._awaited is _Awaited.CONTINUE:
                    self._wake()
            if self._patience_seconds > self._limits.read_seconds:
                # A server that sends signs of life is expected to go on with them.
                self.expect(self._limits.read_seconds)
            return
        self._complete = True
        self._reusable = self._parser.should_keep_alive()
        self._wake()
