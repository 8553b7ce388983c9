"""The connections of a client to one server: kept open between requests, bounded in number."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from rota.client.connection import Connection, Gunzip, Headers, Limits, Response, header
from rota.client.failures import BadAnswer, NoServer, NotConnected, TooManyStreams, Unreachable
from rota.client.heads import authority
from rota.client.keepalive import keep_alive
from rota.client.upgrading import Upgrade, upgraded
from rota.client.websocket.connection import HEARTBEAT, HEARTBEAT_LOCAL, WebSocket

CLOSE_SECONDS_MAX = 1.0
ERROR_BYTES_MAX = 1024 * 1024
"""Bytes that are read of the error of a stream."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a server."""

    url: str
    """The URL for messages, without credentials."""
    host: str = ""
    port: int = 0
    server_name: str = ""
    """The name that the certificate must have; empty for the host."""
    socket_path: str = ""
    """The path of a Unix socket; then there is neither host nor port."""

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        return "localhost" if self.socket_path else authority(self.host, self.port)


class Stream:
    """An answer that is read piece by piece. Close it in any case."""

    def __init__(
        self, connection: Connection, status: int, headers: Headers, piece_bytes_max: int, end: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._piece_bytes_max = piece_bytes_max
        self._end: Callable[[], None] | None = end
        self._gunzip = Gunzip() if header(headers, "content-encoding").lower() == "gzip" else None
        self.status = status
        self.headers = headers

    async def piece(self) -> bytes:
        """Return the body received since the last piece; empty at the end."""
        if self._gunzip is None:
            return await self._connection.piece()
        while not (out := self._gunzip.take(self._piece_bytes_max)):
            raw = await self._connection.piece()
            if not raw:
                if not self._gunzip.complete:
                    raise BadAnswer("the answer is gzip that ends too early")
                break
            self._gunzip.feed(raw)
        return out

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while piece := await self.piece():
            yield piece

    async def whole(self) -> Response:
        """Return the rest of an error."""
        body = b""
        while len(body) < ERROR_BYTES_MAX and (piece := await self.piece()):
            body += piece
        return Response(self.status, self.headers, body)

    def close(self) -> None:
        if self._end is not None:
            self._end()
            self._end = None


class _Held:
    """The connection of a stream that is being opened."""

    connection: Connection | None = None


class Pool:
    """The connections to one server. Requests wait for a free one in order; a stream has one of its own.

    A request that is cancelled or fails closes its connection.
    """

    def __init__(self, endpoint: Endpoint, tls: ssl.SSLContext | None, limits: Limits) -> None:
        self.endpoint = endpoint
        self.limits = limits
        self._tls = tls
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._forget()

    def _forget(self) -> None:
        self._free = asyncio.Semaphore(self.limits.connections)
        self._streams = 0
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self._websockets: set[WebSocket] = set()

    async def request(self, request: bytes, patience_seconds: float = 0) -> Response:
        """Send an encoded request. Returns the whole answer, which may take `patience_seconds`."""
        self._check()
        async with self._free:
            connection = self._idle_one() or await self._connect()
            try:
                connection.send(request)
                if patience_seconds:
                    connection.expect(patience_seconds)
                return await connection.response()
            finally:
                self._end(connection)

    async def stream(self, request: bytes, patience_seconds: float) -> Stream:
        """Send a request, and read its answer piece by piece.

        Between two pieces the server may be silent for `patience_seconds`.
        """
        with self._streaming() as held:
            connection = held.connection = self._idle_one() or await self._connect()
            connection.send(request, streaming=True)
            return await self._answered(connection, patience_seconds)

    async def upload(self, request: bytes, body: AsyncIterator[bytes]) -> tuple[Response, bool]:
        """Send a request, and a body that is made while it is sent.

        Returns the answer, and whether the server accepted the body.
        """
        with self._streaming() as held:
            connection = held.connection = await self._connect()
            connection.send(request)
            took = await connection.upload(body)
            response = await connection.response()
        self._end_stream(connection)
        return response, took

    async def websocket(self, request: bytes, upgrade: Upgrade) -> WebSocket | Response:
        """Send a request for a WebSocket. Returns the answer if it is an error."""
        with self._streaming() as held:
            connection = held.connection = await self._connect()
            websocket = await upgraded(connection, request, upgrade, self.endpoint.url)
            if websocket is None:
                stream = await self._answered(connection, 0)
                response = await stream.whole()
                if response.status < 300:
                    status = response.status
                    raise BadAnswer(f"{self.endpoint.url} has no WebSocket there: it answers with status {status}")
                stream.close()
                return response
            if self._closed:
                raise self._is_closed()
        self._websockets.add(websocket)
        websocket.lost.add_done_callback(lambda _: self._lost_websocket(websocket))
        return websocket

    def upgrade(self, protocols: Sequence[str]) -> Upgrade:
        """Return a request for a WebSocket."""
        heartbeat = HEARTBEAT_LOCAL if self.endpoint.socket_path else HEARTBEAT
        return Upgrade(protocols, self.endpoint.url, heartbeat, self.limits)

    @contextmanager
    def _streaming(self) -> Iterator[_Held]:
        """Count a stream that the body opens. If the body fails, take the count back and close the connection."""
        self._check()
        if self._streams >= self.limits.streams:
            raise TooManyStreams(f"{self._streams} streams from {self.endpoint.url} are open: close some first")
        self._streams += 1
        held = _Held()
        try:
            yield held
        except BaseException:
            self._streams -= 1
            if held.connection is not None:
                held.connection.abort()
            raise

    async def _answered(self, connection: Connection, patience_seconds: float) -> Stream:
        status, headers = await connection.head()
        connection.expect(patience_seconds or self.limits.read_seconds)
        end = partial(self._end_stream, connection)
        return Stream(connection, status, headers, self.limits.stream_buffer_bytes, end)

    def use(self, tls: ssl.SSLContext) -> None:
        """Use another client certificate for further connections."""
        self._tls = tls
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    async def close(self) -> None:
        """Close all connections, used ones included."""
        self._closed = True
        if self._loop is not asyncio.get_running_loop():
            return
        for connection in self._idle:
            connection.close()
        for connection in self._open.difference(self._idle):
            connection.abort()
        self._idle.clear()
        for websocket in self._websockets:
            websocket.abort()
        lost = [connection.lost for connection in self._open] + [websocket.lost for websocket in self._websockets]
        if lost and (await asyncio.wait(lost, timeout=CLOSE_SECONDS_MAX))[1]:
            for connection in self._open:
                connection.abort()

    def _check(self) -> None:
        if self._closed:
            raise self._is_closed()
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            # Connections belong to an event loop. A client may be used in several, one after the other.
            self._forget()
            self._loop = loop

    def _is_closed(self) -> NotConnected:
        return NotConnected(f"this client of {self.endpoint.url} is closed")

    def _idle_one(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
            connection.close()
        return None

    def _end(self, connection: Connection) -> None:
        if connection.finish() and not self._closed:
            self._idle.append(connection)

    def _end_stream(self, connection: Connection) -> None:
        self._streams -= 1
        self._end(connection)

    def _lost_websocket(self, websocket: WebSocket) -> None:
        self._websockets.discard(websocket)
        self._streams -= 1

    async def _connect(self) -> Connection:
        try:
            async with asyncio.timeout(self.limits.connect_seconds):
                connection = await self._opened()
        except TimeoutError:
            after = f"{self.limits.connect_seconds:g} s"
            raise Unreachable(f"cannot connect to {self.endpoint.url} within {after}: is it out of reach?") from None
        except OSError as error:
            raise self._explained(error) from error
        if self._closed:
            connection.abort()
            raise self._is_closed()
        self._open.add(connection)
        connection.lost.add_done_callback(lambda _: self._lost(connection))
        return connection

    def _lost(self, connection: Connection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    async def _opened(self) -> Connection:
        loop, at, new = asyncio.get_running_loop(), self.endpoint, partial(Connection, self.endpoint.url, self.limits)
        if at.socket_path:
            _, connection = await loop.create_unix_connection(new, at.socket_path)
            return connection
        if self._tls is None:
            transport, connection = await loop.create_connection(new, at.host, at.port)
        else:
            name = at.server_name or at.host
            transport, connection = await loop.create_connection(
                new, at.host, at.port, ssl=self._tls, server_hostname=name
            )
        keep_alive(transport.get_extra_info("socket"))
        return connection

    def _explained(self, error: OSError) -> NotConnected:
        at = self.endpoint
        if at.socket_path and isinstance(error, (FileNotFoundError, ConnectionRefusedError)):
            return NoServer(f"no Rota server is running at {at.socket_path}: start one with `rota start`")
        if isinstance(error, PermissionError):
            return NotConnected(f"may not connect to {at.url}: {error}; the server belongs to another user")
        if isinstance(error, ssl.SSLCertVerificationError):
            why = f"its certificate is not trusted: {error.verify_message}"
            return NotConnected(f"cannot connect to {at.url}: {why}; check the certificate-authority in the kubeconfig")
        return Unreachable(f"cannot connect to {at.url}: {error}; is the server running, and the address right?")
