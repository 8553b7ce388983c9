"""HTTP/1.1 on asyncio: a small, bounded server that knows nothing of what it serves.

- A request is handed over whole, with its body; its answer is bytes, or a stream of bytes. For targets that the server
  chooses, the body is handed over in pieces, and the client sends no faster than they are read.
- A body that does not arrive at once is only waited for after the request was admitted.
- Requests of a connection are answered one after the other, in order.
- A request may be answered by a WebSocket, which then owns the connection.
- Everything that a client sends or omits is bounded: head, body, time to send, time to read, connections; and all
  bodies and all answers together, of which each payer has a share.
- An answer is written no faster than it is read. A client that does not read is cut off.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from ssl import SSLContext

from rota.runtime.descriptors import MOST
from rota.server.http import Answer, Request, Response
from rota.server.http_connection import Connection
from rota.server.listener import Listener
from rota.server.memory import Memory, Payer

log = logging.getLogger(__name__)

BODY_BYTES_MAX = 3 * 1024 * 1024
CONNECTIONS_MAX = MOST.remote
"""Connections over TCP."""
LOCAL_CONNECTIONS_MAX = MOST.local
"""Connections at the local socket, those of runners included, one for each."""
HANDSHAKES_MAX = 512
"""Connections that are accepted and have not finished their TLS handshake."""
IDLE_SECONDS_MAX = 180.0
CROWDED_IDLE_SECONDS_MAX = 5.0
"""Time that a connection may be idle while there is no room for more connections."""
SWEEP_SECONDS = 1.0
ABORT_SECONDS_MAX = 2.0
"""Time for aborted connections to be cleaned up."""

Handler = Callable[[Request], Answer | Awaitable[Answer]]
Refusal = Callable[[int, str], Response]
"""Makes the answer to an invalid request from a status and a message."""
Admit = Callable[[Request], Response | None]
"""Refuses a request by its head, or lets its body come."""


def _anybody(request: Request) -> None:
    """Let every body come."""


class HttpServer:
    """Listens, and owns its connections. `close` ends all of them."""

    def __init__(
        self,
        handler: Handler,
        refusal: Refusal,
        *,
        connections_max: int | None = None,
        local_connections_max: int | None = None,
        handshakes_max: int = HANDSHAKES_MAX,
        body_bytes_max: int | None = None,
        memory: Memory | None = None,
        admit: Admit = _anybody,
        payer: Callable[[Request], Payer | None] = _anybody,
        streams_body: Callable[[bytes], bool] = lambda target: False,
    ) -> None:
        """The limits are those of this module unless others are given.

        `payer` returns who pays for the memory of a request; None for its address. `streams_body` reports whether the
        body of a request to a target is handed over in pieces.
        """
        self.handler = handler
        self.refusal = refusal
        self.memory = memory or Memory()
        self.admit = admit
        self.payer = payer
        self._connections_max = connections_max
        self._local_connections_max = local_connections_max
        self._handshakes_max = handshakes_max
        self._body_bytes_max = body_bytes_max
        self.connections: set[Connection] = set()
        self.local_connections = 0
        """Connections at the local socket among these."""
        self.strangers: OrderedDict[Connection, None] = OrderedDict()
        """Connections without an authenticated request so far, the oldest first."""
        self.idle: OrderedDict[Connection, None] = OrderedDict()
        """Idle connections of authenticated clients."""
        self._listeners: list[Listener] = []
        self._sweeper: asyncio.Task[None] | None = None
        self.closing = False
        """True while connections are closed after their present request."""
        self.streams_body = streams_body

    @property
    def connections_max(self) -> int:
        return min(self._connections_max or CONNECTIONS_MAX, CONNECTIONS_MAX)

    @property
    def local_connections_max(self) -> int:
        return min(self._local_connections_max or LOCAL_CONNECTIONS_MAX, LOCAL_CONNECTIONS_MAX)

    @property
    def body_bytes_max(self) -> int:
        return self._body_bytes_max or BODY_BYTES_MAX

    async def listen(self, sock: socket.socket, *, ssl: SSLContext | None = None) -> None:
        """Listen on a bound socket, which then belongs to the server."""
        loop = asyncio.get_running_loop()
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep(), name="http sweeper")
        listener = Listener(
            sock,
            lambda: Connection(self, loop),
            tls=ssl,
            handshakes_max=self._handshakes_max,
            make_room=self.make_room,
        )
        self._listeners.append(listener)

    async def listen_unix(self, path: str) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.bind(path)
        except OSError:
            sock.close()
            raise
        await self.listen(sock)

    def failed(self, request: Request) -> Response:
        """Log the present exception, and return the answer to the request that led to it."""
        log.exception("%s %s failed", request.method, request.path)
        return self.refusal(500, "an error on the server; its log says more")

    @property
    def entering(self) -> int:
        """Connections that have not finished their handshake."""
        return sum(one.entering for one in self._listeners)

    def is_full(self, *, local: bool) -> bool:
        """Report whether there are too many connections, at the local socket or elsewhere."""
        if local:
            return self.local_connections > self.local_connections_max
        return len(self.connections) - self.local_connections > self.connections_max

    def make_room(self, *, sparing: Connection | None = None) -> bool:
        """Close the remote connection that has waited longest for its client, if there is one."""
        for waiting in (self.strangers, self.idle):
            found = next((one for one in waiting if one is not sparing), None)
            if found is not None:
                found.give_up()
                return True
        return False

    async def close(self, grace_seconds: float = 2.0) -> None:
        """Accept no more connections, let streams and requests end, then abort the rest."""
        self.closing = True
        for listener in self._listeners:
            await listener.close()
        for connection in tuple(self.connections):
            connection.finish()
        deadline = asyncio.get_running_loop().time() + grace_seconds
        while self.connections and asyncio.get_running_loop().time() < deadline:
            await asyncio.wait([connection.closed for connection in self.connections], timeout=0.1)
        for connection in tuple(self.connections):
            connection.abort()
        if self.connections:
            await asyncio.wait([connection.closed for connection in self.connections], timeout=ABORT_SECONDS_MAX)
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)

    async def _sweep(self) -> None:
        """End connections whose time is up. They are checked once a second, instead of by a timer for each."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = loop.time()
            remote = len(self.connections) - self.local_connections
            crowded = (remote >= self.connections_max, self.local_connections >= self.local_connections_max)
            for connection in tuple(self.connections):
                is_crowded = crowded[connection.is_local]
                connection.check_time(now, CROWDED_IDLE_SECONDS_MAX if is_crowded else IDLE_SECONDS_MAX)
