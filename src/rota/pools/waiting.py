"""The waiting requests of a pool, in the order in which they are served.

The order is by priority, then by how many instances the holder has, then by arrival. The requests of one holder are in
a `HolderQueue`. A heap with one entry for each queue gives the first request. An entry whose queue is served later than
it says is replaced when it reaches the top of the heap; a queue that is served sooner gets a new entry at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace

from rota.pools.ordered import Ordered
from rota.pools.request import Request

DEAD_ENTRIES_MAX = 64
"""Bound on the outdated entries of the heap, beside one for each queue."""

Rank = tuple[int, float, str]
"""The place of a request among those of its holder: priority (negated), arrival, id."""


def rank_of(request: Request) -> Rank:
    return (-request.priority, request.arrival, request.id)


class HolderQueue:
    """A holder: its number of instances, and the ranks of its waiting requests. Kept while it has either."""

    __slots__ = ("entered", "entry", "has", "name", "ranks")

    def __init__(self, name: str) -> None:
        self.name = name
        self.has = 0
        """Number of instances that the holder has or is being bound to."""
        self.ranks: Ordered[Rank] = Ordered()
        self.entry: Entry | None = None
        self.entered: Rank | None = None
        """The rank of the request that `entry` was made for."""

    def __lt__(self, other: HolderQueue) -> bool:
        # Two entries are equal up to their queues only if a request came again under another holder: one is outdated.
        return False

    def current(self) -> Entry:
        self.entered = first = self.ranks.chunks[0][0]
        self.entry = entry = (first[0], self.has, first[1], first[2], self)
        return entry


Entry = tuple[int, int, float, str, HolderQueue]
"""The place of a queue among all: priority (negated), instances of the holder, arrival, id."""


class Waiting:
    """All waiting requests of a pool. Adding, removing and taking the first cost O(log n)."""

    __slots__ = ("_heap", "queues", "requests")

    def __init__(self) -> None:
        self.requests: dict[str, Request] = {}
        self.queues: dict[str, HolderQueue] = {}
        self._heap: list[Entry] = []

    def __len__(self) -> int:
        return len(self.requests)

    def add(self, request: Request) -> None:
        queue = self.queues.get(request.holder) or self._queue(request.holder)
        rank = (-request.priority, request.arrival, request.id)
        self.requests[request.id] = request
        queue.ranks.add(rank)
        if queue.ranks.chunks[0][0] is rank:
            self._enter(queue)

    def remove(self, request: Request) -> None:
        del self.requests[request.id]
        queue = self.queues[request.holder]
        queue.ranks.remove(rank_of(request))
        self._shortened(queue)

    def remove_first(self, request: Request) -> None:
        """Remove the request that `first` has returned."""
        del self.requests[request.id]
        queue = self.queues[request.holder]
        queue.ranks.pop_first()
        self._shortened(queue)

    def first(self) -> Request | None:
        """Return the request that is served next."""
        heap = self._heap
        while heap:
            entry = heap[0]
            queue = entry[4]
            if queue.entry is not entry:
                heappop(heap)
            elif queue.entered is queue.ranks.chunks[0][0] and entry[1] == queue.has:
                return self.requests[entry[3]]
            else:
                heapreplace(heap, queue.current())
        return None

    def gained(self, holder: str) -> None:
        """Count one more instance of a holder."""
        (self.queues.get(holder) or self._queue(holder)).has += 1

    def gave_back(self, holder: str) -> None:
        """Count one instance less of a holder, whose requests are then served sooner."""
        queue = self.queues[holder]
        queue.has -= 1
        assert queue.has >= 0, holder
        if queue.entry is None:
            self._forget(queue)
        elif queue.entry[1] > queue.has:
            self._enter(queue)

    def position(self, id_: str) -> int | None:
        """Return how many requests are served before a waiting one; None if it does not wait.

        Assumes that instances become free one by one and that nothing else happens. O(h log n) for n requests of h
        holders: for a single request, not for each of a list.
        """
        request = self.requests.get(id_)
        if request is None:
            return None
        rank, own = rank_of(request), self.queues[request.holder]
        before = own.ranks.before(rank)
        level = own.has + before
        place = (rank[0], level, rank[1], rank[2])
        for queue in self.queues.values():
            if queue is not own and queue.ranks:
                first = queue.ranks.chunks[0][0]
                if (first[0], queue.has, first[1], first[2]) < place:
                    before += _before_level(queue, rank, level)
        return before

    def in_order(self) -> Iterator[str]:
        """Yield the ids of all waiting requests, in the order of `position`. O(h) at the start, O(log h) for each."""
        heads: list[tuple[int, int, float, str, HolderQueue]] = []
        for queue in self.queues.values():
            if queue.ranks:
                first = queue.ranks.chunks[0][0]
                heads.append((first[0], queue.has, first[1], first[2], queue))
        heapify(heads)
        begun: dict[str, Iterator[Rank]] = {}
        while heads:
            _, level, _, id_, queue = heads[0]
            yield id_
            ranks = begun.get(queue.name)
            if ranks is None:
                ranks = begun[queue.name] = iter(queue.ranks)
                next(ranks)
            rank = next(ranks, None)
            if rank is None:
                heappop(heads)
            else:
                heapreplace(heads, (rank[0], level + 1, rank[1], rank[2], queue))

    def _queue(self, holder: str) -> HolderQueue:
        queue = self.queues.get(holder)
        if queue is None:
            queue = self.queues[holder] = HolderQueue(holder)
        return queue

    def _enter(self, queue: HolderQueue) -> None:
        """Push an entry for the current state of a queue, which makes its earlier entry outdated."""
        heappush(self._heap, queue.current())
        if len(self._heap) > 2 * len(self.queues) + DEAD_ENTRIES_MAX:
            self._heap = [entry for entry in self._heap if entry[4].entry is entry]
            heapify(self._heap)

    def _shortened(self, queue: HolderQueue) -> None:
        if not queue.ranks.chunks[0]:
            queue.entry = queue.entered = None
            self._forget(queue)

    def _forget(self, queue: HolderQueue) -> None:
        if not queue.has and not queue.ranks:
            del self.queues[queue.name]


def _before_level(queue: HolderQueue, rank: Rank, level: int) -> int:
    """Count the requests of a holder that are served before another holder's request of this rank.

    `level` is the number of instances that the other holder has when its request is the next one.
    """
    ranks = queue.ranks
    urgent = ranks.before((rank[0],)) if ranks.chunks[0][0][0] < rank[0] else 0
    until = ranks.before((rank[0] + 1,)) if ranks.chunks[-1][-1][0] > rank[0] else len(ranks)
    # A request of the same level, if there is one, is compared by arrival.
    same = level - queue.has
    if same < urgent:
        return urgent
    if same >= until:
        return until
    return same + (ranks.at(same) < rank)
