"""What the functions and methods do; a method's target is its first argument.

Each refuses arguments of other types. A kube-apiserver does so when the kind is created, or later for a `dyn`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final

from rota.api.cel.automaton import Regex
from rota.api.cel.bounds import TEXT_CHARS_MAX
from rota.api.cel.conversions import to_bool, to_double, to_duration, to_int, to_string, to_timestamp, type_of
from rota.api.cel.errors import BeyondSubsetError, CelEvalError
from rota.api.cel.operators import add, equals, less, no_overload
from rota.api.cel.quantity import Quantity, is_quantity, minus, parse_quantity, plus
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
    """The function, refusing arguments of other types. The last arguments may be missing, if the signature says so."""
    wanted = [kind if isinstance(kind, tuple) else (kind,) for kind in types]

    def call(*arguments: Any) -> Any:
        for argument, kinds in zip(arguments, wanted, strict=False):
            if type(argument) not in kinds:
                raise no_overload(name, *arguments)
        return function(*arguments)

    return call


def _typed_pair(name: str, function: Function, first: type, second: type) -> Function:
    """As `_typed`, and quicker, for the methods that rules call most."""

    def call(left: Any, right: Any) -> Any:
        if type(left) is first and type(right) is second:
            return function(left, right)
        raise no_overload(name, left, right)

    return call


def _unit(name: str, unit: str) -> Function:
    return _typed(name, lambda value: whole_units(value, unit), Duration)


FUNCTIONS: Final[dict[str, Function]] = {
    "size": size,
    "int": to_int,
    "double": to_double,
    "bool": to_bool,
    "string": to_string,
    "dyn": lambda value: value,
    "type": type_of,
    "duration": to_duration,
    "timestamp": to_timestamp,
    "quantity": _typed("quantity", parse_quantity, str),
    "isQuantity": _typed("isQuantity", is_quantity, str),
    "matches": _typed_pair("matches", lambda text, regex: regex.search(text), str, Regex),
}

METHODS: Final[dict[str, Function]] = {
    "size": size,
    "contains": _typed_pair("contains", lambda text, part: part in text, str, str),
    "startsWith": _typed_pair("startsWith", str.startswith, str, str),
    "endsWith": _typed_pair("endsWith", str.endswith, str, str),
    "matches": FUNCTIONS["matches"],
    "lowerAscii": _typed("lowerAscii", lambda text: text.translate(_LOWER), str),
    "upperAscii": _typed("upperAscii", lambda text: text.translate(_UPPER), str),
    "trim": _typed("trim", lambda text: text.strip(_SPACES), str),
    "charAt": _typed_pair("charAt", _char_at, str, int),
    "split": _typed("split", _split, str, str, int),
    "replace": _typed("replace", _replace, str, str, str, int),
    "substring": _typed("substring", _substring, str, int, int),
    "indexOf": index_of,
    "lastIndexOf": last_index_of,
    "join": _typed("join", _join, list, str),
    "isSorted": _typed("isSorted", _is_sorted, list),
    "sum": _typed("sum", _sum, list),
    "min": _typed("min", _least, list),
    "max": _typed("max", _greatest, list),
    "getHours": _unit("getHours", "h"),
    "getMinutes": _unit("getMinutes", "m"),
    "getSeconds": _unit("getSeconds", "s"),
    "getMilliseconds": _unit("getMilliseconds", "ms"),
    "compareTo": _typed_pair("compareTo", _compare, Quantity, Quantity),
    "isGreaterThan": _typed_pair("isGreaterThan", lambda left, right: left > right, Quantity, Quantity),
    "isLessThan": _typed_pair("isLessThan", lambda left, right: left < right, Quantity, Quantity),
    "add": _typed("add", plus, Quantity, (Quantity, int)),
    "sub": _typed("sub", minus, Quantity, (Quantity, int)),
}
