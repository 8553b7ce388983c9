"""Values of a JSON document by a dotted path, and what they are as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

ABSENT = msgspec.UNSET
"""There is nothing at the path."""


def find(value: Any, path: str) -> Any:
    """The value at a path, or ABSENT. A number takes one element of a list; a name reaches into each of them."""
    return _find(value, path.split("."))


def _find(value: Any, steps: Sequence[str]) -> Any:
    for at, step in enumerate(steps):
        if isinstance(value, list):
            if not (step.isascii() and step.isdigit()):
                inside = [_find(one, steps[at:]) for one in value]
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


def passes(value: Any, path: str, wanted: Sequence[str]) -> bool:
    """Whether the value at a path is one of these; of a list, whether one of its elements is."""
    found = find(value, path)
    if found is ABSENT:
        return False
    return any(text_of(one) in wanted for one in (found if isinstance(found, list) else [found]))
