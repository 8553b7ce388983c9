"""Problems of an object, field by field, with Kubernetes' reasons and messages."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec

from rota.api.printing import printed, quoted

NOT_JSON = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Errors of decoding JSON from outside. Too deep nesting raises RecursionError."""

Reason = Literal[
    "FieldValueRequired",
    "FieldValueInvalid",
    "FieldValueTypeInvalid",
    "FieldValueNotSupported",
    "FieldValueDuplicate",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueForbidden",
]

BLOCKING: frozenset[Reason] = frozenset(
    ("FieldValueRequired", "FieldValueTypeInvalid", "FieldValueNotSupported", "FieldValueTooLong", "FieldValueTooMany")
)
"""Reasons after which the rules of an object are not evaluated."""

NOT_CHECKED = (
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)
NO_MATCH = "in body should match"
"""Part of the message of every text that does not match its pattern."""
NO_FIELD = "<nil>"
"""The field of a problem that Kubernetes reports without one."""


class Problem(NamedTuple):
    """One thing that is wrong with one field."""

    reason: Reason
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def required(field: str, detail: str = "") -> Problem:
    return Problem("FieldValueRequired", field, "Required value" + (f": {detail}" if detail else ""))


def invalid(field: str, value: Any, detail: str) -> Problem:
    return Problem("FieldValueInvalid", field, f"Invalid value: {printed(value)}: {detail}")


def rule_broken(field: str, message: str) -> Problem:
    return Problem("FieldValueInvalid", field, f"Invalid value: {message}")


def type_invalid(field: str, got: str, want: str) -> Problem:
    shown = quoted(got)
    return Problem(
        "FieldValueTypeInvalid", field, f"Invalid value: {shown}: {field} in body must be of type {want}: {shown}"
    )


def not_supported(field: str, value: Any, supported: list[str]) -> Problem:
    choices = ", ".join(map(quoted, supported))
    return Problem("FieldValueNotSupported", field, f"Unsupported value: {printed(value)}: supported values: {choices}")


def duplicate(field: str, value: Any) -> Problem:
    return Problem("FieldValueDuplicate", field, f"Duplicate value: {printed(value)}")


def too_long(field: str, most: int) -> Problem:
    return Problem("FieldValueTooLong", field, f"Too long: may not be more than {most} byte{'s' * (most != 1)}")


def too_many(field: str, count: int, most: int) -> Problem:
    return Problem("FieldValueTooMany", field, f"Too many: {count}: must have at most {most} item{'s' * (most != 1)}")


def forbidden(field: str, detail: str) -> Problem:
    return Problem("FieldValueForbidden", field, f"Forbidden: {detail}")


def within(parent: str, problem: Problem) -> Problem:
    """Return the problem for a field below `parent`. The message keeps the shorter path, as in Kubernetes."""
    field = parent if problem.field in ("", NO_FIELD) else f"{parent}.{problem.field}"
    return problem._replace(field=field)
