"""What is decided in one turn of the event loop goes into one commit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from rota.api import Instance, Task
from rota.client import Client, LocalBackend
from rota.client.backend import Written
from rota.registry import Operation, Registry
from tests.control.claims.party import WORKERS, Party, a_claim
from tests.control.running.fake import FakeRuntime
from tests.engine_loop.loops import World

MANY = 16


class Counting(LocalBackend):
    """Notes how many writes go together."""

    def __init__(self, registry: Registry) -> None:
        super().__init__(registry)
        self.together: list[int] = []

    async def write(self, operations: Sequence[Operation], *, atomic: bool = True) -> Written:
        if not atomic:
            self.together.append(len(operations))
        return await super().write(operations, atomic=atomic)


@pytest.fixture
async def counting(world: World) -> Counting:
    return Counting(world.registry)


@pytest.fixture
async def party(world: World, counting: Counting) -> Party:
    party = Party(world, FakeRuntime(world.clock))
    await world.create("WorkerPool", "p", {"replicas": MANY, "reset": "Keep", **WORKERS})
    await world.serve(*party.controllers(), client=Client(counting, manager="controllers", namespace="default"))
    await world.pass_time(60, step=5)
    return party


async def test_the_ends_of_tasks_of_one_turn_are_written_together(
    world: World, party: Party, counting: Counting
) -> None:
    for number in range(MANY):
        await world.create("Task", f"t{number}", {"command": ["run"], "workerPoolRef": {"name": "p"}})
    await world.rest()
    workers = [*party.running()]
    assert len(workers) == MANY
    counting.together.clear()
    for worker in workers:
        party.finish(worker)
    await world.rest()
    assert counting.together == [MANY]
    assert all(one.over() for one in (await world.client.list(Task)).items)


async def test_the_bindings_of_claims_of_one_turn_are_committed_together(
    world: World, party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, commits = world.registry.store, list[int]()
    hand_over = store._hand_over

    def noted(groups: list[Any]) -> None:
        rows = [event for group in groups for event, *_ in group.rows]
        commits.append(sum(b'"kind":"Claim"' in event.value for event in rows if is_instance(event.key)))
        hand_over(groups)

    def is_instance(key: str) -> bool:
        return key.startswith(f"{Instance.api.bucket}/")

    monkeypatch.setattr(store, "_hand_over", noted)
    asking = [asyncio.create_task(party.claims.callers.open(a_claim(f"c{n}"), may_wait=True)) for n in range(MANY)]
    await world.rest()
    assert all(one.done() for one in asking)
    assert next(number for number in commits if number) == MANY
