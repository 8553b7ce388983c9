"""A node, and the lane that it runs in."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

from msgspec import Struct

from rota.engine.outcome import Outcome, Status

UNBOUNDED = 1 << 60

RUNNABLE, RUNNING, PARKED, SLEEPING, DONE, FAILED, GONE = range(7)
STATES = ("runnable", "running", "parked", "sleeping", "done", "failed", "gone")

NO_CASCADE, CASCADE, FORCE = range(3)
"""Drain levels: wait; fail for dependencies that cannot come any more; fail for those in a cycle."""


class Lane:
    """Nodes that share a bound on concurrent runs. Lanes with runnable nodes are served round-robin."""

    __slots__ = ("is_queued", "limit", "name", "ready", "running")

    def __init__(self, name: Hashable, limit: int) -> None:
        self.name = name
        self.limit = limit
        self.ready: deque[Node] = deque()
        self.running = 0
        self.is_queued = False


class Node(Struct, eq=False):
    """A node of the scheduler. It exists while it has any state."""

    id: str
    lane: Lane
    content: Hashable = None
    state: int = GONE  # nowhere yet
    level: int = 0
    runs: int = 0
    woken: bool = False
    on: tuple[str, ...] = ()
    """The ids it is parked under; for a failed node, those whose recovery runs it again."""
    left: int = 0
    """The number of ids still missing, if it waits for all of them. -1: not counted yet."""
    outcome: Outcome | None = None
    status: Status = "Pending"
    since: float = 0.0
    """The time since which it waits."""
    due: float | None = None
    has_slot: bool = False
    """True if a relook slot is reserved for its due time."""
    queued: float = 0.0
    started: int = 0
    progress: int = 0
