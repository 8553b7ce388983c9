"""Values of a JSON document by a dotted path, and their text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

ABSENT = msgspec.UNSET
"""The result of a path without a value."""
LOOKS_MAX = 50_000
"""Bound on the values of one document that are visited, for all paths together."""
LOOK_CHARACTERS = 64
"""Characters of a value's text that count as one visited value."""


class TooManyLooks(Exception):  # noqa: N818
    """The paths would visit more values of a document than `LOOKS_MAX`."""

    def __init__(self) -> None:
        super().__init__(f"more than {LOOKS_MAX} values would have to be looked at: name shorter lists")


class Looks:
    """A budget of visited values for one document: neither the document nor the paths are trusted."""

    def __init__(self) -> None:
        self._left = LOOKS_MAX

    def take(self, count: int) -> None:
        """Subtract from the budget. Raises TooManyLooks if it is exceeded."""
        self._left -= count
        if self._left < 0:
            raise TooManyLooks


def find(value: Any, path: str, looks: Looks) -> Any:
    """Return the value at a path, or ABSENT. A number selects one element of a list; a name maps over all of them.

    Raises TooManyLooks, also for lists in lists that are too deep.
    """
    try:
        return _find(value, path.split("."), looks)
    except RecursionError:
        raise TooManyLooks from None


def _find(value: Any, steps: Sequence[str], looks: Looks) -> Any:
    for at, step in enumerate(steps):
        if isinstance(value, list):
            if not (step.isascii() and step.isdigit()):
                looks.take(len(value))
                inside = [_find(one, steps[at:], looks) for one in value]
                found = [one for one in inside if one is not ABSENT]
                # An empty list is a result. If no element of a full list has the field, the path is wrong.
                return found if found or not value else ABSENT
            if int(step) >= len(value):
                return ABSENT
            value = value[int(step)]
        elif isinstance(value, Mapping) and step in value:
            value = value[step]
        else:
            return ABSENT
    return value


def text_of(value: Any) -> str:
    """Return a value as text: a string as it is, empty for null, JSON for others."""
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value).decode()


def passes(value: Any, path: str, wanted: Sequence[str], looks: Looks) -> bool:
    """Report whether the value at a path, or an element of it if it is a list, is among `wanted`.

    Raises TooManyLooks.
    """
    found, texts = find(value, path, looks), frozenset(wanted)
    if found is ABSENT:
        return False
    return any(_looked_at(one, looks) in texts for one in (found if isinstance(found, list) else [found]))


def _looked_at(value: Any, looks: Looks) -> str:
    text = text_of(value)
    looks.take(1 + len(text) // LOOK_CHARACTERS)
    return text
