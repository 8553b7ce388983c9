"""Conversions between types, and what `type()` returns."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Final

from rota.api.cel.errors import BeyondSubsetError, CelEvalError
from rota.api.cel.lexer import INT_MAX, INT_MIN
from rota.api.cel.operators import TYPE_NAMES, no_overload
from rota.api.cel.times import Duration, Timestamp, parse_duration, parse_timestamp, seconds_text

_INT: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_BOOLS: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


@dataclass(frozen=True, slots=True)
class TypeValue:
    """A type, as `type()` returns it."""

    name: str


def type_of(value: Any) -> TypeValue:
    """`type(value)`."""
    return TypeValue(TYPE_NAMES.get(type(value), "type"))


def to_int(value: Any) -> int:
    """`int(value)`."""
    if type(value) is int:
        return value
    if type(value) is float:
        if INT_MIN < value < float(INT_MAX):
            return int(value)
        raise CelEvalError("integer overflow")
    if type(value) is str:
        if _INT.fullmatch(value) and INT_MIN <= (number := int(value)) <= INT_MAX:
            return number
        raise CelEvalError(f"not an integer: {value!r}")
    if type(value) is Timestamp:
        return value.ns // 1_000_000_000
    raise no_overload("int", value)


def to_double(value: Any) -> float:
    """`double(value)`."""
    if type(value) is float:
        return value
    if type(value) is int:
        return float(value)
    if type(value) is str:
        raise BeyondSubsetError("the subset has no double of a text")
    raise no_overload("double", value)


def to_bool(value: Any) -> bool:
    """`bool(value)`."""
    if type(value) is bool:
        return value
    if type(value) is str:
        if value in _BOOLS:
            return _BOOLS[value]
        raise CelEvalError(f"not a boolean: {value!r}")
    raise no_overload("bool", value)


def to_string(value: Any) -> str:
    """`string(value)`."""
    if type(value) is str:
        return value
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is int:
        return str(value)
    if type(value) is float:
        return _double_text(value)
    if type(value) is Duration:
        return seconds_text(value)
    if type(value) is Timestamp:
        raise BeyondSubsetError("the subset has no text of a timestamp")
    raise no_overload("string", value)


def _double_text(value: float) -> str:
    """As C's `%g` with just enough digits, which is how CEL writes doubles."""
    if not math.isfinite(value):
        return "NaN" if value != value else ("+Inf" if value > 0 else "-Inf")
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    mantissa, _, exponent_text = f"{abs(value)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0").rstrip("0") or "0"
    leading_zeros = len(fraction) - len(fraction.lstrip("0"))
    exponent = int(exponent_text or 0) + (len(whole) - 1 if whole != "0" else -leading_zeros - 1)
    if value == 0:
        return f"{sign}0"
    if exponent < -4 or exponent >= 6:
        tail = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{tail}e{exponent:+03d}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    padded = digits.ljust(exponent + 1, "0")
    tail = f".{padded[exponent + 1 :]}" if len(padded) > exponent + 1 else ""
    return f"{sign}{padded[: exponent + 1]}{tail}"


def to_duration(value: Any) -> Duration:
    """`duration(value)`."""
    if type(value) is str:
        return parse_duration(value)
    if type(value) is Duration:
        return value
    raise no_overload("duration", value)


def to_timestamp(value: Any) -> Timestamp:
    """`timestamp(value)`."""
    if type(value) is str:
        return parse_timestamp(value)
    if type(value) is int:
        return Timestamp(value * 1_000_000_000)
    if type(value) is Timestamp:
        return value
    raise no_overload("timestamp", value)
