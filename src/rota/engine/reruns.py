"""Nodes that run again at the fixpoint: those that read everything and have no id to be parked on.

Such a node runs again if something has arrived since its last run began. The rerun is charged to its budget only if
the node has emitted something new since it was last charged: reruns without an effect are free, however many
there are, and nodes that feed each other for ever are stopped.

What a node emits is recognised by a digest of one run's data, so that memory does not grow with the number of arrivals.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from contextvars import ContextVar

from rota.engine.node import Node

DIGEST_MASK = (1 << 64) - 1
SOMEBODY = object()
"""The emitter of data that comes from a thread without a known node."""
EMITTER: ContextVar[object] = ContextVar("rota_emitter", default=None)
"""The node whose body runs in this context; None outside of bodies."""


class _Run:
    """Reads and emissions of the last run of a node."""

    __slots__ = ("emits", "emitted", "free", "new", "owes", "read")

    def __init__(self) -> None:
        self.read = 0
        """Number of arrivals when the run began."""
        self.emits = 0
        """Digest of the data that the current run has emitted."""
        self.emitted = 0
        """Digest of the data of the last run that emitted any."""
        self.new = False
        """True if the current run has emitted new data."""
        self.owes = False
        """True if it has emitted new data since it was last charged."""
        self.free = False
        """True if the current run was not charged."""


class Reruns:
    """The nodes that run again at the fixpoint, and the arrivals since their last runs."""

    def __init__(self) -> None:
        self._arrived = 0
        self._runs: dict[Node, _Run] = {}
        """Runs of the nodes that run again, and of every node while it runs."""
        self._under_way: dict[Node, _Run] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def began(self, node: Node) -> None:
        """Note the start of a body."""
        run = self._runs.get(node)
        if run is None:
            run = self._runs[node] = _Run()
        run.read = self._arrived
        run.emits = 0
        run.new = False
        self._under_way[node] = run

    def ended(self, node: Node, again: bool) -> bool:
        """Note the end of a body; `again`: it runs again. Returns whether its emissions are progress.

        They are if they are the first new ones since the node was charged, so that the budget bounds them.
        """
        run = self._under_way.pop(node)
        if run.emits and run.emits != run.emitted:
            run.emitted = run.emits
            run.new = True
            self._arrived += 1
        if not again:
            del self._runs[node]
            return False
        progress = run.new and not run.owes
        run.owes = run.owes or run.new
        return progress

    def forget(self, node: Node) -> None:
        self._runs.pop(node, None)
        self._under_way.pop(node, None)

    def arrived(self) -> None:
        """Note new data, also as an emission of the current emitter."""
        self._arrived += 1
        for run in self._emitters():
            run.new = True

    def data(self, id_: str, content: Hashable, *, known: bool) -> None:
        """Note the arrival of data; `known`: its content is unchanged.

        Emissions of a node are compared when its body has run; of data from outside, only the content of awaited data
        is known.
        """
        emitters = self._emitters()
        if content is None or not (emitters or known):
            self.arrived()
        for run in emitters:
            run.emits = (run.emits + hash((id_, content))) & DIGEST_MASK

    def _emitters(self) -> Iterable[_Run]:
        emitter = EMITTER.get()
        if emitter is SOMEBODY:
            return self._under_way.values()
        run = self._under_way.get(emitter) if isinstance(emitter, Node) else None
        return () if run is None else (run,)

    def due(self) -> list[tuple[Node, bool]]:
        """Return the nodes to run again, sorted by id, each with whether the run is charged."""
        found = sorted(
            ((node, run) for node, run in self._runs.items() if run.read < self._arrived),
            key=lambda pair: pair[0].id,
        )
        for _, run in found:
            run.read = self._arrived
            run.free = not run.owes
        return [(node, run.owes) for node, run in found]

    def charged(self, node: Node) -> None:
        """Note that a node was charged for its next run."""
        run = self._runs.get(node)
        if run is not None:
            run.owes = run.free = False

    def is_free(self, node: Node) -> bool:
        """Report whether the current run of a node was not charged to its budget."""
        run = self._runs.get(node)
        return run is not None and run.free
