"""What is free: by what it provides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.pools.ordered import Ordered
from rota.pools.request import Arrival, Offer

if TYPE_CHECKING:
    from rota.pools.demand import Demand

Place = tuple[Arrival, int, Offer]
"""A free instance's place: since when it is free, the number of its offer."""


class Supply:
    """All free instances that provide the same, the one that is so the longest first."""

    __slots__ = ("by_last", "demands", "free", "provides")

    def __init__(self, provides: frozenset[str]) -> None:
        self.provides = provides
        self.free: Ordered[Place] = Ordered()
        self.by_last: dict[str, Ordered[Place]] = {}
        """Those of them that someone had who may come again, by affinity key."""
        self.demands: list[Demand] = []
        """The kinds of requests that these satisfy."""

    def put(self, place: Place) -> None:
        self.free.add(place)
        last = place[2].last
        if last:
            same = self.by_last.get(last)
            if same is None:
                self.by_last[last] = Ordered(place)
            else:
                same.add(place)

    def take(self, place: Place) -> None:
        if self.free.chunks[0][0] is place:
            self.free.pop_first()
        else:
            self.free.remove(place)
        last = place[2].last
        if last:
            same = self.by_last[last]
            same.remove(place)
            if not same:
                del self.by_last[last]
