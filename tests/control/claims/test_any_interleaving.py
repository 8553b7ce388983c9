"""Claims and tasks on virtual time, in a world where anything may happen at any instant."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from rota.api import Claim, Instance, Task
from rota.client import LocalBackend
from rota.control.claims import callers as callers_module
from rota.control.claims.lifecycle import time_of
from rota.control.holds import executor as executor_module
from rota.registry import ApiError
from tests.amount import amount
from tests.control.claims.party import PLAIN, WORKERS, Party, a_claim, is_clean
from tests.control.running.fake import FakeRuntime
from tests.engine_loop.loops import World, world_in

T = TypeVar("T")

CONFLICT = ApiError(409, "Conflict", "somebody was faster")
SLACK_SECONDS = 0.3
"""Somebody whose time is over while an instance is on its way to it is answered this much later."""
WAIT_SECONDS, LEASE_SECONDS = 40, 60
OVER = ("Released", "Expired", "Failed")


class Interleavings(RuleBasedStateMachine):
    """Kills of the controllers, lost races, cancels, crashes and ends of leases."""

    pool: dict[str, Any] = WORKERS
    is_atomic = True

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.patch = pytest.MonkeyPatch()
        # What is looked at again a moment later is looked at again at once.
        self.patch.setattr(executor_module, "LOOK_AGAIN_SECONDS", 0.0)
        self.patch.setattr(executor_module, "RETRY_SECONDS", 0.0)
        self.patch.setattr(callers_module, "LOOK_AGAIN_SECONDS", 0.0)
        self.patch.setattr(callers_module, "RETRY_SECONDS", 0.0)
        self.patch.setattr(LocalBackend, "atomic", self.is_atomic)
        self.stack = AsyncExitStack()
        self.asking: dict[str, asyncio.Task[Claim | None]] = {}
        self.bound: set[str] = set()
        self.waited: dict[str, Claim] = {}
        """Claims that were seen to wait."""
        self.came = 0

    def do(self, what: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(what)

    @initialize(
        replicas=st.integers(1, 3), way=st.sampled_from(["store", "cached"]), reset=st.sampled_from(["Keep", "Clean"])
    )
    def begin(self, replicas: int, way: Any, reset: str) -> None:
        async def begun() -> None:
            self.world: World = await self.stack.enter_async_context(world_in(way))
            self.party = Party(self.world, FakeRuntime(self.world.clock))
            await self.world.create("WorkerPool", "p", {**self.pool, "replicas": replicas, "reset": reset})
            await self.party.up()
            await self.world.pass_time(30, step=5)

        self.replicas = replicas
        self.do(begun())

    # What happens.

    @rule(holder=st.sampled_from("xyz"), priority=st.sampled_from([0, 0, 0, 1]), is_asked=st.booleans())
    def a_claim_comes(self, holder: str, priority: int, is_asked: bool) -> None:
        self.came += 1
        name = f"c{self.came:03}"

        async def come() -> None:
            if is_asked:
                wanted = a_claim(
                    name, holder=holder, priority=priority, wait_seconds=WAIT_SECONDS, lease_seconds=LEASE_SECONDS
                )
                self.asking[name] = asyncio.create_task(self.party.claims.callers.open(wanted, may_wait=True))
                return
            times = {"waitSeconds": WAIT_SECONDS, "leaseSeconds": LEASE_SECONDS}
            spec = {"poolRef": {"name": "p"}, "holder": holder, "priority": priority, **times}
            await self.world.create("Claim", name, spec)

        self.do(self.then(come()))

    @precondition(lambda self: "worker" in self.pool)
    @rule(holder=st.sampled_from("xyz"))
    def a_task_comes(self, holder: str) -> None:
        self.came += 1
        spec = {"command": ["run"], "workerPoolRef": {"name": "p"}, "holder": holder}
        self.do(self.then(self.world.create("Task", f"t{self.came:03}", spec)))

    @rule(data=st.data())
    def a_task_ends(self, data: st.DataObject) -> None:
        running = sorted(self.party.running())
        if running:
            name = data.draw(st.sampled_from(running))

            async def end() -> None:
                self.party.finish(name)

            self.do(self.then(end()))

    @rule(data=st.data(), how=st.sampled_from(["release", "delete", "renew"]))
    def somebody_does_something_with_a_claim(self, data: st.DataObject, how: str) -> None:
        claims = self.do(self.claims())
        alive = sorted(name for name, one in claims.items() if not one.over())
        if not alive:
            return
        name = data.draw(st.sampled_from(alive))

        async def act() -> None:
            if how == "delete":
                await self.world.delete("Claim", name)
            else:
                now = time_of(self.world.clock.time()).isoformat()
                change = {"release": True} if how == "release" else {"renewTime": now}
                await self.world.patch("Claim", name, {"spec": change})

        self.do(self.then(act()))

    @precondition(lambda self: any(not task.done() for task in self.asking.values()))
    @rule(data=st.data(), turns=st.integers(0, 20))
    def somebody_who_asked_goes(self, data: st.DataObject, turns: int) -> None:
        waiting = sorted(name for name, task in self.asking.items() if not task.done())
        name = data.draw(st.sampled_from(waiting))

        async def go() -> None:
            for _ in range(turns):
                await asyncio.sleep(0)
            self.asking[name].cancel()

        self.do(self.then(go()))

    @rule(data=st.data(), how=st.sampled_from(["crash", "box", "delete"]))
    def an_instance_is_in_trouble(self, data: st.DataObject, how: str) -> None:
        names = sorted(one.name for one in self.party.runtime.alive)
        if not names:
            return
        name = data.draw(st.sampled_from(names))

        async def trouble() -> None:
            container = "worker" if "worker" in self.pool else "main"
            [subject] = [one for one in self.party.runtime.alive if one.name == name]
            run = self.party.runtime.alive[subject].get(container)
            report = self.party.report(subject)
            if how == "delete":
                if name in {one.metadata.name for one in (await self.world.client.list(Instance)).items}:
                    await self.world.delete("Instance", name)
            elif how == "crash" and run is not None and run.exit is None:
                self.party.runtime.die(name, container=container)
            elif how == "box" and report is not None and report.phase == "Held" and not report.has_task:
                self.party.lose_box(name)

        self.do(self.then(trouble()))

    @rule(number=st.integers(1, 3))
    def races_are_lost(self, number: int) -> None:
        self.party.racing.failures = [CONFLICT] * number

    @rule(is_slow=st.booleans())
    def writes_take_their_time(self, is_slow: bool) -> None:
        self.party.racing.is_slow = is_slow

    @rule(seconds=st.sampled_from([0.5, 5, 20, 61]))
    def time_passes(self, seconds: float) -> None:
        self.do(self.then(self.world.pass_time(seconds, step=5)))

    @rule(turns=st.integers(0, 10))
    def the_controllers_are_killed(self, turns: int) -> None:
        async def killed() -> None:
            for _ in range(turns):
                await asyncio.sleep(0)
            await self.party.restart()

        self.do(self.then(killed()))

    # What has to be so.

    async def claims(self) -> dict[str, Claim]:
        return {one.metadata.name: one for one in (await self.world.client.list(Claim)).items}

    async def then(self, what: Coroutine[Any, Any, Any]) -> None:
        """Something happens; when all is settled, it is looked at."""
        before = await self.claims()
        await what
        for _ in range(3):
            await self.world.rest()
            await asyncio.sleep(0.001)
        await self.world.rest()
        await self.check(before)

    async def check(self, before: dict[str, Claim]) -> None:
        claims = await self.claims()
        instances = (await self.world.client.list(Instance)).items
        assigned = [one.spec.assignment for one in instances if one.spec.assignment is not None]
        assert len({one.uid for one in assigned}) == len(assigned), "one has two"
        at = {one.spec.assignment.uid: one.metadata.name for one in instances if one.spec.assignment is not None}
        for name, one in claims.items():
            status = one.status
            if status is None or one.over():
                continue
            if status.phase == "Bound":
                assert at.get(one.metadata.uid) == status.instance_name, f"{name} does not have what it has"
                assert status.expires_at is not None
                assert status.expires_at.timestamp() > self.world.clock.time() - SLACK_SECONDS, f"{name} has it still"
            elif status.phase == "Waiting":
                assert status.arrival is not None
                assert status.arrival.timestamp() + WAIT_SECONDS > self.world.clock.time() - SLACK_SECONDS, name
        self.check_turns(before, claims)
        for name, task in self.asking.items():
            found = claims.get(name)
            if found is not None and (found.over() or (found.status and found.status.phase == "Bound")):
                assert task.done(), f"{name} was not told"

    def check_turns(self, before: dict[str, Claim], claims: dict[str, Claim]) -> None:
        """None got one before another of the same holder that was no less urgent and came earlier."""
        for name, one in claims.items():
            was = before.get(name)
            is_new = one.status is not None and one.status.phase == "Bound"
            if not is_new or (was is not None and was.status is not None and was.status.phase == "Bound"):
                continue
            for other_name, other in claims.items():
                if other.status is None or other.status.phase != "Waiting" or other.spec.holder != one.spec.holder:
                    continue
                assert other.status.arrival is not None and one.status is not None and one.status.arrival is not None
                is_first = (-other.spec.priority, other.status.arrival) < (-one.spec.priority, one.status.arrival)
                assert not is_first or other_name not in before, f"{name} went before {other_name}"

    def teardown(self) -> None:
        try:
            if hasattr(self, "party"):
                self.do(self.end())
        finally:
            self.do(self.stack.aclose())
            self.runner.close()
            self.patch.undo()

    async def end(self) -> None:
        """Everybody has had their turn, and all is as it was."""
        self.party.racing.failures, self.party.racing.is_slow = [], False
        for _ in range(200):
            await self.world.rest()
            for name in sorted(self.party.running()):
                self.party.finish(name)
            claims = await self.claims()
            bound = [name for name, one in claims.items() if one.status is not None and one.status.phase == "Bound"]
            for name in bound:
                await self.world.patch("Claim", name, {"spec": {"release": True}})
            await self.world.pass_time(10, step=5)
            tasks = (await self.world.client.list(Task)).items
            if all(one.over() for one in (await self.claims()).values()) and all(one.over() for one in tasks):
                break
        await self.world.pass_time(400, step=20)
        found = (await self.world.client.list(Instance)).items
        assert all(one.over() for one in (await self.claims()).values())
        assert [one.metadata.name for one in found if one.spec.assignment is not None] == [], "leaked"
        assert len(found) == self.replicas and all(one.status and one.status.phase == "Idle" for one in found)
        assert all(task.done() for task in self.asking.values()), "somebody was not answered"
        for task in self.asking.values():
            if not task.cancelled() and (error := task.exception()) is not None:
                assert isinstance(error, ApiError) and error.code == 503, error
        assert is_clean(self.party)


class WithoutRunners(Interleavings):
    pool = PLAIN


class OneByOne(Interleavings):
    is_atomic = False


SETTINGS = settings(max_examples=amount(8, 150), stateful_step_count=25, deadline=None)
TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = SETTINGS
TestWithoutRunners = WithoutRunners.TestCase
TestWithoutRunners.settings = SETTINGS
TestOneByOne = OneByOne.TestCase
TestOneByOne.settings = SETTINGS
