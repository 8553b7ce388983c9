"""The plane that controllers belong to: its cell, its city, and what it places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rota.control.gate import Problem

LOCAL = "local"
"""The name of the cell, and of the city, of a server without a hub."""


class Plane(NamedTuple):
    cell: str | None = LOCAL
    """The cell whose instances this plane runs; None: it runs none."""
    city: str = LOCAL
    places: bool = True
    """True: this plane places workloads, in its own cell and in the cells that report to it."""

    def runs(self, cell: str | None) -> bool:
        """Report whether an object with this `cell` runs here. One without runs in the plane where it is written."""
        return self.cell is not None and cell in (None, self.cell)


HERE = Plane()
"""The plane of a server without a hub."""


def region_of(regions: Sequence[str], plane: Plane) -> str | Problem:
    """Return the plane's city if these regions include it or are empty, and otherwise the problem."""
    if not regions or plane.city in regions:
        return plane.city
    wanted = ", ".join(regions)
    return Problem("RegionNotServed", f"none of its regions is served here: {wanted}; this server is {plane.city}")
