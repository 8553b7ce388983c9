"""The due times of nodes."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from rota.engine.node import Node

STALE_TIMERS_MAX = 1_000
"""Bound on the outdated timers in the heap, beside two for each node."""


class Timers:
    """A heap of timers. A timer whose node has got another due time meanwhile is skipped."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Node]] = []
        self._made = 0

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, node: Node, due: float, nodes: int) -> None:
        """Set the due time of a node. `nodes` is the number of all nodes."""
        node.due = due
        self._made += 1
        heappush(self._heap, (due, self._made, node))
        if len(self._heap) > STALE_TIMERS_MAX + 2 * nodes:
            self._heap = [timer for timer in self._heap if timer[2].due == timer[0]]
            heapify(self._heap)

    def next_due(self) -> float | None:
        """Return the first due time; None if there is none."""
        heap = self._heap
        while heap and heap[0][2].due != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, now: float) -> Iterator[Node]:
        """Yield the nodes that are due, and clear their due times."""
        while (due := self.next_due()) is not None and due <= now:
            node = heappop(self._heap)[2]
            node.due = None
            yield node
