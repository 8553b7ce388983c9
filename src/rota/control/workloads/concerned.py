"""Which workloads the news of a cell, a city or a quota matters to.

Cells report all the time how much of them is in use. That matters only to workloads that wait for room.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rota.api import Cell, Location, Quota
from rota.client import Key


class Concerned:
    """Workloads by the cities that they are in, or want to be in."""

    def __init__(self) -> None:
        self._cities: dict[str, dict[Key, None]] = {}
        self._waiting: dict[str, dict[Key, None]] = {}
        self._of: dict[Key, Collection[str]] = {}
        self._shapes: dict[str, object] = {}

    def clear(self) -> None:
        for table in (self._cities, self._waiting, self._of, self._shapes):
            table.clear()

    def note(self, key: Key, cities: Collection[str], waiting: Collection[str]) -> None:
        """A workload is in these cities, and has no room in some of them."""
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
        """Return the workloads that have no room in a city."""
        return list(self._waiting.get(city, ()))

    def by_quota(self, quota: Quota) -> Iterable[Key]:
        """Everyone who waits for room: a namespace may take less of it now."""
        return {key: None for there in self._waiting.values() for key in there}

    def by_location(self, location: Location) -> Iterable[Key]:
        return list(self._cities.get(location.spec.city_code, ()))

    def by_cell(self, cell: Cell, *, is_there: bool) -> Iterable[Key]:
        """Everyone in its city, when something else than what it has in use has changed."""
        city, name = cell.spec.city_code, cell.metadata.name
        shape = (cell.spec, cell.readiness().state, cell.metadata.deletion_timestamp)
        if not is_there:
            self._shapes.pop(name, None)
            return list(self._cities.get(city, ()))
        if self._shapes.get(name) != shape:
            self._shapes[name] = shape
            return list(self._cities.get(city, ()))
        return self.waiting(city)
