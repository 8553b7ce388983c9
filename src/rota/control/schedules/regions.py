"""Where a schedule ticks: which cities are served here, and which of them it gets."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rota.api import Cell, Schedule
from rota.control.schedules.statuses import Problem

LOCAL = "local"
"""The city of a server without cells."""


def served(cells: Iterable[Cell]) -> frozenset[str]:
    """The cities that something can be run in: a cell that nobody reports on runs nothing."""
    there = (cell for cell in cells if cell.metadata.deletion_timestamp is None and cell.readiness().state == "Ready")
    return frozenset((LOCAL, *(cell.spec.city_code for cell in there)))


def region_of(schedule: Schedule, cities: Collection[str]) -> str | Problem:
    """The city that a schedule ticks in: the first that it names and that is served; without any, the one at hand."""
    wanted = schedule.spec.regions
    if not wanted:
        return LOCAL
    found = next((city for city in wanted if city in cities), None)
    if found is not None:
        return found
    there = ", ".join(sorted(cities))
    return Problem("RegionNotServed", f"regions: no cell serves {', '.join(wanted)}; served are {there}")
