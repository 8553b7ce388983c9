"""Nodes that run again at the fixpoint: those that read whatever is there and have no id to be parked on.

Such a node runs again when something has arrived since its last run began. The rerun is charged to its budget only if
the node has emitted something new since it was charged last: reruns that find nothing to do are free, however many
sweeps the others need, and nodes that feed each other for ever are stopped.

What a node emits is recognised by a digest of one run's data, so that memory does not grow with the number of arrivals.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from contextvars import ContextVar

from rota.engine.node import Node

DIGEST_MASK = (1 << 64) - 1
SOMEBODY = object()
"""The emitter of what a thread emits that does not know whose body it runs."""
EMITTER: ContextVar[object] = ContextVar("rota_emitter", default=None)
"""The node whose body runs in this context; None outside of bodies."""


class _Run:
    """What a node has read and emitted, by its last run."""

    __slots__ = ("emits", "emitted", "free", "new", "owes", "seen")

    def __init__(self) -> None:
        self.seen = 0
        """Arrivals there had been when the run began."""
        self.emits = 0
        """Digest of the data that the run under way has emitted."""
        self.emitted = 0
        """Digest of the data that the last run with any has emitted."""
        self.new = False
        """Whether the run under way has emitted what is known to be new."""
        self.owes = False
        """Whether it has emitted something new since it was charged last."""
        self.free = False
        """Whether it runs without having been charged for it."""


class Reruns:
    """The nodes that run again at the fixpoint, and what arrived since each began its last run."""

    def __init__(self) -> None:
        self._arrived = 0
        self._runs: dict[Node, _Run] = {}
        """Of those that run again, and of every node while it runs."""
        self._under_way: dict[Node, _Run] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def began(self, node: Node) -> None:
        """The body of a node begins to run."""
        run = self._runs.get(node)
        if run is None:
            run = self._runs[node] = _Run()
        run.seen = self._arrived
        run.emits = 0
        run.new = False
        self._under_way[node] = run

    def ended(self, node: Node, again: bool) -> bool:
        """The body of a node has run; `again`: it is one that runs again. Returns whether its emissions are progress.

        They are when they are the first new ones since the node was charged, so the budget bounds how often.
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
        """Something is new, and who emits it emits something new."""
        self._arrived += 1
        for run in self._emitters():
            run.new = True

    def data(self, id_: str, content: Hashable, *, known: bool) -> None:
        """Data has arrived; `known`: with the content that it had.

        What a node emits is compared when its body has run; of what comes from outside, only what somebody waits for is
        known.
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
        """The nodes to run again, in the order of their ids, each with whether that is charged."""
        found = sorted(
            ((node, run) for node, run in self._runs.items() if run.seen < self._arrived), key=lambda pair: pair[0].id
        )
        for _, run in found:
            run.seen = self._arrived
            run.free = not run.owes
        return [(node, run.owes) for node, run in found]

    def charged(self, node: Node) -> None:
        """A node will run, and was charged for it."""
        run = self._runs.get(node)
        if run is not None:
            run.owes = run.free = False

    def is_free(self, node: Node) -> bool:
        """Whether a node runs again without having been charged."""
        run = self._runs.get(node)
        return run is not None and run.free
