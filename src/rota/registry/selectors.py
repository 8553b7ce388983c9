"""Label and field selectors, and the objects and events that they are evaluated on."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from rota.api import Kind
from rota.registry.errors import ApiError, bad_request

REQUIREMENTS_MAX = 32
"""Bound on the terms of one selector. Each watch evaluates them for each change."""
VALUES_MAX = 256
"""Bound on the values of all terms of a label selector: a watch keeps them in memory."""
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
"""Paths of the value of a field. The first one with a value counts."""
NAME = (("metadata", "name"),)
"""The paths of the name of an object."""


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
    """Parse a whole number of 64 bits; None if it is none."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > INT64_DIGITS_MAX:
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """Parse a label selector."""
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
    """The tokens of a selector."""

    def __init__(self, text: str) -> None:
        self._words = [found[1] or found[2] or found[3] for found in _TOKEN.finditer(text)]
        self._at = 0

    @property
    def here(self) -> str | None:
        return self._words[self._at] if self._at < len(self._words) else None

    def next(self) -> str:
        """Return the current token and advance."""
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
    """Parse the values between parentheses. Between two commas there is an empty one."""
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
    """One term of a field selector: the paths of the value, and the value that it must or must not equal."""

    paths: Paths
    equal: bool
    value: str

    def matches(self, text: str) -> bool:
        """Report whether the text at the paths satisfies the term."""
        return (text == self.value) == self.equal


def _text_at(obj: dict[str, Any], path: tuple[str, ...]) -> str:
    here: Any = obj
    for step in path:
        here = here.get(step) if isinstance(here, dict) else None
    return "" if here is None else (str(here).lower() if isinstance(here, bool) else str(here))


def parse_fields(kind: Kind, text: str) -> tuple[FieldTerm, ...]:
    """Parse a field selector. Only fields that the kind declares selectable may be used."""
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
    """Return the name that a field selector requires; empty if it does not require exactly one."""
    wanted = {term.value for term in parse_fields(kind, text) if term.equal and term.paths == NAME}
    return wanted.pop() if len(wanted) == 1 else ""


@cache
def _selectable(kind: Kind) -> dict[str, Paths]:
    """Return the selectable fields of a kind, each with its paths in the stored object."""
    own = ("metadata.name", *(("metadata.namespace",) if kind.namespaced else ()))
    fields = {name: (name,) for name in (*own, *(path.lstrip(".") for path in kind.selectable))} | dict(
        kind.selected_at
    )
    return {name: tuple(tuple(path.strip(".").split(".")) for path in paths) for name, paths in fields.items()}


def _unescaped(value: str) -> str:
    """Return a value without the escapes of commas, equals signs and backslashes."""
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


class LazyObject:
    """An encoded object whose labels and fields are decoded once, when the first selector needs them."""

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


SHARED_VALUES_MAX = 8
"""Bound on the values cached for one event. There are few, since clients choose among few forms."""


class SharedEvent:
    """Values derived from one event, computed once for all its watches."""

    __slots__ = ("_values", "before", "now")

    def __init__(self, now: bytes, before: bytes | None) -> None:
        self.now = LazyObject(now)
        self.before = LazyObject(before) if before is not None else None
        self._values: dict[Hashable, bytes] = {}

    def once(self, name: Hashable, make: Callable[[], bytes]) -> bytes:
        """Return the value of a name, made by `make` the first time."""
        if (value := self._values.get(name)) is None:
            value = make()
            if len(self._values) < SHARED_VALUES_MAX:
                self._values[name] = value
        return value


class Selection:
    """The label and field selector of a list or a watch."""

    __slots__ = ("_allowed", "fields", "labels", "name")

    def __init__(self, kind: Kind, label_selector: str = "", field_selector: str = "") -> None:
        self.labels = parse_labels(label_selector)
        fields = parse_fields(kind, field_selector)
        exact = [t for t in fields if t.paths == NAME and t.equal]
        self.name = exact[0].value if len(exact) == 1 else None
        """The one name that is selected, which is checked before the object is decoded."""
        self.fields = tuple(t for t in fields if not (self.name is not None and t is exact[0]))
        self._allowed = _selectable(kind)

    def __bool__(self) -> bool:
        return bool(self.labels or self.fields or self.name is not None)

    def matches(self, key: str, obj: LazyObject) -> bool:
        """Report whether an object is selected."""
        if self.name is not None and key.rpartition("/")[2] != self.name:
            return False
        if self.labels:
            labels = obj.labels
            if not all(requirement.matches(labels) for requirement in self.labels):
                return False
        return all(term.matches(obj.text(term, self._allowed.values())) for term in self.fields)


__all__ = [
    "ApiError",
    "FieldTerm",
    "LazyObject",
    "Requirement",
    "Selection",
    "SharedEvent",
    "parse_fields",
    "parse_labels",
]
