"""Messages about invalid cron expressions: the field, the number, and the accepted range."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Field(NamedTuple):
    """One of the five fields, and the numbers and names it takes."""

    name: str
    low: int
    high: int
    names: Sequence[str] = ()
    special: str = ""
    """Message part about further accepted values."""

    @property
    def range(self) -> str:
        names = f", or {self.names[0]} to {self.names[-1]}" if self.names else ""
        return f"{self.low} to {self.high}{names}{self.special}"


FIELDS = (
    Field("minute", 0, 59),
    Field("hour", 0, 23),
    Field("day of the month", 1, 31, special=", or L for the last"),
    Field("month", 1, 12, ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]),
    Field("day of the week", 0, 7, ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"], " (0 and 7 are Sunday)"),
)
LAST_DAYS = ("L", "LW")
NTH_MAX = 5
DIGITS_MAX = 9
"""Digits of a number that is read: longer ones are too high anyway, and take long to read."""


def problem(fields: Sequence[str]) -> str:
    """Return the first problem of five fields, each checked alone; empty if there is none."""
    for field, text in zip(FIELDS, fields, strict=True):
        for term in text.upper().split(","):
            if why := _term_problem(field, term):
                return why
    return ""


def _term_problem(field: Field, term: str) -> str:
    if not term:
        return f"{field.name} has an empty item: take out a comma"
    of_days, of_weeks = field is FIELDS[2], field is FIELDS[4]
    values, has_step, step = term.partition("/")
    if has_step and (why := _step_problem(field, step)):
        return why
    if values == "*" or (of_days and values in LAST_DAYS):
        return ""
    if of_weeks and "#" in values:
        day, _, nth = values.partition("#")
        if has_step or not (nth.isdecimal() and nth.isascii() and 1 <= int(nth[:DIGITS_MAX]) <= NTH_MAX):
            return f"{field.name} {term}: what follows # must be 1 to {NTH_MAX}, as in MON#2"
        return _number_problem(field, day)
    if of_weeks and values.endswith("L"):
        day = values[:-1]
        if has_step or not day.isdecimal():
            return f"{field.name} {term}: a number stands before L, as in 5L for the last Friday"
        return _number_problem(field, day)
    first, is_range, last = values.partition("-")
    if why := _number_problem(field, first) or (_number_problem(field, last) if is_range else ""):
        return why
    if is_range and _number(field, last) < _number(field, first):
        return f"{field.name} {values} goes backwards: write the lower number first, or two ranges with a comma between"
    return ""


def _step_problem(field: Field, step: str) -> str:
    if not (step.isdecimal() and step.isascii()):
        return f"{field.name}: the step {step!r} is not a number"
    return f"{field.name}: the step is 0, and must be 1 or more" if not step.strip("0") else ""


def _number_problem(field: Field, text: str) -> str:
    if text in field.names:
        return ""
    if not (text.isdecimal() and text.isascii()):
        return f"{field.name} {text!r} is not known: it must be {field.range}"
    number = _number(field, text)
    if number > field.high:
        return f"{field.name} {text} is too high: it must be {field.range}"
    return f"{field.name} {text} is too low: it must be {field.range}" if number < field.low else ""


def _number(field: Field, text: str) -> int:
    if text in field.names:
        return field.names.index(text) + field.low
    return int(text) if len(text) <= DIGITS_MAX else field.high + 1
