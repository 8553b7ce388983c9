"""The functions and methods a rule may call, by name and number of arguments; a method's target is its first argument.

Each refuses arguments of other types. A kube-apiserver does so when the kind is created, or later for a `dyn`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final

from rota.api.cel.bounds import TEXT_CHARS_MAX
from rota.api.cel.conversions import to_bool, to_double, to_duration, to_int, to_string, to_timestamp, type_of
from rota.api.cel.errors import BeyondSubsetError, CelEvalError
from rota.api.cel.operators import add, equals, less, no_overload
from rota.api.cel.quantity import Quantity, is_quantity, minus, parse_quantity, plus
from rota.api.cel.regex import Regex
from rota.api.cel.times import Duration, whole_units

Function = Callable[..., Any]

_LOWER: Final = {ord(upper): ord(upper) + 32 for upper in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
_UPPER: Final = {lower: upper for upper, lower in _LOWER.items()}
# Unicode's White_Space, which is less than what `str.strip` removes.
_SPACES: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))


def size(value: Any) -> int:
    """`size(value)`: characters, items or entries."""
    if type(value) is list or type(value) is str or type(value) is dict:
        return len(value)
    raise no_overload("size", value)


def _bounded(text: str) -> str:
    if len(text) > TEXT_CHARS_MAX:
        raise BeyondSubsetError(f"a string longer than {TEXT_CHARS_MAX}")
    return text


def _replace(text: str, old: str, new: str, most: int = -1) -> str:
    count = text.count(old) if most < 0 else min(text.count(old), most)
    if len(text) + count * (len(new) - len(old)) > TEXT_CHARS_MAX:
        raise BeyondSubsetError(f"a string longer than {TEXT_CHARS_MAX}")
    return text.replace(old, new, most)


def _split(text: str, separator: str, most: int = -1) -> list[str]:
    if most == 0:
        return []
    if separator:
        return text.split(separator, most - 1 if most > 0 else -1)
    if most < 0 or most >= len(text):
        return list(text)
    return [*text[: most - 1], text[most - 1 :]]


def _substring(text: str, start: int, end: int | None = None) -> str:
    end = len(text) if end is None else end
    if not 0 <= start <= end <= len(text):
        raise CelEvalError(f"substring out of range: {start} to {end} of {len(text)}")
    return text[start:end]


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise CelEvalError(f"index out of range: {index}")
    return text[index : index + 1]


def _join(items: list[Any], separator: str = "") -> str:
    for item in items:
        if type(item) is not str:
            raise no_overload("join", item)
    return _bounded(separator.join(items))


def index_of(container: Any, item: Any) -> int:
    """`indexOf`, of a substring or of an item; -1 when there is none."""
    if type(container) is str and type(item) is str:
        return container.find(item)
    if type(container) is list:
        return next((index for index, member in enumerate(container) if equals(member, item)), -1)
    raise no_overload("indexOf", container, item)


def last_index_of(container: Any, item: Any) -> int:
    """`lastIndexOf`, of a substring or of an item; -1 when there is none."""
    if type(container) is str and type(item) is str:
        return container.rfind(item)
    if type(container) is list:
        return next((index for index in reversed(range(len(container))) if equals(container[index], item)), -1)
    raise no_overload("lastIndexOf", container, item)


def _is_sorted(items: list[Any]) -> bool:
    return not any(less(after, before) for before, after in pairwise(items))


def _sum(items: list[Any]) -> Any:
    total: Any = 0
    for index, item in enumerate(items):
        if type(item) is Duration:
            raise BeyondSubsetError("the subset has no sum of durations")
        if type(item) is not int and type(item) is not float:
            raise no_overload("sum", item)
        total = add(total, item) if index else item
    return total


def _least(items: list[Any]) -> Any:
    return _best("min", items, less)


def _greatest(items: list[Any]) -> Any:
    return _best("max", items, lambda left, right: less(right, left))


def _best(operation: str, items: list[Any], is_better: Callable[[Any, Any], bool]) -> Any:
    if not items:
        raise CelEvalError(f"{operation} of an empty list")
    best = items[0]
    for item in items[1:]:
        if is_better(item, best):
            best = item
    return best


def _compare(left: Quantity, right: Quantity) -> int:
    return (left.nanos > right.nanos) - (left.nanos < right.nanos)


def _typed(name: str, function: Function, *types: type | tuple[type, ...]) -> Function:
    """The function, refusing arguments of other types."""
    wanted = [kind if isinstance(kind, tuple) else (kind,) for kind in types]
    if len(wanted) == 2 and all(len(kinds) == 1 for kinds in wanted):
        first, second = wanted[0][0], wanted[1][0]

        def call_two(left: Any, right: Any) -> Any:
            if type(left) is first and type(right) is second:
                return function(left, right)
            raise no_overload(name, left, right)

        return call_two

    def call(*arguments: Any) -> Any:
        for argument, kinds in zip(arguments, wanted, strict=True):
            if type(argument) not in kinds:
                raise no_overload(name, *arguments)
        return function(*arguments)

    return call


def _unit(name: str, unit: str) -> Function:
    return _typed(name, lambda value: whole_units(value, unit), Duration)


_QUANTITY_OR_INT: Final = (Quantity, int)

FUNCTIONS: Final[dict[str, dict[int, Function]]] = {
    "size": {1: size},
    "int": {1: to_int},
    "double": {1: to_double},
    "bool": {1: to_bool},
    "string": {1: to_string},
    "dyn": {1: lambda value: value},
    "type": {1: type_of},
    "duration": {1: to_duration},
    "timestamp": {1: to_timestamp},
    "quantity": {1: _typed("quantity", parse_quantity, str)},
    "isQuantity": {1: _typed("isQuantity", is_quantity, str)},
    "matches": {2: _typed("matches", lambda text, regex: regex.search(text), str, Regex)},
}

METHODS: Final[dict[str, dict[int, Function]]] = {
    "size": {1: size},
    "contains": {2: _typed("contains", lambda text, part: part in text, str, str)},
    "startsWith": {2: _typed("startsWith", str.startswith, str, str)},
    "endsWith": {2: _typed("endsWith", str.endswith, str, str)},
    "matches": FUNCTIONS["matches"],
    "lowerAscii": {1: _typed("lowerAscii", lambda text: text.translate(_LOWER), str)},
    "upperAscii": {1: _typed("upperAscii", lambda text: text.translate(_UPPER), str)},
    "trim": {1: _typed("trim", lambda text: text.strip(_SPACES), str)},
    "charAt": {2: _typed("charAt", _char_at, str, int)},
    "split": {2: _typed("split", _split, str, str), 3: _typed("split", _split, str, str, int)},
    "replace": {3: _typed("replace", _replace, str, str, str), 4: _typed("replace", _replace, str, str, str, int)},
    "substring": {2: _typed("substring", _substring, str, int), 3: _typed("substring", _substring, str, int, int)},
    "indexOf": {2: index_of},
    "lastIndexOf": {2: last_index_of},
    "join": {1: _typed("join", _join, list), 2: _typed("join", _join, list, str)},
    "isSorted": {1: _typed("isSorted", _is_sorted, list)},
    "sum": {1: _typed("sum", _sum, list)},
    "min": {1: _typed("min", _least, list)},
    "max": {1: _typed("max", _greatest, list)},
    "getHours": {1: _unit("getHours", "h")},
    "getMinutes": {1: _unit("getMinutes", "m")},
    "getSeconds": {1: _unit("getSeconds", "s")},
    "getMilliseconds": {1: _unit("getMilliseconds", "ms")},
    "compareTo": {2: _typed("compareTo", _compare, Quantity, Quantity)},
    "isGreaterThan": {2: _typed("isGreaterThan", lambda left, right: left > right, Quantity, Quantity)},
    "isLessThan": {2: _typed("isLessThan", lambda left, right: left < right, Quantity, Quantity)},
    "add": {2: _typed("add", plus, Quantity, _QUANTITY_OR_INT)},
    "sub": {2: _typed("sub", minus, Quantity, _QUANTITY_OR_INT)},
}

RETURN_BOOL: Final = frozenset(
    ("bool", "isQuantity", "matches", "contains", "startsWith", "endsWith", "isSorted", "isGreaterThan", "isLessThan")
)
RETURN_INT: Final = frozenset(("size", "int", "indexOf", "lastIndexOf", "compareTo"))
