"""Memory that the server has for its clients: bodies that come in, and answers that go out. All of it has a bound."""

from __future__ import annotations

import socket
from typing import Any, NamedTuple

from rota.server.shares import Shares

MIB = 1024 * 1024
BODIES_BYTES_MAX = 128 * MIB
"""Of all bodies that are being read, or whose requests are worked on."""
BODIES_BYTES_RESERVED = 32 * MIB
"""Of them, for admins alone."""
BODIES_BYTES_LEAST = 3 * MIB
"""What each party has, while there is any: one body."""
SMALL_BODY_BYTES = 16 * 1024
"""A body that comes at once and is no larger is not counted: it is gone with its request."""
ANSWERS_BYTES_MAX = 384 * MIB
"""Of all answers that clients have not read yet."""
ANSWERS_BYTES_RESERVED = 96 * MIB
ANSWERS_BYTES_LEAST = 4 * MIB
ADDRESS_6_BYTES = 8
"""The part of an IPv6 address that its owner cannot choose."""


class Payer(NamedTuple):
    """Whose share it is."""

    party: str
    may_use_reserve: bool = False


class Memory:
    """What is kept of both, by party: a credential, or an address of somebody who has none."""

    def __init__(
        self,
        bodies: int = BODIES_BYTES_MAX,
        answers: int = ANSWERS_BYTES_MAX,
        *,
        bodies_reserved: int = BODIES_BYTES_RESERVED,
        answers_reserved: int = ANSWERS_BYTES_RESERVED,
    ) -> None:
        self.bodies = Shares(bodies, bodies_reserved, least=BODIES_BYTES_LEAST)
        self.answers = Shares(answers, answers_reserved, least=ANSWERS_BYTES_LEAST)


def payer_at(peer: Any) -> Payer:
    """Who pays where nobody has said who they are: the address at the other end."""
    host = peer[0] if isinstance(peer, tuple) else ""
    if ":" in host:
        host = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])[:ADDRESS_6_BYTES].hex()
    return Payer(f"address {host}")
