"""What a rule means, line by line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rota.api.cel import CelEvalError, CelSyntaxError, Program, bounds, compile, functions, signatures  # noqa: A004

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
    ("0x10", None, 16),
    ("-9223372036854775808", None, -(2**63)),
    ("1.5e-1", None, 0.15),
    (".5", None, 0.5),
    (r"'\x41\u0042\U00000043\104\n'", None, "ABCD\n"),
    (r"r'\d\'", None, "\\d\\"),
    ("'''a'b'''", None, "a'b"),
    ('"""a"b"""', None, 'a"b'),
    ("[1, 2, 3,]", None, [1, 2, 3]),
    ("{'a': 1, 'b': [2]}", None, {"a": 1, "b": [2]}),
    ("null", None, None),
    ("1 // one\n + 1", None, 2),
    # Equality never mixes types, but for numbers.
    ("1 == 1.0", None, True),
    ("1 == true", None, False),
    ("self == 1", True, False),
    ("self == true", 1, False),
    ("self == '1'", 1, False),
    ("self == [1, [true]]", [1, [True]], True),
    ("self == [1]", [True], False),
    ("self == {'a': 1.0}", {"a": 1}, True),
    ("self == {'a': 1}", {"a": 1, "b": 2}, False),
    ("9007199254740993 == 9007199254740992.0", None, True),
    ("self == null", None, True),
    # Order.
    ("self < 2", 1, True),
    ("self < 1.5", 1, True),
    ("1.5 >= self", 1, True),
    ("'é' > 'z'", None, True),
    ("false < true", None, True),
    # Arithmetic.
    ("-7 / 2", None, -3),
    ("-7 % 2", None, -1),
    ("7 / -2", None, -3),
    ("1.0 / 0.0 > 1e308", None, True),
    ("2 + 3 * 4 - 1", None, 13),
    ("10 - 3 - 2", None, 5),
    ("-self", 5, -5),
    ("self + 'b'", "a", "ab"),
    ("self + [2]", [1], [1, 2]),
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
    ("self.map(x, x > 1, x * 2)", [1, 2], [4]),
    ("self.filter(x, x > 1)", [1, 2], [2]),
    ("self.map(x, x + self.map(x, x).size())", [1, 2], [3, 4]),
    ("self.all(x, self.exists_one(y, y.n == x.n))", [{"n": 1}, {"n": 2}], True),
    # Texts.
    ("self.size() == size(self)", "é", True),
    ("size(self)", "é", 1),
    ("self.contains('b') && self.startsWith('a') && self.endsWith('c')", "abc", True),
    ("self.matches('^a.c$')", "abc", True),
    ("matches(self, 'b')", "abc", True),
    ("self.lowerAscii()", "AÉ", "aÉ"),
    ("self.upperAscii()", "aé", "Aé"),
    ("self.trim()", " \u2003a\x85", "a"),
    ("self.trim()", "\x1ca", "\x1ca"),
    ("self.split(',')", "a,b", ["a", "b"]),
    ("self.split(',', 2)", "a,b,c", ["a", "b,c"]),
    ("self.split(',', 0)", "a,b", []),
    ("self.split('')", "ab", ["a", "b"]),
    ("self.split('', 2)", "abc", ["a", "bc"]),
    ("self.replace('a', 'b')", "aa", "bb"),
    ("self.replace('', '-', 2)", "abc", "-a-bc"),
    ("self.substring(1, 3)", "héllo", "él"),
    ("self.substring(5)", "héllo", ""),
    ("self.charAt(5)", "héllo", ""),
    ("self.indexOf('l')", "hello", 2),
    ("self.lastIndexOf('')", "hello", 5),
    # Lists.
    ("self.join('-')", ["a", "b"], "a-b"),
    ("self.isSorted()", [1, 1, 2], True),
    ("self.sum()", [1, 2], 3),
    ("self.sum()", [], 0),
    ("self.min()", ["b", "a"], "a"),
    ("self.max()", [1, 3, 2], 3),
    ("self.indexOf(2)", [1, 2.0], 1),
    ("self.lastIndexOf(9)", [1], -1),
    # Conversions.
    ("int(self)", "-7", -7),
    ("int(self)", -1.9, -1),
    ("double(self)", 2, 2.0),
    ("bool(self)", "T", True),
    ("string(self)", 1.0, "1"),
    ("string(self)", 1e6, "1e+06"),
    ("string(self)", 123456.5, "123456.5"),
    ("string(self)", 0.00001, "1e-05"),
    ("string(self)", True, "true"),
    ("type(self) == string ? self == '50%' : self == 5", "50%", True),
    ("type(self) == string ? self == '50%' : self == 5", 5, True),
    ("type(self) == int", True, False),
    ("dyn(self)", 1, 1),
]

ERRORS: list[tuple[str, Any, str]] = [
    ("self.a", {}, "no such key: a"),
    ("self.a", {"a": None}, "no such key: a"),
    ("self.a", "text", "a field of a value that has none"),
    ("has(self.a.b)", {}, "no such key: a"),
    ("self['b']", {"a": 1}, "no such key: b"),
    ("self[-1]", [1], "index out of bounds: -1"),
    ("1 / 0", None, "division by zero"),
    ("1 % 0", None, "modulus by zero"),
    ("9223372036854775807 + 1", None, "integer overflow"),
    ("-9223372036854775808 / -1", None, "integer overflow"),
    ("-9223372036854775808 % -1", None, "integer overflow"),
    ("-self", -(2**63), "integer overflow"),
    ("1 + 1.0", None, "no such overload: + on int, double"),
    ("self < 1", True, "no such overload: < on bool, int"),
    ("self < 1", "a", "no such overload: < on string, int"),
    ("0.0 / 0.0 < 1.0", None, "NaN values cannot be ordered"),
    ("self ? 1 : 2", 1, "no such overload: a condition on int"),
    ("!self", "a", "no such overload"),
    ("self && true", "a", "no such overload"),
    ("self.all(x, true)", "abc", "no such overload: a macro on string"),
    ("self.all(x, x)", [1], "no such overload"),
    ("1 in self", "a", "no such overload"),
    ("self.size()", 1, "no such overload: size on int"),
    ("self.startsWith('a')", ["a"], "no such overload: startsWith on list, string"),
    ("self.contains('a')", ["a"], "no such overload"),
    ("self.substring(2, 1)", "abc", "out of range"),
    ("self.charAt(4)", "abc", "out of range"),
    ("self.min()", [], "min of an empty list"),
    ("self.max()", [1, "a"], "no such overload"),
    ("self.join()", [1], "no such overload"),
    ("int(self)", "1_0", "not an integer"),
    ("int(self)", 1e19, "integer overflow"),
    ("int(self)", True, "no such overload"),
    ("bool(self)", "yes", "not a boolean"),
]

BEYOND: list[tuple[str, Any]] = [
    ("double(self) == 1.5 || true", "1.5"),
    ("string(timestamp(self)) == self || true", "2024-01-01T00:00:00Z"),
    ("self.map(x, duration(x)).sum() == duration('1s') || true", ["1s"]),
    ("isQuantity(self) || true", "1e1001"),
    ("self[1.0] == 2 || true", [1, 2]),
    ("self.replace('', self).size() > 0 || true", "x" * 4000),
]

ABSORBED: list[tuple[str, Any]] = [
    ("1 / 0 == 1 || true", True),
    ("true || 1 / 0 == 1", True),
    ("1 / 0 == 1 && false", False),
    ("false && 1 / 0 == 1", False),
    ("1 / 0 == 1 || false || 1 / 0 == 1 || true", True),
    ("1 / 0 == 1 && (1 / 0 == 1 || true) && false", False),
    ("1 || true", True),
    ("(1 / 0 == 1 || true) ? 'a' : 'b'", "a"),
    ("[1, 0].exists(x, 1 / x == 1)", True),
    ("[0, 1].exists(x, 1 / x == 1)", True),
    ("[0, 1].all(x, 1 / x == 2)", False),
    ("[{}, {'a': 1}].exists(x, x.a == 1)", True),
]

NOT_ABSORBED = [
    "1 / 0 == 1 || false",
    "false || 1 / 0 == 1",
    "1 / 0 == 1 && true",
    "true && 1 / 0 == 1",
    "1 / 0 == 1 && true && true",
    "!(1 / 0 == 1)",
    "[0, 1].all(x, 1 / x == 1)",
    "[0, 1].exists(x, 1 / x == 2)",
    "[0, 1].exists_one(x, 1 / x == 1)",
    "[1, 0].map(x, 1 / x).size() == 2",
    "[1, 0].filter(x, 1 / x == 1).size() == 1",
    "(1 / 0 == 1) ? true : true",
]

REFUSED: list[tuple[str, int, str]] = [
    ("", 0, "ends too early"),
    ("1 +", 3, "ends too early"),
    ("self.a)", 6, "unexpected ')'"),
    ("self.a = 1", 7, "unexpected '='"),
    ("other.a", 0, "no such variable: other"),
    ("self.all(x, x) && x", 18, "no such variable: x"),
    ("self.namespace", 5, "`__namespace__`"),
    ("self.__other__", 5, "no field name"),
    ("self.?a", 5, "no optional values"),
    ("self[?0]", 5, "no optional values"),
    ("1u", 1, "no unsigned integers"),
    ("b'a'", 1, "no byte strings"),
    ("9223372036854775808", 0, "beyond 64 bits"),
    ("1e999", 0, "beyond a double"),
    (r"'\q'", 0, "unknown escape"),
    (r"'\ud800'", 0, "no Unicode character"),
    ("'a", 0, "unexpected"),
    ("!!self", 1, "no '!' before '!'"),
    ("{1: 2}", 1, "literal strings as keys"),
    ("{'a': 1, 'a': 2}", 9, "already has"),
    ("{'a': null}", 6, "no null values"),
    ("has(self)", 0, "has(a.b)"),
    ("self.format('a')", 5, "no method 'format'"),
    ("ip('1.2.3.4')", 0, "no function 'ip'"),
    ("self.indexOf('a', 1)", 5, "of so many arguments"),
    ("self.all(i, x, true)", 12, "of so many arguments"),
    ("size(self,)", 10, "an argument is missing"),
    ("self.all(self, true)", 9, "cannot name an item"),
    ("self.matches(self)", 13, "literal pattern"),
    ("self.matches('(?=a)')", 13, "no look-arounds"),
    ("for", 0, "reserved word"),
    (".self", 0, "begin with a dot"),
]


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
    assert compile(rule)(None) is result or compile(rule)(None) == result


@pytest.mark.parametrize("rule", NOT_ABSORBED)
def test_an_error_is_the_result_where_nothing_decides(rule: str) -> None:
    with pytest.raises(CelEvalError):
        compile(rule)(None)


@pytest.mark.parametrize(("rule", "value"), BEYOND)
def test_what_the_subset_leaves_out_is_never_absorbed(rule: str, value: Any) -> None:
    with pytest.raises(CelEvalError):
        compile(rule)(value)


@pytest.mark.parametrize(("rule", "position", "message"), REFUSED)
def test_what_is_no_rule_of_the_subset_is_refused_with_the_place(rule: str, position: int, message: str) -> None:
    with pytest.raises(CelSyntaxError, match=re.escape(message)) as caught:
        compile(rule)
    assert caught.value.position == position
    assert caught.value.source == rule


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
    compile("(self.l + [3]).map(x, x + 1).isSorted() && self.m == {'a': 'b'}")(value)
    assert value == {"l": [2, 1], "m": {"a": "b"}}


def test_a_rule_longer_than_its_bound_is_refused() -> None:
    with pytest.raises(CelSyntaxError, match="longer than"):
        compile("1" + " " * bounds.SOURCE_CHARS_MAX)


NESTS = {
    "brackets": lambda n: "(" * n + "true" + ")" * n,
    "sums": lambda n: "0 == 0" + "+ 0" * n,
    "negations": lambda n: "!(" * n + "true" + ")" * n,
    "comparisons": lambda n: "(true != " * n + "true" + ")" * n,
    "conditionals": lambda n: "true ? true : " * n + "true",
    "conditions": lambda n: "(" * n + "true" + " ? true : false)" * n,
    "chains": lambda n: "(1 / 0 == 1 || " * n + "true" + ")" * n,
    "two chains": lambda n: "(1 / 0 == 1 && true || " * n + "true" + ")" * n,
    "macros": lambda n: "[1].all(x, " * n + "true" + ")" * n,
    "comprehensions": lambda n: "[1].map(x, true, " * n + "true" + ")" * n,
    "methods": lambda n: "''" + ".trim()" * n + " == ''",
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
        "self.all(x, self.indexOf(x) == 0)",
    ],
)
def test_an_evaluation_ends_when_it_has_visited_too_much(rule: str) -> None:
    items = [0] * (bounds.ITERATIONS_MAX + 1 if rule == "self.all(x, true)" else 2000)
    with pytest.raises(CelEvalError, match="visits more than"):
        compile(f"({rule}) || true")(items)


def test_every_signature_has_a_function() -> None:
    assert signatures.FUNCTIONS.keys() == functions.FUNCTIONS.keys()
    assert signatures.METHODS.keys() == functions.METHODS.keys()


def test_every_function_and_bound_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "cel.md").read_text()
    names = [*signatures.FUNCTIONS, *signatures.METHODS, *signatures.TYPES]
    limits = [name for name in vars(bounds) if name.endswith("_MAX")]
    assert [name for name in names + limits if f"`{name}" not in text] == []
