"""The meaning of a rule once the structure of its value is known."""

from __future__ import annotations

from typing import Any

import pytest

from rota.api.cel import CelEvalError, CelSyntaxError, compile  # noqa: A004
from rota.api.structure import SCALAR, Structure

SET = Structure("list", item=SCALAR, list_type="set")
OTHER_SET = Structure("list", item=SCALAR, list_type="set")
ATOMIC = Structure("list", item=SCALAR)
PORT = Structure("struct", fields={"name": SCALAR, "value": SCALAR, "tags": SET})
KEYED = Structure("list", item=PORT, list_type="map", keys=("name",))
LIST = Structure("list", item=PORT)
MAP = Structure("map", item=SCALAR)
OBJECT = Structure(
    "struct",
    fields={"set": SET, "other": OTHER_SET, "atomic": ATOMIC, "keyed": KEYED, "list": LIST, "map": MAP, "a-b": SCALAR},
)

AB = {"set": ["a", "b"]}
BA = {"set": ["b", "a"]}
PORTS: list[dict[str, Any]] = [{"name": "x", "value": 1, "tags": ["a", "b"]}, {"name": "y"}]
TURNED = [{"name": "y"}, {"name": "x", "value": 1, "tags": ["b", "a"]}]
RETAGGED = [{"name": "x", "value": 1, "tags": ["b", "a"]}, {"name": "y"}]


@pytest.mark.parametrize(
    ("rule", "new", "old", "result"),
    [
        ("self.set == oldSelf.set", AB, BA, True),
        ("self.set != oldSelf.set", AB, BA, False),
        ("self.set == oldSelf.set", AB, {"set": ["a", "c"]}, False),
        ("self.set == oldSelf.set", AB, {"set": ["a"]}, False),
        ("self == oldSelf", AB, BA, True),
        ("[self.set] == [oldSelf.set]", AB, BA, True),
        ("(has(self.set) ? self.set : self.other) == oldSelf.set", AB, BA, True),
        ("self.atomic == oldSelf.atomic", {"atomic": [1, 2]}, {"atomic": [2, 1]}, False),
        ("self.keyed == oldSelf.keyed", {"keyed": PORTS}, {"keyed": TURNED}, True),
        ("self.keyed == oldSelf.keyed", {"keyed": PORTS}, {"keyed": [PORTS[0], {"name": "z"}]}, False),
        ("self.keyed == oldSelf.keyed", {"keyed": PORTS}, {"keyed": [{**PORTS[0], "value": 2}, PORTS[1]]}, False),
        ("self.list == oldSelf.list", {"list": PORTS}, {"list": TURNED}, False),
        ("self.list == oldSelf.list", {"list": PORTS}, {"list": RETAGGED}, True),
        ("self.list.map(x, x) == oldSelf.list", {"list": PORTS}, {"list": RETAGGED}, True),
        ("self.list.map(x, x.name) == ['x', 'y']", {"list": PORTS}, {}, True),
        ("['b', 'a'] == self.set", AB, {}, False),
        ("self.set == ['b', 'a']", AB, {}, True),
    ],
)
def test_lists_compare_as_their_type_says(rule: str, new: Any, old: Any, result: bool) -> None:
    assert compile(rule, OBJECT)(new, old) is result


def test_without_a_structure_every_list_is_ordered() -> None:
    assert compile("self.set == oldSelf.set")(AB, BA) is False


@pytest.mark.parametrize(
    ("rule", "result"),
    [
        ("self.map.a__dash__b == 'literal'", True),
        ("has(self.map.a__dash__b)", True),
        ("has(self.map.empty)", True),
        ("has(self.map.other)", False),
        ("self.a__dash__b == 'escaped'", True),
    ],
)
def test_keys_of_a_map_are_not_escaped_and_may_be_null(rule: str, result: bool) -> None:
    value = {"map": {"a__dash__b": "literal", "empty": None}, "a-b": "escaped"}
    assert compile(rule, OBJECT)(value) is result


def test_a_missing_key_of_a_map_is_an_error() -> None:
    with pytest.raises(CelEvalError, match="no such key: x"):
        compile("self.map.x == 'y'", OBJECT)({"map": {}})


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("self.sett == oldSelf.set", "no such field: sett"),
        ("self.list.all(x, has(x.nam))", "no such field: nam"),
        ("self.list[0] in self.list", "no 'in' of such items"),
        ("(true ? self.set : self.atomic) == []", "compare in different ways"),
        ("[self.set, self.atomic].size() == 2", "compare in different ways"),
    ],
)
def test_what_the_structure_forbids_is_refused(rule: str, message: str) -> None:
    with pytest.raises(CelSyntaxError) as caught:
        compile(rule, OBJECT)
    assert message in str(caught.value)


def test_a_structure_that_contains_itself_is_followed_as_far_as_the_rule_goes() -> None:
    fields: dict[str, Structure] = {"set": SET}
    tree = Structure("struct", fields=fields)
    fields["child"] = tree
    rule = compile("self.child.child == oldSelf.child", tree)
    assert rule({"child": {"child": AB}}, {"child": BA}) is True
