"""When each cell was last heard of, by this leader. It begins to count when it begins to lead."""

from __future__ import annotations

import math

from rota.engine.clock import Clock

GRACE_SECONDS = 30.0
"""Silence of a cell after which it counts as lost."""


MARGIN_SECONDS = 15.0
MARGIN_SHARE = 0.01
"""Beyond a lease, how long is waited before what it was for is placed elsewhere: clocks differ, and ends take time."""


def moves_after(lease_seconds: float) -> float:
    """Return after how many seconds of silence of a cell its hub moves what has such a lease."""
    return lease_seconds * (1 + MARGIN_SHARE) + MARGIN_SECONDS


class Heard:
    """The moments of the last reports."""

    def __init__(self, clock: Clock, restored_seconds_ago: float = math.inf) -> None:
        """`restored_seconds_ago`: since the hub was restored from a backup, if it was."""
        self._clock = clock
        self._start = clock.now()
        self._restored = self._start - restored_seconds_ago
        self._at: dict[str, float] = {}
        self._revoked: set[str] = set()

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

    def knows(self, cell: str) -> bool:
        """Report whether it is known by what right a cell runs what it runs.

        A hub that was restored from a backup does not know it before it has heard of the cell: the hub may have said,
        in a time that it has lost, that the cell keeps something for ever.
        """
        return math.isinf(self._restored) or self.has(cell)

    def is_lost(self, cell: str, uid: str, lease_seconds: float) -> bool:
        """Report whether a deployment is to be moved away from a cell. From then on the cell has no right to it."""
        if uid in self._revoked:
            return True
        if self.silence(cell) < moves_after(lease_seconds) or not self.knows(cell):
            return False
        self._revoked.add(uid)
        return True

    def may_give(self, lease_seconds: float) -> bool:
        """Report whether a cell may be given a right for so long.

        A hub that was restored from a backup may not know which cell has it: it waits until that one has lost it.
        """
        return self._clock.now() - self._restored >= moves_after(lease_seconds)

    def is_revoked(self, uid: str) -> bool:
        return uid in self._revoked

    def forget_deployment(self, uid: str) -> None:
        self._revoked.discard(uid)
