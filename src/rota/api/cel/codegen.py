"""Generate the source of one Python function of `self` and `old` from the tree of a rule.

CEL's errors become exceptions, so the path without errors costs nothing. Every operation emits its statements where it
stands and yields an expression that is used once, in the same block; a value that is needed twice is assigned to a name
first. Since rules have no side effects, only the block matters, not the order.

`&&` and `||` absorb an error of one operand when the other decides. So an operand that may fail stands in a `try` that
keeps the error for later. The last operand needs none: its error is the result anyway. `all` and `exists` treat every
item in this way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from rota.api.cel import functions, operators
from rota.api.cel.bounds import ITERATIONS_MAX
from rota.api.cel.errors import BeyondSubsetError, CelEvalError
from rota.api.cel.functions import FUNCTIONS, METHODS, Kind
from rota.api.cel.patterns import compile_pattern
from rota.api.cel.syntax import (
    Binary,
    Call,
    Conditional,
    Expr,
    Has,
    Index,
    ListOf,
    Logic,
    Macro,
    Name,
    Not,
    Select,
    unescape,
)
from rota.api.cel.syntax import Literal as LiteralExpr

FALLIBLE: Final = (CelEvalError, AttributeError)
"""The errors that `&&` and `||` absorb. A field of a value that is no map is an `AttributeError`: it has no `get`."""

_COMPARISONS: Final = ("<", "<=", ">", ">=")
_INDENTS: Final = [" " * depth for depth in range(100)]


def exceeded() -> BeyondSubsetError:
    """Return the error of an evaluation that visits more than `ITERATIONS_MAX` items."""
    return BeyondSubsetError(f"the rule visits more than {ITERATIONS_MAX} items")


_GLOBALS: Final[dict[str, Any]] = {
    "FALLIBLE": FALLIBLE,
    "exceeded": exceeded,
    "no_key": operators.no_key,
    "boolean": operators.boolean,
    "members": operators.members,
    "at": operators.at,
    "equals_by": operators.equals_by,
    **{function.__name__: function for function in operators.BINARY.values()},
    **{f"f_{name}": function.call for name, function in functions.FUNCTIONS.items()},
    **{f"m_{name}": function.call for name, function in functions.METHODS.items()},
}


@dataclass(slots=True)
class _Value:
    """A Python expression, its type as far as known, and whether it, or the statements emitted for it, may fail."""

    code: str
    kind: Kind = "any"
    fails: bool = True
    constant: object = ...


def generate(tree: Expr) -> Any:
    """Return a rule as a function."""
    emitter = _Emitter()
    text = emitter.function(tree)
    namespace = _GLOBALS | emitter.constants
    exec(compile(text, "<rule>", "exec"), namespace)
    return namespace["rule"]


class _Emitter:
    """The statements of the function of one rule, while they are written."""

    def __init__(self) -> None:
        self.constants: dict[str, Any] = {}
        self._lines: list[str] = []
        self._indent = 1
        self._loops = 0
        self._names = 0
        self._scope: dict[str, str] = {"self": "self", "oldSelf": "old"}
        self._counts = False

    def function(self, tree: Expr) -> str:
        result = self._expr(tree).code
        start = "def rule(self, old):\n visits = 0" if self._counts else "def rule(self, old):"
        return "\n".join((start, *self._lines, f" return {result}"))

    # Writing statements.

    def _emit(self, text: str) -> None:
        self._lines.append(_INDENTS[self._indent] + text)

    @contextmanager
    def _block(self, header: str) -> Iterator[None]:
        self._emit(header)
        self._indent += 1
        yield
        self._indent -= 1

    def _new_name(self) -> str:
        self._names += 1
        return f"v{self._names}"

    def _named(self, value: _Value) -> str:
        if value.code.isidentifier() or value.constant is not ...:
            return value.code
        name = self._new_name()
        self._emit(f"{name} = {value.code}")
        return name

    def _constant(self, value: object) -> str:
        """Return the name of a global of the function, for a value that cannot be written as a literal."""
        name = f"h{len(self.constants)}"
        self.constants[name] = value
        return name

    def _boolean(self, tree: Expr) -> _Value:
        value = self._expr(tree)
        return value if value.kind == "bool" else _Value(f"boolean({value.code})", "bool")

    def _count(self, amount: str) -> None:
        self._counts = True
        self._emit(f"visits += {amount}")
        self._emit(f"if visits > {ITERATIONS_MAX}: raise exceeded()")

    def _count_items(self, name: str) -> None:
        self._count(f"len({name}) if type({name}) is list else 0")

    # The nodes of the tree.

    def _expr(self, tree: Expr) -> _Value:
        match tree:
            case LiteralExpr():
                return self._literal(tree)
            case Name():
                return self._name(tree)
            case Select():
                return self._select(tree)
            case Has():
                return self._has(tree)
            case Index():
                operand, index = self._expr(tree.operand), self._expr(tree.index)
                return _Value(f"at({operand.code}, {index.code})")
            case Not():
                operand = self._boolean(tree.operand)
                return _Value(f"(not {operand.code})", "bool", operand.fails)
            case Binary():
                return self._binary(tree)
            case Logic():
                return self._logic(tree)
            case Conditional():
                return self._conditional(tree)
            case Call():
                return self._call(tree)
            case Macro():
                return self._macro(tree)
            case ListOf():
                items = [self._expr(item) for item in tree.items]
                return _Value(f"[{', '.join(item.code for item in items)}]", fails=any(item.fails for item in items))

    def _literal(self, tree: LiteralExpr) -> _Value:
        value = tree.value
        kind: Kind = "any"
        if isinstance(value, str):
            kind = "string"
        elif isinstance(value, bool):
            kind = "bool"
        elif isinstance(value, int):
            kind = "int"
        return _Value(repr(value), kind, False, value)

    def _name(self, tree: Name) -> _Value:
        return _Value(self._scope[tree.name], fails=False)

    def _has(self, tree: Has) -> _Value:
        operand = self._expr(tree.operand)
        if tree.is_key:
            return _Value(f"contains({tree.field!r}, {operand.code})", "bool")
        fails = operand.fails or not isinstance(tree.operand, Name)
        return _Value(f"({operand.code}.get({unescape(tree.field)!r}) is not None)", "bool", fails)

    def _select(self, tree: Select) -> _Value:
        operand = self._expr(tree.operand)
        if tree.is_key:
            return _Value(f"at({operand.code}, {tree.field!r})")
        field = unescape(tree.field)
        name = self._new_name()
        self._emit(f"{name} = {operand.code}.get({field!r})")
        # A null field is an absent one to a kube-apiserver.
        self._emit(f"if {name} is None: raise no_key({field!r})")
        return _Value(name)

    def _binary(self, tree: Binary) -> _Value:
        if tree.operator in ("==", "!="):
            return self._equality(tree)
        if tree.operator == "in":
            return self._in(tree)
        left, right = self._expr(tree.left), self._expr(tree.right)
        function = operators.BINARY[tree.operator].__name__
        if tree.operator not in _COMPARISONS:
            return _Value(f"{function}({left.code}, {right.code})")
        if left.kind == right.kind and left.kind != "any":
            return _Value(f"({left.code} {tree.operator} {right.code})", "bool", left.fails or right.fails)
        if right.kind == "int":
            name, other = self._named(left), self._named(right)
            quick = f"{name} {tree.operator} {other} if type({name}) is int"
            return _Value(f"({quick} else {function}({name}, {other}))", "bool")
        return _Value(f"{function}({left.code}, {right.code})", "bool")

    def _equality(self, tree: Binary) -> _Value:
        left, right = self._expr(tree.left), self._expr(tree.right)
        fails = left.fails or right.fails
        negation = "not " if tree.operator == "!=" else ""
        if tree.structure is not None:
            return _Value(f"({negation}equals_by({self._constant(tree.structure)}, {left.code}, {right.code}))", "bool")
        if left.constant is not ... and right.constant is ...:
            left, right = right, left
        if left.kind == right.kind != "any" or (right.kind == "string" and right.constant is not ...):
            return _Value(f"({left.code} {tree.operator} {right.code})", "bool", fails)
        if left.constant is ... and isinstance(right.constant, bool):
            identity = "is not" if negation else "is"
            return _Value(f"({left.code} {identity} {right.code})", "bool", fails)
        if right.kind == "int" and right.constant is not ...:
            name = self._named(left)
            quick = f"{name} == {right.code} if type({name}) is int"
            return _Value(f"({negation}({quick} else equals({name}, {right.code})))", "bool", fails)
        return _Value(f"({negation}equals({left.code}, {right.code}))", "bool", fails)

    def _in(self, tree: Binary) -> _Value:
        item = self._expr(tree.left)
        if isinstance(tree.right, ListOf) and tree.right.items:
            literals = [member for member in tree.right.items if isinstance(member, LiteralExpr)]
            if len(literals) == len(tree.right.items) and all(isinstance(member.value, str) for member in literals):
                texts = ", ".join(repr(member.value) for member in literals)
                return _Value(f"({item.code} in ({texts},))", "bool", item.fails)
        container = self._expr(tree.right)
        if self._loops:
            container = _Value(self._named(container))
            self._count_items(container.code)
        return _Value(f"contains({item.code}, {container.code})", "bool")

    def _logic(self, tree: Logic) -> _Value:
        """Emit operands until one decides the result. If none does, the error of an operand is raised."""
        goes_on = tree.operator == "&&"
        check = "" if goes_on else "not "
        result, error = self._new_name(), self._new_name()
        keeps_errors = fails = False
        last = len(tree.operands) - 1
        opening = len(self._lines)
        for number, operand in enumerate(tree.operands):
            if number:
                with self._block(f"if {check}{result}:"):
                    failed = self._operand(operand, result, error, number < last, goes_on)
            else:
                failed = self._operand(operand, result, error, number < last, goes_on)
            fails = fails or failed
            keeps_errors = keeps_errors or (failed and number < last)
        if keeps_errors:
            self._lines.insert(opening, f"{_INDENTS[self._indent]}{error} = None")
            self._emit(f"if {error} is not None and {check}{result}: raise {error}")
        return _Value(result, "bool", fails)

    def _operand(self, tree: Expr, result: str, error: str, keeps_error: bool, neutral: bool) -> bool:
        """Emit an operand that sets `result`. Return whether it may fail.

        With `keeps_error` a failure sets `result` to `neutral` and keeps the exception in `error`.
        """
        opening = len(self._lines)
        if not keeps_error:
            value = self._boolean(tree)
            self._emit(f"{result} = {value.code}")
            return value.fails
        with self._block("try:"):
            value = self._boolean(tree)
            self._emit(f"{result} = {value.code}")
        if value.fails:
            with self._block("except FALLIBLE as caught:"):
                self._emit(f"{result} = {neutral}")
                self._emit(f"{error} = caught")
        else:
            del self._lines[opening]
            self._lines[opening:] = [line[1:] for line in self._lines[opening:]]
        return value.fails

    def _conditional(self, tree: Conditional) -> _Value:
        condition = self._boolean(tree.condition)
        result = self._new_name()
        with self._block(f"if {condition.code}:"):
            then = self._expr(tree.then)
            self._emit(f"{result} = {then.code}")
        with self._block("else:"):
            otherwise = self._expr(tree.otherwise)
            self._emit(f"{result} = {otherwise.code}")
        kind = then.kind if then.kind == otherwise.kind else "any"
        return _Value(result, kind, condition.fails or then.fails or otherwise.fails)

    def _call(self, tree: Call) -> _Value:
        first, *rest = tree.arguments
        codes = [self._expr(first).code]
        if tree.name == "matches":
            (pattern,) = rest
            assert isinstance(pattern, LiteralExpr)
            codes.append(self._constant(compile_pattern(str(pattern.value))))
        else:
            codes += [self._expr(argument).code for argument in rest]
        if tree.name == "quantity" and isinstance(first, LiteralExpr):
            with suppress(CelEvalError):
                return _Value(self._constant(FUNCTIONS["quantity"].call(first.value)), fails=False)
        if self._loops and tree.name == "sum":
            codes[0] = self._named(_Value(codes[0]))
            self._count_items(codes[0])
        function = (METHODS if tree.is_method else FUNCTIONS)[tree.name]
        return _Value(f"{'m' if tree.is_method else 'f'}_{tree.name}({', '.join(codes)})", function.result)

    def _macro(self, tree: Macro) -> _Value:
        target = self._named(_Value(f"members({self._expr(tree.target).code})"))
        self._count(f"len({target})")
        item = self._new_name()
        outer = self._scope
        self._scope = outer | {tree.variable: item}
        self._loops += 1
        loop = f"for {item} in {target}:"
        if tree.name in ("all", "exists"):
            value = self._quantifier(tree, loop)
        elif tree.name == "exists_one":
            value = self._exists_one(tree, loop)
        else:
            value = self._mapped(tree, loop)
        self._loops -= 1
        self._scope = outer
        return value

    def _quantifier(self, tree: Macro, loop: str) -> _Value:
        goes_on = tree.name == "all"
        check = "" if goes_on else "not "
        result, error = self._new_name(), self._new_name()
        self._emit(f"{result} = {goes_on}")
        opening = len(self._lines)
        with self._block(loop):
            fails = self._operand(tree.body, result, error, True, goes_on)
            self._emit(f"if {'not ' if goes_on else ''}{result}: break")
        if fails:
            self._lines.insert(opening, f"{_INDENTS[self._indent]}{error} = None")
            self._emit(f"if {error} is not None and {check}{result}: raise {error}")
        return _Value(result, "bool")

    def _exists_one(self, tree: Macro, loop: str) -> _Value:
        found = self._new_name()
        self._emit(f"{found} = 0")
        with self._block(loop):
            self._emit(f"if {self._boolean(tree.body).code}: {found} += 1")
        return _Value(f"({found} == 1)", "bool")

    def _mapped(self, tree: Macro, loop: str) -> _Value:
        result = self._new_name()
        self._emit(f"{result} = []")
        with self._block(loop):
            self._emit(f"{result}.append({self._expr(tree.body).code})")
        return _Value(result)
