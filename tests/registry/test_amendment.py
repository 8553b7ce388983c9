"""A change by a controller comes to the same as an update of the same fields, whatever they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.api import KINDS, Instance, Kind
from rota.api.decoding import decoded, decoded_anew
from rota.api.form import form
from rota.registry import ApiError, Registry, WriteOptions
from rota.registry.amendment import Amendment
from rota.store import MemoryStore, Write

WHERE = (Instance.api, "default")
AS_US = WriteOptions("us")
HOLD = {"id": "h", "kind": "Task", "name": "t", "uid": "u", "since": "2026-01-01T00:00:00Z"}

holds = st.one_of(st.none(), st.just(HOLD), st.just({**HOLD, "id": "i", "options": {"a": 1}}))
statuses = st.fixed_dictionaries(
    {},
    optional={
        "phase": st.sampled_from(("Idle", "Running")),
        "restarts": st.integers(0, 3),
        "assignment": st.just({"id": "h", "phase": "Accepted"}),
        "conditions": st.lists(
            st.fixed_dictionaries(
                {
                    "type": st.sampled_from(("Ready", "Available")),
                    "status": st.sampled_from(("True", "False")),
                    "reason": st.just("R"),
                    "message": st.just(""),
                    "lastTransitionTime": st.just("2026-01-01T00:00:00Z"),
                }
            ),
            max_size=2,
            unique_by=lambda one: one["type"],
        ),
    },
)


async def registry() -> Registry:
    made = Registry(MemoryStore(), clock=lambda: 1_800_000_000.0)
    await made.ensure_namespace("default")
    spec = {"containers": [{"name": "main", "command": ["true"]}], "templateHash": "x", "ordinal": 0}
    body = {"apiVersion": "rota.dev/v1alpha1", "kind": "Instance", "metadata": {"name": "i"}, "spec": spec}
    await made.create(*WHERE, body, WriteOptions("them", uid="the-same"))
    return made


async def found(registry: Registry) -> dict[str, Any]:
    value: dict[str, Any] = msgspec.json.decode(registry.get(*WHERE, "i").value)
    return value


@given(st.lists(st.tuples(holds, statuses), min_size=1, max_size=4))
async def test_it_is_the_same_as_an_update(changes: list[tuple[Any, dict[str, Any]]]) -> None:
    one, other = await registry(), await registry()
    for hold, status in changes:
        old = await found(other)
        spec = {**old["spec"], "assignment": hold}
        if hold is None:
            del spec["assignment"]
        await other.update(*WHERE, "i", {**old, "spec": spec}, AS_US)
        await other.update(*WHERE, "i", {**await found(other), "status": status}, AS_US, subresource="status")
        for change in (Amendment("the-same", spec={"assignment": hold}), Amendment("the-same", status={**status})):
            await one.batch([deciding(one, change)])
        mine, theirs = await found(one), await found(other)
        for each in (mine, theirs):
            del each["metadata"]["resourceVersion"]
        assert mine == theirs
        value = one.get(*WHERE, "i").value
        assert decoded(Instance.api, value) == decoded_anew(Instance.api, value)


@pytest.mark.parametrize("managed", [{}, {"managedFields": []}])
async def test_fields_that_nobody_owns_stay_nobodys(managed: dict[str, Any]) -> None:
    one = await registry()
    old = await found(one)
    del old["metadata"]["managedFields"]
    value = msgspec.json.encode({**old, "metadata": {**old["metadata"], **managed}})
    await one.store.commit([Write("instances.rota.dev/default/i", one.get(*WHERE, "i").revision, lambda _: value)])
    await one.batch([deciding(one, Amendment("the-same", status={"phase": "Idle"}))])
    assert "managedFields" not in (await found(one))["metadata"]


def deciding(registry: Registry, change: Amendment) -> Callable[[], Any]:
    return lambda: registry.decide.amend(*WHERE, "i", change, AS_US)


@pytest.mark.parametrize(
    "change",
    [
        Amendment("another", status={}),
        Amendment("the-same", "99", status={}),
        Amendment("the-same", spec={"assignment": HOLD}, test=lambda metadata, spec: "assignment" in spec),
    ],
)
async def test_what_is_not_as_it_was_thought_to_be_is_left_alone(change: Amendment) -> None:
    one = await registry()
    before = await found(one)
    with pytest.raises(ApiError, match="Operation cannot be fulfilled"):
        await one.batch([deciding(one, change)])
    assert await found(one) == before


async def test_a_status_that_does_not_fit_is_refused() -> None:
    one = await registry()
    with pytest.raises(ApiError, match=r"status\.restarts"):
        await one.batch([deciding(one, Amendment("the-same", status={"restarts": -1}))])


async def test_what_is_not_there_is_not_amended() -> None:
    one = await registry()
    with pytest.raises(ApiError, match="not found"):
        await one.batch([lambda: one.decide.amend(*WHERE, "j", Amendment("x", status={}), AS_US)])


@pytest.mark.parametrize("kind", [kind for kind in KINDS.values() if kind.has_status], ids=lambda kind: kind.name)
def test_no_status_has_a_rule_that_an_amendment_would_have_to_check(kind: Kind) -> None:
    assert "status" not in dict(form(kind).rules.fields)
    assert not any("self.status" in rule.cel for rule in kind.type.rules)
