"""Sets of field paths: what is in a value, what differs between two, and the algebra on them."""

from __future__ import annotations

from typing import Any

import pytest

from rota.api.structure import ANY, ATOMIC_ANY, SCALAR, Structure
from rota.registry import fieldset
from tests.registry.field_nodes import CONTAINERS, META, PORTS, SPEC, WIDGET, config, map_of, struct


@pytest.mark.parametrize(
    ("value", "node", "fields"),
    [
        pytest.param({"replicas": 1}, SPEC, {"f:replicas": {}}, id="a scalar is a leaf"),
        pytest.param({"replicas": None}, SPEC, {"f:replicas": {}}, id="a null is a leaf"),
        pytest.param({"strategy": {}}, SPEC, {"f:strategy": {}}, id="an empty struct is a leaf"),
        pytest.param(
            {"strategy": {"type": "a"}}, SPEC, {"f:strategy": {"f:type": {}}}, id="a named field is no member itself"
        ),
        pytest.param({"labels": {"a": "b"}}, META, {"f:labels": {"f:a": {}}}, id="the keys of a map are members"),
        pytest.param(
            {"queues": {"q": {"depth": 1}}},
            SPEC,
            {"f:queues": {"f:q": {".": {}, "f:depth": {}}}},
            id="a struct in a map is a member besides its fields",
        ),
        pytest.param({"selector": {"app": "a"}}, SPEC, {"f:selector": {}}, id="an atomic struct is a leaf"),
        pytest.param({"limits": {"cpu": "1"}}, SPEC, {"f:limits": {}}, id="an atomic map is a leaf"),
        pytest.param({"args": ["a", "b"]}, SPEC, {"f:args": {}}, id="an atomic list is a leaf"),
        pytest.param({"zones": ["b", "a"]}, SPEC, {"f:zones": {'v:"b"': {}, 'v:"a"': {}}}, id="set items by value"),
        pytest.param({"zones": []}, SPEC, {}, id="an empty set or list map claims nothing"),
        pytest.param(
            {"containers": [{"name": "a", "image": "i"}]},
            SPEC,
            {"f:containers": {'k:{"name":"a"}': {".": {}, "f:name": {}, "f:image": {}}}},
            id="an item of a list map by its key, and itself",
        ),
        pytest.param(
            [{"protocol": "UDP", "port": 53}],
            PORTS,
            {'k:{"port":53,"protocol":"UDP"}': {".": {}, "f:port": {}, "f:protocol": {}}},
            id="several keys are sorted",
        ),
        pytest.param(
            [{"port": 80}],
            PORTS,
            {'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}}},
            id="an omitted key counts with its default",
        ),
        pytest.param(
            [{"name": "a", "image": "1"}, {"name": "a", "image": "2"}],
            CONTAINERS,
            {'k:{"name":"a"}': {}},
            id="items with the same key are one indivisible member",
        ),
        pytest.param(
            {"free": {"a": {"b": 1}, "l": [1, {"c": 2}]}},
            SPEC,
            {"f:free": {"f:a": {".": {}, "f:b": {}}, "f:l": {}}},
            id="free-form maps are granular, their lists atomic",
        ),
        pytest.param({"sealed": {"a": {"b": 1}}}, SPEC, {"f:sealed": {}}, id="atomic free-form is a leaf"),
    ],
)
def test_the_set_of_a_value(value: Any, node: Structure, fields: fieldset.FieldSet) -> None:
    assert fieldset.of(value, node) == fields


@pytest.mark.parametrize(
    ("item", "element"),
    [
        ("a<b>&c", 'v:"a\\u003cb\\u003e\\u0026c"'),
        ("é", 'v:"é"'),
        (1.0, "v:1"),
        (1.5, "v:1.5"),
        (True, "v:true"),
        ('say "hi"', 'v:"say \\"hi\\""'),
    ],
)
def test_items_are_spelled_as_kubernetes_spells_them(item: Any, element: str) -> None:
    node = Structure("list", item=SCALAR, list_type="set")
    assert fieldset.of([item], node) == {element: {}}


def test_claims_of_a_creator_hold_containers_but_not_what_nobody_owns() -> None:
    new = config({"containers": [{"name": "a"}], "zones": []}, labels={"a": "b"}, uid="u", resourceVersion="1")
    assert fieldset.claims(new, WIDGET) == {
        "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
        "f:spec": {
            ".": {},
            "f:containers": {".": {}, 'k:{"name":"a"}': {".": {}, "f:name": {}}},
            "f:zones": {},
        },
    }


def test_claims_of_bare_metadata_are_empty() -> None:
    assert fieldset.is_empty(fieldset.claims(config(), WIDGET))


def test_a_struct_that_contains_itself_is_walked() -> None:
    schema = struct(type=SCALAR)
    schema.fields["properties"] = map_of(schema)
    value = {"properties": {"a": {"properties": {"b": {"type": "string"}}}}}
    below: Any = {".": {}, "f:properties": {".": {}, "f:b": {".": {}, "f:type": {}}}}
    assert fieldset.compare({}, value, schema) == ({"f:properties": {".": {}, "f:a": below}}, {})


@pytest.mark.parametrize(
    ("old", "new", "changed", "removed"),
    [
        pytest.param({"a": 1}, {"a": 1}, {}, {}, id="equal"),
        pytest.param({"a": 1}, {"a": 2}, {"f:a": {}}, {}, id="modified"),
        pytest.param({}, {"m": {"x": 1}}, {"f:m": {".": {}, "f:x": {}}}, {}, id="an added container and what is in it"),
        pytest.param({"m": {"x": 1}}, {}, {}, {"f:m": {".": {}, "f:x": {}}}, id="a removed container likewise"),
        pytest.param({"m": {"x": 1}}, {"m": {}}, {}, {"f:m": {"f:x": {}}}, id="an emptied container stays"),
        pytest.param({"m": {}}, {"m": {"x": 1}}, {"f:m": {"f:x": {}}}, {}, id="a filled container was there"),
        pytest.param({"m": None}, {"m": {"x": 1}}, {"f:m": {"f:x": {}}}, {}, id="null becomes a map"),
        pytest.param({"m": None}, {"m": {}}, {"f:m": {}}, {}, id="null becomes an empty map"),
        pytest.param({"m": {"x": 1}}, {"m": None}, {}, {"f:m": {"f:x": {}}}, id="a map becomes null"),
        pytest.param({"m": 1}, {"m": {"x": 1}}, {"f:m": {".": {}, "f:x": {}}}, {}, id="a scalar becomes a map"),
        pytest.param({"m": {"x": 1}}, {"m": 1}, {"f:m": {}}, {"f:m": {"f:x": {}}}, id="a map becomes a scalar"),
        pytest.param({"m": {"x": 1}}, {"m": [1]}, {"f:m": {}}, {"f:m": {"f:x": {}}}, id="a map becomes a list"),
        pytest.param({"l": [1]}, {"l": [2]}, {"f:l": {}}, {}, id="an atomic list is modified whole"),
    ],
)
def test_differences_of_free_form_values(old: Any, new: Any, changed: Any, removed: Any) -> None:
    assert fieldset.compare(old, new, ANY) == (changed, removed)


@pytest.mark.parametrize(
    ("old", "new", "changed", "removed"),
    [
        pytest.param({"zones": ["a", "b"]}, {"zones": ["b", "a"]}, {}, {}, id="order in a set is no difference"),
        pytest.param(
            {"zones": ["a", "b"]},
            {"zones": ["b", "c"]},
            {"f:zones": {'v:"c"': {}}},
            {"f:zones": {'v:"a"': {}}},
            id="set items come and go",
        ),
        pytest.param({"zones": []}, {"zones": None}, {"f:zones": {}}, {}, id="empty and null lists differ"),
        pytest.param(
            {"containers": [{"name": "a", "image": "1"}, {"name": "b"}]},
            {"containers": [{"name": "c"}, {"name": "a", "image": "2"}]},
            {"f:containers": {'k:{"name":"c"}': {".": {}, "f:name": {}}, 'k:{"name":"a"}': {"f:image": {}}}},
            {"f:containers": {'k:{"name":"b"}': {".": {}, "f:name": {}}}},
            id="list map items are compared by key",
        ),
        pytest.param(
            {"containers": [{"name": "a", "image": "1"}, {"name": "a", "image": "2"}]},
            {"containers": [{"name": "a", "image": "1"}, {"name": "a", "image": "3"}]},
            {"f:containers": {'k:{"name":"a"}': {}}},
            {},
            id="duplicates are modified as one",
        ),
        pytest.param(
            {"containers": [{"name": "a", "image": "1"}, {"name": "a"}]},
            {"containers": [{"name": "a", "image": "1"}]},
            {"f:containers": {'k:{"name":"a"}': {".": {}, "f:name": {}, "f:image": {}}}},
            {"f:containers": {'k:{"name":"a"}': {}}},
            id="a duplicate that becomes single is new",
        ),
        pytest.param(
            {"selector": {"app": "a"}}, {"selector": {"app": "b"}}, {"f:selector": {}}, {}, id="atomic struct"
        ),
        pytest.param({"limits": {"a": "1"}}, {"limits": {}}, {"f:limits": {}}, {}, id="atomic map emptied"),
        pytest.param({"sealed": {"a": 1}}, {"sealed": {"a": 2}}, {"f:sealed": {}}, {}, id="atomic free-form"),
    ],
)
def test_differences_by_structure(old: Any, new: Any, changed: Any, removed: Any) -> None:
    assert fieldset.compare(old, new, SPEC) == (changed, removed)


AB: Any = {"f:a": {".": {}, "f:b": {}}}
A: Any = {"f:a": {}}
B_BELOW_A: Any = {"f:a": {"f:b": {}}}


@pytest.mark.parametrize(
    ("operation", "left", "right", "result"),
    [
        ("union", A, B_BELOW_A, AB),
        ("union", B_BELOW_A, A, AB),
        ("union", {}, A, A),
        ("union", A, {}, A),
        ("difference", AB, A, B_BELOW_A),
        ("difference", AB, B_BELOW_A, A),
        ("difference", AB, AB, {}),
        ("difference", A, B_BELOW_A, A),
        ("difference", B_BELOW_A, A, B_BELOW_A),
        ("difference", A, {}, A),
        ("intersection", AB, A, A),
        ("intersection", AB, B_BELOW_A, B_BELOW_A),
        ("intersection", A, B_BELOW_A, {}),
        ("intersection", AB, {}, {}),
    ],
)
def test_a_member_and_what_is_below_it_are_apart(operation: str, left: Any, right: Any, result: Any) -> None:
    assert getattr(fieldset, operation)(left, right) == result


def test_difference_returns_the_same_set_if_it_takes_nothing() -> None:
    assert fieldset.difference(AB, {"f:z": {}}) is AB


def test_strip_takes_what_managed_fields_never_hold() -> None:
    fields = fieldset.of(config({"replicas": 1}, uid="u", labels={"a": "b"}, generation=3), WIDGET)
    assert fieldset.strip(fields) == {"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {"f:replicas": {}}}


def test_paths_print_as_in_conflicts_members_before_what_is_below_them() -> None:
    fields = {
        "f:spec": {
            "f:containers": {'k:{"name":"b"}': {".": {}, "f:image": {}}, 'k:{"name":"a"}': {"f:image": {}}},
            "f:ports": {'k:{"port":80,"protocol":"TCP"}': {}, 'k:{"port":9,"protocol":"TCP"}': {}},
            "f:zones": {'v:"z"': {}, "v:2": {}, "v:true": {}},
            "f:replicas": {},
            "f:list": {"i:3": {}},
        }
    }
    assert fieldset.paths(fields) == [
        ".spec.replicas",
        '.spec.containers[name="b"]',
        '.spec.containers[name="a"].image',
        '.spec.containers[name="b"].image',
        ".spec.list[3]",
        '.spec.ports[port=9,protocol="TCP"]',
        '.spec.ports[port=80,protocol="TCP"]',
        ".spec.zones[=2]",
        '.spec.zones[="z"]',
        ".spec.zones[=true]",
    ]


@pytest.mark.parametrize(
    ("sent", "fields"),
    [
        pytest.param({'k:{ "b": 1, "a": 2.0 }': {}}, {'k:{"a":2,"b":1}': {}}, id="keys are sorted and compact"),
        pytest.param({"v: 1": {}, "i:007": {}}, {"v:1": {}, "i:7": {}}, id="values are compact"),
        pytest.param({"f:a": {".": {}}}, {"f:a": {}}, id="a member alone is a leaf"),
        pytest.param({".": {}, "f:a": {}}, {"f:a": {}}, id="the whole object is no member"),
        pytest.param({"f:a": {"x:new": {}}, "f:b": {}}, {"f:b": {}}, id="unknown types are dropped"),
    ],
)
def test_a_set_that_a_client_sent_is_brought_to_normal_form(sent: Any, fields: Any) -> None:
    assert fieldset.canonical(sent) == fields


@pytest.mark.parametrize("sent", [[], {"f": {}}, {"nothing": {}}, {"v:{": {}}, {"k:[1]": {}}, {"i:x": {}}, {"f:a": 1}])
def test_what_is_no_set_is_refused(sent: Any) -> None:
    with pytest.raises(ValueError):
        fieldset.canonical(sent)


def test_invalid_objects_have_a_set_all_the_same() -> None:
    new = config({"unknown": {"a": 1}, "containers": [{"image": "i"}, "odd", {"name": {"not": "a name"}}]})
    odd_items: Any = {
        "k:{}": {".": {}, "f:image": {}},
        'v:"odd"': {},
        'k:{"name":{"not":"a name"}}': {".": {}, "f:name": {}},
    }
    assert fieldset.claims(new, WIDGET)["f:spec"] == {
        ".": {},
        "f:unknown": {".": {}, "f:a": {}},
        "f:containers": {".": {}, **odd_items},
    }
    assert fieldset.compare({"m": 1}, {"m": 2}, ATOMIC_ANY) == ({"f:m": {}}, {})
