"""Cut JSON at a depth, so that it can be decoded however deeply its values are nested."""

from __future__ import annotations

import re
from typing import NamedTuple

_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[][{}]', re.DOTALL)
CUT = b"null"
"""The placeholder of a part that was cut off."""


class Shallow(NamedTuple):
    """JSON without its objects and lists beyond a depth."""

    text: bytes
    cut_off: list[bytes]
    """The objects and lists in whose places it has `null`, in order."""


def shallow(text: bytes, depth_max: int) -> Shallow:
    """Cut off objects and lists that are within `depth_max` others. Takes no more stack for deeper ones."""
    kept: list[bytes] = []
    cut_off: list[bytes] = []
    depth = begun = end = 0
    for token in _TOKEN.finditer(text):
        mark = text[token.start()]
        if mark in b"[{":
            depth += 1
            if depth == depth_max + 1:
                begun = token.start()
                kept += (text[end:begun], CUT)
        elif mark in b"]}":
            depth -= 1
            if depth == depth_max:
                end = token.end()
                cut_off.append(text[begun:end])
    return Shallow(b"".join([*kept, text[end:]]), cut_off)
