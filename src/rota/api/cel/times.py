"""Durations and moments, to the nanosecond, as Go's `time` package reads them.

Python's own types stop at microseconds, which would make two moments equal that a kube-apiserver tells apart.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from typing import Final

from rota.api.cel.errors import CelEvalError
from rota.api.cel.lexer import INT_MAX, INT_MIN

_SECOND_NS: Final = 1_000_000_000
_UNIT_NS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": _SECOND_NS,
    "m": 60 * _SECOND_NS,
    "h": 3600 * _SECOND_NS,
}
_DURATION: Final = re.compile(r"[+-]?(?:0|(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+)", re.ASCII)
_DURATION_PART: Final = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_TIMESTAMP: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?"
    r"(?:Z|([+-])([0-9]{2}):([0-9]{2}))",
    re.ASCII,
)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_TIMESTAMP_MIN_NS: Final = (date(1, 1, 1).toordinal() - _EPOCH_DAY) * 86_400 * _SECOND_NS
_TIMESTAMP_MAX_NS: Final = (date(9999, 12, 31).toordinal() + 1 - _EPOCH_DAY) * 86_400 * _SECOND_NS - 1


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A span of time of at most 292 years either way."""

    ns: int

    def __post_init__(self) -> None:
        if not INT_MIN <= self.ns <= INT_MAX:
            raise CelEvalError("duration overflow")

    def __add__(self, other: Duration | Timestamp) -> Duration | Timestamp:
        return type(other)(self.ns + other.ns)

    def __sub__(self, other: Duration) -> Duration:
        return Duration(self.ns - other.ns)


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """A moment of the years 1 to 9999, as nanoseconds since 1970."""

    ns: int

    def __post_init__(self) -> None:
        if not _TIMESTAMP_MIN_NS <= self.ns <= _TIMESTAMP_MAX_NS:
            raise CelEvalError("timestamp overflow")

    def __add__(self, other: Duration) -> Timestamp:
        return Timestamp(self.ns + other.ns)

    def __sub__(self, other: Duration | Timestamp) -> Duration | Timestamp:
        return Timestamp(self.ns - other.ns) if type(other) is Duration else Duration(self.ns - other.ns)


def parse_duration(text: str) -> Duration:
    """`1h30m`, `1.5s`, `-2ms`: signed decimals, each with its unit."""
    if _DURATION.fullmatch(text) is None:
        raise CelEvalError(f"not a duration: {text!r}")
    total_ns = 0
    for whole, fraction, unit in _DURATION_PART.findall(text):
        unit_ns = _UNIT_NS[unit]
        total_ns += int(whole or "0") * unit_ns + _fraction_ns(fraction, unit_ns)
    return Duration(-total_ns if text[0] == "-" else total_ns)


def _fraction_ns(digits: str, unit_ns: int) -> int:
    # In floating point, as Go does, for the same last nanosecond. Go keeps digits while they fit 63 bits.
    value, scale = 0, 1.0
    for digit in digits:
        if value > INT_MAX // 10 or value * 10 + int(digit) > INT_MAX + 1:
            break
        value, scale = value * 10 + int(digit), scale * 10
    return int(float(value) * (float(unit_ns) / scale))


def parse_timestamp(text: str) -> Timestamp:
    """RFC 3339, with `Z` or an offset."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise CelEvalError(f"not a timestamp: {text!r}")
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    fraction, sign, offset_hour, offset_minute = match.groups()[6:]
    try:
        ordinal = date(year, month, day).toordinal()
    except ValueError:
        raise CelEvalError(f"not a timestamp: {text!r}") from None
    offset_s = int(offset_hour or 0) * 3600 + int(offset_minute or 0) * 60
    if hour > 23 or minute > 59 or second > 59 or int(offset_hour or 0) > 24 or int(offset_minute or 0) > 60:
        raise CelEvalError(f"not a timestamp: {text!r}")
    seconds = (ordinal - _EPOCH_DAY) * 86_400 + hour * 3600 + minute * 60 + second
    seconds += offset_s if sign == "-" else -offset_s
    return Timestamp(seconds * _SECOND_NS + int((fraction or "0")[:9].ljust(9, "0")))


def whole_units(value: Duration, unit: str) -> int:
    """How many whole units the duration has, rounded toward zero."""
    count = abs(value.ns) // _UNIT_NS[unit]
    return -count if value.ns < 0 else count


def seconds_text(value: Duration) -> str:
    """The duration as CEL's `string()` writes it: decimal seconds and an `s`."""
    sign = "-" if value.ns < 0 else ""
    whole, rest = divmod(abs(value.ns), _SECOND_NS)
    # Through a double, as CEL does; beyond 15 digits that rounds.
    digits = f"{float(whole) + rest / 1e9!r}"
    if "e" in digits:
        digits = f"{float(digits):.20f}".rstrip("0")
    return f"{sign}{digits.removesuffix('.0')}s"
