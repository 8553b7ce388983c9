"""The budget of nodes on the way to one fixpoint, which makes every run end."""

from __future__ import annotations

from rota.engine.node import Node
from rota.engine.outcome import NotConverged

BUDGET = 32
"""Bound on the charged runs of a node after its first one, on the way to one fixpoint."""


class Budget:
    """Charged runs and progress of one run to the fixpoint. Events after its end count for the next one."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._charges: dict[Node, int] = {}
        self._flips: dict[Node, int] = {}
        """By node, the number of status changes that counted as progress."""
        self._came: set[str] = set()
        """Ids of awaited data that has arrived."""
        self._is_over = False
        self.not_converged: NotConverged | None = None
        """The error of the first node that exceeded its budget."""

    def begin(self) -> None:
        """Begin a run, or note an event that counts for the next one."""
        if self._is_over:
            self._is_over = False
            self._charges.clear()
            self._flips.clear()
            self._came.clear()
            self.not_converged = None

    def end(self) -> None:
        """End a run."""
        self._is_over = True

    def charge(self, node: Node) -> bool:
        """Charge a node for one more run. Returns False if its budget is spent."""
        self.begin()
        charges = self._charges.get(node, 0)
        if charges >= self._limit:
            return False
        self._charges[node] = charges + 1
        return True

    def charged(self, node: Node) -> int:
        """Return how often a node was charged."""
        return self._charges.get(node, 0)

    def spent(self, node: Node) -> NotConverged:
        """Return the error of a node whose budget is spent."""
        error = NotConverged(f"{node.id} did not converge: it was run {node.runs} times, and was to run again")
        if self.not_converged is None:
            self.not_converged = error
        return error

    def is_flip_progress(self, node: Node) -> bool:
        """Report whether a status change of a node is progress.

        After `limit` changes it is not: it may alternate for ever.
        """
        self.begin()
        flips = self._flips.get(node, 0)
        self._flips[node] = flips + 1
        return flips < self._limit

    def is_data_progress(self, id_: str) -> bool:
        """Report whether the arrival of awaited data is progress: only the first time is."""
        self.begin()
        before = len(self._came)
        self._came.add(id_)
        return len(self._came) > before

    def forget(self, node: Node) -> None:
        self._charges.pop(node, None)
        self._flips.pop(node, None)
