"""Workloads on a server that is its own cell, with a runtime in memory."""

from __future__ import annotations

from typing import Any

import pytest

from rota.api import Instance, Revision, Workload, WorkloadDeployment
from rota.control.cell import Cells
from rota.control.deployment import Deployments
from rota.control.instance import Instances
from rota.control.instances.template import SETTLE_SECONDS
from rota.control.making.local import LocalMaker
from rota.control.plane import HERE
from rota.control.shipped import Shipped
from rota.control.workload import Workloads, deployment_name
from rota.control.workloads.sampling import TICK_SECONDS
from rota.control.workloads.scaling import DOWN_SECONDS
from rota.runtime.interface import Refused
from tests.control.running.fake import FakeRuntime
from tests.engine_loop.loops import World

PLACEMENT = {"name": "here", "cityCodes": ["local"]}


@pytest.fixture
async def runtime(world: World) -> FakeRuntime:
    return FakeRuntime(world.clock)


def a_template(command: str = "serve", **more: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "main", "command": [command]}], **more}}


def placed(replicas: int, **more: Any) -> dict[str, Any]:
    return {**PLACEMENT, "scale": {"min": replicas}, **more}


async def serve(world: World, runtime: FakeRuntime) -> None:
    await world.serve(Shipped(), Cells(HERE), Workloads(), Deployments(HERE, runtime), Instances(LocalMaker(runtime)))


async def up(world: World, runtime: FakeRuntime, replicas: int = 2, **template: Any) -> None:
    """A workload that runs."""
    await world.create("Workload", "web", {"template": a_template(**template), "placements": [placed(replicas)]})
    await serve(world, runtime)


async def change(world: World, **spec: Any) -> None:
    await world.client.patch(Workload, "web", {"spec": spec})
    await settle(world)


async def settle(world: World) -> None:
    await world.rest()
    await world.pass_time(6 * SETTLE_SECONDS, step=SETTLE_SECONDS)


async def instances(world: World) -> list[Any]:
    return sorted((await world.client.list(Instance)).items, key=lambda one: one.metadata.name)


async def only_deployment(world: World) -> Any:
    [found] = (await world.client.list(WorkloadDeployment)).items
    return found


async def workload(world: World) -> Any:
    return await world.get("Workload", "web")


def running(runtime: FakeRuntime) -> dict[int, str]:
    """Return the live processes: the command of each ordinal."""
    newest = {order.subject: order.argv[0] for order in runtime.orders}
    alive = [subject for subject, runs in runtime.alive.items() if runs["main"].exit is None]
    return {int(subject.name.rpartition("-")[2]): newest[subject] for subject in alive}


async def test_it_comes_up_and_says_so_at_each_level(world: World, runtime: FakeRuntime) -> None:
    await up(world, runtime, 3)
    assert running(runtime) == {0: "serve", 1: "serve", 2: "serve"}
    found = await workload(world)
    assert found.readiness().state == "Ready"
    assert (found.status.ready, found.status.cities, found.status.deployments) == ("3/3", "local", 1)
    assert found.status.observed_generation == found.metadata.generation
    [placement] = found.status.placements
    assert (placement.available, placement.ready_replicas, placement.unplaced) == ("True", 3, 0)
    [city] = placement.cities
    assert [(one.name, one.replicas, one.ready) for one in city.cells] == [("local", 3, 3)]
    deployment = await world.get("WorkloadDeployment", deployment_name("web", "here", "local"))
    assert deployment.readiness().state == "Ready"
    assert deployment.status.condition("ReplicasReady").status == "True"
    for one in await instances(world):
        assert (one.spec.cell_name, one.status.phase) == ("local", "Running")
        assert one.metadata.labels["rota.dev/workload"] == "web"
        assert one.metadata.labels["rota.dev/city"] == "local"


@pytest.mark.parametrize("name", ["a" * 64, "a.b" * 60, "a" * 253], ids=len)
async def test_it_runs_whatever_the_length_of_its_name(world: World, runtime: FakeRuntime, name: str) -> None:
    await world.create("Workload", name, {"template": a_template(), "placements": [placed(2)]})
    await serve(world, runtime)
    await settle(world)
    assert (await world.get("Workload", name)).status.ready_replicas == 2


async def test_each_is_told_where_it_is(world: World, runtime: FakeRuntime) -> None:
    await up(world, runtime, 2)
    told = [{key: one for key, one in order.env.items() if key.startswith("ROTA_")} for order in runtime.orders]
    where = {"ROTA_CITY": "local", "ROTA_CELL": "local", "ROTA_TERM": "0"}
    assert told == [{**where, "ROTA_ORDINAL": "0"}, {**where, "ROTA_ORDINAL": "1"}]


async def test_it_scales_by_the_minimum(world: World, runtime: FakeRuntime) -> None:
    await up(world, runtime, 1)
    await change(world, placements=[placed(3)])
    assert sorted(running(runtime)) == [0, 1, 2]
    await change(world, placements=[placed(1)])
    assert sorted(running(runtime)) == [0]
    assert [name.rpartition("-")[2] for name in runtime.stopped] == ["2", "1"]
    assert (await workload(world)).status.ready == "1/1"


async def test_a_new_template_rolls_one_at_a_time_highest_first(world: World, runtime: FakeRuntime) -> None:
    await up(world, runtime, 3)
    await change(world, template=a_template("other"))
    assert running(runtime) == {0: "other", 1: "other", 2: "other"}
    assert [name.rpartition("-")[2] for name in runtime.stopped] == ["2", "1", "0"]
    found = await workload(world)
    assert (found.status.updated_replicas, found.status.ready_replicas) == (3, 3)


async def test_what_is_broken_is_mended_by_applying_what_is_right(world: World, runtime: FakeRuntime) -> None:
    """One that is not ready must not stand in the way of its own replacement, nor of fewer."""
    await up(world, runtime, 3)
    runtime.refuses = Refused("ImageUnavailable", "no such image: bad:1")
    await change(world, template=a_template("bad"))
    found = await workload(world)
    assert found.readiness().state != "Ready" or found.status.ready_replicas == 2
    [placement] = found.status.placements
    assert placement.ready_replicas == 2 and running(runtime) == {0: "serve", 1: "serve"}
    assert ("ImageUnavailable", "Warning") in {(one.reason, one.type) for one in world.events.said}
    await change(world, placements=[placed(2)])
    assert len(await instances(world)) == 2
    runtime.refuses = None
    await change(world, template=a_template("good"))
    assert running(runtime) == {0: "good", 1: "good"}
    assert (await workload(world)).readiness().state == "Ready"


async def test_the_reason_is_told_at_each_level(world: World, runtime: FakeRuntime) -> None:
    runtime.refuses = Refused("ImageUnavailable", "no such image: bad:1")
    await up(world, runtime, 2)
    found = await workload(world)
    condition = found.status.condition("Available")
    assert (condition.status, condition.reason) == ("False", "ImageUnavailable")
    assert "0 of 2 ready" in condition.message and "no such image: bad:1" in condition.message
    [placement] = found.status.placements
    assert (placement.available, placement.reason) == ("False", "ImageUnavailable")
    deployment = await world.get("WorkloadDeployment", deployment_name("web", "here", "local"))
    assert deployment.status.condition("ReplicasReady").status == "False"


async def test_an_unknown_city_waits_and_goes_on_when_it_is_there(world: World, runtime: FakeRuntime) -> None:
    here, there = placed(1), {"name": "far", "cityCodes": ["ams"], "scale": {"min": 2}}
    await world.create("Workload", "web", {"template": a_template(), "placements": [here, there]})
    await serve(world, runtime)
    condition = (await workload(world)).status.condition("Available")
    assert (condition.status, condition.reason) == ("False", "LocationNotFound") and "ams" in condition.message
    assert len(running(runtime)) == 1, "one city does not wait for the other"
    await world.create("Location", "ams", {"cityCode": "ams"})
    await settle(world)
    found = await workload(world)
    assert found.status.condition("Available").reason == "NoCellInCity"
    assert {one.name: one.unplaced for one in found.status.placements} == {"here": 0, "far": 2}
    await world.create("Cell", "ams-1", {"cityCode": "ams"})
    await settle(world)
    assert (await workload(world)).status.condition("Available").reason == "CellsLost"


async def test_a_cell_that_is_full_takes_what_fits_and_the_rest_when_there_is_room(
    world: World, runtime: FakeRuntime
) -> None:
    await up(world, runtime, 1)
    await world.patch("Cell", "local", {"spec": {"capacity": {"instances": 2}}})
    await change(world, placements=[placed(4)])
    found = await workload(world)
    assert len(running(runtime)) == 2
    assert found.status.condition("Available").reason == "CellsFull"
    assert found.status.placements[0].unplaced == 2
    await world.patch("Cell", "local", {"spec": {"capacity": {"instances": 10}}})
    await settle(world)
    assert len(running(runtime)) == 4 and (await workload(world)).readiness().state == "Ready"


async def test_what_leaves_room_wakes_who_waits_for_it(world: World, runtime: FakeRuntime) -> None:
    await world.serve(Shipped(), Cells(HERE))
    await world.patch("Cell", "local", {"spec": {"capacity": {"instances": 3}}})
    await world.stop()
    for name, replicas in (("a", 3), ("b", 2)):
        await world.create("Workload", name, {"template": a_template(), "placements": [placed(replicas)]})
    await serve(world, runtime)
    await settle(world)
    first = await world.get("Workload", "a")
    waiting, placed_ = ("b", "a") if first.status.ready == "3/3" else ("a", "b")
    assert (await world.get("Workload", waiting)).status.condition("Available").reason == "CellsFull"
    await world.delete("Workload", placed_)
    await settle(world)
    assert (await world.get("Workload", waiting)).readiness().state == "Ready"


async def test_two_that_want_the_last_room_do_not_both_have_it(world: World, runtime: FakeRuntime) -> None:
    await world.serve(Shipped(), Cells(HERE))
    await world.patch("Cell", "local", {"spec": {"capacity": {"instances": 3}}})
    await world.stop()
    for name in ("a", "b"):
        await world.create("Workload", name, {"template": a_template(), "placements": [placed(2)]})
    await serve(world, runtime)
    await settle(world)
    assert len(await instances(world)) == 3


async def test_what_names_another_cell_is_not_run_here(world: World, runtime: FakeRuntime) -> None:
    await serve(world, runtime)
    spec = {
        "workloadRef": {"name": "web"},
        "placementName": "far",
        "cityCode": "ams",
        "cellName": "ams-1",
        "replicas": 2,
        "template": a_template(),
    }
    await world.create("WorkloadDeployment", "web-far", spec)
    stray = {"containers": a_template()["spec"]["containers"], "cellName": "ams-1", "templateHash": "x", "ordinal": 0}
    await world.create("Instance", "stray", stray)
    await settle(world)
    assert runtime.orders == []


async def test_a_restart_of_one_city_stays_and_a_later_apply_does_not_undo_it(
    world: World, runtime: FakeRuntime
) -> None:
    await up(world, runtime, 2)
    before = {one.metadata.uid for one in await instances(world)}
    restarted = placed(2, restartedAt={"local": "2026-01-02T03:04:05Z"})
    await change(world, placements=[restarted])
    after = {one.metadata.uid for one in await instances(world)}
    assert not before & after and len(after) == 2
    await change(world, template={"metadata": {"labels": {"team": "a"}}, **a_template()}, placements=[restarted])
    deployment = await only_deployment(world)
    assert "2026-01-02" in deployment.spec.template.metadata.annotations["kubectl.kubernetes.io/restartedAt"]


async def test_revisions_are_kept_as_objects(world: World, runtime: FakeRuntime) -> None:
    await up(world, runtime, 1)
    await change(world, template=a_template("other"))
    kept = sorted((await world.client.list(Revision)).items, key=lambda one: one.spec.number)
    assert [one.spec.template.spec.containers[0].command for one in kept] == [["serve"], ["other"]]


async def test_nothing_is_left_when_it_is_deleted(world: World, runtime: FakeRuntime) -> None:
    await up(world, runtime, 3)
    await world.delete("Workload", "web")
    await world.rest()
    assert running(runtime) == {} and await instances(world) == []
    assert (await world.client.list(WorkloadDeployment)).items == []
    assert (await world.client.list(Revision)).items == []


async def test_a_placement_that_is_taken_out_ends(world: World, runtime: FakeRuntime) -> None:
    second = {"name": "more", "cityCodes": ["local"]}
    await world.create("Workload", "web", {"template": a_template(), "placements": [placed(1), second]})
    await serve(world, runtime)
    assert len(await instances(world)) == 2
    await change(world, placements=[placed(1)])
    assert [one.metadata.labels["rota.dev/placement"] for one in await instances(world)] == ["here"]


async def test_at_rest_nothing_is_written(world: World, runtime: FakeRuntime) -> None:
    """A status that rewrites itself is a loop that never ends."""
    await up(world, runtime, 3)
    await settle(world)
    before = [(await workload(world)).metadata.resource_version]
    before += [one.metadata.resource_version for one in await instances(world)]
    await world.pass_time(120, step=5)
    after = [(await workload(world)).metadata.resource_version]
    after += [one.metadata.resource_version for one in await instances(world)]
    assert before == after


async def test_a_status_that_is_lost_is_told_again(world: World, runtime: FakeRuntime) -> None:
    await up(world, runtime, 2)
    await world.stop()
    for one in (await world.client.list(WorkloadDeployment)).items:
        await world.client.patch(WorkloadDeployment, one.metadata.name, {"status": None}, subresource="status")
    await serve(world, runtime)
    await settle(world)
    found = await workload(world)
    assert found.status.ready == "2/2" and found.readiness().state == "Ready"


async def test_another_leader_goes_on_without_a_restart_of_anything(world: World, runtime: FakeRuntime) -> None:
    await up(world, runtime, 3)
    started = len(runtime.orders)
    await world.stop()
    await serve(world, runtime)
    await settle(world)
    assert len(runtime.orders) == started and running(runtime) == {0: "serve", 1: "serve", 2: "serve"}


def test_names_of_deployments_tell_their_parts_apart() -> None:
    assert deployment_name("a-b", "c", "x") != deployment_name("a", "b-c", "x")
    assert deployment_name("a", "b", "c-x") != deployment_name("a", "b-c", "x")


async def burn(world: World, runtime: FakeRuntime, cores: float, seconds: float) -> None:
    """Time passes, in which each instance uses so many processors."""
    for _ in range(int(seconds)):
        for subject in runtime.alive:
            runtime.cpu_used[subject] = runtime.cpu_used.get(subject, 0.0) + cores
        await world.pass_time(1, step=1)


async def test_it_scales_by_cpu_up_at_once_and_down_after_a_minute(world: World, runtime: FakeRuntime) -> None:
    scale = {"min": 1, "max": 4, "metric": {"cpuPercent": 50}}
    placement = {**PLACEMENT, "scale": scale}
    await world.create("Workload", "web", {"template": a_template(), "placements": [placement]})
    await serve(world, runtime)
    await burn(world, runtime, 0.5, 3 * TICK_SECONDS)
    assert len(running(runtime)) == 1
    deployment = await only_deployment(world)
    assert deployment.status.cpu_percent == 50
    await burn(world, runtime, 1.0, 2 * TICK_SECONDS)
    assert len(running(runtime)) >= 2
    await burn(world, runtime, 1.0, 4 * TICK_SECONDS)
    assert len(running(runtime)) == 4
    await burn(world, runtime, 0.1, DOWN_SECONDS / 2)
    assert len(running(runtime)) == 4
    await burn(world, runtime, 0.1, 2 * DOWN_SECONDS)
    assert len(running(runtime)) == 1


async def test_without_a_metric_to_read_it_stays_as_it_is(world: World, runtime: FakeRuntime) -> None:
    scale = {"min": 1, "max": 4, "metric": {"cpuPercent": 50}}
    await world.create("Workload", "web", {"template": a_template(), "placements": [{**PLACEMENT, "scale": scale}]})
    await serve(world, runtime)
    await burn(world, runtime, 1.0, 2 * TICK_SECONDS)
    there = len(running(runtime))
    assert there > 1
    runtime.cpu_used.clear()
    for _ in range(4):
        await world.pass_time(60, step=5)
        runtime.cpu_used.clear()
    assert len(running(runtime)) == there
