"""An index from cells, cities and quotas to the workloads that a change of them wakes.

Cells report their use all the time: that only wakes workloads that wait for room.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rota.api import Cell, Location, Quota
from rota.client import Key


class WorkloadIndex:
    """Workloads by the cities of their placements."""

    def __init__(self) -> None:
        self._cities: dict[str, dict[Key, None]] = {}
        self._waiting: dict[str, dict[Key, None]] = {}
        self._of: dict[Key, Collection[str]] = {}
        self._shapes: dict[str, object] = {}

    def clear(self) -> None:
        for table in (self._cities, self._waiting, self._of, self._shapes):
            table.clear()

    def note(self, key: Key, cities: Collection[str], waiting: Collection[str]) -> None:
        """Set the cities of a workload, and those among them in which it waits for room."""
        self.forget(key)
        self._of[key] = cities
        for city in cities:
            self._cities.setdefault(city, {})[key] = None
        for city in waiting:
            self._waiting.setdefault(city, {})[key] = None

    def forget(self, key: Key) -> None:
        for city in self._of.pop(key, ()):
            for table in (self._cities, self._waiting):
                there = table.get(city, {})
                there.pop(key, None)
                if not there:
                    table.pop(city, None)

    def waiting(self, city: str) -> list[Key]:
        """Return the workloads that wait for room in a city."""
        return list(self._waiting.get(city, ()))

    def by_quota(self, quota: Quota) -> Iterable[Key]:
        """Return all workloads that wait for room: the quota's namespace may take less of it now."""
        return {key: None for there in self._waiting.values() for key in there}

    def by_location(self, location: Location) -> Iterable[Key]:
        return list(self._cities.get(location.spec.city_code, ()))

    def by_cell(self, cell: Cell, *, is_there: bool) -> Iterable[Key]:
        """Return the workloads in the cell's city; only the waiting ones if only the cell's use has changed."""
        city, name = cell.spec.city_code, cell.metadata.name
        shape = (cell.spec, cell.readiness().state, cell.metadata.deletion_timestamp)
        if not is_there:
            self._shapes.pop(name, None)
            return list(self._cities.get(city, ()))
        if self._shapes.get(name) != shape:
            self._shapes[name] = shape
            return list(self._cities.get(city, ()))
        return self.waiting(city)
