"""The last contact of each cell with this leader, and the decision that a cell is lost."""

from __future__ import annotations

import math

from rota.engine.clock import Clock

GRACE_SECONDS = 30.0
"""Silence of a cell after which it counts as lost."""


MARGIN_SECONDS = 15.0
MARGIN_SHARE = 0.01
"""Time beyond a lease before its instances are placed elsewhere: clocks differ, and ending instances takes time."""


def moves_after(lease_seconds: float) -> float:
    """Return the silence of a cell after which its hub moves a deployment with such a lease."""
    return lease_seconds * (1 + MARGIN_SHARE) + MARGIN_SECONDS


class CellContacts:
    def __init__(self, clock: Clock, restored_seconds_ago: float = math.inf) -> None:
        """`restored_seconds_ago`: the time since the hub was restored from a backup; infinity: it was not."""
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
        """Report whether a cell has reported to this leader."""
        return cell in self._at

    def silence(self, cell: str) -> float:
        """Return the seconds since a cell's last report, or since this process began to lead."""
        return self._clock.now() - self._at.get(cell, self._start)

    def knows(self, cell: str) -> bool:
        """Report whether the hub knows all rights of a cell.

        After a restore from a backup, it does not before the cell has reported: the cell may have got a deployment
        without a lease in the time that the backup lacks.
        """
        return math.isinf(self._restored) or self.has(cell)

    def is_lost(self, cell: str, uid: str, lease_seconds: float) -> bool:
        """Decide whether a deployment is moved away from a cell. If so, the cell gets no right to it any more."""
        if uid in self._revoked:
            return True
        if self.silence(cell) < moves_after(lease_seconds) or not self.knows(cell):
            return False
        self._revoked.add(uid)
        return True

    def may_give(self, lease_seconds: float) -> bool:
        """Report whether a cell may get a right with such a lease.

        A hub that was restored from a backup may not know which cell has the right: it gives none until that one has
        expired.
        """
        return self._clock.now() - self._restored >= moves_after(lease_seconds)

    def is_revoked(self, uid: str) -> bool:
        return uid in self._revoked

    def forget_deployment(self, uid: str) -> None:
        self._revoked.discard(uid)
