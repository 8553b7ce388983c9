"""The compaction policy: when to compact, and up to which revision. Pure: the clock is a parameter."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

KEEP_SECONDS = 300.0
SUPERSEDED_ROWS_MAX = 100_000
# How finely history is cut. It bounds the checkpoints in memory: about this many by age, and this many by rows.
CHECKPOINTS = 64


class Checkpoint(NamedTuple):
    time: float
    revision: int
    superseded: int  # rows that this revision and those before it made superfluous


class Policy:
    """Keeps history for a time, but at most a number of superseded rows: beyond it, half of them are removed.

    It is consulted after a commit, not by a timer: a log that does not grow keeps its history.
    """

    def __init__(self, keep_seconds: float, superseded_rows_max: int, clock: Callable[[], float]) -> None:
        self._keep_seconds = keep_seconds
        self._rows_max = superseded_rows_max
        self._clock = clock
        self._superseded = 0
        self._removed = 0
        self._checkpoints: deque[Checkpoint] = deque()

    def note(self, revision: int, superseded: int) -> None:
        """Note that the log has grown to a revision, which superseded some rows."""
        now = self._clock()
        self._superseded += superseded
        last = self._checkpoints[-1] if self._checkpoints else None
        if (
            last is None
            or now - last.time >= self._keep_seconds / CHECKPOINTS
            or self._superseded - last.superseded >= self._rows_max / CHECKPOINTS
        ):
            self._checkpoints.append(Checkpoint(now, revision, self._superseded))

    def target(self) -> int:
        """Return the revision up to which the log should be compacted now; 0 if none."""
        old = self._clock() - self._keep_seconds
        crowded = self._superseded - self._removed > self._rows_max
        surplus = self._superseded - self._rows_max // 2
        revision = 0
        for checkpoint in self._checkpoints:
            if checkpoint.time > old and not (crowded and checkpoint.superseded <= surplus):
                break
            revision = checkpoint.revision
        return revision

    def compacted(self, revision: int) -> None:
        """Note that the log has been compacted up to a revision."""
        while self._checkpoints and self._checkpoints[0].revision <= revision:
            self._removed = self._checkpoints.popleft().superseded
