"""Every kind that needs a controller has one, and in a plan every one of them comes to its end."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from rota.api import KINDS, Cell, Instance, Quota, WorkerPool
from rota.api.references import references, referring_kinds
from rota.control.simulation import GATES, simulated
from rota.control.spawners.apis import Apis
from rota.control.table import controllers
from tests.engine_loop.loops import World
from tests.examples import Object, examples

EXAMPLE_API = "https://github.example/api/v3"
MADE_BY_ROTA = {"Instance", "QuotaClaim", "Revision", "WorkloadDeployment"}
"""Nobody declares these: whoever makes them sees to what they refer to."""
ATTENDED = [one.kind.api for one in controllers() if one.kind is not None]
CARRIED_OUT = [kind for kind in ATTENDED if kind not in (Cell.api, Quota.api)]
"""Without cells, which nobody declares for a site to be there, and quotas, of which one name is enforced."""
EXAMPLES = {f"{kind.name}-{i}": obj for kind in CARRIED_OUT for i, obj in enumerate(examples(kind.name))}
LACKING = [name for name, obj in EXAMPLES.items() if references(KINDS[obj["kind"]], obj)]


def test_every_kind_that_people_declare_with_references_and_a_status_has_a_controller() -> None:
    wanted = {kind.name for kind in referring_kinds() if kind.has_status} - MADE_BY_ROTA
    assert {kind.name for kind in ATTENDED} >= wanted


def test_each_lane_and_each_kind_has_one_controller() -> None:
    which = controllers()
    assert len({one.name for one in which}) == len(which)
    assert len(set(ATTENDED)) == len(ATTENDED)


def test_controllers_are_made_anew_each_time() -> None:
    assert all(one is not other for one, other in zip(controllers(), controllers(), strict=True))


def test_only_those_that_merely_keep_a_gate_are_stood_in_for() -> None:
    before, [runtime, *after] = controllers(), simulated(controllers())
    assert runtime.kind is Instance
    assert [one.name for one in before] == [one.name for one in after]
    for real, one in zip(before, after, strict=True):
        assert (type(real) in GATES) == (type(one) is not type(real))


def example(which: str, name: str) -> Object:
    """An example as a person declares it, under another name, without what one machine does not have."""
    obj = copy.deepcopy(EXAMPLES[which])
    obj["metadata"]["name"] = name
    obj.pop("status", None)
    for field in ("regions", "images"):
        obj["spec"].pop(field, None)
    for placement in obj["spec"].get("placements", ()):
        placement["cityCodes"] = ["local"]
        placement.pop("restartedAt", None)
    if "cellName" in obj["spec"]:
        obj["spec"].update(cityCode="local", cellName="local")
    if template := obj["spec"].get("template"):
        template = template.get("spec", template)
        # One that runs as processes, of which a worker has one.
        template.pop("runtime", None)
        template["containers"] = [{"command": ["true"], **one} for one in template["containers"]]
        if "worker" in template or "workspaceRef" in template:
            del template["containers"][1:]
    return obj


async def declare(world: World, obj: Object, done: set[tuple[str, str]]) -> None:
    """Make an object and all that it refers to, whoever comes first."""
    kind = KINDS[obj["kind"]]
    key = (kind.name, obj["metadata"]["name"])
    if key in done:
        return
    done.add(key)
    obj.pop("status", None)
    await world.client.create(obj)
    for reference in references(kind, obj):
        other: Any = examples(reference.kind.name)[0]
        other["metadata"]["name"] = reference.name
        if "prompt" in obj["spec"] and reference.kind is WorkerPool.api:
            other["spec"]["worker"]["type"] = "codex"
        await declare(world, other, done)


@pytest.mark.parametrize("name", EXAMPLES)
async def test_in_a_plan_an_object_is_ready_when_all_that_it_refers_to_is_there(planned: World, name: str) -> None:
    obj = example(name, "planned")
    await declare(planned, obj, {("InstanceType", "d1-standard-2")})
    result = await planned.run(*simulated(controllers(), apis=Apis([EXAMPLE_API])))
    found = await planned.get(obj["kind"], "planned")
    assert found.readiness().state == "Ready", (found.readiness(), [*planned.loop.view])
    assert result.level == 0 and result.error is None and not planned.loop.view.failed()
    for one in found.status.conditions:
        assert one.type != "ResolvedRefs" or one.status == "True", one


@pytest.mark.parametrize("name", LACKING)
async def test_in_a_plan_an_object_is_not_ready_when_nothing_is_there(planned: World, name: str) -> None:
    obj = example(name, "planned")
    await planned.client.create(obj)
    result = await planned.run(*simulated(controllers()))
    found = await planned.get(obj["kind"], "planned")
    assert found.readiness().state != "Ready" and result.level == 1
    condition = found.status.condition("ResolvedRefs")
    assert (condition.status, condition.reason) == ("False", "DependencyNotFound")


async def test_a_live_server_settles_them_without_time_passing(world: World) -> None:
    """A plan agrees with the objects at the end; no controller spins and none fails."""
    done: set[tuple[str, str]] = {("InstanceType", "d1-standard-2")}
    for name in EXAMPLES:
        await declare(world, example(name, name.lower()), done)
    await world.serve(*controllers())
    assert world.clock.now() == 0
    assert not world.loop.view.failed() and not world.loop.view.sleeping()
    assert {node.outcome.reason for node in world.loop.view.parked()} <= {"DependencyNotReady"}  # type: ignore[union-attr]
