"""Label and field selectors, as clients write them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from rota.api import Kind
from rota.registry.errors import ApiError, bad_request

REQUIREMENTS_MAX = 100
"""Terms of one selector at most."""
SELECTOR_LENGTH_MAX = 32_768

_SET = re.compile(r"^\s*(\S+)\s+(in|notin)\s*\(([^()]*)\)\s*$")
_EQUAL = re.compile(r"^\s*([^=!\s]+)\s*(==|=|!=)\s*([^=!\s]*)\s*$")
_NUMBER = re.compile(r"^\s*([^<>\s]+)\s*([<>])\s*(-?\d+)\s*$")
_PRESENT = re.compile(r"^\s*(!?)\s*([^=!\s]+)\s*$")
LABEL_KEY = re.compile(r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")
LABEL_VALUE = re.compile(r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$")

Labels = dict[str, str]


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
        if value is None or not value.lstrip("-").isdigit():
            return False
        (bound,) = self.values
        return int(value) > int(bound) if self.operator == ">" else int(value) < int(bound)


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """The terms of a label selector."""
    if len(text) > SELECTOR_LENGTH_MAX:
        raise bad_request(f"the label selector is longer than {SELECTOR_LENGTH_MAX} characters")
    terms = tuple(_label_term(term) for term in _split(text))
    if len(terms) > REQUIREMENTS_MAX:
        raise bad_request(f"the label selector has more than {REQUIREMENTS_MAX} terms")
    return terms


def _split(text: str) -> list[str]:
    """The terms between commas that are not inside parentheses."""
    return [term for term in re.split(r",(?![^()]*\))", text) if term.strip()] if text.strip() else []


def _label_term(term: str) -> Requirement:
    if found := _SET.match(term):
        key, operator, values = found.groups()
        requirement = Requirement(key, operator, frozenset(v.strip() for v in values.split(",")))
    elif found := _EQUAL.match(term):
        key, operator, value = found.groups()
        requirement = Requirement(key, "notin" if operator == "!=" else "in", frozenset((value,)))
    elif found := _NUMBER.match(term):
        key, operator, value = found.groups()
        return Requirement(_checked_key(key, term), operator, frozenset((value,)))
    elif found := _PRESENT.match(term):
        negated, key = found.groups()
        requirement = Requirement(key, "!" if negated else "exists", frozenset())
    else:
        raise bad_request(f"unable to parse requirement: found {term.strip()!r}")
    _checked_key(requirement.key, term)
    for value in requirement.values:
        if not LABEL_VALUE.match(value):
            raise bad_request(f"unable to parse requirement: values[0][{requirement.key}]: Invalid value: {value!r}")
    return requirement


def _checked_key(key: str, term: str) -> str:
    if not LABEL_KEY.match(key):
        raise bad_request(f"unable to parse requirement: {key!r} in {term.strip()!r} is not a label key")
    return key


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One term of a field selector: a path, and the value it must or must not have."""

    path: tuple[str, ...]
    equal: bool
    value: str

    def matches(self, obj: dict[str, Any]) -> bool:
        here: Any = obj
        for step in self.path:
            here = here.get(step) if isinstance(here, dict) else None
        text = "" if here is None else (str(here).lower() if isinstance(here, bool) else str(here))
        return (text == self.value) == self.equal


def parse_fields(kind: Kind, text: str) -> tuple[FieldTerm, ...]:
    """The terms of a field selector. Only fields that the kind declares selectable may be used."""
    if len(text) > SELECTOR_LENGTH_MAX:
        raise bad_request(f"the field selector is longer than {SELECTOR_LENGTH_MAX} characters")
    allowed = {"metadata.name", "metadata.namespace", *(path.lstrip(".") for path in kind.selectable)}
    terms = []
    for term in text.split(",") if text.strip() else []:
        found = re.match(r"^\s*([^=!]+?)\s*(==|=|!=)\s*(.*?)\s*$", term)
        if not found:
            raise bad_request(f"invalid selector: {term!r}; can't understand {term!r}")
        path, operator, value = found.groups()
        if path not in allowed:
            raise bad_request(f"field label not supported: {path}")
        terms.append(FieldTerm(tuple(path.split(".")), operator != "!=", value))
    return tuple(terms)


class _LabelsOnlyMeta(msgspec.Struct):
    labels: Labels = {}


class _LabelsOnly(msgspec.Struct):
    metadata: _LabelsOnlyMeta


_decode_labels = msgspec.json.Decoder(_LabelsOnly).decode


class Selection:
    """What a list or a watch asks for."""

    __slots__ = ("fields", "labels", "name")

    def __init__(self, kind: Kind, label_selector: str = "", field_selector: str = "") -> None:
        self.labels = parse_labels(label_selector)
        fields = parse_fields(kind, field_selector)
        exact = [t for t in fields if t.path == ("metadata", "name") and t.equal]
        self.name = exact[0].value if len(exact) == 1 else None
        """The one name asked for: the rest then need not be looked at."""
        self.fields = tuple(t for t in fields if not (self.name is not None and t is exact[0]))

    def __bool__(self) -> bool:
        return bool(self.labels or self.fields or self.name is not None)

    def matches(self, key: str, value: bytes, decoded: Callable[[], dict[str, Any]] | None = None) -> bool:
        """Whether the object with these bytes is asked for. `decoded` spares decoding where it was done already."""
        if self.name is not None and key.rpartition("/")[2] != self.name:
            return False
        if self.labels:
            labels = _decode_labels(value).metadata.labels
            if not all(requirement.matches(labels) for requirement in self.labels):
                return False
        if self.fields:
            obj = decoded() if decoded else msgspec.json.decode(value)
            return all(term.matches(obj) for term in self.fields)
        return True


__all__ = ["ApiError", "FieldTerm", "Requirement", "Selection", "parse_fields", "parse_labels"]
