"""When each cell was last heard of, by this leader. It begins to count when it begins to lead."""

from __future__ import annotations

from rota.engine.clock import Clock

GRACE_SECONDS = 30.0
"""How long nothing may be heard of a cell before it counts as lost."""


class Heard:
    """The moments of the last reports."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start = clock.now()
        self._at: dict[str, float] = {}

    def note(self, cell: str) -> None:
        self._at[cell] = self._clock.now()

    def forget(self, cell: str) -> None:
        self._at.pop(cell, None)

    def has(self, cell: str) -> bool:
        """Report whether this leader has heard of a cell."""
        return cell in self._at

    def silence(self, cell: str) -> float:
        """Return for how many seconds nothing was heard of a cell, as far as this leader can know."""
        return self._clock.now() - self._at.get(cell, self._start)
