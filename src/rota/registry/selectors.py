"""Label and field selectors, as clients write them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from rota.api import Kind
from rota.registry.errors import ApiError, bad_request

REQUIREMENTS_MAX = 32
"""Terms of one selector at most. Each is asked for each change, by each watch that has it."""
VALUES_MAX = 256
"""Values of all terms of a label selector together: a watch keeps them as long as it lasts."""
SELECTOR_LENGTH_MAX = 8192

INT64_DIGITS_MAX = 19
_TOKEN = re.compile(r"\s*(?:([(),])|([=!<>]+)|([^=!<>(),\s]+))")
_TERM = re.compile(r"((?:[^,\\]|\\.|\\$)*)(?:,|$)", re.DOTALL)
"""A term of a field selector, up to a comma that is not escaped."""
_FIELD_OPERATOR = re.compile(r"!=|==|=")
_ESCAPE = re.compile(r"\\([\\,=])")
_ESCAPED_VALUE = re.compile(r"(?:[^\\=]|\\[\\,=])*", re.DOTALL)
LABEL_KEY = re.compile(r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")
LABEL_VALUE = re.compile(r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$")

Labels = dict[str, str]
Paths = tuple[tuple[str, ...], ...]
"""Where the value of a field is: the first of these at which something is counts."""
NAME = (("metadata", "name"),)
"""Where the name of an object is."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term of a selector."""

    key: str
    operator: str
    values: frozenset[str]

    def matches(self, labels: Labels) -> bool:
        value = labels.get(self.key)
        if self.operator == "in":
            return value in self.values
        if self.operator == "notin":
            return value is None or value not in self.values
        if self.operator == "exists":
            return value is not None
        if self.operator == "!":
            return value is None
        number = _number(value or "")
        (bound,) = self.values
        if number is None:
            return False
        return number > int(bound) if self.operator == ">" else number < int(bound)


def _number(text: str) -> int | None:
    """A whole number of 64 bits."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > INT64_DIGITS_MAX:
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """The terms of a label selector."""
    if len(text) > SELECTOR_LENGTH_MAX:
        raise bad_request(f"the label selector is longer than {SELECTOR_LENGTH_MAX} characters")
    tokens = _Tokens(text)
    terms: list[Requirement] = []
    while tokens.here is not None:
        if len(terms) == REQUIREMENTS_MAX:
            raise bad_request(f"the label selector has more than {REQUIREMENTS_MAX} terms")
        terms.append(_requirement(tokens))
        if sum(len(term.values) for term in terms) > VALUES_MAX:
            raise bad_request(f"the label selector has more than {VALUES_MAX} values")
        if tokens.here is not None:
            tokens.take(",")
            if tokens.here is None:
                raise bad_request("unable to parse requirement: found '', expected: identifier after ','")
    return tuple(terms)


class _Tokens:
    """The words of a selector, in one pass over its text."""

    def __init__(self, text: str) -> None:
        self._words = [found[1] or found[2] or found[3] for found in _TOKEN.finditer(text)]
        self._at = 0

    @property
    def here(self) -> str | None:
        return self._words[self._at] if self._at < len(self._words) else None

    def next(self) -> str:
        """The word that is here; the one after it is here then."""
        word = self.here or ""
        self._at += 1
        return word

    def take(self, wanted: str) -> None:
        if (word := self.next()) != wanted:
            raise bad_request(f"unable to parse requirement: found '{word}', expected: '{wanted}'")


def _requirement(tokens: _Tokens) -> Requirement:
    negated = tokens.here == "!"
    if negated:
        tokens.next()
    key = tokens.next()
    if not LABEL_KEY.fullmatch(key):
        raise bad_request(f"unable to parse requirement: {key!r} is not a label key")
    if negated or tokens.here in (None, ","):
        return Requirement(key, "!" if negated else "exists", frozenset())
    operator = tokens.next()
    if operator in ("in", "notin"):
        return Requirement(key, operator, frozenset(_checked(key, value) for value in _values(tokens)))
    if operator in ("=", "==", "!="):
        value = "" if tokens.here in (None, ",") else tokens.next()
        return Requirement(key, "notin" if operator == "!=" else "in", frozenset((_checked(key, value),)))
    if operator in ("<", ">"):
        bound = tokens.next()
        if _number(bound) is None:
            raise bad_request(f"unable to parse requirement: values[0][{key}]: for {operator!r} it must be an integer")
        return Requirement(key, operator, frozenset((bound,)))
    raise bad_request(f"unable to parse requirement: found '{operator}', expected: in, notin, =, ==, !=, <, >")


def _values(tokens: _Tokens) -> list[str]:
    """The values between parentheses; between two commas there is an empty one."""
    tokens.take("(")
    if tokens.here == ")":
        raise bad_request("unable to parse requirement: for 'in', 'notin' operators, values set can't be empty")
    if tokens.here in (None, "("):
        raise bad_request(f"unable to parse requirement: found '{tokens.here or ''}', expected: ',', ')' or identifier")
    values = [""]
    while (word := tokens.next()) != ")":
        if word == ",":
            values.append("")
        elif values[-1] or word in ("", "("):
            raise bad_request(f"unable to parse requirement: found '{word}', expected: ',' or ')'")
        else:
            values[-1] = word
    return values


def _checked(key: str, value: str) -> str:
    if not LABEL_VALUE.fullmatch(value):
        raise bad_request(f"unable to parse requirement: values[0][{key}]: Invalid value: {value!r}")
    return value


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One term of a field selector: where its value is, and what it must or must not be."""

    paths: Paths
    equal: bool
    value: str

    def matches(self, text: str) -> bool:
        """Report whether the text at these paths is what is asked for."""
        return (text == self.value) == self.equal


def _text_at(obj: dict[str, Any], path: tuple[str, ...]) -> str:
    here: Any = obj
    for step in path:
        here = here.get(step) if isinstance(here, dict) else None
    return "" if here is None else (str(here).lower() if isinstance(here, bool) else str(here))


def parse_fields(kind: Kind, text: str) -> tuple[FieldTerm, ...]:
    """The terms of a field selector. Only fields that the kind declares selectable may be used."""
    if len(text) > SELECTOR_LENGTH_MAX:
        raise bad_request(f"the field selector is longer than {SELECTOR_LENGTH_MAX} characters")
    allowed = _selectable(kind)
    terms: list[FieldTerm] = []
    for term in _TERM.findall(text):
        if not term.strip():
            continue
        if len(terms) == REQUIREMENTS_MAX:
            raise bad_request(f"the field selector has more than {REQUIREMENTS_MAX} terms")
        operator = _FIELD_OPERATOR.search(term)
        if operator is None:
            raise bad_request(f"invalid selector: {term!r}; can't understand {term!r}")
        name, value = term[: operator.start()].strip(), term[operator.end() :].strip()
        if name not in allowed:
            raise bad_request(f"field label not supported: {name}")
        terms.append(FieldTerm(allowed[name], operator[0] != "!=", _unescaped(value)))
    return tuple(terms)


def named(kind: Kind, text: str) -> str:
    """Return the name that a field selector asks for; empty if it does not ask for one alone."""
    wanted = {term.value for term in parse_fields(kind, text) if term.equal and term.paths == NAME}
    return wanted.pop() if len(wanted) == 1 else ""


@cache
def _selectable(kind: Kind) -> dict[str, Paths]:
    """The fields that selectors may use, and where in the stored object each is."""
    own = ("metadata.name", *(("metadata.namespace",) if kind.namespaced else ()))
    fields = {name: (name,) for name in (*own, *(path.lstrip(".") for path in kind.selectable))} | dict(
        kind.selected_at
    )
    return {name: tuple(tuple(path.strip(".").split(".")) for path in paths) for name, paths in fields.items()}


def _unescaped(value: str) -> str:
    """A value without the backslashes that keep commas, equals signs and backslashes in it from meaning anything."""
    if "\\" not in value and "=" not in value:
        return value
    if not _ESCAPED_VALUE.fullmatch(value):
        raise bad_request(
            f"invalid field selector: invalid escape sequence or unescaped character in value: {value}; "
            "put a backslash before each backslash, comma and equals sign of it"
        )
    return _ESCAPE.sub(r"\1", value)


class _LabelsOnlyMeta(msgspec.Struct):
    labels: Labels = {}


class _LabelsOnly(msgspec.Struct):
    metadata: _LabelsOnlyMeta


_decode_labels = msgspec.json.Decoder(_LabelsOnly).decode


class Look:
    """The labels and fields of an object, read once for all selectors: objects are large, and watches many."""

    __slots__ = ("_labels", "_texts", "value")

    def __init__(self, value: bytes) -> None:
        self.value = value
        self._labels: Labels | None = None
        self._texts: dict[Paths, str] = {}

    @property
    def labels(self) -> Labels:
        if self._labels is None:
            self._labels = _decode_labels(self.value).metadata.labels
        return self._labels

    def text(self, term: FieldTerm, allowed: Iterable[Paths]) -> str:
        """Return the text at the paths of a term, which are among those allowed."""
        if term.paths not in self._texts:
            obj = msgspec.json.decode(self.value)
            for paths in (term.paths, *allowed):
                self._texts[paths] = next((text for path in paths if (text := _text_at(obj, path))), "")
        return self._texts[term.paths]


class Selection:
    """What a list or a watch asks for."""

    __slots__ = ("_allowed", "fields", "labels", "name")

    def __init__(self, kind: Kind, label_selector: str = "", field_selector: str = "") -> None:
        self.labels = parse_labels(label_selector)
        fields = parse_fields(kind, field_selector)
        exact = [t for t in fields if t.paths == NAME and t.equal]
        self.name = exact[0].value if len(exact) == 1 else None
        """The one name asked for: the rest then need not be looked at."""
        self.fields = tuple(t for t in fields if not (self.name is not None and t is exact[0]))
        self._allowed = _selectable(kind)

    def __bool__(self) -> bool:
        return bool(self.labels or self.fields or self.name is not None)

    def matches(self, key: str, look: Look) -> bool:
        """Report whether an object is asked for."""
        if self.name is not None and key.rpartition("/")[2] != self.name:
            return False
        if self.labels:
            labels = look.labels
            if not all(requirement.matches(labels) for requirement in self.labels):
                return False
        return all(term.matches(look.text(term, self._allowed.values())) for term in self.fields)


__all__ = ["ApiError", "FieldTerm", "Look", "Requirement", "Selection", "parse_fields", "parse_labels"]
