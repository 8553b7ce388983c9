"""What an item says, in a task: `{{ item.FIELD }}`, in one pass.

What is put in is data. It is not looked at again: neither here, nor where the task fills in results of others. In a
command it has to be a whole element, for anything else would be read by a shell. An expression that is not understood
is an error and never a text, wherever it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from rota.api.task import TaskTemplate
from rota.control.spawners.paths import ABSENT, find, text_of

NAMED_AT_ONCE_MAX = 20
"""Fields that one message names."""
LITERAL = '{{ "{{" }}'
"""How two braces are written that are meant as such."""
TEXTS = frozenset((("prompt",), ("stdin",), ("branch",), ("holder",), ("affinity", "key")))
"""Fields in which an expression may be anywhere."""

_TOKEN = re.compile(r'\{\{(\s*"\{\{"\s*|[^{}]*)\}\}')
_OF_TASKS = re.compile(r"\{\{(?=\s*tasks\.)")

Path = tuple[str | int, ...]
Resolve = Callable[[str], Any]
"""The value of an expression, such as `item.title`. Raises TemplateError."""


class TemplateError(Exception):
    """A template that an item cannot be put into."""


def fill(template: TaskTemplate, resolve: Resolve) -> dict[str, Any]:
    """The spec of a task. Raises TemplateError, which names the field."""
    filled: dict[str, Any] = _fill(msgspec.to_builtins(template), (), resolve)
    return filled


def check(template: TaskTemplate, fields: Collection[str] | None) -> None:
    """Raises TemplateError for what no item could be put into. `fields` are those that every item may have."""

    def resolve(expression: str) -> str:
        name = _steps(expression).partition(".")[0]
        if name and fields is not None and name not in fields:
            raise TemplateError(f"an item has no {name}; it has: {_named(fields)}")
        return ""

    fill(template, resolve)


def resolver(fields: Any) -> Resolve:
    """The values of one item."""

    def resolve(expression: str) -> Any:
        path = _steps(expression)
        found = find(fields, path) if path else fields
        if found is ABSENT:
            raise TemplateError(f"the item has no {path}; it has: {_named(fields)}")
        return found

    return resolve


def _steps(expression: str) -> str:
    """The path below the item; empty for the item itself."""
    root, dot, path = expression.partition(".")
    if root != "item" or (dot and "" in path.split(".")) or any(map(str.isspace, path)):
        raise TemplateError(f"that is not understood; write item.FIELD, or {LITERAL} for the braces themselves")
    return path


def _named(fields: Any) -> str:
    if not isinstance(fields, Collection) or isinstance(fields, str) or not fields:
        return "none"
    names = sorted(map(str, fields)) if isinstance(fields, Mapping | set | frozenset) else [str(one) for one in fields]
    more = f", and {len(names) - NAMED_AT_ONCE_MAX} more" if len(names) > NAMED_AT_ONCE_MAX else ""
    return ", ".join(names[:NAMED_AT_ONCE_MAX]) + more


def _fill(value: Any, path: Path, resolve: Resolve) -> Any:
    if isinstance(value, dict):
        for key in value:
            if "{{" in key:
                raise TemplateError(f"{_shown(path)}: the name of a field cannot be filled in")
        return {key: _fill(one, (*path, key), resolve) for key, one in value.items()}
    if isinstance(value, list):
        return [_fill(one, (*path, i), resolve) for i, one in enumerate(value)]
    if not isinstance(value, str) or "{{" not in value:
        return value
    if path in TEXTS or (path[:2] == ("worker", "env") and path[-1] == "value"):
        return _text(value, path, resolve)
    if path[0] == "command":
        return _element(value, path, resolve)
    if path[:2] == ("function", "payload"):
        return _value(value, path, resolve)
    raise TemplateError(f"{_shown(path)}: this field cannot be filled in")


def _element(text: str, path: Path, resolve: Resolve) -> str:
    """An element of a command: an item is the whole of it."""
    tokens = list(_tokens(text, path))
    if len(tokens) > 1 or (tokens and tokens[0][0] != text):
        for token in tokens:
            if not _is_of_tasks(token) and not _is_literal(token):
                why = "must be the whole element; a script is given it as an argument, or reads it from stdin"
                raise TemplateError(f"{_shown(path)}: {token[0]} {why}")
    return _text(text, path, resolve)


def _value(text: str, path: Path, resolve: Resolve) -> Any:
    """A value of a payload: what is nothing but an expression becomes the value itself, a number a number."""
    found = _TOKEN.fullmatch(text)
    if found is not None and not _is_literal(found) and not _is_of_tasks(found):
        resolved = _resolved(found, path, resolve)
        return _inert(resolved) if isinstance(resolved, str) else resolved
    return _text(text, path, resolve)


def _text(text: str, path: Path, resolve: Resolve) -> str:
    pieces: list[str] = []
    own: set[int] = set()
    length = end = 0
    for token in _tokens(text, path):
        before = text[end : token.start()]
        if _is_of_tasks(token):
            own.add(length + len(before))
            put = token[0]
        else:
            put = "{{" if _is_literal(token) else text_of(_resolved(token, path, resolve))
        pieces += (before, put)
        length += len(before) + len(put)
        end = token.end()
    return _inert("".join((*pieces, text[end:])), own)


def _inert(text: str, own: Collection[int] = ()) -> str:
    """A text in which nothing asks for a result of another task but what the template itself does, at `own`."""
    return _OF_TASKS.sub(lambda found: found[0] if found.start() in own else "{ {", text)


def _tokens(text: str, path: Path) -> list[re.Match[str]]:
    """Every expression of a text; there are no braces left beside them."""
    found = list(_TOKEN.finditer(text))
    if "{{" in _TOKEN.sub("|", text):
        raise TemplateError(f"{_shown(path)}: {{{{ is not closed; for the braces themselves write {LITERAL}")
    return found


def _resolved(token: re.Match[str], path: Path, resolve: Resolve) -> Any:
    try:
        return resolve(token[1].strip())
    except TemplateError as error:
        raise TemplateError(f"{_shown(path)}: {token[0]}: {error}") from None


def _is_literal(token: re.Match[str]) -> bool:
    return token[1].strip() == '"{{"'


def _is_of_tasks(token: re.Match[str]) -> bool:
    """Whether it is for the task itself to fill in."""
    return token[1].strip().startswith("tasks.")


def _shown(path: Path) -> str:
    return "taskTemplate" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
