"""The verdict of an answer, in a form in which two servers' answers can be compared."""

from __future__ import annotations

import copy
from typing import Any

import msgspec

SHOWN_LENGTH_MAX = 600


class Verdict(msgspec.Struct, frozen=True):
    """One answer, without what no two servers can have in common."""

    code: int
    reason: str = ""
    message: str = ""
    """The message of a refusal that does not list causes."""
    causes: frozenset[tuple[str, str, str]] = frozenset()
    """Reason, field and message of each."""
    about: tuple[tuple[str, Any], ...] = ()
    """The object that a refusal names."""
    warnings: tuple[str, ...] = ()
    stored: Any = None

    @property
    def accepted(self) -> bool:
        return self.code < 300

    def named(self, name: str) -> Verdict:
        """The same of an object with this name."""
        about = tuple((k, name if k == "name" else v) for k, v in self.about)
        stored = copy.deepcopy(self.stored)
        if stored:
            stored["metadata"]["name"] = name
        return msgspec.structs.replace(self, about=about, stored=stored)

    def against(self, mine: Verdict) -> str:
        """Where Rota's verdict differs from this one, for people."""
        lines = []
        for name in ("code", "reason", "message", "about", "warnings", "stored"):
            left, right = getattr(self, name), getattr(mine, name)
            if left != right:
                lines += [f"  kubernetes {name}: {left}", f"  rota       {name}: {right}"]
        lines += [f"  kubernetes only: {cause}" for cause in sorted(self.causes - mine.causes)]
        lines += [f"  rota only:       {cause}" for cause in sorted(mine.causes - self.causes)]
        return "\n".join(line[:SHOWN_LENGTH_MAX] for line in lines)
