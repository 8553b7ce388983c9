"""Fair shares of scarce resources: busy connections, memory, and requests in progress.

- `Shares` limits what each key keeps: never more than is left for all others, and never the reserve.
- `Seats` limits the work in progress. Waiting requests get seats in turn by key, however many requests a key has
  waiting.

A key stands for a credential or a tenant.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque

LEAST = 8
"""The amount that each key may have, if there is any left."""


class Shares:
    """Counts how much of a total each key keeps.

    A key may have as much as is left for everybody else: alone it gets half, two that want all get a third each, and so
    on. The reserve is for those who have a right to it.
    """

    def __init__(self, total: int, reserve: int, *, least: int = LEAST) -> None:
        assert 0 <= reserve < total, "something is left to share"
        self._least = least
        self.total = total
        self.reserve = reserve
        self.used = 0
        self._of: dict[str, int] = {}

    def of(self, key: str) -> int:
        return self._of.get(key, 0)

    def has_room(self, key: str, amount: int = 1, *, may_use_reserve: bool = False) -> bool:
        left = self.total - self.used
        if may_use_reserve:
            return left >= amount
        left -= self.reserve
        return left >= amount and self.of(key) + amount <= max(self._least, left - amount + 1)

    def take(self, key: str, amount: int = 1) -> None:
        """Count more, whether there is room or not."""
        self.used += amount
        self._of[key] = self.of(key) + amount

    def give_back(self, key: str, amount: int = 1) -> None:
        self.used -= amount
        left = self._of.pop(key) - amount
        if left:
            # Keys without any are removed, because each claim has a credential of its own.
            self._of[key] = left


class Seats:
    """Limits the work in progress, and queues further work fairly."""

    def __init__(self, seats: int, reserve: int, wait_seconds_max: float) -> None:
        self._seats = seats
        self._reserve = reserve
        self._wait_seconds_max = wait_seconds_max
        self._taken = 0
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    async def enter(self, key: str, *, may_use_reserve: bool = False) -> None:
        """Take a seat, in turn. Raises TimeoutError after the longest wait."""
        if self._taken < self._seats + (self._reserve if may_use_reserve else 0):
            self._taken += 1
            return
        turn = asyncio.get_running_loop().create_future()
        queue = self._waiting.setdefault(key, deque())
        queue.append(turn)
        try:
            async with asyncio.timeout(self._wait_seconds_max):
                await turn
        except (TimeoutError, asyncio.CancelledError):
            if turn.done() and not turn.cancelled():
                self.leave()  # The seat was given at the same moment.
            elif turn in queue:
                queue.remove(turn)
                if not queue and self._waiting.get(key) is queue:
                    del self._waiting[key]
            raise

    def leave(self) -> None:
        """Give the seat to the next key's first request."""
        while self._waiting and self._taken <= self._seats:
            key, queue = self._waiting.popitem(last=False)
            turn = queue.popleft()
            if queue:
                self._waiting[key] = queue
            if not turn.done():
                turn.set_result(None)
                return
        self._taken -= 1
