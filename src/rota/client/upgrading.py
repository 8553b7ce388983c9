"""Open a WebSocket as a client."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from rota.client.connection import Connection, Headers, Limits
from rota.client.failures import BadAnswer, ConnectionFailed, NoServer, NotConnected, TimedOut
from rota.client.heads import head
from rota.client.websocket import handshake
from rota.client.websocket.connection import HEARTBEAT_LOCAL, Heartbeat, WebSocket
from rota.client.websocket.framing import MESSAGE_BYTES_MAX

ANSWER_BYTES_MAX = 1024 * 1024
"""Bytes of an error."""
OPEN_SECONDS_MAX = 10.0


class Refused(ConnectionFailed):
    """The server answered, but not with a WebSocket."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"the server refuses a WebSocket with status {status}: {body[:1000].decode(errors='replace')}")
        self.status = status
        self.body = body


class Upgrade:
    """A request for a WebSocket. Called with the headers of the answer, it makes the WebSocket."""

    def __init__(self, protocols: Sequence[str], place: str, heartbeat: Heartbeat, limits: Limits) -> None:
        self._key = handshake.new_key()
        self._protocols = protocols
        self._place = place
        self._heartbeat = heartbeat
        self._limits = limits

    @property
    def headers(self) -> dict[str, str]:
        return handshake.request_headers(self._key, self._protocols)

    def __call__(self, headers: Headers) -> WebSocket:
        """Return the WebSocket of an answer that switches protocols. Raises BadAnswer."""
        said = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
        try:
            protocol = handshake.agreed(said, self._key, self._protocols)
        except handshake.BadHandshake as error:
            raise BadAnswer(f"{self._place}: {error}") from None
        return WebSocket(
            "client",
            protocol,
            heartbeat=self._heartbeat,
            message_bytes_max=self._limits.message_bytes,
            waiting_bytes_max=self._limits.message_buffer_bytes,
        )


async def upgraded(connection: Connection, request: bytes, upgrade: Upgrade, place: str) -> WebSocket | None:
    """Send a request for a WebSocket. Returns None if the server sends another answer, which is left to read."""
    try:
        async with asyncio.timeout(OPEN_SECONDS_MAX):
            connection.send(request, streaming=True, upgrade=upgrade)
            await connection.head()
    except TimeoutError as error:
        if isinstance(error, ConnectionFailed):
            raise
        raise TimedOut(f"{place} did not open a WebSocket within {OPEN_SECONDS_MAX:g} s") from None
    return connection.websocket


async def connect_unix(
    path: str,
    target: str,
    *,
    headers: Mapping[str, str] | None = None,
    protocols: Sequence[str] = (),
    heartbeat: Heartbeat = HEARTBEAT_LOCAL,
    message_bytes_max: int = MESSAGE_BYTES_MAX,
) -> WebSocket:
    """Open a WebSocket to a server on a Unix socket. `target` is the path of the request, with its query.

    Raises `Refused` if the server answers with an error, and other kinds of `ConnectionFailed` if it does not answer.
    """
    limits = Limits(message_bytes=message_bytes_max)
    upgrade = Upgrade(protocols, path, heartbeat, limits)
    said = {"Host": "localhost", **(headers or {}), **upgrade.headers}
    request = f"{head('GET', target, said.items())}\r\n".encode("ascii")
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(OPEN_SECONDS_MAX):
            _, connection = await loop.create_unix_connection(lambda: Connection(path, limits), path)
    except TimeoutError:
        raise TimedOut(f"{path} did not open a WebSocket within {OPEN_SECONDS_MAX:g} s") from None
    except (FileNotFoundError, ConnectionRefusedError):
        raise NoServer(f"no Rota server is running at {path}: start one with `rota start`") from None
    except PermissionError as error:
        raise NotConnected(f"may not connect to {path}: {error}") from None
    websocket: WebSocket | None = None
    try:
        websocket = await upgraded(connection, request, upgrade, path)
        if websocket is None:
            status, body = (await connection.head())[0], b""
            while piece := await connection.piece():
                body += piece
                if len(body) > ANSWER_BYTES_MAX:
                    raise BadAnswer(f"{path} answers with more than {ANSWER_BYTES_MAX} bytes")
            raise Refused(status, body)
        return websocket
    finally:
        if websocket is None:
            connection.abort()
