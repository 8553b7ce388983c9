"""Pools and their instances, on a runtime in memory."""

from __future__ import annotations

from typing import Any

import pytest

from rota.api import Instance, WorkerPool
from rota.control.instance import Instances
from rota.control.instances import DRAINING
from rota.control.instances.template import SETTLE_SECONDS
from rota.control.making.local import LocalMaker
from rota.control.pool import Pools
from rota.runtime.interface import Refused
from tests.control.running.fake import FakeRuntime
from tests.engine_loop.loops import World


@pytest.fixture
async def runtime(world: World) -> FakeRuntime:
    return FakeRuntime(world.clock)


async def up(world: World, runtime: FakeRuntime, replicas: int = 2, **template: Any) -> None:
    """A pool that runs."""
    await world.create("WorkerPool", "p", {"template": a_template(**template), "replicas": replicas})
    await world.serve(Pools(), Instances(LocalMaker(runtime)))


def a_template(command: str = "serve", **more: Any) -> dict[str, Any]:
    return {"containers": [{"name": "main", "command": [command]}], **more}


async def change(world: World, **spec: Any) -> None:
    await world.client.patch(WorkerPool, "p", {"spec": spec})
    await world.rest()
    await world.pass_time(4 * SETTLE_SECONDS, step=SETTLE_SECONDS)


async def names(world: World) -> list[str]:
    return sorted(one.metadata.name for one in (await world.client.list(Instance)).items)


def running(runtime: FakeRuntime) -> dict[str, str]:
    """Return the live processes: the command of each instance."""
    newest = {order.subject: order.argv[0] for order in runtime.orders}
    return {subject.name: newest[subject] for subject, runs in runtime.alive.items() if runs["main"].exit is None}


async def test_a_pool_comes_up_and_says_so(world: World, runtime: FakeRuntime) -> None:
    await up(world, runtime, 3)
    assert running(runtime) == {"p-0": "serve", "p-1": "serve", "p-2": "serve"}
    pool = await world.get("WorkerPool", "p")
    assert (pool.status.phase, pool.status.replicas, pool.status.ready_replicas, pool.status.idle) == ("Ready", 3, 3, 3)
    assert pool.readiness().state == "Ready"
    instance = await world.get("Instance", "p-0")
    assert (instance.status.phase, instance.readiness().state) == ("Idle", "Ready")
    assert instance.status.observed_template_hash == instance.spec.template_hash


async def test_it_scales_up_and_down_highest_ordinal_first(world: World, runtime: FakeRuntime) -> None:
    await up(world, runtime, 1)
    await change(world, replicas=3)
    assert sorted(running(runtime)) == ["p-0", "p-1", "p-2"]
    await change(world, replicas=1)
    assert sorted(running(runtime)) == ["p-0"] and await names(world) == ["p-0"]
    assert sorted(runtime.stopped) == ["p-1", "p-2"]
    await change(world, replicas=0)
    assert running(runtime) == {}
    assert (await world.get("WorkerPool", "p")).status.phase == "Ready"


async def test_a_new_template_rolls_through_and_back(world: World, runtime: FakeRuntime) -> None:
    await up(world, runtime, 3)
    await change(world, template=a_template("other"))
    assert set(running(runtime).values()) == {"other"} and len(running(runtime)) == 3
    assert runtime.stopped == ["p-2", "p-1", "p-0"]
    await change(world, template=a_template("serve"))
    assert set(running(runtime).values()) == {"serve"}
    pool = await world.get("WorkerPool", "p")
    assert (pool.status.phase, pool.status.updated_replicas) == ("Ready", 3)


async def test_what_dies_is_started_again_and_what_keeps_dying_waits(world: World, runtime: FakeRuntime) -> None:
    await up(world, runtime, 1)
    runtime.die("p-0")
    await world.rest()
    assert (await world.get("Instance", "p-0")).status.restarts == 1
    runtime.die("p-0", lines="out of paper")
    await world.rest()
    instance = await world.get("Instance", "p-0")
    ready = instance.status.condition("Ready")
    assert ready.reason == "InstanceCrashing" and "out of paper" in ready.message
    assert instance.status.last_exit.code == 1
    pool = await world.get("WorkerPool", "p")
    assert pool.status.phase == "Degraded" and "out of paper" in pool.status.condition("Ready").message
    assert running(runtime) == {}
    await world.pass_time(11, step=1)
    assert sorted(running(runtime)) == ["p-0"]
    assert (await world.get("WorkerPool", "p")).status.phase == "Ready"


async def test_a_broken_template_is_replaced_by_a_good_one_at_once(world: World, runtime: FakeRuntime) -> None:
    runtime.refuses = Refused("ImageUnavailable", "there is no such image")
    await up(world, runtime, 2)
    pool = await world.get("WorkerPool", "p")
    assert pool.status.condition("Ready").reason == "ImageUnavailable"
    runtime.refuses = None
    await change(world, template=a_template("good"))
    assert set(running(runtime).values()) == {"good"} and len(running(runtime)) == 2


async def test_nothing_is_gone_before_it_has_ended(world: World, runtime: FakeRuntime) -> None:
    await up(world, runtime, 2)
    await world.delete("WorkerPool", "p")
    await world.rest()
    assert running(runtime) == {} and await names(world) == []


async def test_an_instance_that_a_person_deletes_comes_back_under_its_ordinal(
    world: World, runtime: FakeRuntime
) -> None:
    await up(world, runtime, 2)
    await world.delete("Instance", "p-1")
    await world.rest()
    assert sorted(running(runtime)) == ["p-0", "p-1"] and runtime.stopped == ["p-1"]


async def test_env_and_files_are_filled_in_and_a_missing_key_is_said(world: World, runtime: FakeRuntime) -> None:
    await world.client.create(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "s", "namespace": "default"},
            "stringData": {"token": "geheim"},
        }
    )
    source = {"name": "T", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token"}}}
    container = {"name": "main", "command": ["serve"], "env": [{"name": "A", "value": "b"}, source]}
    volumes = [{"name": "v", "secret": {"name": "s"}, "mountPath": "/etc/secret"}]
    await up(world, runtime, 1, containers=[container], volumes=volumes)
    [order] = runtime.orders
    assert order.env == {"A": "b", "T": "geheim"} and order.volumes == {"/etc/secret": {"token": b"geheim"}}
    lacking = {"name": "T", "valueFrom": {"secretKeyRef": {"name": "s", "key": "other"}}}
    await change(world, template=a_template(containers=[{**container, "env": [lacking]}]))
    ready = (await world.get("WorkerPool", "p")).status.condition("Ready")
    assert ready.reason == "ConfigurationError" and "Secret/s has no key other" in ready.message


async def test_a_new_process_takes_up_what_runs(world: World, runtime: FakeRuntime) -> None:
    await up(world, runtime, 2)
    await world.stop()
    runtime.die("p-0", code=3)
    await world.serve(Pools(), Instances(LocalMaker(runtime)))
    assert sorted(running(runtime)) == ["p-0", "p-1"] and len(runtime.orders) == 3
    assert (await world.get("Instance", "p-0")).status.last_exit.code == 3


async def test_one_that_dies_at_once_holds_up_the_rollout(world: World, runtime: FakeRuntime) -> None:
    await up(world, runtime, 5)
    runtime.dies_at_once = "bad"
    await change(world, template=a_template("bad"))
    await world.pass_time(30, step=1)
    pool = await world.get("WorkerPool", "p")
    assert pool.status.ready_replicas == 4 and list(running(runtime).values()).count("serve") == 4
    await change(world, template=a_template("good"))
    await world.pass_time(10, step=1)
    assert set(running(runtime).values()) == {"good"} and len(running(runtime)) == 5


async def test_a_held_worker_finishes_first(world: World, runtime: FakeRuntime) -> None:
    await up(world, runtime, 2)
    held = {"id": "h", "kind": "Task", "name": "t", "uid": "u", "since": "2024-01-01T00:00:00Z"}
    await world.client.patch(Instance, "p-1", {"spec": {"assignment": held}})
    await change(world, template=a_template("other"))
    instance = await world.get("Instance", "p-1")
    assert DRAINING in instance.metadata.annotations and running(runtime)["p-1"] == "serve"
    await world.client.patch(Instance, "p-1", {"spec": {"assignment": None}})
    await world.rest()
    await world.pass_time(4 * SETTLE_SECONDS, step=SETTLE_SECONDS)
    assert running(runtime) == {"p-0": "other", "p-1": "other"}
    assert DRAINING not in (await world.get("Instance", "p-1")).metadata.annotations


async def test_a_held_worker_that_does_not_finish_goes_in_the_end(world: World, runtime: FakeRuntime) -> None:
    await up(world, runtime, 1)
    held = {"id": "h", "kind": "Task", "name": "t", "uid": "u", "since": "2024-01-01T00:00:00Z"}
    await world.client.patch(Instance, "p-0", {"spec": {"assignment": held}})
    await change(world, template=a_template("other"), update={"drainSeconds": 60})
    await world.pass_time(50, step=10)
    assert running(runtime) == {"p-0": "serve"}
    await world.pass_time(20, step=10)
    assert running(runtime) == {"p-0": "other"}
