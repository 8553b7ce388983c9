"""Faults of systems of this sort, where no other test names them.

Held elsewhere: names of two owners that are the same, in `test_names`; a table of reasons at every level and none of
some that counts as ready, in `test_reasons`; a broken instance that blocks its own replacement or scaling down, two of
one ordinal, times of 1970 and another owner's instances, in `test_planner`; a busy worker that a new template ends, a
hold that outlives its worker, no reset between two holders, in `test_workers`; a worker's token that opens more than
its own stream, in `workers/test_access`; a lost event, in `engine_loop/test_loop_lost_news`.
"""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from rota.api import Event, Instance, WorkerPool
from rota.api.egress import Policy
from rota.control.instance import Instances
from rota.control.instances.template import SETTLE_SECONDS
from rota.control.making.local import LocalMaker
from rota.control.pool import Pools
from rota.registry import ApiError
from rota.registry.privileges import RESTRICTED
from rota.runtime.interface import Exit
from rota.runtime.runners import Runners
from tests.control.running.fake import FakeRuntime
from tests.control.running.lines import FakeRunner
from tests.control.running.test_pools import a_template, change, running, up
from tests.engine_loop.loops import World


@pytest.fixture
async def runtime(world: World) -> FakeRuntime:
    return FakeRuntime(world.clock)


def revision(world: World) -> int:
    return world.registry.store.revision


async def secret(world: World, value: str) -> None:
    meta = {"name": "s", "namespace": "default"}
    await world.client.apply({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"k": value}})
    await world.rest()


# News that nobody listens to.


async def test_a_secret_that_changes_reaches_the_files_of_what_runs(world: World, runtime: FakeRuntime) -> None:
    await world.client.create(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}, "stringData": {}}
    )
    await up(world, runtime, 1, volumes=[{"name": "v", "secret": {"name": "s"}, "mountPath": "/etc/s"}])
    await secret(world, "new")
    assert runtime.updates[-1].volumes == {"/etc/s": {"k": b"new"}} and len(runtime.orders) == 1


async def test_the_end_of_a_process_is_seen_without_anybody_asking(world: World, runtime: FakeRuntime) -> None:
    await up(world, runtime, 1)
    runtime.die("p-0", code=3)
    await world.rest()
    assert (await world.get("Instance", "p-0")).status.last_exit.code == 3


# Conflicts.


async def test_somebody_who_writes_at_the_same_time_makes_nothing_wait(world: World, runtime: FakeRuntime) -> None:
    await up(world, runtime, 3)
    for turn in range(5):
        for ordinal in range(3):
            with contextlib.suppress(ApiError):  # it may just be between two
                await world.client.patch(Instance, f"p-{ordinal}", {"metadata": {"labels": {"turn": str(turn)}}})
        await world.client.patch(WorkerPool, "p", {"spec": {"template": a_template(f"turn-{turn}")}})
    await world.rest()
    # No more than what each new one has to be up for.
    await world.pass_time(3 * SETTLE_SECONDS, step=SETTLE_SECONDS)
    assert set(running(runtime).values()) == {"turn-4"} and len(running(runtime)) == 3
    assert (await world.get("WorkerPool", "p")).status.phase == "Ready"


# Loops that keep themselves going.


async def test_a_pool_at_rest_is_not_written_to(world: World, runtime: FakeRuntime) -> None:
    await up(world, runtime, 3)
    before = revision(world)
    await world.pass_time(3600, step=60)
    assert revision(world) == before


async def test_while_a_crashing_instance_waits_for_its_turn_nothing_is_written(
    world: World, runtime: FakeRuntime
) -> None:
    await up(world, runtime, 1)
    for _ in range(3):
        runtime.die("p-0", lines="out of paper")
        await world.rest()
        while not running(runtime):
            await world.pass_time(1)
    runtime.die("p-0", lines="out of paper")
    await world.rest()
    assert running(runtime) == {}
    before = revision(world)
    for _ in range(10):
        runtime._notify(next(iter(runtime.alive)))
        await world.pass_time(1)
    assert revision(world) == before


async def test_what_waits_for_something_that_is_not_there_writes_once(world: World, runtime: FakeRuntime) -> None:
    lacking = {"name": "T", "valueFrom": {"secretKeyRef": {"name": "none", "key": "k"}}}
    container = {"name": "main", "command": ["serve"], "env": [lacking]}
    await up(world, runtime, 1, containers=[container])
    await world.pass_time(60, step=10)
    before = revision(world)
    await world.pass_time(3600, step=60)
    assert revision(world) == before and runtime.orders == []


# What is not there.


async def test_a_status_that_somebody_wiped_is_written_again_and_nothing_is_restarted(
    world: World, runtime: FakeRuntime
) -> None:
    await up(world, runtime, 1)
    found = await world.client.get(Instance.api, "p-0")
    await world.client.update_status({**found, "status": {}})
    await world.rest()
    instance = await world.get("Instance", "p-0")
    assert (instance.status.phase, instance.readiness().state) == ("Idle", "Ready")
    assert len(runtime.orders) == 1 and runtime.stopped == []


async def test_a_pool_without_a_status_is_like_a_new_one(world: World, runtime: FakeRuntime) -> None:
    await up(world, runtime, 2)
    found = await world.client.get(WorkerPool.api, "p")
    await world.client.update_status({**found, "status": {}})
    await world.rest()
    pool = await world.get("WorkerPool", "p")
    assert (pool.status.phase, pool.status.ready_replicas) == ("Ready", 2) and runtime.stopped == []


# Time from 1970.


async def test_an_end_without_a_time_is_not_the_longest_ago_of_all(world: World, runtime: FakeRuntime) -> None:
    """Nor does it make the next start wait for the longest time there is."""
    await up(world, runtime, 1)
    [subject] = runtime.alive
    for _ in range(2):
        runtime.die("p-0")
        [(name, run)] = runtime.alive[subject].items()
        runtime.alive[subject][name] = type(run)(run.number, run.id, 0.0, Exit(0.0, code=1))
        await world.rest()
    await world.pass_time(11, step=1)
    assert sorted(running(runtime)) == ["p-0"]


# What runs is not what was asked for.

OTHERS: dict[str, dict[str, Any]] = {
    "type": {"type": "python"},
    "agent": {"type": "codex"},
    "model": {"type": "codex", "model": "large"},
    "effort": {"type": "codex", "effort": "high"},
    "env": {"env": [{"name": "A", "value": "b"}]},
    "network": {"network": "none"},
    "egress": {"network": "egress", "egress": [{"host": "example.com"}]},
    "isolation": {"isolation": "none"},
    "resources": {"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}},
    "workspace": {"workspaceRef": {"name": "w"}},
    "agent configs": {"agentConfigRefs": [{"name": "a"}]},
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
async def test_every_change_of_a_worker_rolls_what_runs(
    world: World, runtime: FakeRuntime, other: dict[str, Any]
) -> None:
    await world.workspace("w")
    await world.create("AgentConfig", "a", {"instructions": "Be brief."})
    for kind, name in (("Workspace", "w"), ("AgentConfig", "a")):
        await world.say_ready(kind, name)
    await world.create("WorkerPool", "p", {"worker": {"type": "shell"}, "replicas": 1})
    await world.serve(Pools(runtime), Instances(LocalMaker(runtime, Runners(world.clock.time))))
    before = (await world.get("Instance", "p-0")).metadata.uid
    await change(world, worker=other)
    after = await world.get("Instance", "p-0")
    assert after.metadata.uid != before and len(runtime.orders) == 2


async def test_a_network_that_the_server_gives_no_more_is_taken_away_from_all_but_admins(
    world: World, runtime: FakeRuntime
) -> None:
    spec = {"template": a_template(network="host"), "replicas": 1}
    await world.create("WorkerPool", "admins", spec)
    await world.create("WorkerPool", "others", spec, annotations={RESTRICTED: "true"})
    await world.serve(Pools(), Instances(LocalMaker(runtime)))
    assert sorted(running(runtime)) == ["admins-0", "others-0"]
    runtime.policy = Policy("none")
    for subject in list(runtime.alive):
        runtime._notify(subject)
    await world.rest()
    assert sorted(running(runtime)) == ["admins-0"]
    said = {name: (await world.get("Instance", name)).status for name in ("admins-0", "others-0")}
    assert said["admins-0"].condition("NetworkConfined").reason == "BeyondPolicy"
    assert "network none" in said["others-0"].condition("Ready").message


# One that is not ready.


async def test_a_worker_that_cannot_be_prepared_is_replaced_by_a_good_one_at_once(
    world: World, runtime: FakeRuntime
) -> None:
    await _failing(world, runtime)
    await change(world, worker={"type": "codex"})
    assert len(runtime.orders) == 4 and sorted(runtime.stopped) == ["p-0", "p-1"]


async def test_workers_that_cannot_be_prepared_do_not_keep_a_pool_from_shrinking(
    world: World, runtime: FakeRuntime
) -> None:
    await _failing(world, runtime)
    await change(world, replicas=0)
    assert runtime.alive == {}


async def _failing(world: World, runtime: FakeRuntime) -> None:
    runners = Runners(world.clock.time)
    await world.create("WorkerPool", "p", {"worker": {"type": "shell"}, "replicas": 2})
    await world.serve(Pools(runtime), Instances(LocalMaker(runtime, runners)))
    for subject in list(runtime.alive):
        FakeRunner(runners, subject).say("Failed", reason="SetupFailed", message="no paper")
    await world.rest()
    assert (await world.get("WorkerPool", "p")).status.condition("Ready").reason == "ConfigurationError"


# Gates, each its owner's.


async def test_nothing_runs_while_a_gate_is_left_whoever_removed_the_others(world: World, runtime: FakeRuntime) -> None:
    gates = [{"name": "one.example/gate"}, {"name": "two.example/gate"}]
    spec = {**a_template(), "schedulingGates": gates, "templateHash": "x", "ordinal": 0}
    await world.create("Instance", "i", spec)
    await world.serve(Pools(), Instances(LocalMaker(runtime)))
    for left in (gates[1:], []):
        assert runtime.orders == []
        assert (await world.get("Instance", "i")).status.phase == "Pending"
        await world.client.patch(Instance, "i", {"spec": {"schedulingGates": left}})
        await world.rest()
    assert len(runtime.orders) == 1


async def test_without_quotas_none_is_asked_for(world: World, runtime: FakeRuntime) -> None:
    await up(world, runtime, 1)
    assert await world.condition("Instance", "p-0", "QuotaGranted") == ("True", "NotRequired", "")


async def test_limits_that_the_host_cannot_hold_are_told(world: World, runtime: FakeRuntime) -> None:
    runtime.limits_unmet = ("cpu",)
    limits = {"limits": {"cpu": 1, "memory": "64Mi"}}
    container = {"name": "main", "command": ["serve"], "resources": limits}
    await world.create("WorkerPool", "p", {"template": {"containers": [container]}, "replicas": 1})
    await world.serve(Pools(), Instances(LocalMaker(runtime)))
    found = await world.condition("Instance", "p-0", "Honoured")
    assert found is not None and found[:2] == ("False", "NotHonoured")
    assert found[2].startswith("spec.containers[0].resources.limits.cpu is not held: this host has no cgroup for it")
    told = [one for one in (await world.client.list(Event)).items if one.reason == "LimitNotHeld"]
    assert [(one.involved_object.name, one.type, one.message) for one in told] == [("p-0", "Warning", found[2])]


# Namesakes.


async def test_a_pool_that_is_made_anew_has_nothing_of_the_last_ones_instances(
    world: World, runtime: FakeRuntime
) -> None:
    await up(world, runtime, 2)
    before = {one.metadata.uid for one in (await world.client.list(Instance)).items}
    await world.delete("WorkerPool", "p")
    await world.create("WorkerPool", "p", {"template": a_template("other"), "replicas": 2})
    await world.rest()
    after = {one.metadata.uid for one in (await world.client.list(Instance)).items}
    assert not before & after and running(runtime) == {"p-0": "other", "p-1": "other"}


async def test_what_a_namesake_left_running_is_ended_before_anything_is_started(
    world: World, runtime: FakeRuntime
) -> None:
    await up(world, runtime, 1)
    await world.stop()
    # Nobody sees it go, and so nobody ends it.
    await world.client.patch(Instance, "p-0", {"metadata": {"finalizers": None}})
    await world.delete("Instance", "p-0")
    await world.serve(Pools(), Instances(LocalMaker(runtime)))
    assert runtime.stopped == ["p-0"] and sorted(running(runtime)) == ["p-0"] and len(runtime.alive) == 1
