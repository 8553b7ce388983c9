"""A server's listening sockets, which its keeper holds while the server is away.

A tenant's process on the host's network could otherwise take the ports of a server that restarts: the server could not
come back, and its clients would talk to the tenant. Connections wait for the next server, and are closed if none comes.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Sequence
from pathlib import Path

from rota.runtime.keeper import protocol
from rota.runtime.keeper.loop import Loop

ANSWER_SECONDS_MAX = 5.0
ANSWER_BYTES_MAX = 64 * 1024


class Ports:
    """The listening sockets that this keeper holds."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._held: list[socket.socket] = []
        self._is_turning_away = False

    @property
    def descriptors(self) -> list[int]:
        return [one.fileno() for one in self._held]

    def hold(self, descriptors: Sequence[int]) -> None:
        """Hold these sockets in place of those held before."""
        self.stop_rejecting()
        before, self._held = self._held, [socket.socket(fileno=one) for one in descriptors]
        for one in before:
            one.close()

    def reject_connections(self) -> None:
        """Close each new connection at once, because no server will come to serve it."""
        if not self._is_turning_away:
            self._is_turning_away = True
            for one in self._held:
                self._loop.watch(one.fileno(), lambda one=one: _turn_away(one))  # type: ignore[misc]

    def stop_rejecting(self) -> None:
        """Leave new connections to the server, which is here or expected."""
        if self._is_turning_away:
            self._is_turning_away = False
            for one in self._held:
                self._loop.unwatch(one.fileno())


def _turn_away(listening: socket.socket) -> None:
    with contextlib.suppress(OSError):
        listening.setblocking(False)
        listening.accept()[0].close()


def held_listeners(home: Path, host: str) -> list[socket.socket]:
    """Return the listening sockets that the keeper of a home holds, for the next server. Empty if no keeper runs.

    Sockets of another address than `host` are given up: they would block this server's.
    """
    found = _ask_descriptors(home, {"verb": "held"})
    if not found or any(one.getsockname()[0] == host for one in found):
        return found
    for one in found:
        one.close()
    return _ask_descriptors(home, {"verb": "hold", "count": 0})


def _ask_descriptors(home: Path, what: dict[str, object]) -> list[socket.socket]:
    """Send a request, and return the sockets that come with the answer."""
    # Imported here: the keeper's own process has no use for its client.
    from rota.runtime.keeper.client import dial

    stream = dial(home)
    if stream is None:
        return []
    asked = {"id": 1, "verb": "hello", "version": protocol.VERSION}, {"id": 2, **what}
    descriptors: list[int] = []
    said = b""
    with stream, contextlib.suppress(OSError):
        stream.settimeout(ANSWER_SECONDS_MAX)
        stream.sendall(b"".join(json.dumps(one).encode() + b"\n" for one in asked))
        while said.count(b"\n") < len(asked) and len(said) < ANSWER_BYTES_MAX:
            data, came, _, _ = socket.recv_fds(
                stream, ANSWER_BYTES_MAX, protocol.DESCRIPTORS_PENDING_MAX, socket.MSG_CMSG_CLOEXEC
            )
            if not data:
                break
            said += data
            descriptors += came
    return [socket.socket(fileno=one) for one in descriptors]
