"""Quotas over pools and workloads, on a runtime in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota.api import Instance, Quota, QuotaClaim
from rota.control.cell import Cells
from rota.control.deployment import Deployments
from rota.control.instance import Instances
from rota.control.instances.planner import GATED_MAX
from rota.control.instances.template import SETTLE_SECONDS
from rota.control.making.local import LocalMaker
from rota.control.plane import HERE
from rota.control.pool import Pools
from rota.control.quota import Quotas
from rota.control.shipped import Shipped
from rota.control.workload import Workloads
from tests.control.running.fake import FakeRuntime
from tests.engine_loop.loops import World


@pytest.fixture
async def runtime(world: World) -> FakeRuntime:
    return FakeRuntime(world.clock)


async def serve(world: World, runtime: FakeRuntime) -> None:
    await world.serve(
        Shipped(),
        Cells(HERE),
        Workloads(),
        Deployments(HERE, runtime),
        Pools(),
        Instances(LocalMaker(runtime)),
        Quotas(),
    )


def a_template(cpu: str = "1", memory: str = "1Gi", command: str = "serve", **more: Any) -> dict[str, Any]:
    return {
        "containers": [{"name": "main", "command": [command]}],
        "requests": {"cpu": cpu, "memory": memory},
        **more,
    }


async def pool(world: World, name: str, replicas: int, **template: Any) -> None:
    await world.create("WorkerPool", name, {"template": a_template(**template), "replicas": replicas})
    await world.rest()


async def quota(world: World, **hard: Any) -> None:
    await world.create("Quota", "default", {"hard": hard})


async def settle(world: World) -> None:
    await world.rest()
    await world.pass_time(6 * SETTLE_SECONDS, step=SETTLE_SECONDS)


def running(runtime: FakeRuntime) -> list[str]:
    return sorted(subject.name for subject, runs in runtime.alive.items() if runs["main"].exit is None)


async def the_quota(world: World) -> Any:
    return await world.get("Quota", "default")


async def test_what_does_not_fit_waits_and_says_so_at_each_level(world: World, runtime: FakeRuntime) -> None:
    await quota(world, instances=2)
    await serve(world, runtime)
    await pool(world, "p", 3)
    assert running(runtime) == ["p-0", "p-1"]
    waiting = await world.get("Instance", "p-2")
    ready = waiting.status.condition("Ready")
    assert (ready.status, ready.reason, waiting.status.phase) == ("False", "QuotaExceeded", "Pending")
    assert "short of instances" in ready.message and "WorkerPool/p 2" in ready.message
    found = await the_quota(world)
    assert found.readiness().state == "Ready"
    assert (found.status.used.instances, found.status.waiting_instances) == (2, 1)
    [claim] = (await world.client.list(QuotaClaim)).items
    condition = claim.status.condition("Granted") if claim.status is not None else None
    assert condition is not None and (condition.status, condition.reason) == ("False", "QuotaExceeded")
    assert "QuotaExceeded" in {one.reason for one in world.events.said if one.type == "Warning"}
    assert (await world.get("Instance", "p-0")).status.condition("QuotaGranted").reason == "QuotaAvailable"
    assert (await world.condition("WorkerPool", "p", "Ready"))[1] == "QuotaExceeded"  # type: ignore[index]


async def test_a_raised_budget_frees_who_waits_at_once_and_a_lowered_one_ends_nothing(
    world: World, runtime: FakeRuntime
) -> None:
    await quota(world, cpu="2")
    await serve(world, runtime)
    await pool(world, "p", 4)
    assert len(running(runtime)) == 2
    await world.patch("Quota", "default", {"spec": {"hard": {"cpu": "4"}}})
    await world.rest()
    assert len(running(runtime)) == 4
    await world.patch("Quota", "default", {"spec": {"hard": {"cpu": "1"}}})
    await settle(world)
    assert len(running(runtime)) == 4
    assert (await the_quota(world)).status.used.cpu == "4"


async def test_without_a_quota_nothing_is_written_and_what_waits_goes_on_when_it_is_deleted(
    world: World, runtime: FakeRuntime
) -> None:
    await serve(world, runtime)
    await pool(world, "free", 2)
    assert (await world.client.list(QuotaClaim)).items == []
    assert (await world.get("Instance", "free-0")).status.condition("QuotaGranted").reason == "NotRequired"
    await quota(world, instances=2)
    await world.rest()
    await pool(world, "late", 1)
    assert running(runtime) == ["free-0", "free-1"], "what ran before counts"
    await world.delete("Quota", "default")
    await settle(world)
    assert running(runtime) == ["free-0", "free-1", "late-0"]


async def test_a_gate_left_from_a_quota_that_went_while_nobody_looked_is_opened(
    world: World, runtime: FakeRuntime
) -> None:
    await quota(world, instances=1)
    await serve(world, runtime)
    await pool(world, "p", 2)
    await world.stop()
    await world.delete("Quota", "default")
    await serve(world, runtime)
    await settle(world)
    assert running(runtime) == ["p-0", "p-1"]


async def test_a_recreate_keeps_its_grant_although_others_wait(world: World, runtime: FakeRuntime) -> None:
    await quota(world, instances=3)
    await serve(world, runtime)
    await pool(world, "a", 3)
    await pool(world, "b", 2)
    await world.client.patch(Instance, "a-1", {"metadata": {"annotations": {"x": "y"}}})
    await world.delete("Instance", "a-1")
    await settle(world)
    assert running(runtime) == ["a-0", "a-1", "a-2"]
    template = a_template(command="other")
    await world.patch("WorkerPool", "a", {"spec": {"template": template}})
    for _ in range(4):
        await settle(world)
    assert running(runtime) == ["a-0", "a-1", "a-2"]
    assert {order.argv[0] for order in runtime.orders if order.subject.name.startswith("a-")} == {"serve", "other"}


async def test_scaling_down_frees_slots_for_who_waits(world: World, runtime: FakeRuntime) -> None:
    await quota(world, instances=3)
    await serve(world, runtime)
    await pool(world, "a", 3)
    await pool(world, "b", 2)
    await world.patch("WorkerPool", "a", {"spec": {"replicas": 1}})
    await settle(world)
    assert running(runtime) == ["a-0", "b-0", "b-1"]
    await world.delete("WorkerPool", "a")
    await settle(world)
    assert running(runtime) == ["b-0", "b-1"] and (await the_quota(world)).status.used.instances == 2


async def test_workloads_pools_and_sizes_share_one_budget(world: World, runtime: FakeRuntime) -> None:
    await quota(world, cpu="5", memory="100Gi")
    await serve(world, runtime)
    template = {"spec": {"instanceType": "d1-standard-2", "containers": [{"name": "main", "command": ["serve"]}]}}
    placement = {"name": "here", "cityCodes": ["local"], "scale": {"min": 2}}
    await world.create("Workload", "web", {"template": template, "placements": [placement]})
    await world.rest()
    await pool(world, "p", 2, cpu="1500m")
    assert len(running(runtime)) == 4
    found = await the_quota(world)
    assert found.status.used.cpu == "5" and len(found.status.holders) == 2
    assert {(one.kind, one.count) for one in found.status.holders} == {("WorkloadDeployment", 2), ("WorkerPool", 2)}
    await pool(world, "more", 1, cpu="1m")
    assert "more-0" not in running(runtime)


async def test_what_is_larger_than_the_budget_says_so_and_others_go_on(world: World, runtime: FakeRuntime) -> None:
    await quota(world, memory="2Gi")
    await serve(world, runtime)
    await pool(world, "huge", 1, memory="3Gi")
    await pool(world, "small", 2)
    assert running(runtime) == ["small-0", "small-1"]
    ready = (await world.get("Instance", "huge-0")).status.condition("Ready")
    assert ready.reason == "QuotaExceeded" and "more than the whole budget" in ready.message


async def test_storage_is_counted(world: World, runtime: FakeRuntime) -> None:
    await quota(world, storage="15Gi")
    await serve(world, runtime)
    await pool(world, "p", 2, storage={"size": "10Gi"})
    assert running(runtime) == ["p-0"]
    assert (await the_quota(world)).status.used.storage == str(10 * 1024**3)


async def test_another_name_is_not_enforced_and_says_so(world: World, runtime: FakeRuntime) -> None:
    await world.create("Quota", "mine", {"hard": {"instances": 0}})
    await serve(world, runtime)
    await pool(world, "p", 1)
    assert running(runtime) == ["p-0"]
    condition = (await world.get("Quota", "mine")).status.condition("Enforced")
    assert (condition.status, condition.reason) == ("False", "NotDefault") and '"default"' in condition.message


async def test_a_crash_between_the_ledger_and_what_follows_is_made_good(world: World, runtime: FakeRuntime) -> None:
    """The ledger says three, and neither a claim nor a gate knows of it."""
    await quota(world, instances=3)
    await serve(world, runtime)
    await pool(world, "p", 3)
    await world.stop()
    for one in (await world.client.list(QuotaClaim)).items:
        await world.client.patch(QuotaClaim, one.metadata.name, {"status": {"granted": []}}, subresource="status")
    gates = [{"name": "Quota"}]
    await world.client.patch(Instance, "p-2", {"spec": {"schedulingGates": gates}})
    await serve(world, runtime)
    await settle(world)
    [claim] = (await world.client.list(QuotaClaim)).items
    assert claim.status is not None and [one.count for one in claim.status.granted] == [3]
    assert (await world.get("Instance", "p-2")).spec.scheduling_gates == []


async def test_another_gate_is_left_alone(world: World, runtime: FakeRuntime) -> None:
    await quota(world, instances=1)
    await serve(world, runtime)
    spec = {
        "containers": [{"name": "main", "command": ["serve"]}],
        "schedulingGates": [{"name": "example.com/mine"}, {"name": "Quota"}],
        "templateHash": "x",
        "ordinal": 0,
    }
    await world.create("Instance", "own", spec)
    await world.rest()
    found = await world.get("Instance", "own")
    assert [one.name for one in found.spec.scheduling_gates] == ["example.com/mine"] and running(runtime) == []
    assert found.status.condition("Ready").reason == "SchedulingGated"


async def test_many_that_ask_at_once_never_get_more_than_there_is(world: World, runtime: FakeRuntime) -> None:
    await quota(world, instances=7)
    await serve(world, runtime)
    await asyncio.gather(
        *(world.create("WorkerPool", f"p{i}", {"template": a_template(), "replicas": 2 + i % 3}) for i in range(20))
    )
    await world.rest()
    assert len(running(runtime)) == 7
    for i in range(0, 20, 2):
        await world.delete("WorkerPool", f"p{i}")
        await settle(world)
        assert len(running(runtime)) <= 7
    await settle(world)
    assert len(running(runtime)) == 7 and (await the_quota(world)).status.used.instances == 7


async def test_two_controllers_that_both_think_they_lead_do_not_grant_twice(world: World, runtime: FakeRuntime) -> None:
    await quota(world, instances=5)
    await serve(world, runtime)
    other = World(world.registry, world.clock, world.way)
    await other.serve(Quotas())
    try:
        for i in range(6):
            await pool(world, f"p{i}", 2)
            assert len(running(runtime)) <= 5
        for i in range(5):
            await world.delete("WorkerPool", f"p{i}")
            await settle(world)
            assert len(running(runtime)) <= 5
        assert len(running(runtime)) == 2
    finally:
        await other.stop()


async def test_a_large_wish_makes_few_objects_and_gets_all_when_there_is_room(
    world: World, runtime: FakeRuntime
) -> None:
    await quota(world, instances=5)
    await serve(world, runtime)
    await pool(world, "p", 100)
    await settle(world)
    assert len(running(runtime)) == 5
    assert len((await world.client.list(Instance)).items) <= 5 + GATED_MAX
    await world.patch("Quota", "default", {"spec": {"hard": {"instances": 100}}})
    await settle(world)
    assert len(running(runtime)) == 100


async def test_at_rest_nothing_is_written(world: World, runtime: FakeRuntime) -> None:
    await quota(world, instances=2)
    await serve(world, runtime)
    await pool(world, "p", 3)
    await settle(world)
    before = (await the_quota(world)).metadata.resource_version
    await world.pass_time(60, step=5)
    assert (await the_quota(world)).metadata.resource_version == before


async def test_a_larger_type_is_counted_anew(world: World, runtime: FakeRuntime) -> None:
    await quota(world, cpu="4")
    await serve(world, runtime)
    await world.create(
        "WorkerPool",
        "p",
        {
            "template": {"instanceType": "d1-standard-2", "containers": [{"name": "main", "command": ["serve"]}]},
            "replicas": 2,
        },
    )
    await world.rest()
    assert (await the_quota(world)).status.used.cpu == "2"
    await world.patch("InstanceType", "d1-standard-2", {"spec": {"cpu": 2}})
    await settle(world)
    assert (await the_quota(world)).status.used.cpu == "4" and len(running(runtime)) == 2
    assert isinstance(await the_quota(world), Quota)
