"""Values of a JSON document by a dotted path, and what they are as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

ABSENT = msgspec.UNSET
"""There is nothing at the path."""
LOOKS_MAX = 50_000
"""Values of one document that are looked at, for all paths together."""
LOOK_CHARACTERS = 64
"""A value that is made a text is so many looks as it has of these."""


class TooManyLooks(Exception):  # noqa: N818
    """More of a document is asked for than is looked at."""

    def __init__(self) -> None:
        super().__init__(f"more than {LOOKS_MAX} values would have to be looked at: name shorter lists")


class Looks:
    """How much is still looked at of one document. Who wrote it, and who wrote the paths, may be anybody."""

    def __init__(self) -> None:
        self._left = LOOKS_MAX

    def take(self, count: int) -> None:
        """Raises TooManyLooks."""
        self._left -= count
        if self._left < 0:
            raise TooManyLooks


def find(value: Any, path: str, looks: Looks) -> Any:
    """The value at a path, or ABSENT. A number takes one element of a list; a name reaches into each of them.

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
                # That no element has such a field is a mistake in the path; that there are no elements is none.
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
    """A value as text: a string as it is, nothing for null, and JSON for all else."""
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value).decode()


def passes(value: Any, path: str, wanted: Sequence[str], looks: Looks) -> bool:
    """Whether the value at a path is one of these; of a list, whether one of its elements is. Raises TooManyLooks."""
    found, texts = find(value, path, looks), frozenset(wanted)
    if found is ABSENT:
        return False
    return any(_looked_at(one, looks) in texts for one in (found if isinstance(found, list) else [found]))


def _looked_at(value: Any, looks: Looks) -> str:
    text = text_of(value)
    looks.take(1 + len(text) // LOOK_CHARACTERS)
    return text
