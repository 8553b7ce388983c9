"""The grammar of expressions: which texts are one, and which of those ask for something."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

LITERAL = '{{ "{{" }}'
"""How two braces are written that are meant as such."""
RESERVED = ("tasks", "schedule")
"""What an expression of a task begins with. Everything else between braces is text to a task: a prompt may be about
templates of another kind."""
SHOWN_LENGTH_MAX = 120
"""Characters of an expression that a message repeats."""
FILLED_CHARACTERS_MAX = 4 * 1024 * 1024
"""Characters that are put into one task, all of its expressions together."""

OUTPUT = re.compile(r"tasks\.(.+?)\.outputs\.(\S+)")
# Possessive: what does not match is found out in one pass.
EXPRESSION = re.compile(r'\{\{\s*+(?:((?:tasks|schedule)\.[^{}]*+)|"\{\{"\s*+)\}\}')
"""An expression that a task fills in, or braces that are meant as such."""
OPENING = re.compile(r'\{\{(?=\s*+(?:(?:tasks|schedule)\.|"\{\{"\s*+\}\}))')
"""Where one begins, or was meant to."""
VARIABLE = re.compile(r"(?<!\$)\{\{\s*+((?!(?:end|else)\b)[A-Za-z_][\w-]*+(?:\.[\w-]++)*+)\s*+\}\}")
"""What looks like a name of something to fill in. `${{ … }}`, and actions of Go's templates, do not."""


class TemplateError(Exception):
    """A template that cannot be filled in, and where."""


class Room:
    """How much more is put into one task: few characters of a template can ask for something large many times."""

    def __init__(self) -> None:
        self._left = FILLED_CHARACTERS_MAX

    def take(self, characters: int) -> None:
        """Raises TemplateError when there is not so much."""
        self._left -= characters
        if self._left < 0:
            raise TemplateError(f"what is put in has more than {FILLED_CHARACTERS_MAX} characters together")


class Found(NamedTuple):
    """An expression in a text that cannot be filled in."""

    text: str
    why: str


def shown(text: str) -> str:
    return text if len(text) <= SHOWN_LENGTH_MAX else f"{text[: SHOWN_LENGTH_MAX - 1]}…"


def output_of(expression: str) -> tuple[str, str] | None:
    """The task and the key that `tasks.NAME.outputs.KEY` names; None: it is not of that form."""
    matched = OUTPUT.fullmatch(expression)
    return (matched[1], matched[2]) if matched is not None else None


def unclosed(text: str) -> Iterator[Found]:
    """Expressions of tasks that have no end."""
    for opening in OPENING.finditer(text):
        if EXPRESSION.match(text, opening.start()) is None:
            rest = text[opening.start() : opening.start() + SHOWN_LENGTH_MAX + 1].split("\n", 1)[0]
            yield Found(shown(rest), f"it does not end in }}}}; for the braces themselves write {LITERAL}")


def literal(text: str) -> str:
    """A text that, filled in by a task, is this one, whatever is in it."""
    return OPENING.sub(LITERAL, text) if "{{" in text else text
