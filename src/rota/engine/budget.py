"""What nodes may cost on the way to one fixpoint, so that there is an end."""

from __future__ import annotations

from rota.engine.node import Node
from rota.engine.outcome import NotConverged

BUDGET = 32
"""Charged runs after its first that a node has, on the way to one fixpoint."""


class Budget:
    """Charged runs and progress of one run to the fixpoint. What happens after its end counts for the next one."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._charges: dict[Node, int] = {}
        self._flips: dict[Node, int] = {}
        """How often the status of a node has counted as progress."""
        self._came: set[str] = set()
        """The data that somebody waited for and that has come."""
        self._is_over = False
        self.not_converged: NotConverged | None = None
        """The error of the first node that had spent its budget."""

    def begin(self) -> None:
        """A run begins, or something happens that counts for the next one."""
        if self._is_over:
            self._is_over = False
            self._charges.clear()
            self._flips.clear()
            self._came.clear()
            self.not_converged = None

    def end(self) -> None:
        """A run has come to its end."""
        self._is_over = True

    def charge(self, node: Node) -> bool:
        """Whether a node may run once more. It is charged if so."""
        self.begin()
        charges = self._charges.get(node, 0)
        if charges >= self._limit:
            return False
        self._charges[node] = charges + 1
        return True

    def charged(self, node: Node) -> int:
        """How often a node was charged."""
        return self._charges.get(node, 0)

    def spent(self, node: Node) -> NotConverged:
        """The error of a node that was to run once more, and may not."""
        error = NotConverged(f"{node.id} did not converge: it was run {node.runs} times, and was to run again")
        if self.not_converged is None:
            self.not_converged = error
        return error

    def is_flip_progress(self, node: Node) -> bool:
        """Whether it is progress that the status of a node has changed: to and fro for ever is not."""
        self.begin()
        flips = self._flips.get(node, 0)
        self._flips[node] = flips + 1
        return flips < self._limit

    def is_data_progress(self, id_: str) -> bool:
        """Whether it is progress that data has come for which somebody waits: it is the first time."""
        self.begin()
        before = len(self._came)
        self._came.add(id_)
        return len(self._came) > before

    def forget(self, node: Node) -> None:
        self._charges.pop(node, None)
        self._flips.pop(node, None)
