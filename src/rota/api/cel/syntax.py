"""The tree of a rule. Every node knows where its text stands, for messages."""

from __future__ import annotations

from dataclasses import dataclass

from rota.api.structure import Node


@dataclass(slots=True)
class Literal:
    """A string, number, boolean or null."""

    value: str | int | float | bool | None
    position: int


@dataclass(slots=True)
class ListOf:
    """`[a, b]`."""

    items: list[Expr]
    position: int


@dataclass(slots=True)
class MapOf:
    """`{"a": b}`."""

    entries: list[tuple[Expr, Expr]]
    position: int


@dataclass(slots=True)
class Name:
    """A variable or, as an operand of `==` and `!=`, a type."""

    name: str
    position: int


@dataclass(slots=True)
class Select:
    """`operand.field`. The field's name is as written, so still escaped."""

    operand: Expr
    field: str
    position: int
    is_key: bool = False
    """Of a map, whose keys are never escaped."""


@dataclass(slots=True)
class Has:
    """`has(operand.field)`."""

    operand: Expr
    field: str
    position: int
    is_key: bool = False
    """Of a map, whose keys are never escaped."""


@dataclass(slots=True)
class Index:
    """`operand[index]`."""

    operand: Expr
    index: Expr
    position: int


@dataclass(slots=True)
class Unary:
    """`!a` or `-a`."""

    operator: str
    operand: Expr
    position: int


@dataclass(slots=True)
class Binary:
    """Arithmetic, comparison or `in`."""

    operator: str
    left: Expr
    right: Expr
    position: int
    structure: Node | None = None
    """What is compared, if it holds lists that compare in any order: the left, or the items of the right of `in`."""


@dataclass(slots=True)
class Logic:
    """A whole chain of `&&` or of `||`: both associate, and flat chains keep the generated code flat."""

    operator: str
    operands: list[Expr]
    position: int


@dataclass(slots=True)
class Conditional:
    """`condition ? then : otherwise`."""

    condition: Expr
    then: Expr
    otherwise: Expr
    position: int


@dataclass(slots=True)
class Call:
    """A function, or a method when it has a target; the target is then the first argument."""

    name: str
    arguments: list[Expr]
    is_method: bool
    position: int


@dataclass(slots=True)
class Macro:
    """`target.name(variable, body)`; `condition` is the second of the three arguments that `map` may take."""

    name: str
    target: Expr
    variable: str
    condition: Expr | None
    body: Expr
    position: int


Expr = Literal | ListOf | MapOf | Name | Select | Has | Index | Unary | Binary | Logic | Conditional | Call | Macro
