"""Derived names."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rota.control.instances import derived, instance_name, selector, storage_name
from rota.control.instances.names import LABEL_LENGTH_MAX, tailed
from tests.control.instances.making import POOL, an_instance

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
PART = st.text("ab0-.", min_size=1, max_size=8) | st.text("a-.", min_size=50, max_size=70)
KIND = st.sampled_from(["WorkerPool", "WorkloadDeployment", "Function"])


def test_a_pools_instances_are_named_after_it() -> None:
    assert instance_name("WorkerPool", "agents", 12) == "agents-12"


def test_a_dash_that_could_belong_to_either_part_makes_a_tail() -> None:
    assert derived("a-b", "c") == "a-b-c"
    assert derived("a", "b-c").startswith("a-b-c-")


def test_a_name_that_looks_as_if_it_had_a_tail_gets_one() -> None:
    tail = tailed("a", "b-c").rpartition("-")[2]
    assert derived("a", "b-c") == f"a-b-c-{tail}"
    assert derived("a-b-c", tail) != f"a-b-c-{tail}"


def test_a_long_name_is_cut_and_has_a_tail() -> None:
    name = instance_name("WorkerPool", "x" * 253, 1_000_000)
    assert len(name) <= LABEL_LENGTH_MAX
    assert re.fullmatch(r"x+-[0-9a-f]{12}-1000000", name)


def test_a_name_with_dots_becomes_a_label() -> None:
    assert LABEL.fullmatch(instance_name("WorkerPool", "a.b", 0))
    assert instance_name("WorkerPool", "a.b", 0) != instance_name("WorkerPool", "a-b", 0)


def test_namesakes_of_two_kinds_have_instances_of_two_names() -> None:
    assert instance_name("WorkerPool", "web", 0) != instance_name("WorkloadDeployment", "web", 0)


def test_names_are_the_same_in_every_release() -> None:
    assert instance_name("WorkloadDeployment", "web", 3) == "web-9ee0c70689c4-3"


@settings(deadline=None)
@given(st.lists(st.tuples(KIND, PART, st.integers(0, 1_000_000)), unique=True, max_size=20))
def test_no_two_instances_share_a_name_and_each_is_a_label(of: list[tuple[str, str, int]]) -> None:
    names = [instance_name(*one) for one in of]
    assert len(set(names)) == len(names)
    assert all(len(name) <= LABEL_LENGTH_MAX and LABEL.fullmatch(name) for name in names)


@pytest.mark.parametrize("count", [1, 2, 3])
@settings(deadline=None)
@given(data=st.data())
def test_no_two_lists_of_parts_share_a_name(count: int, data: st.DataObject) -> None:
    parts = data.draw(st.lists(st.tuples(*[PART] * count), unique=True, max_size=20))
    names = [derived(*one) for one in parts]
    assert len(set(names)) == len(names)
    assert all(len(name) <= LABEL_LENGTH_MAX and LABEL.fullmatch(name) for name in names)


def test_storage_belongs_to_the_ordinal_and_not_to_the_instance_that_has_it() -> None:
    first = an_instance(3)
    again = replace(first, metadata=replace(first.metadata, uid="another"))
    assert storage_name(first) == storage_name(again) != storage_name(an_instance(4))
    assert storage_name(first) != storage_name(an_instance(3, owner=replace(POOL, kind="WorkloadDeployment")))


def test_the_selector_fits_into_a_label_for_any_owner() -> None:
    assert selector("WorkerPool", "agents") == "rota.dev/owner=agents"
    assert len(selector("WorkerPool", "x" * 253).partition("=")[2]) <= LABEL_LENGTH_MAX
