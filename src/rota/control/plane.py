"""The control plane that controllers belong to."""

from __future__ import annotations

from typing import NamedTuple

LOCAL = "local"
"""The cell, and the city, of a server that belongs to no other."""


class Plane(NamedTuple):
    """One control plane: the cell that it is, and its city."""

    cell: str | None = LOCAL
    """The cell whose instances it runs. None: it runs none."""
    city: str = LOCAL
    places: bool = True
    """Whether workloads are placed here: in this cell, and in those that report to this one."""

    def runs(self, cell: str | None) -> bool:
        """Whether what names this cell is run here. What names none is run where it is written."""
        return self.cell is not None and cell in (None, self.cell)


HERE = Plane()
"""A server that belongs to no other."""
