"""Objects that are made again and again, and differ in a few texts alone: decided once, then made from their bytes.

Whoever makes a mould answers for it that no rule, bound or owner of a field depends on what is put in: only then does
a cast come to the same as `create`. What depends on the moment is looked at for each cast: the namespace, and that
there is no such object yet. Only in the process of the registry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

NOW, REVISION = b"now", b"revision"
"""The texts that the registry puts in itself: when an object is made, and the version that it gets."""


class Mould:
    """The bytes of an object with a few places left open, each of which may be there several times."""

    def __init__(self, value: bytes, marks: Mapping[bytes, tuple[bytes, int]]) -> None:
        """Leave open the places where `value` has a mark. `marks`: each with how often it must be there.

        Raises ValueError if one is there more often or less: then this cannot tell what is to be left open.
        """
        template = value.replace(b"%", b"%%")
        for name, (mark, count) in marks.items():
            if template.count(mark) != count or b"%" in mark:
                raise ValueError(f"the mark of {name!r} is there {template.count(mark)} times, and not {count}")
            template = template.replace(mark, b"%%(%b)b" % name)
        self._template = template

    def cast(self, texts: Mapping[bytes, bytes]) -> bytes:
        """Return an object with these texts in the places that were left open."""
        return self._template % texts


class Cast(NamedTuple):
    """An object to be made. The texts are JSON, or parts of it."""

    mould: Mould
    texts: dict[bytes, bytes]
