"""Kubernetes' quantities: `500m`, `1.5Gi`, `2e3`."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

INT_MAX: Final = 2**63 - 1
EXPONENT_MAX: Final = 1000
"""Bound on decimal exponents such as `1e1000`. Kubernetes reads larger ones too."""
_QUANTITY: Final = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?((?:[numkMGTPE]|[KMGTPE]i)?|[eE][+-]?[0-9]+)", re.ASCII)
_DECIMAL_EXPONENT: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_EXPONENT: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_NANOS: Final = 1_000_000_000


class Quantity(Struct, frozen=True, order=True):
    """An amount, counted in the smallest unit that Kubernetes represents."""

    nanos: int


def parse_quantity(text: str) -> Quantity:
    """Read an amount, rounded away from zero to whole nanos. As in Kubernetes, digits may be missing: `m` is zero.

    Raises `ValueError` for anything else, and `OverflowError` for an exponent beyond `EXPONENT_MAX`.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None or not text:
        raise ValueError(f"not a quantity: {text!r}")
    sign, whole, fraction, suffix = match[1], match[2], match[3] or "", match[4]
    unscaled, exponent = int(whole + fraction or "0") * _NANOS, -len(fraction)
    if suffix in _BINARY_EXPONENT:
        # Only binary suffixes have a ceiling.
        unscaled = min(unscaled << _BINARY_EXPONENT[suffix], INT_MAX * _NANOS * 10 ** len(fraction))
    elif suffix in _DECIMAL_EXPONENT:
        exponent += _DECIMAL_EXPONENT[suffix]
    elif abs(int(suffix[1:])) > EXPONENT_MAX:
        raise OverflowError(f"a quantity with an exponent beyond {EXPONENT_MAX}: {text!r}")
    else:
        exponent += int(suffix[1:])
    nanos = unscaled * 10**exponent if exponent >= 0 else -(-unscaled // 10**-exponent)
    return Quantity(-nanos if sign == "-" else nanos)


def is_quantity(text: str) -> bool:
    """Report whether `parse_quantity` takes a text. Raises `OverflowError` as that does."""
    try:
        parse_quantity(text)
    except ValueError:
        return False
    return True
