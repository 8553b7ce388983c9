"""Who waits: by holder, and by what they need.

A holder's requests with the same needs stand in a `Line`. A `Demand` is all lines with the same needs, and knows which
line is next: a heap with one entry a line, by the line's first request and what its holder has.

A line that is next later than its entry says costs nothing until the entry is at the top, where it is set right. That
is what a holder's gain does, and a request that leaves. Only a line that is next sooner gets a new entry at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush, heapreplace

from rota.pools.ordered import Ordered
from rota.pools.request import Arrival, Request
from rota.pools.supply import Supply

DEAD_ENTRIES_MAX = 64
"""Entries of a heap that may be out of date, beyond one for each line."""

Rank = tuple[int, Arrival, str]
"""A request's place within its line: priority (negated), arrival, id."""


def rank_of(request: Request) -> Rank:
    return (-request.priority, request.arrival, request.id)


class Holder:
    """What one holder has, and waits for. Known while it does either."""

    __slots__ = ("bound", "lines", "name", "waiting")

    def __init__(self, name: str) -> None:
        self.name = name
        self.bound = 0
        """Instances that it has, or that are on their way to it."""
        self.waiting = 0
        self.lines: dict[frozenset[str], Line] = {}

    def gave_back(self) -> None:
        self.bound = bound = self.bound - 1
        assert bound >= 0, self.name
        for line in self.lines.values():
            if line.entry is not None and line.entry[1] > bound:
                line.enter()


class Line(Ordered[Rank]):
    """What one holder waits for with the same needs. None is empty."""

    __slots__ = ("demand", "entered", "entry", "holder")

    def __init__(self, holder: Holder, demand: Demand, first: Rank) -> None:
        self.chunks = [[first]]
        self.holder = holder
        self.demand = demand
        self.entered = first
        """The request that the entry was made for."""
        self.entry: Entry | None = None
        self.enter()

    def __lt__(self, other: Line) -> bool:
        # Two entries are alike up to their lines only if a request was taken back and made anew with another holder,
        # or other needs; one of them is then out of date.
        return False

    def enter(self) -> None:
        """Makes an entry for the line as it is now; an earlier one is thereby out of date."""
        demand = self.demand
        heappush(demand.heap, self.current())
        if len(demand.heap) > 2 * demand.lines + DEAD_ENTRIES_MAX:
            demand.sweep()

    def current(self) -> Entry:
        self.entered = first = self.chunks[0][0]
        self.entry = entry = (first[0], self.holder.bound, first[1], first[2], self)
        return entry


Entry = tuple[int, int, Arrival, str, Line]
"""A line's place among those with the same needs: priority (negated), what its holder has, arrival, id."""


class Demand:
    """All who wait with the same needs."""

    __slots__ = ("depth", "heap", "lines", "needs", "supplies")

    def __init__(self, needs: frozenset[str]) -> None:
        self.needs = needs
        self.depth = 0
        self.lines = 0
        self.heap: list[Entry] = []
        self.supplies: list[Supply] = []
        """The kinds of free instances that satisfy it."""

    def join(self, request: Request, holder: Holder) -> None:
        rank = rank_of(request)
        holder.waiting += 1
        self.depth += 1
        line = holder.lines.get(self.needs)
        if line is None:
            self.lines += 1
            holder.lines[self.needs] = Line(holder, self, rank)
            return
        line.add(rank)
        if line.chunks[0][0] is rank:
            line.enter()

    def leave(self, request: Request, holder: Holder) -> None:
        line = holder.lines[self.needs]
        line.remove(rank_of(request))
        self._one_less(line)

    def take(self, line: Line) -> str:
        """Takes the first request out of a line, and says its id."""
        id_ = line.pop_first()[2]
        self._one_less(line)
        return id_

    def _one_less(self, line: Line) -> None:
        self.depth -= 1
        line.holder.waiting -= 1
        if not line.chunks[0]:
            del line.holder.lines[self.needs]
            line.entry = None
            self.lines -= 1

    def first(self) -> Entry | None:
        """The entry of the line that is next."""
        heap = self.heap
        while heap:
            entry = heap[0]
            line = entry[4]
            if line.entry is not entry:
                heappop(heap)
            elif line.entered is line.chunks[0][0] and entry[1] == line.holder.bound:
                return entry
            else:
                heapreplace(heap, line.current())
        return None

    def can_be_met(self) -> bool:
        return any(supply.free for supply in self.supplies)

    def sweep(self) -> None:
        self.heap = [entry for entry in self.heap if entry[4].entry is entry]
        heapify(self.heap)


def first_of(demands: Iterable[Demand]) -> Entry | None:
    """The entry of the line that is next, among those with any of these needs."""
    best: Entry | None = None
    for demand in demands:
        if demand.depth:
            entry = demand.first()
            if best is None or (entry is not None and entry < best):
                best = entry
    return best
