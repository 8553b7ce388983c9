"""CEL's operators on plain JSON values, wherever Python's own differ.

They differ a lot: a boolean is an integer to Python, integers never overflow, division rounds down, and a list takes a
negative index. Types are compared with `is`, which also keeps booleans away from integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from rota.api.cel.errors import BeyondSubsetError, CelEvalError
from rota.api.cel.lexer import INT_MAX, INT_MIN
from rota.api.cel.quantity import Quantity
from rota.api.cel.times import Duration, Timestamp

TYPE_NAMES: Final[dict[type, str]] = {
    bool: "bool",
    int: "int",
    float: "double",
    str: "string",
    list: "list",
    dict: "map",
    type(None): "null_type",
    Duration: "duration",
    Timestamp: "timestamp",
    Quantity: "quantity",
}
_ORDERED: Final = frozenset((int, float, str, bool, Duration, Timestamp))


def type_name(value: Any) -> str:
    """CEL's name of a value's type, for messages."""
    return TYPE_NAMES.get(type(value), "type")


def no_overload(operation: str, *operands: Any) -> CelEvalError:
    """The operation is not defined on values of these types."""
    return CelEvalError(f"no such overload: {operation} on {', '.join(map(type_name, operands))}")


def no_key(key: Any) -> CelEvalError:
    """The map or object has no such key or field."""
    return CelEvalError(f"no such key: {key}")


def equals(left: Any, right: Any) -> bool:
    """Deep equality: numbers by value whatever their type, everything else only within its type."""
    kind, other = type(left), type(right)
    if kind is not other:
        if (kind is int and other is float) or (kind is float and other is int):
            # As CEL does: the integer as a double, rounded if need be.
            return float(left) == float(right)
        return False
    if kind is list:
        return len(left) == len(right) and all(map(equals, left, right))
    if kind is dict:
        if left.keys() != right.keys():
            return False
        return all(equals(value, right[key]) for key, value in left.items())
    return bool(left == right)


def order(operation: str, left: Any, right: Any) -> tuple[Any, Any]:
    """Both operands, made comparable by Python's operators."""
    kind, other = type(left), type(right)
    if kind is other and kind in _ORDERED:
        pass
    elif (kind is int and other is float) or (kind is float and other is int):
        left, right = float(left), float(right)
    else:
        raise no_overload(operation, left, right)
    if left != left or right != right:
        raise CelEvalError("NaN values cannot be ordered")
    return left, right


def less(left: Any, right: Any) -> bool:
    """`left < right`."""
    left, right = order("<", left, right)
    return bool(left < right)


def less_or_equal(left: Any, right: Any) -> bool:
    """`left <= right`."""
    left, right = order("<=", left, right)
    return bool(left <= right)


def greater(left: Any, right: Any) -> bool:
    """`left > right`."""
    left, right = order(">", left, right)
    return bool(left > right)


def greater_or_equal(left: Any, right: Any) -> bool:
    """`left >= right`."""
    left, right = order(">=", left, right)
    return bool(left >= right)


def _in_range(value: int) -> int:
    if INT_MIN <= value <= INT_MAX:
        return value
    raise CelEvalError("integer overflow")


def add(left: Any, right: Any) -> Any:
    """`left + right`."""
    kind, other = type(left), type(right)
    if kind is other:
        if kind is int:
            return _in_range(left + right)
        if kind is float or kind is str or kind is list or kind is Duration:
            return left + right
    elif (kind is Timestamp and other is Duration) or (kind is Duration and other is Timestamp):
        return left + right
    raise no_overload("+", left, right)


def subtract(left: Any, right: Any) -> Any:
    """`left - right`."""
    kind, other = type(left), type(right)
    if kind is other:
        if kind is int:
            return _in_range(left - right)
        if kind is float or kind is Duration or kind is Timestamp:
            return left - right
    elif kind is Timestamp and other is Duration:
        return left - right
    raise no_overload("-", left, right)


def multiply(left: Any, right: Any) -> Any:
    """`left * right`."""
    kind = type(left)
    if kind is type(right):
        if kind is int:
            return _in_range(left * right)
        if kind is float:
            return left * right
    raise no_overload("*", left, right)


def divide(left: Any, right: Any) -> Any:
    """`left / right`: integers round toward zero, doubles know infinity."""
    kind = type(left)
    if kind is type(right):
        if kind is int:
            if right == 0:
                raise CelEvalError("division by zero")
            quotient = abs(left) // abs(right)
            return _in_range(quotient if (left < 0) == (right < 0) else -quotient)
        if kind is float:
            if right != 0:
                return left / right
            if left == 0 or left != left:
                return math.nan
            return math.copysign(math.inf, left) * math.copysign(1.0, right)
    raise no_overload("/", left, right)


def remainder(left: Any, right: Any) -> int:
    """`left % right`, of integers, with the sign of the left."""
    if type(left) is int and type(right) is int:
        if right == 0:
            raise CelEvalError("modulus by zero")
        if left == INT_MIN and right == -1:
            raise CelEvalError("integer overflow")
        rest = abs(left) % abs(right)
        return -rest if left < 0 else rest
    raise no_overload("%", left, right)


def negate(value: Any) -> Any:
    """`-value`."""
    if type(value) is int:
        return _in_range(-value)
    if type(value) is float:
        return -value
    raise no_overload("-", value)


def contains(item: Any, container: Any) -> bool:
    """`item in container`: an item of a list or a key of a map."""
    if type(container) is list:
        return any(equals(item, member) for member in container)
    if type(container) is dict:
        return type(item) is str and item in container
    raise no_overload("in", item, container)


def at(container: Any, index: Any) -> Any:
    """`container[index]`."""
    if type(container) is dict:
        if type(index) is str and index in container:
            return container[index]
        raise no_key(index)
    if type(container) is list and type(index) is int:
        if 0 <= index < len(container):
            return container[index]
        raise CelEvalError(f"index out of bounds: {index}")
    if type(container) is list and type(index) is float:
        # A list of the schema refuses this and a literal list takes it, and here they look the same.
        raise BeyondSubsetError("the subset has no doubles as indexes")
    raise no_overload("[]", container, index)


def members(container: Any) -> Any:
    """What a macro visits: the items of a list, the keys of a map."""
    if type(container) is list or type(container) is dict:
        return container
    raise no_overload("a macro", container)


def boolean(value: Any) -> bool:
    """The value, where only a boolean will do."""
    if value is True or value is False:
        return value
    raise no_overload("a condition", value)


BINARY: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "==": equals,
    "<": less,
    "<=": less_or_equal,
    ">": greater,
    ">=": greater_or_equal,
    "+": add,
    "-": subtract,
    "*": multiply,
    "/": divide,
    "%": remainder,
    "in": contains,
}
