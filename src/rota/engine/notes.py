"""What advanced while bodies ran, so that none of them is parked for something that has just come."""

from __future__ import annotations

from collections.abc import Iterable

from rota.engine.node import Node

NOTED_IDS_MAX = 65_536
"""Ids whose advance is noted while bodies run. Past it, whoever runs is taken to have been woken."""


class Notes:
    """Each advance has a number; a body knows the number at its start."""

    def __init__(self) -> None:
        self.number = 0
        self.advanced: dict[str, int] = {}
        """By id, the number of its last advance that is still noted, the newest last."""
        self._hopeful: dict[str, int] = {}
        self._lost_before = 0

    def add(self, id_: str, hope: bool) -> None:
        """Something advanced; `hope`: for the better, as far as is known."""
        self.number += 1
        if len(self.advanced) >= NOTED_IDS_MAX:
            self.clear()
            self._lost_before = self.number
            return
        # The newest last: so the old ones can be forgotten from the front.
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
        """Forget what nobody can ask for: the oldest body that runs began later."""
        while self.advanced:
            id_, number = next(iter(self.advanced.items()))
            if number > oldest.started:
                break
            del self.advanced[id_]
            if self._hopeful.get(id_, 0) <= oldest.started:
                self._hopeful.pop(id_, None)
