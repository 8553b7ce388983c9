"""Properties of field sets, applies and patches for any objects."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rota.api.structure import ANY, Structure
from rota.registry import fieldset, managed
from rota.registry.apply import ApplyConflict, apply
from rota.registry.elements import of_item
from rota.registry.patches import json_patch, merge_patch, strategic_merge
from tests.amount import amount
from tests.registry.field_nodes import API_VERSION, SPEC, WIDGET, config

EXAMPLES_MAX = amount(25, 300)
"""Objects of this size take long to make; what fails, fails early."""
few = settings(max_examples=EXAMPLES_MAX, deadline=None)

NOW, LATER = "2024-01-01T00:00:01Z", "2024-01-01T00:00:02Z"

scalars = st.sampled_from(["a", "b", "ü<", 1, 2])
free = st.recursive(
    scalars | st.none(),
    lambda below: st.lists(below, max_size=2) | st.dictionaries(st.sampled_from("xyz"), below, max_size=3),
    max_leaves=5,
)


def values(node: Structure) -> st.SearchStrategy[Any]:
    """Valid values of a node."""
    match node.kind:
        case "scalar":
            return scalars
        case "any":
            return st.dictionaries(st.sampled_from("pqr"), free, max_size=3)
        case "map":
            return st.dictionaries(st.sampled_from("kl"), values(node.item or ANY), max_size=2)
        case "struct":
            return st.fixed_dictionaries({}, optional={name: values(field) for name, field in node.fields.items()})
    items = values(node.item or ANY)
    if node.list_type == "atomic":
        return st.lists(items, max_size=2)
    if node.list_type == "map":
        keys = {key: st.sampled_from(["a", "b", "c"]) for key in node.keys}
        items = st.builds(lambda item, key: item | key, items, st.fixed_dictionaries(keys))
    return st.lists(items, max_size=3, unique_by=lambda item: of_item(item, node))


specs = values(SPEC)
sets = specs.map(lambda spec: fieldset.of(spec, SPEC)) | specs.map(lambda spec: fieldset.claims({"spec": spec}, WIDGET))
jsons = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["", "s"]),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from("abc"), below, max_size=3),
    max_leaves=8,
)


def members(fields: fieldset.FieldSet) -> set[tuple[str, ...]]:
    return set(fieldset.members(fields))


@few
@given(sets, sets)
def test_the_algebra_is_that_of_sets_of_paths(a: fieldset.FieldSet, b: fieldset.FieldSet) -> None:
    inputs = copy.deepcopy((a, b))
    assert members(fieldset.union(a, b)) == members(a) | members(b)
    assert members(fieldset.difference(a, b)) == members(a) - members(b)
    assert members(fieldset.intersection(a, b)) == members(a) & members(b)
    assert (a, b) == inputs


@few
@given(sets, sets, sets)
def test_equal_sets_are_equal_dicts(a: fieldset.FieldSet, b: fieldset.FieldSet, c: fieldset.FieldSet) -> None:
    assert fieldset.union(a, b) == fieldset.union(b, a)
    assert fieldset.difference(fieldset.union(a, b), b) == fieldset.difference(a, b)
    assert fieldset.difference(a, fieldset.difference(a, b)) == fieldset.intersection(a, b)
    either, both = fieldset.union(b, c), fieldset.intersection(fieldset.difference(a, b), fieldset.difference(a, c))
    assert fieldset.difference(a, either) == both


@few
@given(sets)
def test_every_set_is_in_normal_form(fields: fieldset.FieldSet) -> None:
    assert fieldset.canonical(fields) == fields
    assert all(fieldset.contains(fields, steps) for steps in fieldset.members(fields))
    assert len(fieldset.paths(fields)) == len(members(fields))


def unordered(value: Any, node: Structure) -> Any:
    """The value with the order of its sets and list maps taken out."""
    if node.kind == "list" and node.list_type != "atomic" and isinstance(value, list):
        return {of_item(item, node): unordered(item, node.item or ANY) for item in value} or []
    if node.kind in ("struct", "map") and not node.atomic and isinstance(value, dict):
        return {key: unordered(child, node.fields.get(key) or node.item or ANY) for key, child in value.items()}
    return value


@few
@given(specs, specs)
def test_a_comparison_is_empty_exactly_if_the_objects_are_equal(old: Any, new: Any) -> None:
    inputs = copy.deepcopy((old, new))
    changed, removed = fieldset.compare(old, new, SPEC)
    assert (old, new) == inputs
    assert (not changed and not removed) == (unordered(old, SPEC) == unordered(new, SPEC))
    assert not members(changed) & members(removed)


@few
@given(specs, specs)
def test_what_is_removed_one_way_is_added_the_other(old: Any, new: Any) -> None:
    changed, removed = fieldset.compare(old, new, SPEC)
    back_changed, back_removed = fieldset.compare(new, old, SPEC)
    assert members(removed) <= members(back_changed)
    assert members(back_removed) <= members(changed)


@few
@given(specs)
def test_what_an_author_specifies_is_part_of_what_is_there(spec: Any) -> None:
    assert members(fieldset.of(spec, SPEC)) <= members(fieldset.compare({}, spec, SPEC)[0])


def without_empty_lists(spec: dict[str, Any]) -> dict[str, Any]:
    """An empty set or list map counts as nothing, so a container of only such goes with the last thing beside them."""
    return {name: value for name, value in spec.items() if value != []}


State = tuple[dict[str, Any] | None, list[managed.Entry]]
NOTHING: State = (None, [])


def applied(state: State, manager: str, spec: Any, *, force: bool = True, now: str = NOW) -> State:
    live, entries = state
    inputs = (live, config(spec), entries)
    before = copy.deepcopy(inputs)
    out = apply(*inputs, WIDGET, manager=manager, api_version=API_VERSION, subresource="", force=force, now=now)
    assert inputs == before
    return out


def spec_of(state: State) -> dict[str, Any]:
    spec: dict[str, Any] = (state[0] or {}).get("spec", {})
    return spec


def owned_by(state: State, manager: str) -> fieldset.FieldSet:
    found: fieldset.FieldSet = next((entry["fieldsV1"] for entry in state[1] if entry["manager"] == manager), {})
    return found


@few
@given(specs, specs)
def test_applying_what_was_applied_is_a_no_op(first: Any, second: Any) -> None:
    state = applied(applied(NOTHING, "a", first), "b", second)
    again = applied(state, "b", second, now=LATER)
    assert again[0] is state[0]
    assert again[1] == state[1]


@few
@given(specs, specs)
def test_an_applied_configuration_is_in_the_object(first: Any, second: Any) -> None:
    state = applied(applied(NOTHING, "a", first), "b", second)
    changed, removed = fieldset.compare(spec_of(state), second, SPEC)
    differing = fieldset.union(changed, removed)
    assert fieldset.is_empty(fieldset.intersection(fieldset.of(second, SPEC), differing))


@few
@given(specs.map(without_empty_lists), specs.map(without_empty_lists))
def test_an_applier_that_leaves_takes_nothing_of_others_and_adds_nothing(mine: Any, theirs: Any) -> None:
    before = applied(applied(NOTHING, "them", theirs), "me", mine)
    after = applied(before, "me", None, force=False, now=LATER)
    assert owned_by(after, "me") == {}
    assert owned_by(after, "them") == owned_by(before, "them")
    there = members(fieldset.compare({}, spec_of(after), SPEC)[0])
    assert members(owned_by(after, "them").get("f:spec", {})) <= there
    assert there <= members(fieldset.compare({}, spec_of(before), SPEC)[0])


@few
@given(specs, specs)
def test_without_force_nothing_that_others_own_changes(first: Any, second: Any) -> None:
    before = applied(NOTHING, "a", first)
    try:
        after = applied(before, "b", second, force=False)
    except ApplyConflict:
        after = before
    changed, removed = fieldset.compare(before[0], after[0], WIDGET)
    assert fieldset.is_empty(fieldset.intersection(owned_by(before, "a"), fieldset.union(changed, removed)))


@few
@given(specs, specs)
def test_after_an_update_the_writer_owns_what_changed_and_nobody_what_is_gone(old: Any, new: Any) -> None:
    before, after = config(old, uid="u"), config(new, uid="u")
    created = managed.after_update([], None, before, WIDGET, manager="a", api_version="v1", subresource="", now=NOW)
    entries = managed.after_update(
        created, before, after, WIDGET, manager="b", api_version="v1", subresource="", now=LATER
    )
    changed, removed = (members(fields) for fields in fieldset.compare(before, after, WIDGET))
    assert members(owned_by((after, entries), "b")) == changed
    assert members(owned_by((after, entries), "a")) == members(owned_by((before, created), "a")) - changed - removed


def merge_diff(old: Any, new: Any) -> Any:
    """A merge patch that makes `new` of `old`."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    patch = {name: None for name in old if name not in new}
    return patch | {name: merge_diff(old.get(name), value) for name, value in new.items() if old.get(name) != value}


@few
@given(
    specs.map(without := lambda spec: {k: v for k, v in spec.items() if k not in ("free", "sealed")}),
    specs.map(without),
)
def test_merging_a_difference_makes_the_new_object(old: Any, new: Any) -> None:
    patch = merge_diff(old, new)
    inputs = copy.deepcopy((old, patch))
    assert merge_patch(old, patch) == new
    assert (old, patch) == inputs


@few
@given(jsons, jsons)
def test_a_merge_patch_applied_twice_is_applied_once(target: Any, patch: Any) -> None:
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once


@few
@given(st.dictionaries(st.sampled_from(["a", "~", "/", "~1", ""]), jsons), jsons)
def test_a_json_patch_adds_tests_moves_and_removes_again(target: Any, value: Any) -> None:
    inputs = copy.deepcopy((target, value))
    ops = [
        {"op": "add", "path": "/new", "value": value},
        {"op": "test", "path": "/new", "value": value},
        {"op": "copy", "from": "/new", "path": "/copy"},
        {"op": "move", "from": "/new", "path": "/moved"},
        {"op": "test", "path": "/moved", "value": value},
        {"op": "remove", "path": "/moved"},
        {"op": "remove", "path": "/copy"},
    ]
    for name, old in target.items():
        pointer = "/" + name.replace("~", "~0").replace("/", "~1")
        ops += [{"op": "test", "path": pointer, "value": old}, {"op": "replace", "path": pointer, "value": old}]
    assert json_patch(target, ops, max_ops=100) == target
    assert (target, value) == inputs


@few
@given(specs, specs.map(lambda spec: {name: value for name, value in spec.items() if name not in ("free", "sealed")}))
def test_a_strategic_patch_applied_twice_is_applied_once(target: Any, patch: Any) -> None:
    inputs = copy.deepcopy((target, patch))
    once = strategic_merge(target, patch, SPEC)
    assert strategic_merge(once, patch, SPEC) == once
    assert (target, patch) == inputs
