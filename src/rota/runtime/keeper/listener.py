"""The keeper's socket: accepts peers of the same user, reads and writes lines, and drops slow or oversized peers."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rota.runtime.keeper import protocol
from rota.runtime.keeper.child import Exec
from rota.runtime.keeper.loop import Loop

_RECEIVE_BYTES = 65536
_ACCEPT_BACKLOG = 64
_LAST_SEND_SECONDS_MAX = 1.0


class ClientConnection:
    def __init__(self, stream: socket.socket) -> None:
        self.stream = stream
        self.received = bytearray()
        self.descriptors: list[int] = []
        self.handed: list[int] = []
        """Descriptors sent with the next message."""
        self.backlog = bytearray()
        self.version: int | None = None
        self.grace_seconds: float | None = None
        self.is_watching = False
        self.is_open = True
        self.execs: set[Exec] = set()

    @property
    def is_too_slow(self) -> bool:
        return len(self.backlog) > protocol.BACKLOG_BYTES_MAX

    def take_descriptors(self, count: int) -> list[int]:
        """Take the first of the received descriptors; the caller closes them."""
        count = min(max(count, 0), protocol.LISTENERS_MAX)
        taken, self.descriptors = self.descriptors[:count], self.descriptors[count:]
        return taken

    def send_later(self, message: dict[str, Any]) -> None:
        """Queue a message. It is sent at the end of the loop's iteration, after the records are written to disk."""
        if self.is_open and not self.is_too_slow:
            self.backlog += json.dumps(message).encode() + b"\n"


class Listener:
    def __init__(
        self,
        loop: Loop,
        folder: Path,
        asked: Callable[[ClientConnection, bytes], None],
        closed: Callable[[ClientConnection], None],
    ) -> None:
        self._loop = loop
        self._path = folder / "keeper.sock"
        self._asked = asked
        self._closed = closed
        self.connections: set[ClientConnection] = set()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._path.unlink(missing_ok=True)
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        before = os.umask(0o177)
        try:
            # A socket's name has at most 107 bytes; a home's path may have more.
            self._socket.bind(f"/proc/self/fd/{descriptor}/{self._path.name}")
        finally:
            os.umask(before)
            os.close(descriptor)
        self._socket.listen(_ACCEPT_BACKLOG)
        loop.watch(self._socket.fileno(), self._accept)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            stream, _ = self._socket.accept()
            stream.setblocking(False)
            _, uid, _ = struct.unpack("3i", stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if uid not in (os.geteuid(), 0) or len(self.connections) >= protocol.CONNECTIONS_MAX:
                stream.close()
                return
            connection = ClientConnection(stream)
            self.connections.add(connection)
            self._loop.watch(stream.fileno(), lambda: self._receive(connection))

    def _receive(self, connection: ClientConnection) -> None:
        space = socket.CMSG_SPACE(4 * protocol.DESCRIPTORS_PENDING_MAX)
        try:
            data, ancillary, flags, _ = connection.stream.recvmsg(_RECEIVE_BYTES, space, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        except OSError:
            self.close(connection)
            return
        for level, kind, payload in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                connection.descriptors += struct.unpack(f"{len(payload) // 4}i", payload[: len(payload) // 4 * 4])
        connection.received += data
        while not connection.is_too_slow and (end := connection.received.find(b"\n")) >= 0:
            line = bytes(connection.received[:end])
            del connection.received[: end + 1]
            self._asked(connection, line)
        too_many = len(connection.descriptors) > protocol.DESCRIPTORS_PENDING_MAX or flags & socket.MSG_CTRUNC
        if not data or too_many or connection.is_too_slow or len(connection.received) > protocol.REQUEST_BYTES_MAX:
            self.close(connection)

    def flush(self) -> None:
        for connection in list(self.connections):
            if connection.backlog:
                self._send(connection)

    def _send(self, connection: ClientConnection) -> None:
        try:
            if connection.handed:
                sent = socket.send_fds(connection.stream, [connection.backlog], connection.handed)
                connection.handed = []
            else:
                sent = connection.stream.send(connection.backlog)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.close(connection)
            return
        del connection.backlog[:sent]
        if connection.is_too_slow:
            self.close(connection)
            return
        writable = (lambda: self._send(connection)) if connection.backlog else None
        self._loop.watch(connection.stream.fileno(), lambda: self._receive(connection), writable)

    def close(self, connection: ClientConnection) -> None:
        connection.is_open = False
        connection.backlog.clear()
        self.connections.discard(connection)
        self._loop.unwatch(connection.stream.fileno())
        connection.stream.close()
        for descriptor in connection.descriptors:
            os.close(descriptor)
        self._closed(connection)

    def stop(self) -> None:
        """Accept no more connections."""
        self._loop.unwatch(self._socket.fileno())
        self._socket.close()
        self._path.unlink(missing_ok=True)

    def flush_and_wait(self) -> None:
        """Send all queued messages, waiting for slow peers up to a bound."""
        for connection in self.connections:
            connection.stream.settimeout(_LAST_SEND_SECONDS_MAX)
            with contextlib.suppress(OSError):
                connection.stream.sendall(connection.backlog)
