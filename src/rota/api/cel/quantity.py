"""Kubernetes' quantities: `500m`, `1.5Gi`, `2e3`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from rota.api.cel.errors import BeyondSubsetError, CelEvalError
from rota.api.cel.lexer import INT_MAX

_QUANTITY: Final = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?((?:[numkMGTPE]|[KMGTPE]i)?|[eE][+-]?[0-9]+)", re.ASCII)
_DECIMAL_EXPONENT: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_EXPONENT: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_NANOS: Final = 1_000_000_000
EXPONENT_MAX: Final = 1000
"""Of `1e1000`. Kubernetes reads larger ones, whose digits a rule would then have to carry."""


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """An amount, counted in the smallest that Kubernetes represents."""

    nanos: int


def parse_quantity(text: str) -> Quantity:
    """The amount, rounded away from zero to whole nanos. As in Kubernetes, digits may be missing: `m` is zero."""
    match = _QUANTITY.fullmatch(text)
    if match is None or not text:
        raise CelEvalError(f"not a quantity: {text!r}")
    sign, whole, fraction, suffix = match[1], match[2], match[3] or "", match[4]
    unscaled, exponent = int(whole + fraction or "0") * _NANOS, -len(fraction)
    if suffix in _BINARY_EXPONENT:
        # Only binary suffixes have a ceiling.
        unscaled = min(unscaled << _BINARY_EXPONENT[suffix], INT_MAX * _NANOS * 10 ** len(fraction))
    elif suffix in _DECIMAL_EXPONENT:
        exponent += _DECIMAL_EXPONENT[suffix]
    elif abs(int(suffix[1:])) > EXPONENT_MAX:
        raise BeyondSubsetError(f"a quantity with an exponent beyond {EXPONENT_MAX}: {text!r}")
    else:
        exponent += int(suffix[1:])
    nanos = unscaled * 10**exponent if exponent >= 0 else -(-unscaled // 10**-exponent)
    return Quantity(-nanos if sign == "-" else nanos)


def is_quantity(text: str) -> bool:
    """Whether `parse_quantity` would take the text."""
    try:
        parse_quantity(text)
    except CelEvalError:
        return False
    return True


def plus(left: Quantity, right: Quantity | int) -> Quantity:
    """The sum; an integer counts whole units."""
    return Quantity(left.nanos + (right * _NANOS if isinstance(right, int) else right.nanos))


def minus(left: Quantity, right: Quantity | int) -> Quantity:
    """The difference; an integer counts whole units."""
    return Quantity(left.nanos - (right * _NANOS if isinstance(right, int) else right.nanos))
