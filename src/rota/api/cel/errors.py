"""What goes wrong in a rule: its text, or one evaluation of it."""

from __future__ import annotations


class CelSyntaxError(ValueError):
    """The text is no rule of the subset. `position` counts characters from zero."""

    def __init__(self, message: str, source: str, position: int) -> None:
        super().__init__(f"{message}, at character {position} of {source!r}")
        self.source = source
        self.position = position


class CelEvalError(Exception):
    """The rule has no value for this object: CEL calls that an error, and the object fails the rule."""


class BeyondSubsetError(Exception):
    """A value the subset does not cover, or a bound reached, where a kube-apiserver would have gone on.

    Not a CEL error, since `||` and `&&` must not absorb it and so decide otherwise; `Program` reports it as one.
    """
