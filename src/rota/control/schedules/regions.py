"""Where functions and schedules with regions run: in the city of the control plane that has them, or nowhere."""

from __future__ import annotations

from collections.abc import Sequence

from rota.control.plane import Plane
from rota.control.schedules.statuses import Problem


def region_of(regions: Sequence[str], plane: Plane) -> str | Problem:
    """Return the city that something with these regions runs in; without any, it is the one at hand."""
    if not regions or plane.city in regions:
        return plane.city
    wanted = ", ".join(regions)
    return Problem("RegionNotServed", f"none of its regions is served here: {wanted}; this server is {plane.city}")
