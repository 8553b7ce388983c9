"""The opening of a WebSocket, as a client: the request is sent, and its answer awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import httptools

from rota.client.failures import BadAnswer, ConnectionCut, ConnectionFailed, NoServer, NotConnected, TimedOut
from rota.client.websocket import handshake
from rota.client.websocket.connection import BYTES_WAITING_MAX, HEARTBEAT, HEARTBEAT_LOCAL, Heartbeat, WebSocket
from rota.client.websocket.framing import MESSAGE_BYTES_MAX

ANSWER_BYTES_MAX = 1024 * 1024
"""Of a refusal, with its head."""
OPEN_SECONDS_MAX = 10.0
SWITCHING_PROTOCOLS = 101


class Refused(ConnectionFailed):
    """The server answered, but not with a WebSocket."""

    def __init__(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        super().__init__(f"the server refuses a WebSocket with status {status}: {body[:1000].decode(errors='replace')}")
        self.status = status
        self.headers = headers
        self.body = body


class Opening(asyncio.Protocol):
    """Sends a request as soon as it is connected. `opened` is the WebSocket, or fails."""

    def __init__(
        self,
        request: bytes,
        key: str,
        protocols: Sequence[str],
        place: str,
        *,
        heartbeat: Heartbeat = HEARTBEAT,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        waiting_bytes_max: int = BYTES_WAITING_MAX,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self._request = request
        self._key = key
        self._protocols = protocols
        self._place = place
        self._heartbeat = heartbeat
        self._message_bytes_max = message_bytes_max
        self._waiting_bytes_max = waiting_bytes_max
        self._on_lost = on_lost
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._headers: list[tuple[bytes, bytes]] = []
        self._body = b""
        self._came_bytes = 0
        self.opened: asyncio.Future[WebSocket] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._came_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._switch(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self._fail(BadAnswer(f"{self._place} does not answer in HTTP/1.1: {error}"))
        if self._came_bytes > ANSWER_BYTES_MAX:
            self._fail(BadAnswer(f"{self._place} answers with more than {ANSWER_BYTES_MAX} bytes"))

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(ConnectionCut(f"the connection to {self._place} was cut before there was an answer"))

    def abort(self) -> None:
        self._transport.abort()

    # What the parser tells.

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:
            self._fail(Refused(status, self._headers, self._body))
        elif status != SWITCHING_PROTOCOLS:
            self._headers = []  # Of an interim answer: the real one follows.

    # The answer.

    def _switch(self, rest: bytes) -> None:
        if self.opened.done():
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in self._headers}
        if self._parser.get_status_code() != SWITCHING_PROTOCOLS:
            return
        try:
            protocol = handshake.agreed(headers, self._key, self._protocols)
        except handshake.BadHandshake as error:
            self._fail(BadAnswer(f"{self._place}: {error}"))
            return
        websocket = WebSocket(
            "client",
            protocol,
            heartbeat=self._heartbeat,
            message_bytes_max=self._message_bytes_max,
            waiting_bytes_max=self._waiting_bytes_max,
            on_lost=self._on_lost,
        )
        self._transport.set_protocol(websocket)
        websocket.connection_made(self._transport)
        self.opened.set_result(websocket)
        if rest:
            websocket.data_received(rest)

    def _fail(self, failure: ConnectionFailed) -> None:
        if not self.opened.done():
            self.opened.set_exception(failure)
            # It may be that nobody waits any more.
            self.opened.exception()
            self._transport.abort()


async def connect_unix(
    path: str,
    target: str,
    *,
    headers: Mapping[str, str] | None = None,
    protocols: Sequence[str] = (),
    heartbeat: Heartbeat = HEARTBEAT_LOCAL,
    message_bytes_max: int = MESSAGE_BYTES_MAX,
) -> WebSocket:
    """A WebSocket to a server on a Unix socket. `target` is the path of the request, with its query.

    Raises `Refused` when the server has another answer, and other kinds of `ConnectionFailed` when it has none.
    """
    key = handshake.new_key()
    said = {"Host": "localhost", **(headers or {}), **handshake.request_headers(key, protocols)}
    if any("\r" in value or "\n" in value for value in (target, *said, *said.values())):
        raise ValueError("a line break in a header")
    lines = "".join(f"{name}: {value}\r\n" for name, value in said.items())
    request = f"GET {target} HTTP/1.1\r\n{lines}\r\n".encode("ascii")

    def opening() -> Opening:
        return Opening(request, key, protocols, path, heartbeat=heartbeat, message_bytes_max=message_bytes_max)

    try:
        async with asyncio.timeout(OPEN_SECONDS_MAX):
            _, protocol = await asyncio.get_running_loop().create_unix_connection(opening, path)
            return await opened(protocol)
    except TimeoutError:
        raise TimedOut(f"{path} did not open a WebSocket within {OPEN_SECONDS_MAX:g} s") from None
    except (FileNotFoundError, ConnectionRefusedError):
        raise NoServer(f"no Rota server is running at {path}: start one with `rota start`") from None
    except PermissionError as error:
        raise NotConnected(f"may not connect to {path}: {error}") from None


async def opened(opening: Opening) -> WebSocket:
    """What comes of an opening; when nobody waits for it any more, its connection is cut."""
    try:
        return await opening.opened
    except BaseException:
        opening.abort()
        raise
