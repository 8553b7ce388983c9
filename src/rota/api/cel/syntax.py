"""The tree of a rule. Every node knows where its text stands, for messages.

Plain classes, since a dozen dataclasses would cost every start of the program milliseconds.
"""

from __future__ import annotations

from rota.api.structure import Node


class Literal:
    """A string, number, boolean or null."""

    __slots__ = ("position", "value")

    def __init__(self, value: str | int | float | bool | None, position: int) -> None:
        self.value = value
        self.position = position


class ListOf:
    """`[a, b]`."""

    __slots__ = ("items", "position")

    def __init__(self, items: list[Expr], position: int) -> None:
        self.items = items
        self.position = position


class MapOf:
    """`{"a": b}`."""

    __slots__ = ("entries", "position")

    def __init__(self, entries: list[tuple[Expr, Expr]], position: int) -> None:
        self.entries = entries
        self.position = position


class Name:
    """A variable or, as an operand of `==` and `!=`, a type."""

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
        """Of a map, whose keys are never escaped."""


class Has:
    """`has(operand.field)`."""

    __slots__ = ("field", "is_key", "operand", "position")

    def __init__(self, operand: Expr, field: str, position: int) -> None:
        self.operand = operand
        self.field = field
        self.position = position
        self.is_key: bool = False
        """Of a map, whose keys are never escaped."""


class Index:
    """`operand[index]`."""

    __slots__ = ("index", "operand", "position")

    def __init__(self, operand: Expr, index: Expr, position: int) -> None:
        self.operand = operand
        self.index = index
        self.position = position


class Unary:
    """`!a` or `-a`."""

    __slots__ = ("operand", "operator", "position")

    def __init__(self, operator: str, operand: Expr, position: int) -> None:
        self.operator = operator
        self.operand = operand
        self.position = position


class Binary:
    """Arithmetic, comparison or `in`."""

    __slots__ = ("left", "operator", "position", "right", "structure")

    def __init__(self, operator: str, left: Expr, right: Expr, position: int) -> None:
        self.operator = operator
        self.left = left
        self.right = right
        self.position = position
        self.structure: Node | None = None
        """What is compared, if order does not matter somewhere in it: the left, or the items of the right of `in`."""


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
    """`target.name(variable, body)`; `condition` is the second of the three arguments that `map` may take."""

    __slots__ = ("body", "condition", "name", "position", "target", "variable")

    def __init__(
        self, name: str, target: Expr, variable: str, condition: Expr | None, body: Expr, position: int
    ) -> None:
        self.name = name
        self.target = target
        self.variable = variable
        self.condition = condition
        self.body = body
        self.position = position


Expr = Literal | ListOf | MapOf | Name | Select | Has | Index | Unary | Binary | Logic | Conditional | Call | Macro
