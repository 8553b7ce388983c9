"""What can be asked of a queue."""

from __future__ import annotations

from itertools import islice

from rota.pools.books import Books
from rota.pools.order import in_order, position
from rota.pools.request import BOUND, Request

LISTED_MAX = 1000
"""Waiting requests that are listed, unless more are asked for."""


class View:
    """A queue as it is now. What is not said otherwise costs the same whatever its size."""

    __slots__ = ("_books",)

    def __init__(self, books: Books) -> None:
        self._books = books

    @property
    def depth(self) -> int:
        """How many wait."""
        return len(self._books.waiting)

    @property
    def free(self) -> int:
        """Instances that nobody wants who may have them."""
        return len(self._books.free)

    @property
    def in_flight(self) -> int:
        """Bindings whose outcome has not been told."""
        return self._books.in_flight

    @property
    def bound(self) -> int:
        """Instances that are held for certain."""
        return len(self._books.instances) - self._books.in_flight

    def depth_of(self, holder: str) -> int:
        known = self._books.holders.get(holder)
        return known.waiting if known else 0

    def bound_of(self, holder: str) -> int:
        """What a holder has, and what is on its way to it: what its share is counted by."""
        known = self._books.holders.get(holder)
        return known.bound if known else 0

    def depths(self) -> dict[str, int]:
        """How many wait, by holder. O(holders)."""
        return {name: holder.waiting for name, holder in self._books.holders.items() if holder.waiting}

    def bounds(self) -> dict[str, int]:
        """What holders have, and what is on its way to them. O(holders)."""
        return {name: holder.bound for name, holder in self._books.holders.items() if holder.bound}

    def unmet(self) -> dict[frozenset[str], int]:
        """How many wait because nothing that is free will do, by their needs; and for no other reason does one wait.

        O(different needs).
        """
        return {needs: demand.depth for needs, demand in self._books.fit.demands.items() if demand.depth}

    def waits(self, request: str) -> bool:
        """Whether a request waits."""
        return request in self._books.waiting

    def instance_of(self, request: str) -> str | None:
        """The instance that a request holds for certain."""
        binding = self._books.held.get(request)
        return binding.instance if binding is not None and binding.state == BOUND else None

    def request_of(self, instance: str) -> Request | None:
        """The request that holds an instance for certain."""
        binding = self._books.instances.get(instance)
        return binding.request if binding is not None and binding.state == BOUND else None

    def position(self, request: str) -> int | None:
        """How many will be served before one that waits, as things stand. None: it does not wait.

        A walk over all holders that wait, some 10 ms for 10,000 of them: for one look, not for each of a list.
        """
        books = self._books
        waiting = books.waiting.get(request)
        if waiting is None:
            return None
        return position(waiting, books.holders[waiting.holder], books.holders.values())

    def waiting(self, limit: int = LISTED_MAX) -> list[str]:
        """The ids of those who wait, in the order in which they will be served as things stand.

        O(h + limit log h) for h holders.
        """
        return list(islice(in_order(self._books.holders.values()), limit))
