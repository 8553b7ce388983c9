"""Make the kernel detect a connection whose other end has vanished."""

from __future__ import annotations

import contextlib
import socket

IDLE_SECONDS = 15
INTERVAL_SECONDS = 15
PROBES = 3
"""Probes without an answer after which a connection is dropped: within a minute, however long it is silent.

The probes also keep a path through a router open.
"""


def keep_alive(sock: socket.socket) -> None:
    """Enable TCP keep-alive. A Unix socket needs none: the kernel reports the death of a process."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    with contextlib.suppress(AttributeError, OSError):  # Not every system has them.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, INTERVAL_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
