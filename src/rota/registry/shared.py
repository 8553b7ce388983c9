"""The work on an event that all of its watches share."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from rota.registry.selectors import Look

TEXTS_MAX = 8
"""Forms of one event that are kept for the next watch. There are few: what makes them is what clients may choose."""


class Shared:
    """Looks at an event and its encoded forms, made once for all watches."""

    __slots__ = ("_texts", "before", "now")

    def __init__(self, now: bytes, before: bytes | None) -> None:
        self.now = Look(now)
        self.before = Look(before) if before is not None else None
        self._texts: dict[Hashable, bytes] = {}

    def once(self, what: Hashable, make: Callable[[], bytes]) -> bytes:
        """Return what was made under this name before, or make it."""
        if (made := self._texts.get(what)) is None:
            made = make()
            if len(self._texts) < TEXTS_MAX:
                self._texts[what] = made
        return made
