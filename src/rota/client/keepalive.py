"""Have the kernel find out that the other end of a connection has vanished without a word."""

from __future__ import annotations

import contextlib
import socket

IDLE_SECONDS = 15
INTERVAL_SECONDS = 15
PROBES = 3
"""An end that is out of reach is noticed in a minute, however long nothing is said. It keeps a path through a router
open, too."""


def keep_alive(sock: socket.socket) -> None:
    """Does nothing for a Unix socket: the kernel tells of a process that died."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    with contextlib.suppress(AttributeError, OSError):  # Not every system has them.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, INTERVAL_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
