"""A heap of names by due time."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

STALE_MAX = 1_000
"""Stale entries, beyond two for each name, that are kept before the heap is rebuilt."""


class Heap:
    """Names with a due time each. Setting a name anew replaces its time."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []
        self._due: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._due)

    def __iter__(self) -> Iterator[str]:
        return iter([*self._due])

    def __contains__(self, name: str) -> bool:
        return name in self._due

    def set(self, name: str, due: float) -> None:
        if self._due.get(name) == due:
            return
        self._due[name] = due
        heappush(self._heap, (due, name))
        if len(self._heap) > STALE_MAX + 2 * len(self._due):
            self._heap = [(due, name) for name, due in self._due.items()]
            heapify(self._heap)

    def discard(self, name: str) -> None:
        self._due.pop(name, None)

    def next_due(self) -> float | None:
        heap = self._heap
        while heap and self._due.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def due_by(self, moment: float, most: int) -> list[tuple[float, str]]:
        """Return up to `most` names that are due by a moment, in no order, with their times. They stay in the heap."""
        found: list[tuple[float, str]] = []
        places, heap = [0], self._heap
        while places and len(found) < most:
            at = places.pop()
            if at < len(heap) and heap[at][0] <= moment:
                if self._due.get(heap[at][1]) == heap[at][0]:
                    found.append(heap[at])
                places += (2 * at + 1, 2 * at + 2)
        return found

    def pop_due(self, now: float, most: int) -> list[str]:
        """Remove and return up to `most` names that are due now, the earliest first."""
        found: list[str] = []
        while len(found) < most and (due := self.next_due()) is not None and due <= now:
            name = heappop(self._heap)[1]
            del self._due[name]
            found.append(name)
        return found
