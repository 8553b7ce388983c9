"""Reservations of resources of each cell, by decisions on placement.

A decision is reserved before it is written, since two workloads that are placed at the same time must not both get the
last room of a cell. Instances that a quota keeps from running take no room from other namespaces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rota.api import Cell
from rota.api.cell import Capacity, Used
from rota.control.instances.template import UNIT_NANOS, Size, nanos
from rota.control.quotas.amounts import Bound
from rota.control.workloads.placing import NO_BOUND


class Reservation(NamedTuple):
    """The resources of a cell for one deployment."""

    cell: str
    namespace: str
    replicas: int
    size: Size


class CellResources(NamedTuple):
    """An amount of each resource of a cell."""

    instances: int = 0
    cpu_nanos: int = 0
    memory_bytes: int = 0

    def plus(self, reserved: Reservation, sign: int) -> CellResources:
        count = sign * reserved.replicas
        return CellResources(
            self.instances + count,
            self.cpu_nanos + count * (reserved.size.cpu_nanos or 0),
            self.memory_bytes + count * (reserved.size.memory_bytes or 0),
        )

    def sum(self, other: CellResources) -> CellResources:
        return CellResources(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def at_most(self, bound: Bound) -> CellResources:
        most = (bound.instances, bound.cpu_nanos, bound.memory_bytes)
        return CellResources(*(has if one is None else min(has, one) for has, one in zip(self, most, strict=True)))


NOTHING = CellResources()


class Reservations:
    """The reservations of all deployments, and their sums by cell and namespace."""

    def __init__(self) -> None:
        self._reserved: dict[str, Reservation] = {}
        self._sums: dict[str, dict[str, CellResources]] = {}

    def set(self, id_: str, reserved: Reservation | None) -> None:
        """Set the reservation of a deployment, by its namespace and name; None: it is gone."""
        before = self._reserved.pop(id_, None)
        if before is not None:
            self._add(before, -1)
        if reserved is not None and reserved.replicas:
            self._reserved[id_] = reserved
            self._add(reserved, 1)

    def _add(self, reserved: Reservation, sign: int) -> None:
        sums = self._sums.setdefault(reserved.cell, {})
        sums[reserved.namespace] = sums.get(reserved.namespace, NOTHING).plus(reserved, sign)
        if sums[reserved.namespace] == NOTHING:
            del sums[reserved.namespace]
        if not sums:
            del self._sums[reserved.cell]

    def clear(self) -> None:
        self._reserved.clear()
        self._sums.clear()

    def room(self, cell: Cell, size: Size, namespace: str, bound: Callable[[str], Bound]) -> int:
        """Return how many more instances of a size a cell takes for a namespace.

        `bound` returns the most that may run of another namespace, by its quota.
        """
        capacity = cell.spec.capacity
        if capacity is None:
            return NO_BOUND
        reported = _amount(cell.status.allocated) if cell.status is not None and cell.status.allocated else NOTHING
        reserved = NOTHING
        for whose, amount in self._sums.get(cell.metadata.name, {}).items():
            reserved = reserved.sum(amount if whose == namespace else amount.at_most(bound(whose)))
        rooms = [NO_BOUND]
        if capacity.instances is not None:
            rooms.append(capacity.instances - max(reported.instances, reserved.instances))
        whole = _amount(capacity)
        if capacity.cpu is not None and size.cpu_nanos:
            rooms.append((whole.cpu_nanos - max(reported.cpu_nanos, reserved.cpu_nanos)) // size.cpu_nanos)
        if capacity.memory is not None and size.memory_bytes:
            rooms.append((whole.memory_bytes - max(reported.memory_bytes, reserved.memory_bytes)) // size.memory_bytes)
        return max(0, min(rooms))


def _amount(capacity: Capacity | Used) -> CellResources:
    return CellResources(
        capacity.instances or 0,
        nanos(capacity.cpu) if capacity.cpu is not None else 0,
        nanos(capacity.memory) // UNIT_NANOS if capacity.memory is not None else 0,
    )
