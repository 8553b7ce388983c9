"""JSON patch, RFC 6902, with the liberties that Kubernetes takes."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from rota.registry import patches
from rota.registry.patches import JSONPatchError, JSONPatchTestFailed, TooManyOperations

Ops = list[dict[str, Any]]


def json_patch(target: Any, ops: Ops) -> Any:
    inputs = copy.deepcopy((target, ops))
    try:
        return patches.json_patch(target, ops, max_ops=100)
    finally:
        assert (target, ops) == inputs


@pytest.mark.parametrize(
    ("target", "ops", "result"),
    [
        pytest.param(
            {"foo": "bar"},
            [{"op": "add", "path": "/baz", "value": "qux"}],
            {"baz": "qux", "foo": "bar"},
            id="A.1 adding an object member",
        ),
        pytest.param(
            {"foo": ["bar", "baz"]},
            [{"op": "add", "path": "/foo/1", "value": "qux"}],
            {"foo": ["bar", "qux", "baz"]},
            id="A.2 adding an array element",
        ),
        pytest.param(
            {"baz": "qux", "foo": "bar"},
            [{"op": "remove", "path": "/baz"}],
            {"foo": "bar"},
            id="A.3 removing an object member",
        ),
        pytest.param(
            {"foo": ["bar", "qux", "baz"]},
            [{"op": "remove", "path": "/foo/1"}],
            {"foo": ["bar", "baz"]},
            id="A.4 removing an array element",
        ),
        pytest.param(
            {"baz": "qux", "foo": "bar"},
            [{"op": "replace", "path": "/baz", "value": "boo"}],
            {"baz": "boo", "foo": "bar"},
            id="A.5 replacing a value",
        ),
        pytest.param(
            {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
            [{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}],
            {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
            id="A.6 moving a value",
        ),
        pytest.param(
            {"foo": ["all", "grass", "cows", "eat"]},
            [{"op": "move", "from": "/foo/1", "path": "/foo/3"}],
            {"foo": ["all", "cows", "eat", "grass"]},
            id="A.7 moving an array element",
        ),
        pytest.param(
            {"baz": "qux", "foo": ["a", 2, "c"]},
            [{"op": "test", "path": "/baz", "value": "qux"}, {"op": "test", "path": "/foo/1", "value": 2}],
            {"baz": "qux", "foo": ["a", 2, "c"]},
            id="A.8 testing a value: success",
        ),
        pytest.param(
            {"foo": "bar"},
            [{"op": "add", "path": "/child", "value": {"grandchild": {}}}],
            {"foo": "bar", "child": {"grandchild": {}}},
            id="A.10 adding a nested member object",
        ),
        pytest.param(
            {"foo": "bar"},
            [{"op": "add", "path": "/baz", "value": "qux", "xyz": 123}],
            {"foo": "bar", "baz": "qux"},
            id="A.11 ignoring unrecognized elements",
        ),
        pytest.param(
            {"/": 9, "~1": 10},
            [{"op": "test", "path": "/~01", "value": 10}],
            {"/": 9, "~1": 10},
            id="A.14 escape ordering",
        ),
        pytest.param(
            {"foo": ["bar"]},
            [{"op": "add", "path": "/foo/-", "value": ["abc", "def"]}],
            {"foo": ["bar", ["abc", "def"]]},
            id="A.16 adding an array value",
        ),
        pytest.param(
            {"a": {"b": 1}},
            [{"op": "copy", "from": "/a", "path": "/c"}, {"op": "replace", "path": "/a/b", "value": 2}],
            {"a": {"b": 2}, "c": {"b": 1}},
            id="a copy is apart from what it was copied from",
        ),
        pytest.param(
            {"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}], {"b": 2}, id="the whole document is replaced"
        ),
        pytest.param({"a": 1}, [{"op": "test", "path": "", "value": {"a": 1.0}}], {"a": 1}, id="numbers by value"),
        pytest.param({"": 1}, [{"op": "replace", "path": "/", "value": 2}], {"": 2}, id="an empty name is a name"),
        pytest.param(
            {}, [{"op": "replace", "path": "/a", "value": 1}], {"a": 1}, id="Kubernetes: replace of what is not there"
        ),
        pytest.param({}, [{"op": "test", "path": "/a", "value": None}], {}, id="Kubernetes: missing tests as null"),
        pytest.param({}, [{"op": "add", "path": "/a"}], {"a": None}, id="Kubernetes: a missing value is null"),
        pytest.param(
            {"a": [1, 2, 3]}, [{"op": "remove", "path": "/a/-1"}], {"a": [1, 2]}, id="Kubernetes: negative index"
        ),
        pytest.param(
            {"a": [1]}, [{"op": "add", "path": "/a/-1", "value": 2}], {"a": [1, 2]}, id="Kubernetes: from the end"
        ),
    ],
)
def test_operations(target: Any, ops: Ops, result: Any) -> None:
    assert json_patch(target, ops) == result


@pytest.mark.parametrize(
    ("target", "op", "message"),
    [
        pytest.param(
            {"foo": "bar"},
            {"op": "add", "path": "/baz/bat", "value": "qux"},
            'add operation does not apply: doc is missing path: "/baz/bat": missing value',
            id="A.12 adding to a nonexistent target",
        ),
        pytest.param(
            {}, {"op": "nope", "path": "/a"}, "Unexpected kind: nope", id="A.13 an operation that there is not"
        ),
        pytest.param({}, {"path": "/a"}, "Unexpected kind: unknown", id="no operation"),
        pytest.param({}, "add", "Unexpected kind: unknown", id="no object"),
        pytest.param({}, {"op": "add"}, "add operation failed to decode path: missing value", id="no path"),
        pytest.param(
            {},
            {"op": "add", "path": "a"},
            'add operation does not apply: doc is missing path: "a": missing value',
            id="no /",
        ),
        pytest.param(
            {},
            {"op": "remove", "path": "/a"},
            "error in remove for path: '/a': Unable to remove nonexistent key: a: missing value",
            id="remove of what is not there",
        ),
        pytest.param(
            {"a": [1]},
            {"op": "remove", "path": "/a/1"},
            "error in remove for path: '/a/1': Unable to access invalid index: 1: invalid index referenced",
            id="remove beyond the end",
        ),
        pytest.param(
            {"a": [1]},
            {"op": "add", "path": "/a/x", "value": 1},
            "error in add for path: '/a/x': value was not a proper array index: 'x'",
            id="a name in an array",
        ),
        pytest.param(
            {"a": [1]},
            {"op": "replace", "path": "/a/5", "value": 1},
            "replace operation does not apply: doc is missing key: /a/5: missing value",
            id="replace beyond the end",
        ),
        pytest.param(
            {"a": 1},
            {"op": "replace", "path": "", "value": 1},
            "replace operation value must be object or array",
            id="the document becomes a scalar",
        ),
        pytest.param(
            {"a": {"b": 1}},
            {"op": "move", "from": "/a", "path": "/a/c"},
            "move operation does not apply: doc is missing destination path: /a/c: missing value",
            id="moving into itself",
        ),
        pytest.param(
            {},
            {"op": "copy", "path": "/a"},
            "copy operation failed to decode from: operation, missing from field: missing value",
            id="no from",
        ),
        pytest.param(
            {"a": "text"},
            {"op": "test", "path": "/a/b", "value": 1},
            "test operation does not apply: is missing path: /a/b: missing value",
            id="a path through a scalar",
        ),
    ],
)
def test_an_operation_that_cannot_be_done(target: Any, op: Any, message: str) -> None:
    fine = {"op": "add", "path": "/fine", "value": 1}
    with pytest.raises(JSONPatchError) as raised:
        json_patch(target, [fine, op])
    assert str(raised.value) == message
    assert raised.value.index == 1
    assert not isinstance(raised.value, JSONPatchTestFailed)


@pytest.mark.parametrize(
    ("target", "value"),
    [
        pytest.param("qux", "bar", id="A.9 testing a value: error"),
        pytest.param("10", 10, id="A.15 comparing strings and numbers"),
        pytest.param(1, True, id="true is not 1"),
        pytest.param([1], [True], id="nor is it in a list"),
        pytest.param({"a": 0}, {"a": False}, id="nor in an object"),
        pytest.param({"a": 0}, {"b": 0}, id="other members"),
        pytest.param(None, 0, id="null"),
    ],
)
def test_a_test_that_fails(target: Any, value: Any) -> None:
    with pytest.raises(JSONPatchTestFailed) as raised:
        json_patch({"baz": target}, [{"op": "test", "path": "/baz", "value": value}])
    assert str(raised.value) == "testing value /baz failed: test failed"
    assert (raised.value.index, raised.value.op, raised.value.path) == (0, "test", "/baz")


def test_the_number_of_operations_is_limited() -> None:
    ops = [{"op": "add", "path": "/a", "value": 1}] * 4
    with pytest.raises(TooManyOperations, match=r"^The allowed maximum operations in a JSON patch is 3, got 4$"):
        patches.json_patch({}, ops, max_ops=3)


def test_copies_of_copies_are_limited() -> None:
    double: Ops = [{"op": "copy", "from": "/a", "path": "/a/-"}]
    with pytest.raises(JSONPatchError, match="accumulated size increase of copy"):
        json_patch({"a": ["x" * 100_000]}, double * 64)
    with pytest.raises(JSONPatchError, match="more than 10000 values"):
        json_patch({"a": ["x"]}, double * 64)
