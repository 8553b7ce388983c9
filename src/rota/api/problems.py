"""What is wrong with an object, field by field, in Kubernetes' words."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec

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
"""Problems that leave an object in no state to evaluate rules on."""

NOT_CHECKED = (
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)


class Problem(NamedTuple):
    """One thing that is wrong with one field."""

    reason: Reason
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def shown(value: Any) -> str:
    """A value as it appears in a message: JSON, cut when it is long."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 200 else text[:200] + "…"


def required(field: str, detail: str = "") -> Problem:
    return Problem("FieldValueRequired", field, "Required value" + (f": {detail}" if detail else ""))


def invalid(field: str, value: Any, detail: str) -> Problem:
    return Problem("FieldValueInvalid", field, f"Invalid value: {shown(value)}: {detail}")


def type_invalid(field: str, got: str, want: str) -> Problem:
    return Problem(
        "FieldValueTypeInvalid", field, f'Invalid value: "{got}": {field} in body must be of type {want}: "{got}"'
    )


def not_supported(field: str, value: Any, supported: list[str]) -> Problem:
    choices = ", ".join(f'"{choice}"' for choice in supported)
    return Problem("FieldValueNotSupported", field, f"Unsupported value: {shown(value)}: supported values: {choices}")


def duplicate(field: str, value: Any) -> Problem:
    return Problem("FieldValueDuplicate", field, f"Duplicate value: {shown(value)}")


def too_long(field: str, most: int) -> Problem:
    return Problem("FieldValueTooLong", field, f"Too long: may not be more than {most} bytes")


def too_many(field: str, count: int, most: int) -> Problem:
    return Problem("FieldValueTooMany", field, f"Too many: {count}: must have at most {most} items")


def forbidden(field: str, detail: str) -> Problem:
    return Problem("FieldValueForbidden", field, f"Forbidden: {detail}")
