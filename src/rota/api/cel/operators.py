"""CEL's operators on plain JSON values, wherever Python's own differ.

They differ a lot: a boolean is an integer to Python, integers never overflow, and a list takes a negative index. Types
are compared with `is`, which also keeps booleans away from integers.

Values whose schema says how lists compare are compared by it: to a kube-apiserver, lists of type `set` and `map` are
equal whatever their order, also deep inside `self == oldSelf`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from rota.api.cel.errors import CelEvalError
from rota.api.quantity import INT_MAX, Quantity
from rota.api.structure import Structure

_TYPE_NAMES: Final[dict[type, str]] = {
    bool: "bool",
    int: "int",
    float: "double",
    str: "string",
    list: "list",
    dict: "map",
    type(None): "null_type",
    Quantity: "quantity",
}
_ORDERED: Final = frozenset((int, str, bool))


def no_overload(operation: str, *operands: Any) -> CelEvalError:
    """Return the error of an operation that is not defined on values of these types."""
    names = ", ".join(_TYPE_NAMES.get(type(operand), "type") for operand in operands)
    return CelEvalError(f"no such overload: {operation} on {names}")


def no_key(key: Any) -> CelEvalError:
    """Return the error of a map or object that has no such key or field."""
    return CelEvalError(f"no such key: {key}")


def in_range(value: int) -> int:
    """Return an integer that fits into 64 bits."""
    if -INT_MAX - 1 <= value <= INT_MAX:
        return value
    raise CelEvalError("integer overflow")


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
        return left.keys() == right.keys() and all(equals(value, right[key]) for key, value in left.items())
    return bool(left == right)


def equals_by(node: Structure | None, left: Any, right: Any) -> bool:
    """Deep equality of two values, the left of which has this structure."""
    if node is None or type(left) is not type(right):
        return equals(left, right)
    if type(left) is list and node.kind == "list":
        if len(left) != len(right):
            return False
        if node.list_type == "set":
            return _scalars(left) == _scalars(right)
        if node.list_type == "map":
            return _equals_keyed(node, left, right)
        return all(equals_by(node.item, mine, other) for mine, other in zip(left, right, strict=True))
    if type(left) is dict and node.kind in ("struct", "map"):
        if left.keys() != right.keys():
            return False
        return all(equals_by(node.fields.get(key, node.item), value, right[key]) for key, value in left.items())
    return equals(left, right)


def _scalars(items: list[Any]) -> set[Any]:
    try:
        return set(items)
    except TypeError:
        raise CelEvalError("a list of type set holds scalars only") from None


def _equals_keyed(node: Structure, left: list[Any], right: list[Any]) -> bool:
    mine, others = ({_key(node, item): item for item in items} for items in (left, right))
    return mine.keys() == others.keys() and all(equals_by(node.item, item, others[key]) for key, item in mine.items())


def _key(node: Structure, item: Any) -> tuple[Any, ...]:
    if type(item) is not dict:
        raise CelEvalError("a list of type map holds objects only")
    return tuple(item.get(field) for field in node.keys)


def _check_order(operation: str, left: Any, right: Any) -> None:
    if type(left) is not type(right) or type(left) not in _ORDERED:
        raise no_overload(operation, left, right)


def less(left: Any, right: Any) -> bool:
    """`left < right`."""
    _check_order("<", left, right)
    return bool(left < right)


def less_or_equal(left: Any, right: Any) -> bool:
    """`left <= right`."""
    _check_order("<=", left, right)
    return bool(left <= right)


def greater(left: Any, right: Any) -> bool:
    """`left > right`."""
    _check_order(">", left, right)
    return bool(left > right)


def greater_or_equal(left: Any, right: Any) -> bool:
    """`left >= right`."""
    _check_order(">=", left, right)
    return bool(left >= right)


def multiply(left: Any, right: Any) -> int:
    """`left * right`, of integers."""
    if type(left) is int and type(right) is int:
        return in_range(left * right)
    raise no_overload("*", left, right)


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
    raise no_overload("[]", container, index)


def members(container: Any) -> Any:
    """Return what a macro visits: the items of a list, the keys of a map."""
    if type(container) is list or type(container) is dict:
        return container
    raise no_overload("a macro", container)


def boolean(value: Any) -> bool:
    """Return a value where only a boolean will do."""
    if value is True or value is False:
        return value
    raise no_overload("a condition", value)


BINARY: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "==": equals,
    "<": less,
    "<=": less_or_equal,
    ">": greater,
    ">=": greater_or_equal,
    "*": multiply,
    "in": contains,
}
