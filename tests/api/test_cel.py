"""The meaning of each rule, line by line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rota.api.cel import CelEvalError, CelSyntaxError, Program, bounds, compile, functions  # noqa: A004

VALUES: list[tuple[str, Any, Any]] = [
    # Fields.
    ("has(self.a)", {"a": 1}, True),
    ("has(self.a)", {}, False),
    ("has(self.a)", {"a": None}, False),
    ("has(self.a) != has(self.b)", {"a": 1}, True),
    ("has(self.a.b)", {"a": {}}, False),
    ("self.a.b", {"a": {"b": "x"}}, "x"),
    ("self.a__dash__b", {"a-b": 1}, 1),
    ("self.d__dot__e__slash__f", {"d.e/f": 1}, 1),
    ("self.x__underscores__y", {"x__y": 1}, 1),
    ("self.__namespace__", {"namespace": "n"}, "n"),
    ("has(self.__in__)", {"in": 1}, True),
    ("self['a']", {"a": 1}, 1),
    ("self[1]", [3, 4], 4),
    # Literals.
    ("16", None, 16),
    ("9223372036854775807", None, 2**63 - 1),
    (r"'\x41\u0042C\n'", None, "ABC\n"),
    (r"r'\d\'", None, "\\d\\"),
    ("[1, 2, 3,]", None, [1, 2, 3]),
    # Equality never mixes types, but for numbers.
    ("self == 1", 1.0, True),
    ("1 == true", None, False),
    ("self == 1", True, False),
    ("self == true", 1, False),
    ("self == '1'", 1, False),
    ("self == [1, [true]]", [1, [True]], True),
    ("self == [1]", [True], False),
    ("self.a == self.b", {"a": {"x": 1.0}, "b": {"x": 1}}, True),
    ("self.a == self.b", {"a": {"x": 1}, "b": {"x": 1, "y": 2}}, False),
    ("self == 9007199254740993", 9007199254740992.0, True),
    # Order.
    ("self < 2", 1, True),
    ("2 >= self", 1, True),
    ("'é' > 'z'", None, True),
    ("false < true", None, True),
    # Arithmetic.
    ("2 * 3 * self", 4, 24),
    # Conditions.
    ("self ? 1 : 2", True, 1),
    ("false ? 1 : false ? 2 : 3", None, 3),
    ("1 < 2 == true", None, True),
    ("!self", False, True),
    # Membership.
    ("self in ['a', 'b']", "b", True),
    ("self in [1, 2]", 1.0, True),
    ("self in [1]", True, False),
    ("'a' in self", {"a": None}, True),
    # Macros.
    ("self.all(x, x > 0)", [1, 2], True),
    ("self.all(x, x > 0)", [], True),
    ("self.all(k, k != 'b')", {"a": 1, "b": 2}, False),
    ("self.exists(x, x == 2)", [1, 2], True),
    ("self.exists_one(x, x == 2)", [2, 2], False),
    ("self.exists_one(x, x == 2)", [1, 2], True),
    ("self.map(x, x * 2)", [1, 2], [2, 4]),
    ("self.map(x, x * self.map(x, x).size())", [1, 2], [2, 4]),
    ("self.all(x, self.exists_one(y, y.n == x.n))", [{"n": 1}, {"n": 2}], True),
    # Texts.
    ("self.size() == size(self)", "é", True),
    ("size(self)", "é", 1),
    ("self.contains('b') && self.startsWith('a')", "abc", True),
    ("self.matches('^a.c$')", "abc", True),
    ("self.upperAscii()", "aé", "Aé"),
    ("string(self)", 5, "5"),
    # Lists.
    ("self.sum()", [1, 2], 3),
    ("self.sum()", [], 0),
    # Quantities.
    ("quantity('1.5Gi').isGreaterThan(quantity('1G'))", None, True),
    ("quantity('1k') == quantity('1000') && quantity('1k') != quantity('1Ki')", None, True),
    ("quantity('1').compareTo(quantity('1000m'))", None, 0),
    ("isQuantity('1Gi') && !isQuantity('1K')", None, True),
]

ERRORS: list[tuple[str, Any, str]] = [
    ("self.a", {}, "no such key: a"),
    ("self.a", {"a": None}, "no such key: a"),
    ("self.a", "text", "a field of a value that has none"),
    ("has(self.a.b)", {}, "no such key: a"),
    ("self['b']", {"a": 1}, "no such key: b"),
    ("self[self[0]]", [-1], "index out of bounds: -1"),
    ("9223372036854775807 * 2", None, "integer overflow"),
    ("self.sum()", [2**63 - 1, 1], "integer overflow"),
    ("self * 2", 1.0, "no such overload: * on double, int"),
    ("self < 1", True, "no such overload: < on bool, int"),
    ("self < 1", "a", "no such overload: < on string, int"),
    ("self ? 1 : 2", 1, "no such overload: a condition on int"),
    ("!self", "a", "no such overload"),
    ("self && true", "a", "no such overload"),
    ("self.all(x, true)", "abc", "no such overload: a macro on string"),
    ("self.all(x, x)", [1], "no such overload"),
    ("1 in self", "a", "no such overload"),
    ("self.size()", 1, "no such overload: size on int"),
    ("self.startsWith('a')", ["a"], "no such overload: startsWith on list, string"),
    ("self.contains('a')", ["a"], "no such overload"),
    ("self.sum()", ["a"], "no such overload: sum on list"),
    ("string(self)", True, "no such overload"),
    ("quantity('1K') == quantity('1')", None, "not a quantity: '1K'"),
    ("quantity(self) == quantity('1')", 1, "no such overload: quantity on int"),
    ("quantity('1') < quantity('2')", None, "no such overload: < on quantity, quantity"),
]

ABSORBED: list[tuple[str, Any]] = [
    ("self[0] == 1 || true", True),
    ("true || self[0] == 1", True),
    ("self[0] == 1 && false", False),
    ("false && self[0] == 1", False),
    ("self[0] == 1 || false || self[0] == 1 || true", True),
    ("self[0] == 1 && (self[0] == 1 || true) && false", False),
    ("1 || true", True),
    ("(self[0] == 1 || true) ? 'a' : 'b'", "a"),
    ("[[1], []].exists(x, x[0] == 1)", True),
    ("[[], [1]].exists(x, x[0] == 1)", True),
    ("[[], [1]].all(x, x[0] == 2)", False),
]

NOT_ABSORBED = [
    "self[0] == 1 || false",
    "false || self[0] == 1",
    "self[0] == 1 && true",
    "true && self[0] == 1",
    "self[0] == 1 && true && true",
    "!(self[0] == 1)",
    "[[], [1]].all(x, x[0] == 1)",
    "[[], [1]].exists(x, x[0] == 2)",
    "[[], [1]].exists_one(x, x[0] == 1)",
    "[[1], []].map(x, x[0]).size() == 2",
    "(self[0] == 1) ? true : true",
]

REFUSED: list[tuple[str, int, str]] = [
    ("", 0, "ends too early"),
    ("1 *", 3, "ends too early"),
    ("self.a)", 6, "unexpected ')'"),
    ("self.a = 1", 7, "unexpected '='"),
    ("other.a", 0, "no such variable: other"),
    ("self.all(x, x) && x", 18, "no such variable: x"),
    ("self.namespace", 5, "`__namespace__`"),
    ("self.__other__", 5, "no field name"),
    ("self.?a", 5, "no optional values"),
    ("self[?0]", 5, "no optional values"),
    ("b'a'", 0, "no byte strings"),
    ("9223372036854775808", 0, "beyond 64 bits"),
    (r"'\q'", 0, r"no escape \q"),
    (r"'\104'", 0, r"no escape \1"),
    (r"'\ud800'", 0, "no Unicode character"),
    ("'a", 0, "unexpected"),
    ("!!self", 1, "no '!' before '!'"),
    ("has(self)", 0, "has(a.b)"),
    ("self.all(i, x, true)", 12, "no such variable: x"),
    ("self.all(x, true, true)", 16, "of so many arguments"),
    ("self.size(1)", 5, "of so many arguments"),
    ("size(self,)", 10, "an argument is missing"),
    ("self.all(self, true)", 9, "cannot name an item"),
    ("self.matches(self)", 13, "literal pattern"),
    ("self.matches('(?=a)')", 13, "in the pattern: the subset has no"),
    ("for", 0, "reserved word"),
    (".self", 0, "begin with a dot"),
]

LEFT_OUT = {
    "1u": "no numbers but decimal integers",
    "0x1f": "no numbers but decimal integers",
    "1.5": "no numbers but decimal integers",
    "1e3": "no numbers but decimal integers",
    "'''a'''": "no strings in three quotes",
    "null": "no null",
    "{'a': 1}": "no literal maps",
    "1 + 1": "no operator '+'",
    "1 - 1": "no operator '-'",
    "-self": "no operator '-'",
    "1 / 1": "no operator '/'",
    "1 % 1": "no operator '%'",
    "self.filter(x, true)": "no method 'filter'",
    "self.endsWith('a')": "no method 'endsWith'",
    "self.split(',')": "no method 'split'",
    "self.format('a')": "no method 'format'",
    "duration('1s')": "no function 'duration'",
    "timestamp('2024-01-01T00:00:00Z')": "no function 'timestamp'",
    "type(self)": "no function 'type'",
    "int(self)": "no function 'int'",
    "matches(self, 'a')": "no function 'matches'",
    "ip('1.2.3.4')": "no function 'ip'",
}


@pytest.mark.parametrize(("rule", "value", "result"), VALUES)
def test_a_rule_has_the_value_that_cel_gives_it(rule: str, value: Any, result: Any) -> None:
    found = compile(rule)(value)
    assert found == result
    assert type(found) is type(result)


@pytest.mark.parametrize(("rule", "value", "message"), ERRORS)
def test_a_rule_without_a_value_says_why(rule: str, value: Any, message: str) -> None:
    with pytest.raises(CelEvalError, match=re.escape(message)):
        compile(rule)(value)


@pytest.mark.parametrize(("rule", "result"), ABSORBED)
def test_an_error_is_absorbed_by_an_operand_that_decides(rule: str, result: Any) -> None:
    assert compile(rule)([]) == result


@pytest.mark.parametrize("rule", NOT_ABSORBED)
def test_an_error_is_the_result_where_nothing_decides(rule: str) -> None:
    with pytest.raises(CelEvalError):
        compile(rule)([])


def test_a_quantity_beyond_the_subset_is_never_absorbed() -> None:
    with pytest.raises(CelEvalError, match="exponent beyond"):
        compile("isQuantity(self) || true")("1e1001")


@pytest.mark.parametrize(("rule", "position", "message"), REFUSED)
def test_what_is_no_rule_of_the_subset_is_refused_with_the_place(rule: str, position: int, message: str) -> None:
    with pytest.raises(CelSyntaxError, match=re.escape(message)) as caught:
        compile(rule)
    assert caught.value.position == position
    assert caught.value.source == rule


@pytest.mark.parametrize("rule", LEFT_OUT)
def test_what_the_subset_leaves_out_is_refused_by_name(rule: str) -> None:
    with pytest.raises(CelSyntaxError, match=re.escape(f"the subset has {LEFT_OUT[rule]}")):
        compile(rule)


def test_a_rule_that_mentions_the_old_object_is_a_transition_rule() -> None:
    rule = compile("self.a >= oldSelf.a")
    assert rule.uses_old
    assert rule({"a": 2}, {"a": 1}) is True
    assert not compile("self.oldSelf == 'oldSelf'").uses_old


def test_a_transition_rule_without_an_old_object_is_an_error() -> None:
    with pytest.raises(CelEvalError, match="oldSelf"):
        compile("self == oldSelf")(1)


def test_a_program_keeps_its_text() -> None:
    rule = compile("self > 0")
    assert isinstance(rule, Program)
    assert rule.source == "self > 0"
    assert repr(rule) == "Program('self > 0')"


def test_a_rule_leaves_the_object_as_it_was() -> None:
    value = {"l": [2, 1], "m": {"a": "b"}}
    compile("self.l.map(x, x * 2).sum() == 6 && self.m.all(k, k == 'a')")(value)
    assert value == {"l": [2, 1], "m": {"a": "b"}}


def test_a_rule_longer_than_its_bound_is_refused() -> None:
    with pytest.raises(CelSyntaxError, match="longer than"):
        compile("1" + " " * bounds.SOURCE_CHARS_MAX)


NESTS = {
    "brackets": lambda n: "(" * n + "true" + ")" * n,
    "products": lambda n: "0 == 0" + "* 0" * n,
    "negations": lambda n: "!(" * n + "true" + ")" * n,
    "comparisons": lambda n: "(true != " * n + "true" + ")" * n,
    "conditionals": lambda n: "true ? true : " * n + "true",
    "conditions": lambda n: "(" * n + "true" + " ? true : false)" * n,
    "chains": lambda n: "(self.a || " * n + "true" + ")" * n,
    "two chains": lambda n: "(self.a && true || " * n + "true" + ")" * n,
    "macros": lambda n: "[1].all(x, " * n + "true" + ")" * n,
    "lists": lambda n: "[1].map(x, " * n + "true" + ")" * n,
    "methods": lambda n: "''" + ".upperAscii()" * n + " == ''",
}


@pytest.mark.parametrize("nest", NESTS.values(), ids=NESTS.keys())
def test_a_rule_is_refused_before_it_nests_deeper_than_can_be_evaluated(nest: Any) -> None:
    with pytest.raises(CelSyntaxError, match="nested"):
        compile(nest(bounds.TREE_DEPTH_MAX + 1))
    deepest = 0
    for depth in range(1, bounds.TREE_DEPTH_MAX):
        try:
            rule = compile(nest(depth))
        except CelSyntaxError:
            break
        rule(None)
        deepest = depth
    assert deepest >= 8


def test_a_long_chain_is_not_a_deep_one() -> None:
    assert compile(" && ".join(["self > 0"] * 500))(1) is True


@pytest.mark.parametrize(
    "rule",
    [
        "self.all(x, true)",
        "self.all(x, self.all(y, x == y))",
        "self.all(x, x in self)",
        "self.all(x, self.sum() == 0)",
    ],
)
def test_an_evaluation_ends_when_it_has_visited_too_much(rule: str) -> None:
    items = [0] * (bounds.ITERATIONS_MAX + 1 if rule == "self.all(x, true)" else 2000)
    with pytest.raises(CelEvalError, match="visits more than"):
        compile(f"({rule}) || true")(items)


def test_every_function_and_bound_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "cel.md").read_text()
    names = [*functions.FUNCTIONS, *functions.METHODS]
    limits = [name for name in vars(bounds) if name.endswith("_MAX")]
    assert [name for name in names + limits if f"`{name}" not in text] == []
