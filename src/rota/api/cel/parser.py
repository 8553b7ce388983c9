"""A rule's text as a tree: CEL's grammar, less what the subset leaves out.

The parser also refuses names, functions and fields that no evaluation could find, so a rule that parses will compile.
"""

from __future__ import annotations

from typing import Final

from rota.api.cel.bounds import NESTING_DEPTH_MAX, SOURCE_CHARS_MAX
from rota.api.cel.errors import CelSyntaxError
from rota.api.cel.functions import FUNCTIONS, METHODS, Overload
from rota.api.cel.lexer import Token, int_value, text_value, tokenize
from rota.api.cel.patterns import PatternError, compile_pattern
from rota.api.cel.syntax import (
    RESERVED,
    Binary,
    Call,
    Conditional,
    Expr,
    Has,
    Index,
    ListOf,
    Literal,
    Logic,
    Macro,
    Name,
    Not,
    Select,
    unescape,
)

VARIABLES: Final = ("self", "oldSelf")
MACROS: Final = ("all", "exists", "exists_one", "map")
_LITERALS: Final = {"true": True, "false": False}
# Multiplication binds tightest. Relations bind alike and from the left, and so does `in`.
_PRECEDENCE: Final = {"<": 1, "<=": 1, ">": 1, ">=": 1, "==": 1, "!=": 1, "in": 1, "*": 2}
_LEFT_OUT: Final = ("+", "-", "/", "%")


def parse(source: str) -> tuple[Expr, bool]:
    """Return the tree of a rule, and whether it mentions `oldSelf`. Raises `CelSyntaxError`."""
    if len(source) > SOURCE_CHARS_MAX:
        raise CelSyntaxError(f"a rule longer than {SOURCE_CHARS_MAX} characters", source[:40], SOURCE_CHARS_MAX)
    parser = _Parser(source)
    return parser.rule(), parser.uses_old


class _Parser:
    """Recursive descent over the tokens, one method a level of the grammar."""

    def __init__(self, source: str) -> None:
        self.uses_old = False
        self._source = source
        self._tokens = tokenize(source)
        self._next = 0
        self._token = self._tokens[0]
        self._depth = 0
        self._scope = list(VARIABLES)

    def rule(self) -> Expr:
        tree = self._expression()
        if self._token.kind != "end":
            raise self._error(f"unexpected {self._token.value!r}")
        return tree

    def _error(self, message: str, position: int | None = None) -> CelSyntaxError:
        return CelSyntaxError(message, self._source, self._token.position if position is None else position)

    def _take(self) -> Token:
        token = self._token
        self._next += 1
        self._token = self._tokens[self._next]
        return token

    def _expect(self, kind: str) -> Token:
        if self._token.kind != kind:
            raise self._error(f"expected {kind!r}, found {self._token.value or 'the end'!r}")
        return self._take()

    def _expression(self) -> Expr:
        self._depth += 1
        if self._depth > NESTING_DEPTH_MAX:
            raise self._error(f"a rule nested deeper than {NESTING_DEPTH_MAX}")
        tree = self._chain("||")
        if self._token.kind == "?":
            position = self._take().position
            if self._token.kind == "?":
                raise self._error("the subset has no optional values")
            then = self._chain("||")
            self._expect(":")
            tree = Conditional(tree, then, self._expression(), position)
        self._depth -= 1
        return tree

    def _chain(self, operator: str) -> Expr:
        tree = self._chain("&&") if operator == "||" else self._binary(1)
        if self._token.kind != operator:
            return tree
        position = self._token.position
        operands = [tree]
        while self._token.kind == operator:
            self._take()
            operands.append(self._chain("&&") if operator == "||" else self._binary(1))
        return Logic(operator, operands, position)

    def _binary(self, precedence: int) -> Expr:
        tree = self._unary()
        while True:
            token = self._token
            operator = token.value if token.kind == "name" else token.kind
            if operator in _LEFT_OUT:
                raise self._error(f"the subset has no operator {operator!r}")
            binds = _PRECEDENCE.get(operator, 0)
            if binds < precedence:
                return tree
            self._take()
            tree = Binary(operator, tree, self._binary(binds + 1), token.position)

    def _unary(self) -> Expr:
        token = self._token
        if token.kind == "-":
            raise self._error("the subset has no operator '-'")
        if token.kind != "!":
            return self._member()
        self._take()
        if self._token.kind == "!":
            # CEL drops a pair of `!` whatever the type of the value after it. No rule needs that.
            raise self._error("the subset has no '!' before '!'")
        return Not(self._member(), token.position)

    def _member(self) -> Expr:
        return self._members(self._primary())

    def _members(self, tree: Expr) -> Expr:
        while True:
            token = self._token
            if token.kind == ".":
                self._take()
                if self._token.kind == "?":
                    raise self._error("the subset has no optional values")
                field = self._expect("name")
                if self._token.kind == "(":
                    tree = self._method(tree, field)
                elif field.value in RESERVED:
                    raise self._error(f"write the reserved word as `__{field.value}__`", field.position)
                elif unescape(field.value) is None:
                    raise self._error(f"no field name escapes to {field.value!r}", field.position)
                else:
                    tree = Select(tree, field.value, field.position)
            elif token.kind == "[":
                self._take()
                if self._token.kind == "?":
                    raise self._error("the subset has no optional values")
                tree = Index(tree, self._expression(), token.position)
                self._expect("]")
            else:
                return tree

    def _primary(self) -> Expr:
        token = self._token
        match token.kind:
            case "name":
                return self._name()
            case "text":
                self._take()
                return Literal(text_value(token, self._source), token.position)
            case "int":
                self._take()
                return Literal(int_value(token, self._source), token.position)
            case "(":
                self._take()
                tree = self._expression()
                self._expect(")")
                return tree
            case "[":
                self._take()
                return ListOf(self._sequence("]"), token.position)
            case "{":
                raise self._error("the subset has no literal maps")
            case ".":
                raise self._error("the subset has no names that begin with a dot")
            case "end":
                raise self._error("the rule ends too early")
            case _:
                raise self._error(f"unexpected {token.value!r}")

    def _name(self) -> Expr:
        token = self._take()
        name = token.value
        if name in _LITERALS:
            return Literal(_LITERALS[name], token.position)
        if name in RESERVED:
            what = "the subset has no null" if name == "null" else f"{name!r} is a reserved word"
            raise self._error(what, token.position)
        if self._token.kind == "(":
            return self._function(token)
        if name in self._scope:
            self.uses_old = self.uses_old or name == "oldSelf"
            return Name(name, token.position)
        raise self._error(f"no such variable: {name}", token.position)

    def _sequence(self, closing: str) -> list[Expr]:
        items: list[Expr] = []
        while self._token.kind != closing:
            items.append(self._expression())
            if self._token.kind != ",":
                break
            self._take()
            if self._token.kind == closing and closing == ")":
                raise self._error("an argument is missing")
        self._expect(closing)
        return items

    def _function(self, name: Token) -> Expr:
        self._take()
        if name.value == "has":
            return self._has(name)
        function = self._known(FUNCTIONS, "function", name)
        return Call(name.value, self._arguments(function, "function", name), False, name.position)

    def _has(self, name: Token) -> Expr:
        operand = self._expression()
        self._expect(")")
        if not isinstance(operand, Select):
            raise self._error("`has` asks for a field: has(a.b)", name.position)
        return Has(operand.operand, operand.field, name.position)

    def _method(self, target: Expr, name: Token) -> Expr:
        self._take()
        if name.value in MACROS:
            return self._macro(target, name)
        function = self._known(METHODS, "method", name)
        arguments = [target, *self._arguments(function, "method", name, of_target=1)]
        if name.value == "matches":
            self._check_pattern(arguments[1])
        return Call(name.value, arguments, True, name.position)

    def _known(self, functions: dict[str, Overload], what: str, name: Token) -> Overload:
        if name.value not in functions:
            raise self._error(f"the subset has no {what} {name.value!r}", name.position)
        return functions[name.value]

    def _arguments(self, function: Overload, what: str, name: Token, of_target: int = 0) -> list[Expr]:
        arguments = self._sequence(")")
        if len(arguments) + of_target != function.arity:
            raise self._error(f"the subset has no {what} {name.value!r} of so many arguments", name.position)
        return arguments

    def _check_pattern(self, pattern: Expr) -> None:
        if not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
            raise self._error("the subset has `matches` with a literal pattern only", pattern.position)
        try:
            compile_pattern(pattern.value)
        except PatternError as error:
            raise self._error(f"in the pattern: {error}", pattern.position) from None

    def _macro(self, target: Expr, name: Token) -> Expr:
        variable = self._expect("name")
        if variable.value in RESERVED or variable.value in VARIABLES:
            raise self._error(f"{variable.value!r} cannot name an item", variable.position)
        self._expect(",")
        self._scope.append(variable.value)
        body = self._expression()
        self._scope.pop()
        if self._token.kind == ",":
            raise self._error(f"the subset has no macro {name.value!r} of so many arguments")
        self._expect(")")
        return Macro(name.value, target, variable.value, body, name.position)
