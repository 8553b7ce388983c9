"""Accept connections. Each is counted from its acceptance, before its TLS handshake.

- The number of handshakes is bounded, and each has a deadline. One more ends the oldest, so that idle connections keep
  nobody out.
- Without a free descriptor a listener pauses, drops waiting connections, and goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
from collections import OrderedDict
from collections.abc import Callable
from ssl import SSLContext, SSLError

log = logging.getLogger(__name__)

BACKLOG = 1024
ACCEPTED_AT_ONCE_MAX = 64
"""Connections that are accepted in a row before other work of the event loop runs."""
PAUSE_SECONDS = 0.1
"""Pause when there is no free descriptor."""
WARNED_EVERY_SECONDS = 60.0
HANDSHAKE_SECONDS_MAX = 10.0
SHUTDOWN_SECONDS_MAX = 5.0
"""Time for a client to agree to the end of a TLS connection."""
EXHAUSTED = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))


class Listener:
    """Accepts on one socket until it is closed, and owns connections during their handshake."""

    def __init__(
        self,
        sock: socket.socket,
        protocol: Callable[[], asyncio.Protocol],
        *,
        tls: SSLContext | None,
        handshakes_max: int,
        make_room: Callable[[], object],
    ) -> None:
        """`make_room` closes an unused connection, if there is one."""
        self._sock = sock
        self._protocol = protocol
        self._tls = tls
        self._handshakes_max = handshakes_max
        self._make_room = make_room
        self._loop = asyncio.get_running_loop()
        self._entering: OrderedDict[socket.socket, asyncio.Task[None]] = OrderedDict()
        self._spare = os.open(os.devnull, os.O_RDONLY)
        """A spare descriptor. It is released to accept and close a connection when there is no other."""
        self._resuming: asyncio.TimerHandle | None = None
        self._warned_at = float("-inf")
        sock.setblocking(False)
        sock.listen(BACKLOG)
        self._loop.add_reader(sock, self._accept)

    @property
    def entering(self) -> int:
        """Connections that have not finished their handshake."""
        return len(self._entering)

    async def close(self) -> None:
        """Abort handshakes, and accept no more. A second call does nothing."""
        if self._sock.fileno() < 0:
            return
        if self._resuming is not None:
            self._resuming.cancel()
        self._loop.remove_reader(self._sock)
        self._sock.close()
        if self._spare >= 0:
            os.close(self._spare)
        tasks = tuple(self._entering.values())
        for sock in tuple(self._entering):
            _cut(sock)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE_MAX):
            try:
                sock, _ = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in EXHAUSTED:
                    self._drop_waiting()
                self._pause(error)
                return
            sock.setblocking(False)
            if len(self._entering) >= self._handshakes_max:
                self._drop_oldest()
            self._entering[sock] = self._loop.create_task(self._enter(sock), name="entering connection")

    async def _enter(self, sock: socket.socket) -> None:
        seconds = HANDSHAKE_SECONDS_MAX if self._tls is not None else None
        shutdown = SHUTDOWN_SECONDS_MAX if self._tls is not None else None
        try:
            await self._loop.connect_accepted_socket(
                self._protocol, sock, ssl=self._tls, ssl_handshake_timeout=seconds, ssl_shutdown_timeout=shutdown
            )
        except (OSError, SSLError, TimeoutError) as error:
            log.debug("a connection ended before it began: %s", error)
            sock.close()
        except BaseException:
            sock.close()
            raise
        finally:
            self._entering.pop(sock, None)

    def _drop_oldest(self) -> None:
        if self._entering:
            sock, _ = self._entering.popitem(last=False)
            _cut(sock)

    def _drop_waiting(self) -> None:
        """Free descriptors, and drop one waiting connection, which would keep the listener busy."""
        self._drop_oldest()
        self._make_room()
        if self._spare < 0:
            return
        os.close(self._spare)
        self._spare = -1
        with contextlib.suppress(OSError):
            self._sock.accept()[0].close()
        with contextlib.suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY)

    def _pause(self, error: OSError) -> None:
        now = self._loop.time()
        if now - self._warned_at > WARNED_EVERY_SECONDS:
            self._warned_at = now
            log.warning("connections cannot be accepted for the moment: %s", error)
        self._loop.remove_reader(self._sock)
        self._resuming = self._loop.call_later(PAUSE_SECONDS, self._resume)

    def _resume(self) -> None:
        self._resuming = None
        if self._spare < 0:
            with contextlib.suppress(OSError):
                self._spare = os.open(os.devnull, os.O_RDONLY)
        self._loop.add_reader(self._sock, self._accept)


def _cut(sock: socket.socket) -> None:
    """Shut down a socket whose descriptor a transport may own by now."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
