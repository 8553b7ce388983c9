"""Sockets that a server listens on."""

from __future__ import annotations

import contextlib
import errno
import socket

from rota.server.addresses import dialled, family_of


class AddressInUse(OSError):  # noqa: N818
    """Something else listens where the server should."""


def authority_of(host: str, listening: socket.socket) -> str:
    host = dialled(host)
    return f"{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"


def bind(host: str, port: int, flag: str, *, before: int = 0) -> socket.socket:
    """Bind first: a taken port is found out before anything is touched. `before` is preferred when any port will do."""
    if port == 0 and before:
        with contextlib.suppress(OSError):
            return bind(host, before, flag)
    sock = socket.socket(family_of(host), socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        if error.errno != errno.EADDRINUSE:
            raise
        raise AddressInUse(
            errno.EADDRINUSE,
            f"port {port} on {host} is taken; stop what listens there, or choose another with {flag} (0: a free one)",
        ) from None
    return sock
