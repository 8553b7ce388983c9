"""The requests that wait, in the order in which they are served.

The order is by priority, then by how many instances the holder has, then by arrival. The requests of one holder stand
in a `Line`; a heap with one entry for each line knows which line is next. An entry that has become too early costs
nothing until it is at the top, where it is replaced; a line that is next sooner gets a new entry at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace

from rota.pools.ordered import Ordered
from rota.pools.request import Request

DEAD_ENTRIES_MAX = 64
"""Entries of the heap that may be out of date, beyond one for each line."""

Rank = tuple[int, float, str]
"""A request's place among those of its holder: priority (negated), arrival, id."""


def rank_of(request: Request) -> Rank:
    return (-request.priority, request.arrival, request.id)


class Line:
    """One holder: what it has, and the ranks of its requests that wait. Known while it has or wants something."""

    __slots__ = ("entered", "entry", "has", "name", "ranks")

    def __init__(self, name: str) -> None:
        self.name = name
        self.has = 0
        """Instances that it holds, or that are being given to it."""
        self.ranks: Ordered[Rank] = Ordered()
        self.entry: Entry | None = None
        self.entered: Rank | None = None
        """The request that the entry was made for."""

    def __lt__(self, other: Line) -> bool:
        # Entries are alike up to their lines only if a request came again under another holder; one of them is dead.
        return False

    def current(self) -> Entry:
        self.entered = first = self.ranks.chunks[0][0]
        self.entry = entry = (first[0], self.has, first[1], first[2], self)
        return entry


Entry = tuple[int, int, float, str, Line]
"""A line's place among all: priority (negated), what its holder has, arrival, id."""


class Waiting:
    """All requests of a pool that wait. Adding, removing and taking the first cost O(log n)."""

    __slots__ = ("_heap", "lines", "requests")

    def __init__(self) -> None:
        self.requests: dict[str, Request] = {}
        self.lines: dict[str, Line] = {}
        self._heap: list[Entry] = []

    def __len__(self) -> int:
        return len(self.requests)

    def add(self, request: Request) -> None:
        line = self.lines.get(request.holder) or self._line(request.holder)
        rank = (-request.priority, request.arrival, request.id)
        self.requests[request.id] = request
        line.ranks.add(rank)
        if line.ranks.chunks[0][0] is rank:
            self._enter(line)

    def remove(self, request: Request) -> None:
        del self.requests[request.id]
        line = self.lines[request.holder]
        line.ranks.remove(rank_of(request))
        self._shortened(line)

    def remove_first(self, request: Request) -> None:
        """Take out the request that `first` has returned."""
        del self.requests[request.id]
        line = self.lines[request.holder]
        line.ranks.pop_first()
        self._shortened(line)

    def first(self) -> Request | None:
        """Return the request that is served next."""
        heap = self._heap
        while heap:
            entry = heap[0]
            line = entry[4]
            if line.entry is not entry:
                heappop(heap)
            elif line.entered is line.ranks.chunks[0][0] and entry[1] == line.has:
                return self.requests[entry[3]]
            else:
                heapreplace(heap, line.current())
        return None

    def gained(self, holder: str) -> None:
        """Count one more instance of a holder."""
        (self.lines.get(holder) or self._line(holder)).has += 1

    def gave_back(self, holder: str) -> None:
        """Count one instance less of a holder, which is thereby served sooner."""
        line = self.lines[holder]
        line.has -= 1
        assert line.has >= 0, holder
        if line.entry is None:
            self._forget(line)
        elif line.entry[1] > line.has:
            self._enter(line)

    def position(self, id_: str) -> int | None:
        """Count the requests before one that waits, if instances came one by one and nothing else happened.

        None: it does not wait. O(h log n) for n requests of h holders: for one look, not for each of a list.
        """
        request = self.requests.get(id_)
        if request is None:
            return None
        rank, own = rank_of(request), self.lines[request.holder]
        before = own.ranks.before(rank)
        level = own.has + before
        turn = (rank[0], level, rank[1], rank[2])
        for line in self.lines.values():
            if line is not own and line.ranks:
                first = line.ranks.chunks[0][0]
                if (first[0], line.has, first[1], first[2]) < turn:
                    before += _before_level(line, rank, level)
        return before

    def in_order(self) -> Iterator[str]:
        """Yield the ids of all that wait, in the order of `position`. O(h) to begin with, O(log h) for each."""
        turns: list[tuple[int, int, float, str, Line]] = []
        for line in self.lines.values():
            if line.ranks:
                first = line.ranks.chunks[0][0]
                turns.append((first[0], line.has, first[1], first[2], line))
        heapify(turns)
        begun: dict[str, Iterator[Rank]] = {}
        while turns:
            _, level, _, id_, line = turns[0]
            yield id_
            ranks = begun.get(line.name)
            if ranks is None:
                ranks = begun[line.name] = iter(line.ranks)
                next(ranks)
            rank = next(ranks, None)
            if rank is None:
                heappop(turns)
            else:
                heapreplace(turns, (rank[0], level + 1, rank[1], rank[2], line))

    def _line(self, holder: str) -> Line:
        line = self.lines.get(holder)
        if line is None:
            line = self.lines[holder] = Line(holder)
        return line

    def _enter(self, line: Line) -> None:
        """Make an entry for a line as it is now; an earlier one is thereby dead."""
        heappush(self._heap, line.current())
        if len(self._heap) > 2 * len(self.lines) + DEAD_ENTRIES_MAX:
            self._heap = [entry for entry in self._heap if entry[4].entry is entry]
            heapify(self._heap)

    def _shortened(self, line: Line) -> None:
        if not line.ranks.chunks[0]:
            line.entry = line.entered = None
            self._forget(line)

    def _forget(self, line: Line) -> None:
        if not line.has and not line.ranks:
            del self.lines[line.name]


def _before_level(line: Line, rank: Rank, level: int) -> int:
    """Count a holder's requests that are before one of another holder, of that level."""
    ranks = line.ranks
    urgent = ranks.before((rank[0],)) if ranks.chunks[0][0][0] < rank[0] else 0
    until = ranks.before((rank[0] + 1,)) if ranks.chunks[-1][-1][0] > rank[0] else len(ranks)
    # The one of the same level, if there is one, is decided by arrival.
    same = level - line.has
    if same < urgent:
        return urgent
    if same >= until:
        return until
    return same + (ranks.at(same) < rank)
