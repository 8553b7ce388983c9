"""Kubernetes' dialect of JSONPath, for printer columns, conditions and `-o jsonpath`.

A path is a chain of fields (`.status.phase`, `['a.b']`, `.a\\.b`), indexes and slices (`[0]`, `[-1]`, `[1:3]`),
wildcards (`[*]`, `.*`), unions (`['a','b']`), descents (`..name`) and filters (`[?(@.type=="Ready")]`). What is not
there is no error: it yields nothing. A template is text with paths in braces, and `{range PATH}…{end}`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

TEXT_LENGTH_MAX = 4096
RESULTS_MAX = 100_000
"""Values that one path may yield: descents multiply."""

Step = Callable[[Any], Iterator[Any]]

FIELD = re.compile(r"(?:\\.|[^\\.\[\]{}()'\",\s])+")
SLICE = re.compile(r"\s*(-?\d+)?\s*:\s*(-?\d+)?\s*(?::\s*(\d+)\s*)?")
COMPARISON = re.compile(r"\s*(==|!=|<=|>=|<|>)\s*")
NUMBER = re.compile(r"[-+]?\d+(\.\d+)?")


class JSONPathError(ValueError):
    """A path or template that cannot be read."""


class Path:
    """One compiled path."""

    def __init__(self, text: str) -> None:
        if len(text) > TEXT_LENGTH_MAX:
            raise JSONPathError(f"the path is longer than {TEXT_LENGTH_MAX} characters")
        self.text = text
        self._steps = _parsed(text.strip())

    def find(self, root: Any) -> list[Any]:
        """Return every value that the path leads to."""
        found = [root]
        for step in self._steps:
            found = _bounded(inner for value in found for inner in step(value))
        return found


def _bounded(values: Iterator[Any]) -> list[Any]:
    out: list[Any] = []
    for value in values:
        if len(out) == RESULTS_MAX:
            raise JSONPathError(f"the path yields more than {RESULTS_MAX} values")
        out.append(value)
    return out


def shown(value: Any) -> str:
    """Return a value as a template prints it: text as it is, others as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# Reading a path.


def _parsed(text: str) -> list[Step]:
    steps: list[Step] = []
    at = 1 if text[:1] in ("$", "@") else 0
    if at == 0 and text and text[0] not in ".[":
        text = "." + text
    while at < len(text):
        if text.startswith("..", at):
            at += 2
            steps.append(_descend)
            if text.startswith("[", at):
                continue
            at, step = _field(text, at)
            steps.append(step)
        elif text[at] == ".":
            at += 1
            if at == len(text) or text[at] == "[":
                continue
            at, step = _field(text, at)
            steps.append(step)
        elif text[at] == "[":
            end = _closing(text, at)
            steps.append(_bracket(text[at + 1 : end].strip()))
            at = end + 1
        else:
            raise JSONPathError(f"{text!r}: unexpected {text[at]!r} at character {at + 1}")
    return steps


def _field(text: str, at: int) -> tuple[int, Step]:
    if text.startswith("*", at):
        return at + 1, _each
    found = FIELD.match(text, at)
    if found is None:
        raise JSONPathError(f"{text!r}: a field's name is missing at character {at + 1}")
    return found.end(), _named(re.sub(r"\\(.)", r"\1", found[0]))


def _closing(text: str, at: int) -> int:
    """Return the position of the bracket that closes the one at `at`. Quoted brackets do not count."""
    depth, quote = 0, ""
    for i in range(at, len(text)):
        char = text[i]
        if quote:
            if char == quote and text[i - 1] != "\\":
                quote = ""
        elif char in "'\"":
            quote = char
        elif char == "[":
            depth += 1
        elif char == "]":
            depth -= 1
            if depth == 0:
                return i
    raise JSONPathError(f"{text!r}: the bracket at character {at + 1} is not closed")


def _bracket(inner: str) -> Step:
    if inner == "*":
        return _each
    if inner.startswith("?(") and inner.endswith(")"):
        return _filter(inner[2:-1].strip())
    if found := SLICE.fullmatch(inner):
        start, stop, stride = (None if part is None else int(part) for part in found.groups())
        if stride == 0:
            raise JSONPathError(f"[{inner}]: a slice's step cannot be 0")
        return _slice(slice(start, stop, stride))
    members = [_member(part.strip()) for part in re.findall(r"'(?:\\.|[^'])*'|\"(?:\\.|[^\"])*\"|[^,]+", inner)]
    if not members:
        raise JSONPathError("[]: an index, a name in quotes, * or a filter is missing")
    return members[0] if len(members) == 1 else lambda value: (v for member in members for v in member(value))


def _member(part: str) -> Step:
    if part[:1] in ("'", '"'):
        return _named(_unquoted(part))
    if re.fullmatch(r"-?\d+", part):
        return _indexed(int(part))
    if FIELD.fullmatch(part):
        return _named(part)
    raise JSONPathError(f"[{part}]: not an index, a name in quotes, * or a filter")


def _unquoted(text: str) -> str:
    if len(text) < 2 or text[-1] != text[0]:
        raise JSONPathError(f"{text}: the quote is not closed")
    escapes = {"n": "\n", "t": "\t", "r": "\r"}
    return re.sub(r"\\(.)", lambda found: escapes.get(found[1], found[1]), text[1:-1])


# Walking a value.


def _named(name: str) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return step


def _indexed(index: int) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list) and -len(value) <= index < len(value):
            yield value[index]

    return step


def _slice(which: slice) -> Step:
    return lambda value: iter(value[which] if isinstance(value, list) else ())


def _each(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _descend(value: Any) -> Iterator[Any]:
    yield value
    for inner in _each(value):
        yield from _descend(inner)


ABSENT = object()
Operand = Callable[[Any], Any]


def _filter(text: str) -> Step:
    left, at = _operand(text, 0)
    if at == len(text):
        return lambda value: (item for item in _items(value) if left(item) is not ABSENT)
    found = COMPARISON.match(text, at)
    if found is None:
        raise JSONPathError(f"?({text}): a comparison is missing at character {at + 1}")
    right, end = _operand(text, found.end())
    if end != len(text):
        raise JSONPathError(f"?({text}): unexpected {text[end:]!r}")
    operator = found[1]
    return lambda value: (item for item in _items(value) if _compare(left(item), operator, right(item)))


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _operand(text: str, at: int) -> tuple[Operand, int]:
    if text.startswith("@", at):
        end, depth = at, 0
        while end < len(text) and (depth or text[end] not in "=!<> \t"):
            depth += {"[": 1, "]": -1}.get(text[end], 0)
            end += 1
        path = Path(text[at:end])
        return lambda item: next(iter(path.find(item)), ABSENT), end
    if text[at : at + 1] in ("'", '"'):
        end = text.find(text[at], at + 1)
        if end < 0:
            raise JSONPathError(f"?({text}): the quote at character {at + 1} is not closed")
        return _constant(text[at + 1 : end]), end + 1
    for word, constant in (("true", True), ("false", False), ("null", None)):
        if text.startswith(word, at):
            return _constant(constant), at + len(word)
    if found := NUMBER.match(text, at):
        return _constant(float(found[0]) if found[1] else int(found[0])), found.end()
    raise JSONPathError(f"?({text}): a value is missing at character {at + 1}")


def _constant(value: Any) -> Operand:
    return lambda _: value


def _compare(left: Any, operator: str, right: Any) -> bool:
    if left is ABSENT or right is ABSENT:
        return False
    same = left == right and isinstance(left, bool) == isinstance(right, bool)
    if operator in ("==", "!="):
        return same == (operator == "==")
    ordered = isinstance(left, str) and isinstance(right, str)
    if not ordered and not all(type(side) in (int, float) for side in (left, right)):
        return False
    less: bool = left < right
    return {"<": less, "<=": less or same, ">": not less and not same, ">=": not less}[operator]


# Templates.


class _Text(NamedTuple):
    text: str


class _Range(NamedTuple):
    path: Path
    body: list[_Text | _Range | Path]


class Template:
    """Text with paths in braces, as in `kubectl get -o jsonpath=…`."""

    def __init__(self, text: str) -> None:
        if len(text) > TEXT_LENGTH_MAX:
            raise JSONPathError(f"the template is longer than {TEXT_LENGTH_MAX} characters")
        if "{" not in text:
            text = "{" + text + "}"
        self._body, rest = _template(_pieces(text), nested=False)
        assert not rest, "everything is read at the outermost level"

    def render(self, root: Any) -> str:
        """Return the text, with every path replaced by its values, separated by blanks."""
        return "".join(_rendered(self._body, root, root))


def _pieces(text: str) -> list[tuple[bool, str]]:
    """Split a template into texts and, marked True, the contents of braces."""
    out: list[tuple[bool, str]] = []
    for found in re.finditer(r"\{((?:'[^']*'|\"(?:\\.|[^\"])*\"|[^{}'\"])*)\}|([^{]+)|(\{)", text):
        if found[3]:
            raise JSONPathError(f"the brace at character {found.start() + 1} is not closed")
        out.append((found[2] is None, found[1].strip() if found[2] is None else found[2]))
    return out


Body = list[_Text | _Range | Path]


def _template(pieces: list[tuple[bool, str]], *, nested: bool) -> tuple[Body, list[tuple[bool, str]]]:
    body: Body = []
    while pieces:
        (is_path, text), *pieces = pieces
        if not is_path:
            body.append(_Text(text))
        elif text == "end":
            if not nested:
                raise JSONPathError("{end} without {range}")
            return body, pieces
        elif text.startswith("range"):
            inner, pieces = _template(pieces, nested=True)
            body.append(_Range(Path(text.removeprefix("range").strip()), inner))
        elif text[:1] in ("'", '"'):
            body.append(_Text(_unquoted(text)))
        else:
            body.append(Path(text))
    if nested:
        raise JSONPathError("{range} without {end}")
    return body, []


def _rendered(body: Body, here: Any, root: Any) -> Iterator[str]:
    for part in body:
        if isinstance(part, _Text):
            yield part.text
        elif isinstance(part, _Range):
            for value in part.path.find(root if part.path.text.startswith("$") else here):
                yield from _rendered(part.body, value, root)
        else:
            found = part.find(root if part.text.startswith("$") else here)
            yield " ".join(map(shown, found))
