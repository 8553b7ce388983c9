"""Who gets how much of what there is little of: connections that are kept busy, memory, and requests worked on.

- `Shares` bounds what each party keeps: never more than is left for all others, and never the reserve.
- `Seats` bounds what is worked on at once. Who waits for a seat gets it in turn with the other parties, however many
  requests each of them has waiting.

A party is a credential, or a tenant. Both know nothing of what they count.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque

LEAST = 8
"""A party has at least so many, while there are any."""


class Shares:
    """Counts what parties keep of a total.

    A party may have as many as are left for everybody else: alone it gets half, two that want all get a third each,
    and so on. What is kept in reserve is for those who have a right to it.
    """

    def __init__(self, total: int, reserve: int, *, least: int = LEAST) -> None:
        assert 0 <= reserve < total, "something is left to share"
        self._least = least
        self.total = total
        self.reserve = reserve
        self.used = 0
        self._of: dict[str, int] = {}

    def of(self, party: str) -> int:
        return self._of.get(party, 0)

    def has_room(self, party: str, amount: int = 1, *, may_use_reserve: bool = False) -> bool:
        left = self.total - self.used
        if may_use_reserve:
            return left >= amount
        left -= self.reserve
        return left >= amount and self.of(party) + amount <= max(self._least, left - amount + 1)

    def take(self, party: str, amount: int = 1) -> None:
        """Count so many more, room or not."""
        self.used += amount
        self._of[party] = self.of(party) + amount

    def give_back(self, party: str, amount: int = 1) -> None:
        self.used -= amount
        left = self._of.pop(party) - amount
        if left:
            # Who has none is not remembered: claims have a credential each.
            self._of[party] = left


class Seats:
    """Lets so many work at once, and queues the others fairly."""

    def __init__(self, seats: int, reserve: int, wait_seconds_max: float) -> None:
        self._seats = seats
        self._reserve = reserve
        self._wait_seconds_max = wait_seconds_max
        self._taken = 0
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    async def enter(self, party: str, *, may_use_reserve: bool = False) -> None:
        """Take a seat, after those whose turn it is. Raises TimeoutError after the time that is bearable."""
        if self._taken < self._seats + (self._reserve if may_use_reserve else 0):
            self._taken += 1
            return
        turn = asyncio.get_running_loop().create_future()
        queue = self._waiting.setdefault(party, deque())
        queue.append(turn)
        try:
            async with asyncio.timeout(self._wait_seconds_max):
                await turn
        except (TimeoutError, asyncio.CancelledError):
            if turn.done() and not turn.cancelled():
                self.leave()  # It came in the same moment.
            elif turn in queue:
                queue.remove(turn)
                if not queue and self._waiting.get(party) is queue:
                    del self._waiting[party]
            raise

    def leave(self) -> None:
        """Give a seat to the next party, whichever of its requests is first."""
        while self._waiting and self._taken <= self._seats:
            party, queue = self._waiting.popitem(last=False)
            turn = queue.popleft()
            if queue:
                self._waiting[party] = queue
            if not turn.done():
                turn.set_result(None)
                return
        self._taken -= 1
