"""A record of the ids that advanced while bodies ran, so that no body is parked for an id that has just advanced."""

from __future__ import annotations

from collections.abc import Iterable

from rota.engine.node import Node

NOTED_IDS_MAX = 65_536
"""Bound on the recorded ids. Beyond it, every running node is treated as woken."""


class Advances:
    """Advances of ids, with ascending numbers. Each running node has the number at its start."""

    def __init__(self) -> None:
        self.number = 0
        self.advanced: dict[str, int] = {}
        """By id, the number of its last recorded advance, in ascending order."""
        self._hopeful: dict[str, int] = {}
        self._lost_before = 0

    def add(self, id_: str, hope: bool) -> None:
        """Record an advance. `hope` is False if the advance is known to be a failure."""
        self.number += 1
        if len(self.advanced) >= NOTED_IDS_MAX:
            self.clear()
            self._lost_before = self.number
            return
        # In ascending order, so that old ones can be removed from the front.
        self.advanced.pop(id_, None)
        self.advanced[id_] = self.number
        if hope:
            self._hopeful[id_] = self.number

    def advanced_since(self, started: int, ids: Iterable[str]) -> bool:
        return self._any_since(self.advanced, started, ids)

    def hope_since(self, started: int, ids: Iterable[str]) -> bool:
        return self._any_since(self._hopeful, started, ids)

    def _any_since(self, noted: dict[str, int], started: int, ids: Iterable[str]) -> bool:
        return started < self._lost_before or any(noted.get(id_, 0) > started for id_ in ids)

    def clear(self) -> None:
        self.advanced.clear()
        self._hopeful.clear()

    def forget_before(self, oldest: Node) -> None:
        """Forget advances before the start of the oldest running body."""
        while self.advanced:
            id_, number = next(iter(self.advanced.items()))
            if number > oldest.started:
                break
            del self.advanced[id_]
            if self._hopeful.get(id_, 0) <= oldest.started:
                self._hopeful.pop(id_, None)
