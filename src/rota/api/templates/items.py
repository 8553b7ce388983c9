"""Items of a spawner, put into the template of its tasks: `{{ item.FIELD }}`, in one pass.

Values of items are data. They are not searched for expressions, neither here nor when the task fills in outputs. In a
command, an item must be a whole element: a part of one could be read by a shell. An unknown expression is an error
everywhere, and never text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import msgspec

from rota.api.templates.expressions import LITERAL, VARIABLE, TemplateError, shown
from rota.api.templates.paths import ABSENT, Looks, TooManyLooks, find, text_of

NAMED_AT_ONCE_MAX = 20
"""Bound on the fields that one message names."""
TEXTS = frozenset((("prompt",), ("stdin",), ("branch",), ("holder",), ("affinity", "key")))
"""Fields in which an expression may be anywhere."""

PUT_IN_CHARACTERS_MAX = 2 * 1024 * 1024
"""Bound on the characters that an item puts into one task."""

_TOKEN = re.compile(r'\{\{(\s*"\{\{"\s*|[^{}]*)\}\}')
_OF_TASKS = re.compile(r"\{\{(?=\s*(?:tasks|schedule)\.)")

Path = tuple[str | int, ...]
Resolve = Callable[[str], Any]
"""The value of an expression, such as `item.title`. Raises TemplateError."""


class Unfilled(TemplateError):  # noqa: N818
    """A text that an item cannot be filled into."""

    def __init__(self, path: Path, expression: str, why: str) -> None:
        super().__init__(f"taskTemplate{at(path)}: {f'{expression}: ' if expression else ''}{why}")
        self.path = path
        self.expression = expression
        self.why = why


def fill(template: Any, resolve: Resolve) -> dict[str, Any]:
    """Return the spec of a task from a task template. Raises TemplateError, which names the field."""
    filled: dict[str, Any] = _fill(msgspec.to_builtins(template), (), resolve)
    return filled


def problems(template: dict[str, Any], fields: Collection[str] | None) -> Iterator[Unfilled]:
    """Yield each text of a template that no item can be filled into. `fields` are those that items may have."""

    def resolve(expression: str) -> str:
        name = _steps(expression).partition(".")[0]
        if name and fields is not None and name not in fields:
            raise TemplateError(f"an item has no {name}; it has: {_named(fields)}")
        return ""

    for path, text in texts(template):
        try:
            _fill(text, path, resolve)
        except Unfilled as wrong:
            yield wrong


def texts(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield each text with braces and its path. For a key with braces, the path is that of its map."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if "{{" in key:
                yield path, {key: None}
            yield from texts(inner, (*path, key))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from texts(inner, (*path, i))
    elif isinstance(value, str) and "{{" in value:
        yield path, value


def resolver(fields: Any) -> Resolve:
    """Return a resolver of the fields of one item, with one budget for all uses in one task.

    Expressions of tasks inside a value are broken up, at any depth, so that the task does not fill them in.
    """
    looks, known, left = Looks(), dict[str, tuple[Any, int]](), PUT_IN_CHARACTERS_MAX

    def resolve(expression: str) -> Any:
        nonlocal left
        if expression not in known:
            known[expression] = _found(expression)
        found, length = known[expression]
        left -= length
        if left < 0:
            raise TemplateError(f"the item would put more than {PUT_IN_CHARACTERS_MAX} characters into the task")
        return found

    def _found(expression: str) -> tuple[Any, int]:
        path = _steps(expression)
        try:
            found = find(fields, path, looks) if path else fields
            if found is not ABSENT:
                text = text_of(found)
                return (_inert_value(found) if "{{" in text else found), len(text)
        except (TooManyLooks, RecursionError) as error:
            raise TemplateError(str(error)) from None
        raise TemplateError(f"the item has no {path}; it has: {_named(fields)}")

    return resolve


def _steps(expression: str) -> str:
    """Return the path below the item; empty for the item itself."""
    root, dot, path = expression.partition(".")
    if root != "item" or (dot and "" in path.split(".")) or any(map(str.isspace, path)):
        raise TemplateError(f"that is not understood; write item.FIELD, or {LITERAL} for the braces themselves")
    return path


def _named(fields: Any) -> str:
    if not isinstance(fields, Collection) or isinstance(fields, str) or not fields:
        return "none"
    names = sorted(map(str, fields)) if isinstance(fields, Mapping | set | frozenset) else [str(one) for one in fields]
    more = f", and {len(names) - NAMED_AT_ONCE_MAX} more" if len(names) > NAMED_AT_ONCE_MAX else ""
    return ", ".join(map(shown, names[:NAMED_AT_ONCE_MAX])) + more


def _fill(value: Any, path: Path, resolve: Resolve) -> Any:
    if isinstance(value, dict):
        for key in value:
            if "{{" in key:
                raise Unfilled(path, key, "the name of a field cannot be filled in")
        return {key: _fill(one, (*path, key), resolve) for key, one in value.items()}
    if isinstance(value, list):
        return [_fill(one, (*path, i), resolve) for i, one in enumerate(value)]
    if not isinstance(value, str) or "{{" not in value:
        return value
    if path in TEXTS:
        return _text(value, path, resolve)
    if path[:2] == ("worker", "env") and path[-1] == "value":
        return _whole(_text(value, path, resolve), value)
    if path[0] == "command":
        return _element(value, path, resolve)
    if path[:2] == ("function", "payload"):
        return _value(value, path, resolve)
    raise Unfilled(path, "", "this field cannot be filled in")


def _element(text: str, path: Path, resolve: Resolve) -> str:
    """Fill in an element of a command. An item must be the whole element."""
    tokens = list(_tokens(text, path))
    if len(tokens) > 1 or (tokens and tokens[0][0] != text):
        for token in tokens:
            if not _is_of_tasks(token) and not _is_literal(token):
                why = "it must be the whole element; a script is given it as an argument, or reads it from stdin"
                raise Unfilled(path, token[0], why)
    return _whole(_text(text, path, resolve), text)


def _value(text: str, path: Path, resolve: Resolve) -> Any:
    """Fill in a value of a payload. A text that is one expression becomes the value itself: a number stays a number."""
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


def _whole(filled: str, text: str) -> str:
    """Break up the braces of a filled-in text that is one expression, unless the template had the same text."""
    return filled.replace("{{", "{ {") if filled != text and VARIABLE.fullmatch(filled) else filled


def _inert(text: str, own: Collection[int] = ()) -> str:
    """Break up the braces of expressions of tasks in a filled-in text.

    Expressions at the positions `own` are those of the template, and stay.
    """
    return _OF_TASKS.sub(lambda found: found[0] if found.start() in own else "{ {", text)


def _inert_value(value: Any) -> Any:
    if isinstance(value, str):
        return _inert(value)
    if isinstance(value, dict):
        return {key: _inert_value(one) for key, one in value.items()}
    return [_inert_value(one) for one in value] if isinstance(value, list) else value


def _tokens(text: str, path: Path) -> list[re.Match[str]]:
    """Return all expressions of a text. Raises Unfilled if other double braces remain."""
    found = list(_TOKEN.finditer(text))
    if "{{" in _TOKEN.sub("|", text):
        raise Unfilled(path, "", f"{{{{ is not closed; for the braces themselves write {LITERAL}")
    return found


def _resolved(token: re.Match[str], path: Path, resolve: Resolve) -> Any:
    try:
        return resolve(token[1].strip())
    except TemplateError as error:
        raise Unfilled(path, token[0], str(error)) from None


def _is_literal(token: re.Match[str]) -> bool:
    return token[1].strip() == '"{{"'


def _is_of_tasks(token: re.Match[str]) -> bool:
    """Report whether the task itself fills in the expression."""
    return token[1].strip().startswith("tasks.")


def at(path: Path) -> str:
    """Return a path as it is appended to the name of a field in messages: `.env[0]`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
