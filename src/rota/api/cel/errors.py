"""Errors of rules: of their text, and of their evaluation."""

from __future__ import annotations


class CelSyntaxError(ValueError):
    """The text is not a rule of the subset. `position` counts characters from zero."""

    def __init__(self, message: str, source: str, position: int) -> None:
        super().__init__(f"{message}, at character {position} of {source!r}")
        self.source = source
        self.position = position


class CelEvalError(Exception):
    """The rule has no value for this object, which CEL calls an error. The object fails the rule."""


class BeyondSubsetError(Exception):
    """The evaluation reached a value or bound that a kube-apiserver handles and the subset does not.

    It is not a CEL error: `||` and `&&` would absorb one, and could then decide differently from a kube-apiserver.
    `Program` reports it as one.
    """
