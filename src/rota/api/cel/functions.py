"""The functions and methods that a rule may call; a method's target is its first argument.

Each raises an error for an argument of a wrong type. A kube-apiserver does so when the kind is created, or at the
evaluation if the type is `dyn`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

from rota.api.cel.errors import BeyondSubsetError, CelEvalError
from rota.api.cel.operators import in_range, no_overload
from rota.api.quantity import Quantity, is_quantity, parse_quantity

_UPPER: Final = {ord(lower): ord(lower) - 32 for lower in "abcdefghijklmnopqrstuvwxyz"}

Kind = Literal["bool", "int", "string", "any"]
"""The type of a value as far as it is known before evaluation."""


class Overload(NamedTuple):
    """An implementation of a function or method, and the types it returns."""

    call: Callable[..., Any]
    arity: int
    """The number of arguments, with the target of a method."""
    result: Kind


def _size(value: Any) -> int:
    if type(value) is list or type(value) is str or type(value) is dict:
        return len(value)
    raise no_overload("size", value)


def _string(value: Any) -> str:
    if type(value) is str:
        return value
    if type(value) is int:
        return str(value)
    raise no_overload("string", value)


def _sum(items: Any) -> int:
    if type(items) is not list or any(type(item) is not int for item in items):
        raise no_overload("sum", items)
    return in_range(sum(items))


def _typed(name: str, function: Callable[[Any], Any], first: type) -> Callable[..., Any]:
    def call(value: Any) -> Any:
        if type(value) is first:
            return function(value)
        raise no_overload(name, value)

    return call


def _typed_pair(name: str, function: Callable[[Any, Any], Any], first: type, second: type) -> Callable[..., Any]:
    def call(left: Any, right: Any) -> Any:
        if type(left) is first and type(right) is second:
            return function(left, right)
        raise no_overload(name, left, right)

    return call


def _reading(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Wrap a function of quantities so that its errors are those of rules."""

    def call(text: str) -> Any:
        try:
            return read(text)
        except OverflowError as error:
            raise BeyondSubsetError(str(error)) from None
        except ValueError as error:
            raise CelEvalError(str(error)) from None

    return call


FUNCTIONS: Final = {
    "size": Overload(_size, 1, "int"),
    "string": Overload(_string, 1, "string"),
    "quantity": Overload(_typed("quantity", _reading(parse_quantity), str), 1, "any"),
    "isQuantity": Overload(_typed("isQuantity", _reading(is_quantity), str), 1, "bool"),
}

METHODS: Final = {
    "size": FUNCTIONS["size"],
    "contains": Overload(_typed_pair("contains", lambda text, part: part in text, str, str), 2, "bool"),
    "startsWith": Overload(_typed_pair("startsWith", str.startswith, str, str), 2, "bool"),
    "matches": Overload(
        _typed_pair("matches", lambda text, pattern: pattern.search(text) is not None, str, re.Pattern), 2, "bool"
    ),
    "upperAscii": Overload(_typed("upperAscii", lambda text: text.translate(_UPPER), str), 1, "string"),
    "sum": Overload(_sum, 1, "int"),
    "compareTo": Overload(
        _typed_pair("compareTo", lambda left, right: (left > right) - (left < right), Quantity, Quantity), 2, "int"
    ),
    "isGreaterThan": Overload(
        _typed_pair("isGreaterThan", lambda left, right: left > right, Quantity, Quantity), 2, "bool"
    ),
}
