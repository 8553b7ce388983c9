"""Moulds: the bytes of objects that are created often and differ in a few texts only.

A mould is made of an object that admission has accepted once. Its maker guarantees that no rule, bound or owner of a
field depends on the texts; then a cast has the effect of a `create`. For each cast it is checked that the namespace
takes new objects and that the name is free. Moulds work only in the process of the registry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

NOW, REVISION = b"now", b"revision"
"""Texts that the registry fills in itself: the creation time, and the resourceVersion."""


class Mould:
    """The bytes of an object with named gaps. A gap may occur several times."""

    def __init__(self, value: bytes, marks: Mapping[bytes, tuple[bytes, int]]) -> None:
        """Make a gap wherever `value` has a mark. `marks`: for each gap its mark, and how often that must occur.

        Raises ValueError if a mark occurs more or less often: then the gaps cannot be told from other text.
        """
        template = value.replace(b"%", b"%%")
        for name, (mark, count) in marks.items():
            if template.count(mark) != count or b"%" in mark:
                raise ValueError(f"the mark of {name!r} is there {template.count(mark)} times, and not {count}")
            template = template.replace(mark, b"%%(%b)b" % name)
        self._template = template

    def cast(self, texts: Mapping[bytes, bytes]) -> bytes:
        """Return the bytes of an object with texts in the gaps."""
        return self._template % texts


class Cast(NamedTuple):
    """An object to create from a mould. The texts are JSON, or parts of it."""

    mould: Mould
    texts: dict[bytes, bytes]
