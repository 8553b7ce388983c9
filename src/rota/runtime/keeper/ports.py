"""The sockets that a server listens on, held by its keeper while what it runs goes on without it.

What runs on the host's network could else take the ports of a server that restarts: it would not come back, and whoever
calls it would speak to a tenant. Who connects meanwhile waits for the next server, and if none comes is turned away.
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
    """The keeper's side."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._held: list[socket.socket] = []
        self._is_turning_away = False

    @property
    def descriptors(self) -> list[int]:
        return [one.fileno() for one in self._held]

    def hold(self, descriptors: Sequence[int]) -> None:
        """In place of those before."""
        self.leave_be()
        before, self._held = self._held, [socket.socket(fileno=one) for one in descriptors]
        for one in before:
            one.close()

    def turn_away(self) -> None:
        """End each connection as it comes: there is nobody to take it."""
        if not self._is_turning_away:
            self._is_turning_away = True
            for one in self._held:
                self._loop.watch(one.fileno(), lambda one=one: _turn_away(one))  # type: ignore[misc]

    def leave_be(self) -> None:
        """A server takes them, or will soon."""
        if self._is_turning_away:
            self._is_turning_away = False
            for one in self._held:
                self._loop.unwatch(one.fileno())


def _turn_away(listening: socket.socket) -> None:
    with contextlib.suppress(OSError):
        listening.setblocking(False)
        listening.accept()[0].close()


def held(home: Path, host: str) -> list[socket.socket]:
    """The sockets that the keeper of a home holds, listening, for the server that comes next. Empty: none runs.

    Of one that listens on another address than those were for, they are in the way, and are given up.
    """
    found = _asked(home, {"verb": "held"})
    if not found or any(one.getsockname()[0] == host for one in found):
        return found
    for one in found:
        one.close()
    return _asked(home, {"verb": "hold", "count": 0})


def _asked(home: Path, what: dict[str, object]) -> list[socket.socket]:
    """The descriptors with which a keeper answers."""
    # Not at the top: the keeper itself has no use for its client.
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
