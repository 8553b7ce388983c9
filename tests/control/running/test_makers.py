"""Makers that can do less than the local one, or more: the Instance controller takes them as they are."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec
import pytest

from rota.api import Instance
from rota.client import Key
from rota.control.instance import Instances
from rota.control.instances.states import USED
from rota.control.making.interface import Observed, Obstacle
from rota.control.making.local import LocalMaker
from rota.control.pool import Pools
from rota.engine.objects import Objects
from tests.control.running.fake import FakeRuntime
from tests.control.running.test_pools import a_template, running
from tests.control.running.test_workers import HELD
from tests.engine_loop.loops import World

UNREACHABLE = Obstacle("NodeUnreachable", "node n1 does not answer since 12:00", is_made=True)


class FarMaker(LocalMaker):
    """Its instances can be out of reach: then it knows what was there, and can neither make nor end anything."""

    obstacle: Obstacle | None = None

    def observe(self, obj: Instance) -> Observed:
        return msgspec.structs.replace(super().observe(obj), obstacle=self.obstacle)

    async def make(self, objects: Objects, obj: Instance, start: Collection[str] = ()) -> Observed:
        if self.obstacle is not None:
            assert not start, "it cannot be known what has ended"
            return self.observe(obj)
        return await super().make(objects, obj, start)

    async def end(self, obj: Instance, grace_seconds: float, *, keep_storage: bool) -> bool:
        return self.obstacle is None and await super().end(obj, grace_seconds, keep_storage=keep_storage)

    def have(self, obstacle: Obstacle | None) -> None:
        self.obstacle = obstacle
        self._wake(Key("default", "p-0"))


@pytest.fixture
async def runtime(world: World) -> FakeRuntime:
    return FakeRuntime(world.clock)


@pytest.fixture
async def maker(world: World, runtime: FakeRuntime) -> FarMaker:
    made = FarMaker(runtime)
    await world.create("WorkerPool", "p", {"template": a_template(), "replicas": 1})
    await world.serve(Pools(made), Instances(made))
    return made


async def test_what_is_out_of_reach_is_neither_ended_nor_made_again(
    world: World, runtime: FakeRuntime, maker: FarMaker
) -> None:
    before = await world.get("Instance", "p-0")
    maker.have(UNREACHABLE)
    await world.rest()
    during = await world.get("Instance", "p-0")
    assert during.status.condition("Available").reason == "NodeUnreachable"
    assert during.status.condition("Programmed").status == "True"
    assert "node n1" in during.status.condition("Ready").message and during.readiness().state != "Ready"
    assert during.status.runtime_id == before.status.runtime_id
    await world.pass_time(600, step=60)
    maker.have(None)
    await world.rest()
    after = await world.get("Instance", "p-0")
    assert (after.metadata.uid, after.readiness().state) == (before.metadata.uid, "Ready")
    assert len(runtime.orders) == 1 and runtime.stopped == []


async def test_what_is_out_of_reach_is_not_gone_before_its_end_is_known(
    world: World, runtime: FakeRuntime, maker: FarMaker
) -> None:
    maker.have(UNREACHABLE)
    uid = (await world.get("Instance", "p-0")).metadata.uid
    await world.client.delete(Instance, "p-0")
    await world.pass_time(600, step=60)
    left = await world.get("Instance", "p-0")
    assert (left.metadata.uid, left.status.phase) == (uid, "Stopping") and sorted(running(runtime)) == ["p-0"]
    maker.have(None)
    await world.rest()
    assert (await world.get("Instance", "p-0")).metadata.uid != uid and len(runtime.alive) == 1


async def test_what_ended_while_it_was_out_of_reach_is_started_again_afterwards(
    world: World, runtime: FakeRuntime, maker: FarMaker
) -> None:
    maker.have(UNREACHABLE)
    runtime.die("p-0")
    await world.rest()
    assert running(runtime) == {}
    maker.have(None)
    await world.rest()
    assert sorted(running(runtime)) == ["p-0"] and runtime.orders[-1].number == 1


# Gates that a maker copies.


class CopyingMaker(LocalMaker):
    """Makes what is gated, which then waits with its gates where it was made."""

    copies_gates = True
    is_cluster = True

    async def make(self, objects: Objects, obj: Instance, start: Collection[str] = ()) -> Observed:
        if not obj.spec.scheduling_gates:
            return await super().make(objects, obj, start)
        names = ", ".join(gate.name for gate in obj.spec.scheduling_gates)
        return Observed({}, obstacle=Obstacle("Provisioning", f"made with {names}"))


async def test_what_a_quota_holds_back_is_not_made_and_what_other_gates_do_is_where_they_are_copied(
    world: World, runtime: FakeRuntime
) -> None:
    gates = [{"name": "Quota"}, {"name": "one.example/gate"}]
    await world.create("Instance", "i", {**a_template(), "schedulingGates": gates, "templateHash": "x", "ordinal": 0})
    await world.serve(Instances(CopyingMaker(runtime)))
    assert await world.condition("Instance", "i", "Programmed") is None
    await world.client.patch(Instance, "i", {"spec": {"schedulingGates": gates[1:]}})
    await world.rest()
    assert await world.condition("Instance", "i", "Programmed") == (
        "False",
        "Provisioning",
        "made with one.example/gate",
    )
    assert (await world.get("Instance", "i")).status.condition("Ready").reason == "SchedulingGated"
    assert runtime.orders == []
    await world.client.patch(Instance, "i", {"spec": {"schedulingGates": []}})
    await world.rest()
    assert len(runtime.orders) == 1 and (await world.get("Instance", "i")).readiness().state == "Ready"


# What cannot be renewed.


class FixedMaker(LocalMaker):
    """Cannot change what it has made."""

    async def renew(self, obj: Instance) -> bool:
        return False


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"assignment": {**HELD, "options": {"env": [{"name": "A", "value": "b"}]}}}},
        {"metadata": {"annotations": {USED: "h1"}}},
    ],
    ids=["for a holder", "after one"],
)
async def test_what_cannot_be_renewed_is_replaced(world: World, runtime: FakeRuntime, change: dict[str, Any]) -> None:
    maker = FixedMaker(runtime)
    await world.create("WorkerPool", "p", {"template": a_template(), "replicas": 1, "reset": "Keep"})
    await world.serve(Pools(maker), Instances(maker))
    before = await world.get("Instance", "p-0")
    await world.client.patch(Instance, "p-0", change)
    await world.rest()
    after = await world.get("Instance", "p-0")
    assert after.metadata.uid != before.metadata.uid and after.readiness().state == "Ready"
    assert [one.number for one in runtime.orders] == [0, 0]
