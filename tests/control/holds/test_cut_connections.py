"""Writes of holds whose answer is lost, whether they were carried out or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rota.api import Instance, Kind, Task
from rota.client import Client, LocalBackend
from rota.client.backend import Written
from rota.client.failures import ConnectionCut
from rota.registry import Answer, ApiError, Operation, Registry
from tests.control.claims.party import (
    WORKERS,
    Party,
    claim,
    held,
    is_bound,
    is_clean,
    phases,
    release,
    settles,
    status,
)
from tests.control.running.fake import FakeRuntime
from tests.engine_loop.loops import World

Matches = Callable[[Sequence[Operation]], bool]
"""A predicate for writes: the answer of those that match is lost."""


def assigns(kind: str) -> Matches:
    """Match the patch that gives an instance to a task or a claim."""
    return lambda operations: any(
        step["op"] == "add" and step["path"] == "/spec/assignment" and step["value"]["kind"] == kind
        for step in _steps(operations)
    )


def unassigns(operations: Sequence[Operation]) -> bool:
    return {"op": "remove", "path": "/spec/assignment"} in _steps(operations)


def says(phase: str) -> Matches:
    """Match the status of a task or a claim."""
    return lambda operations: any(
        one.subresource == "status" and one.kind is not Instance.api and one.body["status"].get("phase") == phase
        for one in operations
    )


def begins_on_a_lane(operations: Sequence[Operation]) -> bool:
    return says("Running")(operations) and not _steps(operations)


def _steps(operations: Sequence[Operation]) -> list[dict[str, Any]]:
    return [step for one in operations if one.kind is Instance.api and one.verb == "patch" for step in one.body]


class Remote(LocalBackend):
    """A server elsewhere, to which the connection is cut while something is written."""

    registry = None

    def __init__(self, registry: Registry) -> None:
        super().__init__(registry)
        self.cuts: list[Matches] = []
        """The writes whose answers are lost, once each."""
        self.lands = True
        """If true, the writes whose answer is lost are carried out."""
        self.restarts = False
        """If true, the next copy of such a write is refused for now, and the two reads after that fail as well."""
        self._refuses: list[Matches] = []
        self._read_failures: list[Exception] = []

    def _is_cut(self, operations: Sequence[Operation]) -> bool:
        for cut in self.cuts:
            if cut(operations):
                self.cuts.remove(cut)
                self._refuses += [cut] * self.restarts
                return True
        return False

    async def get(self, kind: Kind, namespace: str, name: str, *, subresource: str = "") -> Answer:
        if self._read_failures:
            raise self._read_failures.pop()
        return await super().get(kind, namespace, name, subresource=subresource)

    async def write(self, operations: Sequence[Operation], *, atomic: bool = True) -> Written:
        if any(one(operations) for one in self._refuses):
            self._refuses.clear()
            refused = ApiError(503, "ServiceUnavailable", "the server starts")
            self._read_failures = [refused, ConnectionCut("the connection was cut")]
            if atomic:
                raise refused
            return [refused] * len(operations)
        if self._is_cut(operations):
            if self.lands:
                await super().write(operations, atomic=atomic)
            raise ConnectionCut("the connection was cut")
        return await super().write(operations, atomic=atomic)


@pytest.fixture(params=["at once", "one by one"])
async def remote(world: World, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Remote:
    monkeypatch.setattr(LocalBackend, "atomic", request.param == "at once")
    return Remote(world.registry)


@pytest.fixture(params=["carried out", "lost"])
async def party(world: World, remote: Remote, request: pytest.FixtureRequest) -> Party:
    """Controllers that lead over a connection."""
    remote.lands = request.param == "carried out"
    party = Party(world, FakeRuntime(world.clock))
    client = Client(remote, manager="controllers", namespace="default")

    def seen(objects: Any) -> Any:
        client.backend = objects.seeing(remote)
        return objects

    await world.create("WorkerPool", "p", {"replicas": 1, "reset": "Keep", **WORKERS})
    await world.serve(*party.controllers(), client=client, seen=seen)
    await world.pass_time(30, step=5)
    return party


async def run_tasks(world: World, party: Party, *names: str) -> None:
    """Have tasks come together, and each of them run to its end."""
    for name in names:
        await world.create("Task", name, {"command": ["run", name], "workerPoolRef": {"name": "p"}})
    await world.rest()

    async def are_over() -> bool:
        await world.rest()
        for worker in party.running():
            party.finish(worker)
        return all(one.over() for one in (await world.client.list(Task)).items)

    await settles(world, are_over)

    async def is_free() -> bool:
        return await held(world) == {}

    await settles(world, is_free)


@pytest.mark.parametrize(
    "cut",
    [
        pytest.param(assigns("Task"), id="entering the lane"),
        pytest.param(begins_on_a_lane, id="a begin"),
        pytest.param(says("Succeeded"), id="an end"),
        pytest.param(unassigns, id="leaving the lane"),
    ],
)
async def test_tasks_run_once_though_an_answer_is_lost(
    world: World, party: Party, remote: Remote, cut: Matches
) -> None:
    remote.cuts = [cut]
    await run_tasks(world, party, "a", "b")
    assert remote.cuts == []
    await run_tasks(world, party, "c")
    tasks = {one.metadata.name: one for one in (await world.client.list(Task)).items}
    tries = {name: (one.status.phase, one.status.tries) for name, one in tasks.items() if one.status}
    assert tries == dict.fromkeys("abc", ("Succeeded", 1))
    assert sorted(party.begun) == sorted(f"{one.metadata.uid}.0" for one in tasks.values())
    assert not any(one.is_changing_hands or one.ends for one in party.executor.members.values())


@pytest.mark.parametrize(
    "cut",
    [
        pytest.param(assigns("Claim"), id="a bind"),
        pytest.param(says("Bound"), id="its status"),
        pytest.param(unassigns, id="a release"),
        pytest.param(says("Released"), id="an end"),
    ],
)
async def test_claims_come_and_go_though_an_answer_is_lost(
    world: World, party: Party, remote: Remote, cut: Matches
) -> None:
    remote.cuts = [cut]
    for name in "ab":
        await claim(world, name)

        async def has_it(name: str = name) -> bool:
            return await is_bound(world, name)

        await settles(world, has_it)
        assert await held(world) == {"p-0": name}
        await release(world, name)

        async def is_free() -> bool:
            return await held(world) == {}

        await settles(world, is_free)
    assert remote.cuts == []
    assert await phases(world) == {"a": "Released", "b": "Released"}
    assert is_clean(party) and not any(one.is_changing_hands for one in party.executor.members.values())


@pytest.fixture
async def party_of_two(world: World, party: Party) -> Party:
    """Two instances: a second one is free while it is not known if the first was given to somebody."""
    await world.patch("WorkerPool", "p", {"spec": {"replicas": 2}})
    await world.pass_time(30, step=5)
    assert len(party.executor.members) == 2
    return party


@pytest.mark.parametrize("restarts", [pytest.param(False, id="back at once"), pytest.param(True, id="restarting")])
@pytest.mark.parametrize(
    "cut", [pytest.param(assigns("Claim"), id="a bind"), pytest.param(says("Bound"), id="a status")]
)
async def test_a_claim_gets_one_instance_of_two_though_an_answer_is_lost(
    world: World, party_of_two: Party, remote: Remote, cut: Matches, restarts: bool
) -> None:
    remote.cuts, remote.restarts = [cut], restarts
    await claim(world, "a")

    async def has_it() -> bool:
        assert len(await held(world)) <= 1, "it has one instance at most, at any time"
        return await is_bound(world, "a")

    await settles(world, has_it)
    for _ in range(10):
        await world.pass_time(0.5, step=0.05)
        assert await held(world) == {(await status(world, "a")).instance_name: "a"}
    assert remote.cuts == []
    await release(world, "a")
    await world.pass_time(5, step=0.5)
    assert await held(world) == {} and is_clean(party_of_two)


@pytest.mark.parametrize("restarts", [pytest.param(False, id="back at once"), pytest.param(True, id="restarting")])
@pytest.mark.parametrize(
    "cut", [pytest.param(assigns("Task"), id="entering the lane"), pytest.param(says("Running"), id="a begin")]
)
async def test_a_task_runs_on_one_worker_of_two_though_an_answer_is_lost(
    world: World, party_of_two: Party, remote: Remote, cut: Matches, restarts: bool
) -> None:
    remote.cuts, remote.restarts = [cut], restarts
    await world.create("Task", "t", {"command": ["run"], "workerPoolRef": {"name": "p"}})
    for _ in range(60):
        await world.pass_time(0.05)
        assert len(party_of_two.running()) <= 1
    task = await world.get("Task", "t")
    assert remote.cuts == [] and task.status.phase == "Running"
    assert list(party_of_two.running()) == [task.status.instance_name]
    assert party_of_two.begun == [f"{task.metadata.uid}.0"]
