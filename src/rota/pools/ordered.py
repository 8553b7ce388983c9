"""A sorted sequence that is cheap to change, at its ends above all."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import chain
from operator import itemgetter
from typing import Any, Generic, TypeVar

CHUNK_ITEMS_MAX = 512
"""Bound on the items of one chunk, which an insertion may have to move in memory."""

Item = TypeVar("Item", bound=tuple[Any, ...])

_last_of = itemgetter(-1)


class Ordered(Generic[Item]):
    """Tuples in ascending order, no two equal, in chunks of bounded size.

    Requests nearly always come and go in order: then adding one is an append, and taking the first a shift within one
    chunk. Any other change is a binary search and a shift within one chunk.
    """

    __slots__ = ("chunks",)

    def __init__(self, first: Item | None = None) -> None:
        self.chunks: list[list[Item]] = [[]] if first is None else [[first]]
        """No chunk is empty, except the only one."""

    def __bool__(self) -> bool:
        return bool(self.chunks[0])

    def __len__(self) -> int:
        return sum(map(len, self.chunks))

    def __iter__(self) -> Iterator[Item]:
        return chain.from_iterable(self.chunks)

    def add(self, item: Item) -> None:
        chunks = self.chunks
        chunk = chunks[-1]
        if not chunk or item > chunk[-1]:
            if len(chunk) < CHUNK_ITEMS_MAX:
                chunk.append(item)
            else:
                chunks.append([item])
            return
        at = bisect_left(chunks, item, key=_last_of) if len(chunks) > 1 else 0
        chunk = chunks[at]
        insort(chunk, item)
        if len(chunk) > CHUNK_ITEMS_MAX:
            half = CHUNK_ITEMS_MAX // 2
            chunks.insert(at + 1, chunk[half:])
            del chunk[half:]

    def pop_first(self) -> Item:
        chunks = self.chunks
        item = chunks[0].pop(0)
        if not chunks[0] and len(chunks) > 1:
            del chunks[0]
        return item

    def remove(self, item: Item) -> None:
        """Remove an item, which must be present."""
        chunks = self.chunks
        at = bisect_left(chunks, item, key=_last_of) if len(chunks) > 1 else 0
        chunk = chunks[at]
        place = bisect_left(chunk, item)
        assert chunk[place] == item, "only what is in it can be taken out"
        del chunk[place]
        if not chunk and len(chunks) > 1:
            del chunks[at]

    def before(self, bound: tuple[Any, ...]) -> int:
        """Count the items less than a bound, which may be a prefix of a tuple. Linear in chunks, not in items."""
        chunks = self.chunks
        at = bisect_left(chunks, bound, key=_last_of) if len(chunks) > 1 else 0
        if at == len(chunks):
            return len(self)
        return sum(map(len, chunks[:at])) + bisect_left(chunks[at], bound)

    def at(self, place: int) -> Item:
        for chunk in self.chunks:
            if place < len(chunk):
                return chunk[place]
            place -= len(chunk)
        raise IndexError(place)
