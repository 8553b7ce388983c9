"""Values as they appear in Kubernetes' messages: the way Go prints them."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

ESCAPES = {char: "\\" + letter for char, letter in zip('"\\\a\b\f\n\r\t\v', '"\\abfnrtv', strict=True)}
EXPONENT_MIN, EXPONENT_MAX = -4, 5
"""Numbers whose exponent is outside are written with it."""
JSON_EXPONENTS = (-6, 20)
NOT_IN_JSON = re.compile("[<>&\u2028\u2029]")


def printed(value: Any) -> str:
    """Return a value as messages quote it."""
    if isinstance(value, str):
        return quoted(value)
    return number(value) if isinstance(value, float) else _json(value)


def _json(value: Any) -> str:
    match value:
        case dict():
            return "{" + ",".join(f"{_json(key)}:{_json(inner)}" for key, inner in sorted(value.items())) + "}"
        case list():
            return "[" + ",".join(map(_json, value)) + "]"
        case float() | int() if isinstance(value, float) or not -(2**63) <= value < 2**63:
            return re.sub("e-0", "e-", number(value, *JSON_EXPONENTS))
        case str():
            return NOT_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))
    return json.dumps(value)


def plain(value: Any) -> str:
    """Return a value as a part of a sentence, without quotes."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return str(value).lower()
        case float():
            return number(value)
        case dict():
            return "map[" + " ".join(f"{key}:{plain(inner)}" for key, inner in sorted(value.items())) + "]"
        case list():
            return "[" + " ".join(map(plain, value)) + "]"
    return str(value)


def quoted(text: str) -> str:
    """Return a text in quotes, with escapes for characters that cannot be printed."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(char: str) -> str:
    if char in ESCAPES:
        return ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def number(value: float, least: int = EXPONENT_MIN, most: int = EXPONENT_MAX) -> str:
    """Return the shortest form of a number, with an exponent if that is outside `least` and `most`."""
    exactly = Decimal(repr(float(value))).normalize()
    sign, digits, exponent = exactly.as_tuple()
    assert isinstance(exponent, int), "JSON has no infinities"
    leading = len(digits) + exponent - 1
    if least <= leading <= most:
        return f"{exactly:f}"
    mantissa = "".join(map(str, digits))
    mantissa = mantissa[0] + (f".{mantissa[1:]}" if len(mantissa) > 1 else "")
    return f"{'-' if sign else ''}{mantissa}e{leading:+03d}"
