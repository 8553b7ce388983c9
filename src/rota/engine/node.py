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
"""Drain levels: wait; fail for what cannot come any more; fail for what waits for us."""


class Lane:
    """Nodes that share a bound on how many of them run at once. Lanes with something to run take turns."""

    __slots__ = ("in_turn", "limit", "name", "ready", "running")

    def __init__(self, name: Hashable, limit: int) -> None:
        self.name = name
        self.limit = limit
        self.ready: deque[Node] = deque()
        self.running = 0
        self.in_turn = False


class Node(Struct, eq=False):
    """One node, while there is something to know of it."""

    id: str
    lane: Lane
    content: Hashable = None
    state: int = GONE  # nowhere yet
    level: int = 0
    runs: int = 0
    woken: bool = False
    on: tuple[str, ...] = ()
    """What it was parked under; for one that has failed, what it may recover by."""
    left: int = 0
    """Where it waits for every one of them: how many are left. -1: that is yet to be looked at."""
    outcome: Outcome | None = None
    status: Status = "Pending"
    since: float = 0.0
    """Since when it waits, by the clock."""
    due: float | None = None
    has_slot: bool = False
    """Whether it will be looked at again when it is due, come what may."""
    queued: float = 0.0
    started: int = 0
    progress: int = 0
