"""The memory that a server uses for its clients: request bodies and answers. All of it is bounded."""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict, deque
from typing import Any, NamedTuple

from rota.server.shares import Shares

MIB = 1024 * 1024
BODIES_BYTES_MAX = 128 * MIB
"""Bytes of all bodies that are being read, or whose requests are processed."""
BODIES_BYTES_RESERVED = 32 * MIB
"""Bytes among them that are reserved for admins."""
BODIES_BYTES_LEAST = 3 * MIB
"""Bytes that each payer may have, if there are any left: one body."""
SMALL_BODY_BYTES = 16 * 1024
"""A smaller body that arrives at once is not counted: it lives only as long as its request."""
ANSWERS_BYTES_MAX = 384 * MIB
"""Bytes of all answers that clients have not read yet."""
ANSWERS_BYTES_RESERVED = 96 * MIB
ANSWERS_BYTES_LEAST = 4 * MIB
ADDRESS_6_BYTES = 8
"""The part of an IPv6 address that its owner cannot choose."""


class Payer(NamedTuple):
    """The key of a share, and the right to the reserve."""

    key: str
    may_use_reserve: bool = False


class Answers(Shares):
    """Bytes of unread answers. A sender can wait until there is room for more."""

    def __init__(self, total: int, reserve: int) -> None:
        super().__init__(total, reserve, least=ANSWERS_BYTES_LEAST)
        self._waiting: OrderedDict[Payer, deque[tuple[int, asyncio.Future[None]]]] = OrderedDict()

    async def wait(self, payer: Payer, amount: int, seconds_max: float) -> bool:
        """Count bytes as soon as there is room. Returns False, and counts nothing, if that takes too long."""
        if payer not in self._waiting and self._has_room(payer, amount):
            self.take(payer.key, amount)
            return True
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = (amount, granted)
        self._waiting.setdefault(payer, deque()).append(waiting)
        try:
            async with asyncio.timeout(seconds_max):
                await granted
        except TimeoutError:
            return not self._forget(payer, waiting)
        except asyncio.CancelledError:
            if not self._forget(payer, waiting):
                self.give_back(payer.key, amount)
            raise
        return True

    def give_back(self, key: str, amount: int = 1) -> None:
        super().give_back(key, amount)
        for payer in tuple(self._waiting):
            queue = self._waiting[payer]
            while queue and self._has_room(payer, queue[0][0]):
                more, granted = queue.popleft()
                self.take(payer.key, more)
                if not granted.done():
                    granted.set_result(None)
            if not queue:
                del self._waiting[payer]

    def _has_room(self, payer: Payer, amount: int) -> bool:
        return self.has_room(payer.key, amount, may_use_reserve=payer.may_use_reserve)

    def _forget(self, payer: Payer, waiting: tuple[int, asyncio.Future[None]]) -> bool:
        """Stop waiting. Returns False if the bytes have been counted meanwhile."""
        queue = self._waiting.get(payer, ())
        if waiting not in queue:
            return False
        self._waiting[payer].remove(waiting)
        if not self._waiting[payer]:
            del self._waiting[payer]
        return True


class Memory:
    """The memory for bodies and answers, shared by credentials, and by addresses of anonymous clients."""

    def __init__(
        self,
        bodies: int = BODIES_BYTES_MAX,
        answers: int = ANSWERS_BYTES_MAX,
        *,
        bodies_reserved: int = BODIES_BYTES_RESERVED,
        answers_reserved: int = ANSWERS_BYTES_RESERVED,
    ) -> None:
        self.bodies = Shares(bodies, bodies_reserved, least=BODIES_BYTES_LEAST)
        self.answers = Answers(answers, answers_reserved)


class Held:
    """Bytes that one connection uses of a payer's share."""

    def __init__(self, shares: Shares, payer: Payer) -> None:
        self._shares = shares
        self._payer = payer
        self._counted = 0

    def may_hold(self, total: int) -> bool:
        """Count the bytes that are kept now. Returns False, and leaves the count, if there is no room for more."""
        key, may_use_reserve = self._payer
        more = (total if total > SMALL_BODY_BYTES else 0) - self._counted
        if more > 0 and not self._shares.has_room(key, more, may_use_reserve=may_use_reserve):
            return False
        if more > 0:
            self._shares.take(key, more)
        elif more < 0:
            self._shares.give_back(key, -more)
        self._counted += more
        return True


def payer_at(peer: Any) -> Payer:
    """Return the payer of an anonymous request: the address of its client."""
    host = peer[0] if isinstance(peer, tuple) else ""
    if ":" in host:
        host = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])[:ADDRESS_6_BYTES].hex()
    return Payer(f"address {host}")
