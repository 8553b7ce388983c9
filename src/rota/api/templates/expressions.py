"""The grammar of expressions in templates."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

LITERAL = '{{ "{{" }}'
"""The expression for two literal braces."""
RESERVED = ("tasks", "schedule")
"""First words of the expressions that a task fills in. Anything else between braces is text: a prompt may be about
templates of another kind."""
SHOWN_LENGTH_MAX = 120
"""Bound on the characters of an expression that a message quotes."""

OUTPUT = re.compile(r"tasks\.(.+?)\.outputs\.(\S+)")
# Possessive quantifiers: a text that does not match is rejected in one pass.
EXPRESSION = re.compile(r'\{\{\s*+(?:((?:tasks|schedule)\.[^{}]*+)|"\{\{"\s*+)\}\}')
"""An expression that a task fills in, or the one for literal braces."""
OPENING = re.compile(r'\{\{(?=\s*+(?:(?:tasks|schedule)\.|"\{\{"\s*+\}\}))')
"""The opening of such an expression, also of one that is not closed."""
VARIABLE = re.compile(r"(?<!\$)\{\{\s*+((?!(?:end|else)\b)[A-Za-z_][\w-]*+(?:\.[\w-]++)*+)\s*+\}\}")
"""A name in braces that looks like an expression. `${{ … }}` and actions of Go templates do not."""


class TemplateError(Exception):
    """A template that cannot be filled in. The message names the field."""


class Found(NamedTuple):
    """An expression in a text that cannot be filled in."""

    text: str
    why: str


def shown(text: str) -> str:
    return text if len(text) <= SHOWN_LENGTH_MAX else f"{text[: SHOWN_LENGTH_MAX - 1]}…"


def output_of(expression: str) -> tuple[str, str] | None:
    """Return the task and key of `tasks.NAME.outputs.KEY`; None for any other form."""
    matched = OUTPUT.fullmatch(expression)
    return (matched[1], matched[2]) if matched is not None else None


def unclosed(text: str) -> Iterator[Found]:
    """Yield the expressions of a text that are not closed."""
    for opening in OPENING.finditer(text):
        if EXPRESSION.match(text, opening.start()) is None:
            rest = text[opening.start() : opening.start() + SHOWN_LENGTH_MAX + 1].split("\n", 1)[0]
            yield Found(shown(rest), f"it does not end in }}}}; for the braces themselves write {LITERAL}")


def literal(text: str) -> str:
    """Escape a text so that a task fills it in as it is."""
    return OPENING.sub(LITERAL, text) if "{{" in text else text
