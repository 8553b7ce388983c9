"""Which kinds of requests and of instances there are, and which satisfy which.

A pair is compared once, when the second of the two is first seen, not at every event.
"""

from __future__ import annotations

from rota.pools.demand import Demand
from rota.pools.request import Request
from rota.pools.supply import Place, Supply

IDLE_KINDS_MAX = 64
"""Kinds of which there is none at the moment, and that are remembered beyond one for each of which there is."""


class Fit:
    """The kinds of requests by their needs, the kinds of instances by what they provide."""

    __slots__ = ("_demands_max", "_supplies_max", "demands", "supplies")

    def __init__(self) -> None:
        self.demands: dict[frozenset[str], Demand] = {}
        self.supplies: dict[frozenset[str], Supply] = {}
        self._demands_max = self._supplies_max = IDLE_KINDS_MAX

    def demand(self, needs: frozenset[str]) -> Demand:
        known = self.demands.get(needs)
        if known is not None:
            return known
        if len(self.demands) >= self._demands_max:
            self._forget_idle_demands()
        demand = self.demands[needs] = Demand(needs)
        for supply in self.supplies.values():
            if needs <= supply.provides:
                demand.supplies.append(supply)
                supply.demands.append(demand)
        return demand

    def supply(self, provides: frozenset[str]) -> Supply:
        known = self.supplies.get(provides)
        if known is not None:
            return known
        if len(self.supplies) >= self._supplies_max:
            self._forget_idle_supplies()
        supply = self.supplies[provides] = Supply(provides)
        for demand in self.demands.values():
            if demand.needs <= provides:
                supply.demands.append(demand)
                demand.supplies.append(supply)
        return supply

    def _forget_idle_demands(self) -> None:
        self.demands = {needs: demand for needs, demand in self.demands.items() if demand.depth}
        self._demands_max = 2 * len(self.demands) + IDLE_KINDS_MAX
        for supply in self.supplies.values():
            supply.demands = [demand for demand in supply.demands if demand.depth]

    def _forget_idle_supplies(self) -> None:
        self.supplies = {provides: supply for provides, supply in self.supplies.items() if supply.free}
        self._supplies_max = 2 * len(self.supplies) + IDLE_KINDS_MAX
        for demand in self.demands.values():
            demand.supplies = [supply for supply in demand.supplies if supply.free]


def pick(request: Request, demand: Demand) -> Place | None:
    """The free instance for a request: the one it prefers, else the one that is free the longest."""
    best: Place | None = None
    key = request.prefers
    if key:
        for supply in demand.supplies:
            same = supply.by_last.get(key)
            if same is not None and (best is None or same.chunks[0][0] < best):
                best = same.chunks[0][0]
        if best is not None:
            return best
    for supply in demand.supplies:
        chunk = supply.free.chunks[0]
        if chunk and (best is None or chunk[0] < best):
            best = chunk[0]
    return best
