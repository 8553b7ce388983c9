"""Generated rules agree with an independent implementation of CEL.

Where that implementation departs from the specification, the rules stay away or the comparison yields:

- its `all` and `exists` let an error in one item win over another item that decides; CEL lets the item decide;
- its strings have the size of their UTF-8 bytes; CEL counts characters, so texts are ASCII here.
"""

from __future__ import annotations

from typing import Any

import cel
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.api.cel import CelEvalError, compile  # noqa: A004
from tests.amount import amount

Text = st.SearchStrategy[str]

ERROR = "an error"
INTS = (0, 1, 2, 3, 7, -1, -2, 2**62, 2**63 - 1)
TEXTS = ("", "a", "ab", "abc", "b-1", "A")


def infix(left: Text, operators: tuple[str, ...], right: Text) -> Text:
    return st.builds("({} {} {})".format, left, st.sampled_from(operators), right)


def ints(depth: int) -> Text:
    leaf = st.sampled_from(
        ["self.i", "self.j", "self.missing", "self.o.a", *(str(value) for value in INTS if value >= 0)]
    )
    if not depth:
        return leaf
    inner = ints(depth - 1)
    return st.one_of(
        leaf,
        infix(inner, ("*",), inner),
        st.builds("{}.size()".format, st.one_of(texts(depth - 1), int_lists(depth - 1))),
        st.builds("({} ? {} : {})".format, bools(depth - 1), inner, inner),
        st.builds("{}[{}]".format, int_lists(depth - 1), inner),
    )


def texts(_: int) -> Text:
    return st.sampled_from(["self.s", "self.o.s", "self.missing", *map(repr, TEXTS)])


def int_lists(depth: int) -> Text:
    leaf = st.sampled_from(["self.l", "[1, 2, 3]", "[0, 1]"])
    if not depth:
        return leaf
    inner = int_lists(depth - 1)
    return st.one_of(leaf, st.builds("{}.map(x, x * {})".format, inner, ints(depth - 1)))


def bools(depth: int) -> Text:
    leaf = st.sampled_from(
        ["true", "false", "self.b", "has(self.i)", "has(self.o.a)", "has(self.missing)", "has(self.missing.a)"]
    )
    if not depth:
        return leaf
    less = depth - 1
    orders = ("<", "<=", ">", ">=", "==", "!=")
    return st.one_of(
        leaf,
        st.builds("!{}".format, leaf),
        infix(bools(less), ("&&", "||", "==", "!="), bools(less)),
        infix(ints(less), orders, ints(less)),
        infix(texts(less), orders, texts(less)),
        infix(int_lists(less), ("==", "!="), int_lists(less)),
        infix(ints(less), ("in",), int_lists(less)),
        st.builds("{}.{}({})".format, texts(less), st.sampled_from(["contains", "startsWith"]), texts(less)),
        st.builds(
            "{}.{}(x, x * {} {} {})".format,
            int_lists(less),
            st.sampled_from(["all", "exists", "exists_one"]),
            ints(less),
            st.sampled_from(orders),
            ints(less),
        ),
        st.builds("({} ? {} : {})".format, bools(less), bools(less), bools(less)),
    )


OBJECTS = st.fixed_dictionaries(
    {"b": st.booleans(), "l": st.lists(st.sampled_from(INTS), max_size=4)},
    optional={
        "i": st.sampled_from(INTS),
        "j": st.integers(-9, 9),
        "s": st.sampled_from(TEXTS),
        "o": st.fixed_dictionaries({}, optional={"a": st.integers(-3, 3), "s": st.sampled_from(TEXTS)}),
    },
)


def value_here(rule: str, value: object) -> Any:
    try:
        return compile(rule)(value)
    except CelEvalError:
        return ERROR


def value_there(rule: str, value: object) -> Any:
    try:
        return cel.evaluate(rule, {"self": value})
    except (ValueError, TypeError, KeyError, ArithmeticError, IndexError, RuntimeError):
        return ERROR


@settings(max_examples=amount(200, 3_000), deadline=None)
@given(rule=st.one_of(bools(3), ints(2), texts(2), int_lists(2)), value=OBJECTS)
def test_a_generated_rule_has_the_value_that_another_implementation_gives_it(rule: str, value: object) -> None:
    here, there = value_here(rule, value), value_there(rule, value)
    if there == ERROR and (".all(" in rule or ".exists(" in rule):
        return
    assert type(here) is type(there)
    assert here == there
