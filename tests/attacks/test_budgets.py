"""By a namespace's budget: to use more than it has, or to keep others from theirs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rota.api import Namespace, ObjectMeta, Workload
from rota.control.cell import Cells
from rota.control.instances.template import CPU_NANOS_MIN, SETTLE_SECONDS, UNIT_NANOS
from rota.control.plane import HERE
from rota.control.shipped import Shipped
from tests.attacks.conftest import API, TENANT, Deployer
from tests.attacks.test_privileges import made
from tests.control.quotas.test_quotas import serve
from tests.control.running.fake import FakeRuntime
from tests.engine_loop.conftest import world
from tests.engine_loop.loops import World
from tests.server.conftest import Server

__all__ = ["world"]
GIB = 1 << 30


@pytest.fixture
async def runtime(world: World) -> FakeRuntime:
    return FakeRuntime(world.clock)


async def settle(world: World) -> None:
    await world.rest()
    await world.pass_time(6 * SETTLE_SECONDS, step=SETTLE_SECONDS)


def template(resources: Any = None, **more: Any) -> dict[str, Any]:
    return {"containers": [{"name": "main", "command": ["serve"], "resources": resources or {}}], **more}


def running(runtime: FakeRuntime, owner: str = "") -> list[str]:
    alive = (subject.name for subject, runs in runtime.alive.items() if runs["main"].exit is None)
    return sorted(name for name in alive if name.startswith(owner))


async def test_to_use_more_memory_than_is_counted(world: World, runtime: FakeRuntime) -> None:
    await world.create("Quota", "default", {"hard": {"memory": "3Gi", "cpu": "1"}})
    await serve(world, runtime)
    # A limit counts, whatever is requested.
    sly = template({"limits": {"memory": "2Gi"}}, requests={"cpu": "1n", "memory": "1n"})
    await world.create("WorkerPool", "sly", {"template": sly, "replicas": 3})
    await settle(world)
    assert running(runtime) == ["sly-0"]
    [order] = runtime.orders
    assert (order.memory_bytes, order.cpus) == (2 * GIB, CPU_NANOS_MIN / UNIT_NANOS)
    # What counts by a request is held to it.
    await world.delete("WorkerPool", "sly")
    asks = template(requests={"cpu": "500m", "memory": "1Gi"})
    await world.create("WorkerPool", "asks", {"template": asks, "replicas": 3})
    await settle(world)
    assert running(runtime) == ["asks-0", "asks-1"]
    assert {(one.memory_bytes, one.cpus) for one in runtime.orders[1:]} == {(GIB, 0.5)}


async def test_to_run_what_is_not_counted_at_all(world: World, runtime: FakeRuntime) -> None:
    await world.create("Quota", "default", {"hard": {"memory": "3Gi"}})
    await serve(world, runtime)
    # Nothing, and next to nothing beside something: each container counts, and is held to what it counts for.
    await world.create("WorkerPool", "sly", {"template": template(), "replicas": 8})
    await settle(world)
    assert running(runtime) == ["sly-0", "sly-1", "sly-2"]
    assert {(one.memory_bytes, one.cpus) for one in runtime.orders} == {(GIB, None)}
    await world.delete("WorkerPool", "sly")
    two = template({"limits": {"memory": "1Gi"}}, requests={"memory": "1Mi"})
    two["containers"].append({"name": "more", "command": ["serve"]})
    await world.create("WorkerPool", "two", {"template": two, "replicas": 2})
    await settle(world)
    assert running(runtime) == ["two-0"]
    assert {one.memory_bytes for one in runtime.orders if one.container == "more"} == {GIB}


async def test_to_book_a_whole_cell_behind_a_small_budget(world: World, runtime: FakeRuntime) -> None:
    await world.serve(Shipped(), Cells(HERE))
    await world.patch("Cell", "local", {"spec": {"capacity": {"instances": 10}}})
    await world.stop()
    await world.create("Quota", "default", {"hard": {"instances": 2}})
    placements = [{"name": "here", "cityCodes": ["local"], "scale": {"min": 10}}]
    await world.create("Workload", "greedy", {"template": {"spec": template()}, "placements": placements})
    await serve(world, runtime)
    await settle(world)
    assert len(running(runtime, "greedy")) == 2
    await world.client.create(Namespace(metadata=ObjectMeta(name="others")))
    other = {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "Workload",
        "metadata": {"name": "other", "namespace": "others"},
        "spec": {
            "template": {"spec": template()},
            "placements": [{"name": "here", "cityCodes": ["local"], "scale": {"min": 9}}],
        },
    }
    await world.client.create(Workload.decode(json.dumps(other).encode()))
    await settle(world)
    # All that the budget leaves of the cell, and no more.
    assert len(running(runtime, "other")) == 8
    await world.delete("Workload", "greedy")
    await settle(world)
    assert len(running(runtime, "other")) == 9


async def test_to_fill_the_store_with_copies_of_a_template(bare: Server, attacker: Deployer) -> None:
    pools = f"{API}/{TENANT}/workerpools"
    env = [{"name": f"A{at}", "value": "x" * 50_000} for at in range(10)]
    large = {"worker": {"env": env}, "replicas": 1}
    assert (await made(bare, "WorkerPool", "large", large, by=attacker)).status == 201
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "large"}, "spec": {"replicas": 1000}}
    merge = {"Content-Type": "application/merge-patch+json"}
    for refused in (
        await made(bare, "WorkerPool", "larger", {**large, "replicas": 1000}, by=attacker),
        await attacker.ask("PATCH", f"{pools}/large", {"spec": {"replicas": 1000}}, headers=merge),
        await attacker.ask("PUT", f"{pools}/large/scale", scale),
    ):
        assert refused.status == 422, refused.body
        assert "up to 1000 instances have a copy of it" in refused.json["message"]
    assert (await bare.ask("GET", f"{pools}/large")).json["spec"]["replicas"] == 1
