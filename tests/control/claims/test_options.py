"""Options of a claim: they apply to this hold only."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota.api.instance import Container, InstanceTemplate
from rota.api.parts import EnvVar
from rota.control.claims.lifecycle import unfit
from rota.registry import ApiError
from tests.control.claims.party import (
    WORKERS,
    Party,
    a_claim,
    answer_of,
    claim,
    held,
    is_bound,
    is_clean,
    is_over,
    release,
    settles,
    status,
    took,
    up,
)
from tests.engine_loop.loops import World

CONTAINERS: dict[str, Any] = {"template": {"runtime": "container", "containers": [{"name": "main", "image": "one"}]}}


async def test_variables_are_those_of_the_hold_and_what_runs_is_started_anew(world: World, party: Party) -> None:
    await up(world, party, reset="Keep")
    await claim(world, "a", env=[{"name": "WHO", "value": "me"}])
    assert (await status(world, "a")).phase == "Bound"
    assert [order.env.get("WHO") for order in party.runtime.orders] == [None, "me"]
    await world.pass_time(5, step=1)
    assert (await status(world, "a")).phase == "Bound", "that it was started anew is no crash"
    await release(world, "a")
    await world.pass_time(30, step=5)
    assert party.runtime.orders[-1].env.get("WHO") is None and len(party.runtime.orders) == 3
    await claim(world, "b")
    assert (await status(world, "b")).phase == "Bound"


async def test_an_image_is_that_of_the_hold_and_what_runs_is_started_anew(world: World, party: Party) -> None:
    await up(world, party, **CONTAINERS)
    await claim(world, "a", images={"main": "two"})
    assert [order.image for order in party.runtime.orders] == ["one", "two"]
    await release(world, "a")
    await world.pass_time(30, step=5)
    assert [order.image for order in party.runtime.orders] == ["one", "two", "one"]


async def test_what_was_started_for_a_hold_and_ends_ends_the_claim(world: World, party: Party) -> None:
    await up(world, party)
    await claim(world, "a", env=[{"name": "WHO", "value": "me"}])
    await world.pass_time(5, step=1)
    party.runtime.die("p-0")
    await world.rest()
    assert (await status(world, "a")).reason in ("InstanceCrashed", "Stopped")
    await world.pass_time(60, step=5)
    assert await held(world) == {} and is_clean(party)


async def test_who_waits_for_a_claim_is_told_when_it_can_be_used(world: World, party: Party) -> None:
    await up(world, party, reset="Keep")
    opening = asyncio.create_task(
        party.claims.callers.open(a_claim("a", env=[EnvVar(name="WHO", value="me")]), may_wait=True)
    )
    await world.rest()
    found = await answer_of(world, opening)
    assert found is not None and found.status is not None and found.status.phase == "Bound"
    assert party.runtime.orders[-1].env["WHO"] == "me" and party.claims.is_usable(found)


async def test_nothing_is_started_anew_where_a_runner_runs_what_is_asked_for(world: World, party: Party) -> None:
    await up(world, party, **WORKERS)
    started = len(party.runtime.orders)
    await claim(world, "a", env=[{"name": "WHO", "value": "me"}])
    assert (await status(world, "a")).phase == "Bound" and len(party.runtime.orders) == started
    options = (await world.get("Instance", "p-0")).spec.assignment.options
    assert options["env"] == [{"name": "WHO", "value": "me"}], "whoever runs commands there looks it up"


async def test_labels_and_annotations_are_on_for_the_hold_and_what_was_there_is_there_again(
    world: World, party: Party
) -> None:
    await up(world, party, reset="Keep")
    await world.patch("Instance", "p-0", {"metadata": {"labels": {"team": "pool"}, "annotations": {"note": "old"}}})
    await world.rest()
    before = (await world.get("Instance", "p-0")).metadata
    await claim(world, "a", labels={"team": "mine", "new": "1"}, annotations={"note": "mine", "a.b/c": "2"})
    meta = (await world.get("Instance", "p-0")).metadata
    assert (meta.labels["team"], meta.labels["new"]) == ("mine", "1")
    assert (meta.annotations["note"], meta.annotations["a.b/c"]) == ("mine", "2")
    await release(world, "a")
    after = (await world.get("Instance", "p-0")).metadata
    assert after.labels == before.labels and after.annotations == before.annotations


async def test_what_others_label_meanwhile_is_not_undone(world: World, party: Party) -> None:
    await up(world, party, reset="Keep")
    await claim(world, "a", labels={"mine": "1", "theirs": "1"})
    await world.patch("Instance", "p-0", {"metadata": {"labels": {"theirs": "2", "other": "3"}}})
    await release(world, "a")
    labels = (await world.get("Instance", "p-0")).metadata.labels
    assert "mine" not in labels and (labels["theirs"], labels["other"]) == ("2", "3")


async def test_a_mark_that_is_set_at_the_same_moment_is_not_lost(world: World, party: Party) -> None:
    """Binding and releasing write their own labels and annotations, and none of others that they read before."""
    await up(world, party, reset="Keep")
    member = next(iter(party.executor.members.values()))
    seen = member.instance
    await world.patch("Instance", "p-0", {"metadata": {"annotations": {"example.com/seen": "yes"}}})
    await world.rest()
    member.instance = seen
    await claim(world, "a", annotations={"mine": "1"})
    await settles(world, lambda: is_bound(world, "a"))
    annotations = (await world.get("Instance", "p-0")).metadata.annotations
    assert annotations["example.com/seen"] == "yes" and annotations["mine"] == "1"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"labels": {"rota.dev/pool": "x"}}, "labels"),
        ({"annotations": {"rota.dev/draining": "x"}}, "annotations"),
        ({"annotations": {"sub.rota.dev/x": "x"}}, "annotations"),
        ({"images": {"main": "two"}}, "images"),
        ({"images": {"nothing": "two"}}, "images"),
    ],
)
async def test_what_cannot_be_had_is_refused_at_once_with_the_field(
    world: World, party: Party, options: dict[str, Any], field: str
) -> None:
    await up(world, party)
    await took(world, "a", **options)
    found = await status(world, "a")
    assert (found.phase, found.reason) == ("Failed", "Invalid") and found.message.startswith(f"{field}: ")
    assert await held(world) == {} and is_clean(party)


async def test_a_label_that_no_object_can_have_is_refused_when_it_is_claimed_with(world: World, party: Party) -> None:
    await up(world, party)
    with pytest.raises(ApiError, match=r"spec\.annotations: Invalid value: .*: the name must have 1 to 63"):
        await claim(world, "a", annotations={"no such~key": "x"})


async def test_what_no_instance_can_have_fails_the_claim_and_benches_nothing(world: World, party: Party) -> None:
    await up(world, party)
    await took(world, "a", annotations={"no such~key": "x"})
    await settles(world, lambda: is_over(world, "a"))
    found = await status(world, "a")
    assert (found.phase, found.reason) == ("Failed", "Invalid") and "no such~key" in found.message
    await claim(world, "b")
    assert (await status(world, "b")).phase == "Bound"
    await release(world, "b")
    assert is_clean(party)


def test_names_that_only_look_like_rotas_own_can_be_had() -> None:
    template = InstanceTemplate(containers=[Container(name="main")])
    for key in ("myrota.dev/x", "rota.dev", "plain", "example.com/rota.dev"):
        assert unfit({}, {key: "1"}, {}, template) is None
    assert unfit({}, {"a.rota.dev/x": "1"}, {}, template) is not None
