"""Kubernetes' spelling of field names that are no identifiers of CEL."""

from __future__ import annotations

import re
from typing import Final

RESERVED: Final = frozenset(
    ("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import",
     "let", "loop", "package", "namespace", "return", "var", "void", "while")
)  # fmt: skip
"""Words that CEL keeps from being identifiers."""

_ESCAPED: Final = {"__underscores__": "__", "__dot__": ".", "__dash__": "-", "__slash__": "/"}
_SEQUENCE: Final = re.compile("__[^_]+__")


def unescape(name: str) -> str | None:
    """The field's name in the object: `a__dash__b` is `a-b`, and `__in__` is `in`. None when it is misspelt."""
    if "__" not in name:
        return name
    if name[2:-2] in RESERVED and name == f"__{name[2:-2]}__":
        return name[2:-2]
    if any(sequence not in _ESCAPED for sequence in _SEQUENCE.findall(name)):
        return None
    return _SEQUENCE.sub(lambda match: _ESCAPED[match.group()], name)
