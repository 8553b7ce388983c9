"""Strategic merge patch, as Kubernetes documents it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from rota.registry.patches import StrategicPatchError, strategic_merge
from tests.registry.field_nodes import META, SPEC


def containers(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "image": "i"} for name in names]


TARGET: dict[str, Any] = {
    "replicas": 1,
    "args": ["a", "b"],
    "zones": ["x", "y", "z"],
    "selector": {"app": "a"},
    "strategy": {"type": "Rolling", "rolling": {"surge": 1}},
    "containers": containers("a", "b", "c"),
}


@pytest.mark.parametrize(
    ("patch", "result"),
    [
        pytest.param({"replicas": 2}, {"replicas": 2}, id="a scalar is set"),
        pytest.param({"replicas": None}, {"replicas": ...}, id="null removes"),
        pytest.param({"image": None}, {}, id="null of what is not there is nothing"),
        pytest.param({"args": ["c"]}, {"args": ["c"]}, id="an atomic list is replaced"),
        pytest.param({"selector": {"tier": "t"}}, {"selector": {"app": "a", "tier": "t"}}, id="maps are always merged"),
        pytest.param({"strategy": {"type": None}}, {"strategy": {"rolling": {"surge": 1}}}, id="null in a map"),
        pytest.param({"zones": ["y", "w"]}, {"zones": ["x", "y", "w", "z"]}, id="sets are merged"),
        pytest.param({"$deleteFromPrimitiveList/zones": ["y"]}, {"zones": ["x", "z"]}, id="values leave a set"),
        pytest.param(
            {"zones": ["w"], "$setElementOrder/zones": ["z", "w", "x"]},
            {"zones": ["y", "z", "w", "x"]},
            id="a set is ordered",
        ),
        pytest.param(
            {"containers": [{"name": "b", "args": ["q"]}]},
            {"containers": [*containers("a"), {"name": "b", "image": "i", "args": ["q"]}, *containers("c")]},
            id="list map items are merged by key",
        ),
        pytest.param(
            {"containers": containers("d")}, {"containers": containers("d", "a", "b", "c")}, id="a new item comes first"
        ),
        pytest.param(
            {"containers": containers("d"), "$setElementOrder/containers": [{"name": n} for n in "cda"]},
            {"containers": containers("b", "c", "d", "a")},
            id="items are ordered, others keep their place",
        ),
        pytest.param(
            {"containers": [{"name": "b", "$patch": "delete"}]},
            {"containers": containers("a", "c")},
            id="delete an item",
        ),
        pytest.param(
            {"containers": [{"$patch": "replace"}, *containers("z")]},
            {"containers": containers("z")},
            id="replace a list",
        ),
        pytest.param(
            {"strategy": {"$patch": "replace", "type": "Recreate"}},
            {"strategy": {"type": "Recreate"}},
            id="replace a map",
        ),
        pytest.param({"strategy": {"$patch": "delete"}}, {"strategy": {}}, id="empty a map"),
        pytest.param(
            {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}},
            {"strategy": {"type": "Recreate"}},
            id="only the retained keys stay",
        ),
        pytest.param(
            {"queues": {"q": {"depth": 1, "owner": None, "$retainKeys": ["depth"]}, "p": {"$patch": "delete"}}},
            {"queues": {"q": {"depth": 1}}},
            id="directives that meet nothing are dropped",
        ),
    ],
)
def test_patches(patch: dict[str, Any], result: dict[str, Any]) -> None:
    inputs = copy.deepcopy((TARGET, patch))
    expected = {key: value for key, value in (TARGET | result).items() if value is not ...}
    assert strategic_merge(TARGET, patch, SPEC) == expected
    assert (TARGET, patch) == inputs


def test_a_key_that_a_patch_omits_has_its_default() -> None:
    udp, tcp = {"port": 80, "protocol": "UDP"}, {"port": 80, "protocol": "TCP"}
    target = {"containers": [{"name": "a", "ports": [udp, tcp]}]}
    patch = {"containers": [{"name": "a", "ports": [{"port": 80, "name": "http"}]}]}
    assert strategic_merge(target, patch, SPEC) == {
        "containers": [{"name": "a", "ports": [udp, tcp | {"name": "http"}]}]
    }


def test_finalizers_are_a_set() -> None:
    patch = {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]}
    assert strategic_merge({"finalizers": ["a", "b"]}, patch, META) == {"finalizers": ["c", "b"]}


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ({"strategy": {"$patch": "bogus"}}, 'unknown patch type: bogus in map: {"$patch":"bogus"}'),
        ({"containers": [{"$patch": "bogus"}]}, 'unknown patch type: bogus in map: {"$patch":"bogus"}'),
        ({"containers": [{"$patch": "merge"}]}, "merging lists cannot yet be specified in the patch"),
        ({"containers": [{"image": "i"}]}, 'map: {"image":"i"} does not contain declared merge key: name'),
        ({"containers": ["a"]}, 'expected a map, but received "a"'),
        ({"strategy": {"$retainKeys": "type"}}, "invalid patch format of retainKeys"),
        ({"strategy": {"$retainKeys": [], "type": "x"}}, "invalid patch format of retainKeys"),
        ({"$deleteFromPrimitiveList": ["x"]}, "invalid patch format of primitive list"),
        ({"$deleteFromPrimitiveList/zones": "x"}, "invalid patch format of primitive list"),
        ({"$setElementOrder": []}, "invalid patch format of setElementOrder list"),
        ({"$setElementOrder/zones": "x"}, "invalid patch format of setElementOrder list"),
        (
            {"zones": ["w", "x"], "$setElementOrder/zones": ["x", "w"]},
            'The order in patch list:\n["w","x"]\n doesn\'t match $setElementOrder list:\n["x","w"]\n',
        ),
    ],
)
def test_a_patch_that_does_not_fit(patch: dict[str, Any], message: str) -> None:
    with pytest.raises(StrategicPatchError) as raised:
        strategic_merge(TARGET, patch, SPEC)
    assert str(raised.value) == message
