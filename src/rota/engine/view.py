"""A look at a scheduler that changes nothing."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Literal, NamedTuple

from rota.engine.core import Core
from rota.engine.node import FAILED, PARKED, RUNNABLE, RUNNING, SLEEPING, STATES, Node
from rota.engine.outcome import Outcome, Status
from rota.engine.waiters import Waiters

State = Literal["runnable", "running", "parked", "sleeping", "done", "failed"]


class NodeView(NamedTuple):
    """What the scheduler knows of a node."""

    id: str
    state: State
    on: tuple[str, ...]
    """What it is parked on; for one that has failed, because of what it has."""
    since: float
    """Since when it is parked or sleeps, by the scheduler's clock."""
    due: float | None
    """When it is looked at again even if nothing happens."""
    outcome: Outcome | None
    """What its last run came to."""
    status: Status
    level: int
    runs: int
    charged: int
    """Runs that counted against its budget, on the way to the last fixpoint."""


class View:
    """Who runs, who is parked on what and since when, who failed because of whom."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def __len__(self) -> int:
        return len(self._core.nodes)

    def __iter__(self) -> Iterator[NodeView]:
        return map(self._seen, list(self._core.nodes.values()))

    def get(self, id_: str) -> NodeView | None:
        node = self._core.nodes.get(id_)
        return None if node is None else self._seen(node)

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
        """The nodes that are parked on this."""
        return sorted(node.id for node in _each(self._core.waiting.get(id_)) if node.state == PARKED)

    def failed_because_of(self, id_: str) -> list[str]:
        """The nodes that failed because of this."""
        return sorted(node.id for node in _each(self._core.recovering.get(id_)))

    def pending(self, id_: str) -> bool:
        """Whether this is a node that may still advance."""
        return self._core.pending(id_)

    def cycle(self, id_: str) -> tuple[str, ...] | None:
        """The shortest circle of waiting through a node, both ends included."""
        return self._core.cycle(id_)

    def queued(self) -> dict[Hashable, int]:
        """How many nodes could run, by lane."""
        return {lane.name: sum(node.state == RUNNABLE for node in lane.ready) for lane in self._core.lanes.values()}

    def _in(self, state: int) -> list[NodeView]:
        return [self._seen(node) for node in self._core.nodes.values() if node.state == state]

    def _seen(self, node: Node) -> NodeView:
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
