from __future__ import annotations

import pytest

from rota import Client
from tests.conformance.expecting import refused
from tests.conformance.objects import (
    CONFIG_MAPS,
    LOCATIONS,
    NAMESPACES,
    POOLS,
    SECRETS,
    TASKS,
    config_map,
    name_of,
    pool,
    secret,
    task,
)


async def selected(client: Client, labels: str) -> str:
    """The names that a label selector finds among four objects, in one word."""
    for name, own in (
        ("a", {"tier": "front", "env": "prod", "size": "1"}),
        ("b", {"tier": "back", "env": "prod", "size": "5"}),
        ("c", {"tier": "back", "example.com/part": "x", "size": "big"}),
        ("d", {"empty": ""}),
    ):
        await client.create(pool(name, labels=own))
    return "".join(name_of(item) for item in (await client.list(POOLS, labels=labels)).items)


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        ("tier=front", "a"),
        ("tier==back", "bc"),
        ("tier!=back", "ad"),
        ("tier in (front, back)", "abc"),
        ("tier in (front)", "a"),
        ("tier notin (front)", "bcd"),
        ("env", "ab"),
        ("!env", "cd"),
        ("size>1", "b"),
        ("size<5", "a"),
        ("example.com/part=x", "c"),
        ("example.com/part", "c"),
        ("empty=", "d"),
        ("empty in (,x)", "d"),
        ("tier=back,env=prod", "b"),
        (" tier = back , env ", "b"),
        ("tier in (back),!env", "c"),
        ("tier=none", ""),
        ("tier=front,tier=back", ""),
    ],
)
async def test_labels_select(client: Client, labels: str, found: str) -> None:
    assert await selected(client, labels) == found


@pytest.mark.parametrize(
    "labels", ["a=b=c", "tier in", "tier in (a", "in (a)", "a b", "tier=has space", "!", "x=_", "size>big"]
)
async def test_a_label_selector_has_a_syntax(client: Client, labels: str) -> None:
    with refused(400, "BadRequest"):
        await client.list(POOLS, labels=labels)


async def test_a_field_selector_finds_an_object_by_name(client: Client) -> None:
    for name in "abc":
        await client.create(pool(name))
    assert [name_of(p) for p in (await client.list(POOLS, fields="metadata.name=b")).items] == ["b"]
    assert [name_of(p) for p in (await client.list(POOLS, fields="metadata.name!=b")).items] == ["a", "c"]


async def test_a_field_selector_finds_objects_by_namespace(client: Client) -> None:
    await client.create(pool("a"))
    listed = await client.list(POOLS, namespace="", fields=f"metadata.namespace={client.namespace}")
    assert [name_of(p) for p in listed.items] == ["a"]


async def test_field_and_label_selectors_must_both_match(client: Client) -> None:
    await client.create(pool("a", labels={"x": "1"}))
    await client.create(pool("b", labels={"x": "1"}))
    assert [name_of(p) for p in (await client.list(POOLS, labels="x=1", fields="metadata.name==b")).items] == ["b"]
    assert (await client.list(POOLS, labels="x=2", fields="metadata.name=b")).items == []


async def test_a_field_that_the_kind_declares_can_be_selected_by(client: Client) -> None:
    await client.create(task("a", {"workerPoolRef": {"name": "p1"}}))
    await client.create(task("b", {"workerPoolRef": {"name": "p2"}}))
    assert [name_of(t) for t in (await client.list(TASKS, fields="spec.workerPoolRef.name=p2")).items] == ["b"]
    assert [name_of(t) for t in (await client.list(TASKS, fields="spec.workerPoolRef.name!=p2")).items] == ["a"]


async def test_a_declared_field_of_the_status_can_be_selected_by(client: Client) -> None:
    await client.create(task("a"))
    await client.create(task("b"))
    await client.patch(TASKS, "b", {"status": {"phase": "Running"}}, subresource="status")
    assert [name_of(t) for t in (await client.list(TASKS, fields="status.phase=Running")).items] == ["b"]


async def test_an_absent_field_counts_as_empty(client: Client) -> None:
    await client.create(task("a"))
    assert [name_of(t) for t in (await client.list(TASKS, fields="status.phase=")).items] == ["a"]
    assert [name_of(t) for t in (await client.list(TASKS, fields="status.phase!=Running")).items] == ["a"]


async def test_a_field_that_is_not_declared_cannot_be_selected_by(client: Client) -> None:
    with refused(400, "BadRequest") as refusal:
        await client.list(POOLS, fields="spec.replicas=1")
    assert "field label not supported: spec.replicas" in refusal.value.message


async def test_a_kind_of_the_core_group_has_its_own_fields_to_select_by(client: Client) -> None:
    await client.create(config_map("a"))
    assert len((await client.list(CONFIG_MAPS, fields="metadata.name=a")).items) == 1
    with refused(400, "BadRequest"):
        await client.list(CONFIG_MAPS, fields="data.key=value")


async def test_a_field_selector_has_a_syntax(client: Client) -> None:
    with refused(400, "BadRequest"):
        await client.list(POOLS, fields="metadata.name")


async def test_secrets_are_selected_by_type(client: Client) -> None:
    await client.create(secret("a"))
    await client.create(secret("b", type="example.com/token"))
    assert [name_of(s) for s in (await client.list(SECRETS, fields="type=example.com/token")).items] == ["b"]
    assert [name_of(s) for s in (await client.list(SECRETS, fields="type=Opaque")).items] == ["a"]
    with refused(400, "BadRequest"):
        await client.list(SECRETS, fields="data.key=value")


async def test_namespaces_are_selected_by_phase(client: Client) -> None:
    only = f"metadata.name={client.namespace}"
    assert len((await client.list(NAMESPACES, fields=f"status.phase=Active,{only}")).items) == 1
    assert (await client.list(NAMESPACES, fields=f"status.phase=Terminating,{only}")).items == []


async def test_what_is_in_no_namespace_is_not_selected_by_one(client: Client) -> None:
    for kind in (NAMESPACES, LOCATIONS):
        with refused(400, "BadRequest") as refusal:
            await client.list(kind, fields="metadata.namespace=default")
        assert "field label not supported: metadata.namespace" in refusal.value.message


async def test_commas_equals_signs_and_backslashes_of_a_value_are_escaped(client: Client) -> None:
    await client.create(secret("a", type="example.com/a,b=c\\d"))
    await client.create(secret("b", type="example.com/a"))
    escaped = "type=example.com/a\\,b\\=c\\\\d"
    assert [name_of(s) for s in (await client.list(SECRETS, fields=escaped)).items] == ["a"]
    assert [name_of(s) for s in (await client.list(SECRETS, fields=f"{escaped},metadata.name=b")).items] == []
    for wrong in ("type=a=b", "type=a\\b", "type=a\\"):
        with refused(400, "BadRequest"):
            await client.list(SECRETS, fields=wrong)
