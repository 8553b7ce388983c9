"""Which functions and methods a rule may call. What they do is in `functions`, needed once a rule is evaluated."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Kind = Literal["bool", "int", "string", "any"]
"""What is known of a value before evaluation, as far as it helps."""


class Signature(NamedTuple):
    """How many arguments there may be, the target of a method included, and what comes back."""

    arities: tuple[int, ...]
    result: Kind = "any"


FUNCTIONS: Final = {
    "size": Signature((1,), "int"),
    "int": Signature((1,), "int"),
    "double": Signature((1,)),
    "bool": Signature((1,), "bool"),
    "string": Signature((1,), "string"),
    "dyn": Signature((1,)),
    "type": Signature((1,)),
    "duration": Signature((1,)),
    "timestamp": Signature((1,)),
    "quantity": Signature((1,)),
    "isQuantity": Signature((1,), "bool"),
    "matches": Signature((2,), "bool"),
}

METHODS: Final = {
    "size": Signature((1,), "int"),
    "contains": Signature((2,), "bool"),
    "startsWith": Signature((2,), "bool"),
    "endsWith": Signature((2,), "bool"),
    "matches": Signature((2,), "bool"),
    "lowerAscii": Signature((1,), "string"),
    "upperAscii": Signature((1,), "string"),
    "trim": Signature((1,), "string"),
    "charAt": Signature((2,), "string"),
    "split": Signature((2, 3)),
    "replace": Signature((3, 4), "string"),
    "substring": Signature((2, 3), "string"),
    "indexOf": Signature((2,), "int"),
    "lastIndexOf": Signature((2,), "int"),
    "join": Signature((1, 2), "string"),
    "isSorted": Signature((1,), "bool"),
    "sum": Signature((1,)),
    "min": Signature((1,)),
    "max": Signature((1,)),
    "getHours": Signature((1,), "int"),
    "getMinutes": Signature((1,), "int"),
    "getSeconds": Signature((1,), "int"),
    "getMilliseconds": Signature((1,), "int"),
    "compareTo": Signature((2,), "int"),
    "isGreaterThan": Signature((2,), "bool"),
    "isLessThan": Signature((2,), "bool"),
    "add": Signature((2,)),
    "sub": Signature((2,)),
}

SCANS: Final = ("indexOf", "lastIndexOf", "join", "isSorted", "sum", "min", "max")
"""Methods that visit every item of a list."""

TYPES: Final = ("bool", "int", "double", "string", "list", "map", "null_type")
"""Types that a rule may name, to compare with what `type()` returns."""
