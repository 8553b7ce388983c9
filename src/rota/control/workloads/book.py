"""How much each cell has been given, as of the last decision.

A decision is booked before it is written: two workloads that are placed at the same time must not both be given the
last room of a cell. What the quota of a namespace keeps from running takes no room from other namespaces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rota.api import Cell
from rota.api.cell import Capacity, Used
from rota.control.instances.template import UNIT_NANOS, Size, nanos
from rota.control.quotas.amounts import Bound
from rota.control.workloads.placing import NO_BOUND


class Booked(NamedTuple):
    """What a cell was given for one deployment."""

    cell: str
    namespace: str
    replicas: int
    size: Size


class Amount(NamedTuple):
    """So much of everything that a cell has."""

    instances: int = 0
    cpu_nanos: int = 0
    memory_bytes: int = 0

    def plus(self, booked: Booked, sign: int) -> Amount:
        count = sign * booked.replicas
        return Amount(
            self.instances + count,
            self.cpu_nanos + count * (booked.size.cpu_nanos or 0),
            self.memory_bytes + count * (booked.size.memory_bytes or 0),
        )

    def sum(self, other: Amount) -> Amount:
        return Amount(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def at_most(self, bound: Bound) -> Amount:
        most = (bound.instances, bound.cpu_nanos, bound.memory_bytes)
        return Amount(*(has if one is None else min(has, one) for has, one in zip(self, most, strict=True)))


NOTHING = Amount()


class Book:
    """Deployments by what identifies them, and the sums of each cell, by namespace."""

    def __init__(self) -> None:
        self._booked: dict[str, Booked] = {}
        self._sums: dict[str, dict[str, Amount]] = {}

    def set(self, id_: str, booked: Booked | None) -> None:
        """Book a deployment as it is now, or that it is gone."""
        before = self._booked.pop(id_, None)
        if before is not None:
            self._add(before, -1)
        if booked is not None and booked.replicas:
            self._booked[id_] = booked
            self._add(booked, 1)

    def _add(self, booked: Booked, sign: int) -> None:
        sums = self._sums.setdefault(booked.cell, {})
        sums[booked.namespace] = sums.get(booked.namespace, NOTHING).plus(booked, sign)
        if sums[booked.namespace] == NOTHING:
            del sums[booked.namespace]
        if not sums:
            del self._sums[booked.cell]

    def clear(self) -> None:
        self._booked.clear()
        self._sums.clear()

    def room(self, cell: Cell, size: Size, namespace: str, bound: Callable[[str], Bound]) -> int:
        """Return how many more instances of a size a cell takes for a namespace.

        `bound`: the most that may run of another namespace, by its quota.
        """
        capacity = cell.spec.capacity
        if capacity is None:
            return NO_BOUND
        said = _amount(cell.status.allocated) if cell.status is not None and cell.status.allocated else NOTHING
        booked = NOTHING
        for whose, amount in self._sums.get(cell.metadata.name, {}).items():
            booked = booked.sum(amount if whose == namespace else amount.at_most(bound(whose)))
        rooms = [NO_BOUND]
        if capacity.instances is not None:
            rooms.append(capacity.instances - max(said.instances, booked.instances))
        whole = _amount(capacity)
        if capacity.cpu is not None and size.cpu_nanos:
            rooms.append((whole.cpu_nanos - max(said.cpu_nanos, booked.cpu_nanos)) // size.cpu_nanos)
        if capacity.memory is not None and size.memory_bytes:
            rooms.append((whole.memory_bytes - max(said.memory_bytes, booked.memory_bytes)) // size.memory_bytes)
        return max(0, min(rooms))


def _amount(capacity: Capacity | Used) -> Amount:
    return Amount(
        capacity.instances or 0,
        nanos(capacity.cpu) if capacity.cpu is not None else 0,
        nanos(capacity.memory) // UNIT_NANOS if capacity.memory is not None else 0,
    )
