"""A read-only view of a scheduler."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Literal, NamedTuple

from rota.engine.core import Core
from rota.engine.drain import cycle
from rota.engine.node import FAILED, PARKED, RUNNABLE, RUNNING, SLEEPING, STATES, Node
from rota.engine.outcome import Outcome, Status
from rota.engine.waiters import Waiters

State = Literal["runnable", "running", "parked", "sleeping", "done", "failed"]


class NodeView(NamedTuple):
    """The state of a node."""

    id: str
    state: State
    on: tuple[str, ...]
    """The ids it is parked on; for a failed node, those that caused the failure."""
    since: float
    """The time since which it is parked or sleeps, by the scheduler's clock."""
    due: float | None
    """The time at which it runs again even if nothing happens."""
    outcome: Outcome | None
    """The outcome of its last run."""
    status: Status
    level: int
    runs: int
    charged: int
    """Number of runs charged to its budget on the way to the last fixpoint."""


class View:
    """The nodes of a scheduler, by state, and the reasons of their waits."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def __len__(self) -> int:
        return len(self._core.nodes)

    def __iter__(self) -> Iterator[NodeView]:
        return map(self._view_of, list(self._core.nodes.values()))

    def get(self, id_: str) -> NodeView | None:
        node = self._core.nodes.get(id_)
        return None if node is None else self._view_of(node)

    def running(self) -> list[NodeView]:
        return self._in(RUNNING)

    def parked(self) -> list[NodeView]:
        return self._in(PARKED)

    def failed(self) -> list[NodeView]:
        return self._in(FAILED)

    def sleeping(self) -> list[NodeView]:
        return self._in(SLEEPING)

    def runnable(self) -> list[NodeView]:
        return self._in(RUNNABLE)

    def waiting_for(self, id_: str) -> list[str]:
        """Return the nodes parked on an id."""
        return sorted(node.id for node in _each(self._core.waiting.get(id_)) if node.state == PARKED)

    def failed_because_of(self, id_: str) -> list[str]:
        """Return the nodes that failed because of an id."""
        return sorted(node.id for node in _each(self._core.recovering.get(id_)))

    def pending(self, id_: str) -> bool:
        """Report whether an id is a node that may still advance."""
        return self._core.pending(id_)

    def cycle(self, id_: str) -> tuple[str, ...] | None:
        """Return the shortest cycle of waits through a node, both ends included."""
        return cycle(self._core, id_)

    def queued(self) -> dict[Hashable, int]:
        """Return the number of runnable nodes by lane."""
        return {lane.name: sum(node.state == RUNNABLE for node in lane.ready) for lane in self._core.lanes.values()}

    def _in(self, state: int) -> list[NodeView]:
        return [self._view_of(node) for node in self._core.nodes.values() if node.state == state]

    def _view_of(self, node: Node) -> NodeView:
        state: State = STATES[node.state]  # type: ignore[assignment]
        on = tuple(self._core.awaited(node))
        charged = self._core.budget.charged(node)
        return NodeView(
            node.id, state, on, node.since, node.due, node.outcome, node.status, node.level, node.runs, charged
        )


def _each(waiters: Waiters | None) -> list[Node]:
    if waiters is None:
        return []
    return [waiters] if isinstance(waiters, Node) else list(waiters)
