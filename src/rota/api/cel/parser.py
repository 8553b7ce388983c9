"""A rule's text as a tree: CEL's grammar, less what the subset leaves out.

The parser also refuses names, functions and fields that no evaluation could find, so a rule that parses will compile.
"""

from __future__ import annotations

from typing import Final

from rota.api.cel.bounds import NESTING_DEPTH_MAX, SOURCE_CHARS_MAX
from rota.api.cel.errors import CelSyntaxError
from rota.api.cel.escaping import RESERVED, unescape
from rota.api.cel.lexer import Token, double_value, int_value, text_value, tokenize
from rota.api.cel.regex import RegexError, parse_regex
from rota.api.cel.signatures import FUNCTIONS, METHODS, TYPES, Signature
from rota.api.cel.syntax import (
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
    MapOf,
    Name,
    Select,
    Unary,
)

VARIABLES: Final = ("self", "oldSelf")
MACROS: Final = ("all", "exists", "exists_one", "map", "filter")
_LITERALS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}
# Multiplication binds tightest. Relations bind alike and from the left, and so does `in`.
_PRECEDENCE: Final = {
    "<": 1, "<=": 1, ">": 1, ">=": 1, "==": 1, "!=": 1, "in": 1, "+": 2, "-": 2, "*": 3, "/": 3, "%": 3,
}  # fmt: skip


def parse(source: str) -> tuple[Expr, bool]:
    """The tree of the rule and whether it mentions `oldSelf`, or `CelSyntaxError`."""
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
            binds = _PRECEDENCE.get(operator, 0)
            if binds < precedence:
                return tree
            self._take()
            tree = Binary(operator, tree, self._binary(binds + 1), token.position)

    def _unary(self) -> Expr:
        token = self._token
        if token.kind not in ("!", "-"):
            return self._member()
        self._take()
        if self._token.kind in ("!", "-"):
            # CEL drops pairs of these even before a value of another type; nobody needs that.
            raise self._error(f"the subset has no {token.kind!r} before {self._token.kind!r}")
        if token.kind == "-" and self._token.kind in ("int", "double"):
            return self._members(self._number(negative=True))
        return Unary(token.kind, self._member(), token.position)

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
            case "int" | "double":
                return self._number(negative=False)
            case "(":
                self._take()
                tree = self._expression()
                self._expect(")")
                return tree
            case "[":
                self._take()
                return ListOf(self._sequence("]"), token.position)
            case "{":
                return self._map()
            case ".":
                raise self._error("the subset has no names that begin with a dot")
            case "end":
                raise self._error("the rule ends too early")
            case _:
                raise self._error(f"unexpected {token.value!r}")

    def _number(self, *, negative: bool) -> Literal:
        token = self._take()
        value = int_value if token.kind == "int" else double_value
        return Literal(value(token, self._source, negative=negative), token.position)

    def _name(self) -> Expr:
        token = self._take()
        name = token.value
        if name in _LITERALS:
            return Literal(_LITERALS[name], token.position)
        if name in RESERVED:
            raise self._error(f"{name!r} is a reserved word", token.position)
        if self._token.kind == "(":
            return self._function(token)
        if name in self._scope or name in TYPES:
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

    def _map(self) -> Expr:
        position = self._take().position
        entries: list[tuple[Expr, Expr]] = []
        while self._token.kind != "}":
            key = self._expression()
            if not isinstance(key, Literal) or not isinstance(key.value, str):
                raise self._error("the subset has maps with literal strings as keys only", key.position)
            if any(isinstance(known, Literal) and known.value == key.value for known, _ in entries):
                raise self._error("a key that the map already has", key.position)
            self._expect(":")
            value = self._expression()
            if isinstance(value, Literal) and value.value is None:
                raise self._error("the subset has no null values in maps", value.position)
            entries.append((key, value))
            if self._token.kind != ",":
                break
            self._take()
        self._expect("}")
        return MapOf(entries, position)

    def _function(self, name: Token) -> Expr:
        self._take()
        if name.value == "has":
            return self._has(name)
        arguments = self._sequence(")")
        self._check_call(name, len(arguments), FUNCTIONS.get(name.value), "function")
        if name.value == "matches":
            self._check_regex(arguments[1])
        return Call(name.value, arguments, False, name.position)

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
        arguments = [target, *self._sequence(")")]
        self._check_call(name, len(arguments), METHODS.get(name.value), "method")
        if name.value == "matches":
            self._check_regex(arguments[1])
        return Call(name.value, arguments, True, name.position)

    def _check_call(self, name: Token, given: int, signature: Signature | None, what: str) -> None:
        if signature is None:
            raise self._error(f"the subset has no {what} {name.value!r}", name.position)
        if given not in signature.arities:
            raise self._error(f"the subset has no {what} {name.value!r} of so many arguments", name.position)

    def _check_regex(self, pattern: Expr) -> None:
        if not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
            raise self._error("the subset has `matches` with a literal pattern only", pattern.position)
        try:
            parse_regex(pattern.value)
        except RegexError as error:
            raise self._error(f"in the pattern: {error}", pattern.position) from None

    def _macro(self, target: Expr, name: Token) -> Expr:
        variable = self._expect("name")
        if variable.value in RESERVED or variable.value in TYPES or variable.value in VARIABLES:
            raise self._error(f"{variable.value!r} cannot name an item", variable.position)
        self._expect(",")
        if name.value != "map" and self._token.kind == "name" and self._tokens[self._next + 1].kind == ",":
            raise self._error(f"the subset has no macro {name.value!r} of so many arguments")
        self._scope.append(variable.value)
        first = self._expression()
        second: Expr | None = None
        if name.value == "map" and self._token.kind == ",":
            self._take()
            second = self._expression()
        self._scope.pop()
        if self._token.kind == ",":
            raise self._error(f"the subset has no macro {name.value!r} of so many arguments")
        self._expect(")")
        body, condition = (first, None) if second is None else (second, first)
        return Macro(name.value, target, variable.value, condition, body, name.position)
