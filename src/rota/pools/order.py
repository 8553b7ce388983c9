"""The order in which those who wait will be served, as things stand.

That is, if instances for anyone came one by one, and nothing else happened. With each instance its holder has one more,
so holders take turns: a holder's second request stands behind the first ones of all who have as much. A request's level
is what its holder will have when its turn comes, and the order is by priority, level, arrival.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heapreplace, merge

from rota.pools.demand import Holder, Rank, rank_of
from rota.pools.ordered import Ordered
from rota.pools.request import Arrival, Request


def in_order(holders: Iterable[Holder]) -> Iterator[str]:
    """The ids of all who wait. O(h) for h holders to begin with, O(log h) for each."""
    turns: list[tuple[int, int, Arrival, str, Holder]] = []
    for holder in holders:
        if holder.waiting:
            priority, arrival, id_ = first_of(holder)
            turns.append((priority, holder.bound, arrival, id_, holder))
    heapify(turns)
    # Most are not reached when a few are asked for, so a holder's requests are gone through only from its first turn.
    begun: dict[str, Iterator[Rank]] = {}
    while turns:
        _, level, _, id_, holder = turns[0]
        yield id_
        ranks = begun.get(holder.name)
        if ranks is None:
            ranks = begun[holder.name] = iter(merge(*holder.lines.values()))
            next(ranks)
        rank = next(ranks, None)
        if rank is None:
            heappop(turns)
        else:
            heapreplace(turns, (rank[0], level + 1, rank[1], rank[2], holder))


def position(request: Request, own: Holder, holders: Iterable[Holder]) -> int:
    """How many are before one that waits.

    O(h log n) for n requests of h holders; for a holder that waits with different needs, O(its requests).
    """
    rank = rank_of(request)
    before = sum(line.before(rank) for line in own.lines.values())
    level = own.bound + before
    turn = (rank[0], level, rank[1], rank[2])
    for holder in holders:
        if holder is not own and holder.waiting:
            priority, arrival, id_ = first_of(holder)
            if (priority, holder.bound, arrival, id_) < turn:
                before += 1 if holder.waiting == 1 else before_level(holder, rank, level)
    return before


def first_of(holder: Holder) -> Rank:
    if len(holder.lines) == 1:
        [line] = holder.lines.values()
        return line.chunks[0][0]
    return min(line.chunks[0][0] for line in holder.lines.values())


def before_level(holder: Holder, rank: Rank, level: int) -> int:
    """How many of a holder's requests are before one of another's, of that level."""
    ranks: Ordered[Rank]
    if len(holder.lines) == 1:
        [ranks] = holder.lines.values()
    else:
        ranks = Ordered()
        for each in merge(*holder.lines.values()):
            ranks.add(each)
    urgent = ranks.before((rank[0],)) if ranks.chunks[0][0][0] < rank[0] else 0
    until = ranks.before((rank[0] + 1,)) if ranks.chunks[-1][-1][0] > rank[0] else holder.waiting
    # The one of the same level, if there is one, is decided by arrival.
    same = level - holder.bound
    if same < urgent:
        return urgent
    if same >= until:
        return until
    return same + (ranks.at(same) < rank)
