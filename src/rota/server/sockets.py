"""Bind the sockets of a server."""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
from collections.abc import Iterable

from rota.client.heads import authority
from rota.server.addresses import dialled, family_of

log = logging.getLogger(__name__)

TWINS = {"127.0.0.1": "::1", "0.0.0.0": "::1"}
"""The other loopback address for each address: clients of the name `localhost` may try it first."""


class AddressInUse(OSError):  # noqa: N818
    """Another process listens on the port of the server."""


def authority_of(host: str, listening: socket.socket) -> str:
    return authority(dialled(host), listening.getsockname()[1])


def bind(host: str, port: int, flag: str, *, before: int = 0, held: Iterable[socket.socket] = ()) -> socket.socket:
    """Bind a socket, before anything else is changed, so that a taken port is reported early.

    `before` is preferred where any port will do. `held` are sockets that the keeper has held since the last server; one
    that is bound to the address is used.
    """
    if port == 0 and before:
        with contextlib.suppress(OSError):
            return bind(host, before, flag, held=held)
    for one in held:
        if one.fileno() >= 0 and one.family == family_of(host) and one.getsockname()[:2] == (host, port):
            return one.dup()
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


def twins(listening: socket.socket, flag: str, *, held: Iterable[socket.socket] = ()) -> list[socket.socket]:
    """Bind the other loopback address, if the host has one: otherwise any process could answer there for the server."""
    host, port = listening.getsockname()[:2]
    if host not in TWINS:
        return []
    try:
        return [bind(TWINS[host], port, flag, held=held)]
    except AddressInUse:
        log.warning("port %d on %s is taken: http://localhost:%d may lead there, and not here", port, TWINS[host], port)
    except OSError:
        pass  # There is no such address here.
    return []
