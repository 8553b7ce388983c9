"""The tree of a rule, and the escapes of field names in it. Every node has the position of its text, for messages.

Plain classes, since a dozen dataclasses would cost every start of the program milliseconds.
"""

from __future__ import annotations

import re
from typing import Final

from rota.api.structure import Structure

RESERVED: Final = frozenset(
    ("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import",
     "let", "loop", "package", "namespace", "return", "var", "void", "while")
)  # fmt: skip
"""Words that CEL keeps from being identifiers."""

_ESCAPED: Final = {"__underscores__": "__", "__dot__": ".", "__dash__": "-", "__slash__": "/"}
_SEQUENCE: Final = re.compile("__[^_]+__")


def unescape(name: str) -> str | None:
    """The field's name in the object: `a__dash__b` is `a-b`, and `__in__` is `in`. None when it is misspelt."""
    if "__" not in name:
        return name
    if name[2:-2] in RESERVED and name == f"__{name[2:-2]}__":
        return name[2:-2]
    if any(sequence not in _ESCAPED for sequence in _SEQUENCE.findall(name)):
        return None
    return _SEQUENCE.sub(lambda match: _ESCAPED[match.group()], name)


class Literal:
    """A string, integer or boolean."""

    __slots__ = ("position", "value")

    def __init__(self, value: str | int | bool, position: int) -> None:
        self.value = value
        self.position = position


class ListOf:
    """`[a, b]`."""

    __slots__ = ("items", "position")

    def __init__(self, items: list[Expr], position: int) -> None:
        self.items = items
        self.position = position


class Name:
    """A variable."""

    __slots__ = ("name", "position")

    def __init__(self, name: str, position: int) -> None:
        self.name = name
        self.position = position


class Select:
    """`operand.field`. The field's name is as written, so still escaped."""

    __slots__ = ("field", "is_key", "operand", "position")

    def __init__(self, operand: Expr, field: str, position: int) -> None:
        self.operand = operand
        self.field = field
        self.position = position
        self.is_key: bool = False
        """True if the operand is a map, whose keys are never escaped."""


class Has:
    """`has(operand.field)`."""

    __slots__ = ("field", "is_key", "operand", "position")

    def __init__(self, operand: Expr, field: str, position: int) -> None:
        self.operand = operand
        self.field = field
        self.position = position
        self.is_key: bool = False
        """True if the operand is a map, whose keys are never escaped."""


class Index:
    """`operand[index]`."""

    __slots__ = ("index", "operand", "position")

    def __init__(self, operand: Expr, index: Expr, position: int) -> None:
        self.operand = operand
        self.index = index
        self.position = position


class Not:
    """`!a`."""

    __slots__ = ("operand", "position")

    def __init__(self, operand: Expr, position: int) -> None:
        self.operand = operand
        self.position = position


class Binary:
    """A comparison, `*` or `in`."""

    __slots__ = ("left", "operator", "position", "right", "structure")

    def __init__(self, operator: str, left: Expr, right: Expr, position: int) -> None:
        self.operator = operator
        self.left = left
        self.right = right
        self.position = position
        self.structure: Structure | None = None
        """The structure of the compared values, if it has lists that compare in any order."""


class Logic:
    """A whole chain of `&&` or of `||`: both associate, and flat chains keep the generated code flat."""

    __slots__ = ("operands", "operator", "position")

    def __init__(self, operator: str, operands: list[Expr], position: int) -> None:
        self.operator = operator
        self.operands = operands
        self.position = position


class Conditional:
    """`condition ? then : otherwise`."""

    __slots__ = ("condition", "otherwise", "position", "then")

    def __init__(self, condition: Expr, then: Expr, otherwise: Expr, position: int) -> None:
        self.condition = condition
        self.then = then
        self.otherwise = otherwise
        self.position = position


class Call:
    """A function, or a method when it has a target; the target is then the first argument."""

    __slots__ = ("arguments", "is_method", "name", "position")

    def __init__(self, name: str, arguments: list[Expr], is_method: bool, position: int) -> None:
        self.name = name
        self.arguments = arguments
        self.is_method = is_method
        self.position = position


class Macro:
    """`target.name(variable, body)`."""

    __slots__ = ("body", "name", "position", "target", "variable")

    def __init__(self, name: str, target: Expr, variable: str, body: Expr, position: int) -> None:
        self.name = name
        self.target = target
        self.variable = variable
        self.body = body
        self.position = position


Expr = Literal | ListOf | Name | Select | Has | Index | Not | Binary | Logic | Conditional | Call | Macro
