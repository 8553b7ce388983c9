"""Decisions of one turn of the event loop go into one commit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from rota.api import Task
from rota.api.pool import ClaimStatus
from rota.client import Client, LocalBackend
from rota.client.backend import Written
from rota.control.claims.lifecycle import over
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
    assert counting.together == [MANY, MANY], "the ends, and then the workers that have nothing more to do"
    assert all(one.over() for one in (await world.client.list(Task)).items)


async def test_claims_of_one_turn_are_bound_together_and_released_together(
    world: World, party: Party, counting: Counting
) -> None:
    counting.together.clear()
    asking = [asyncio.create_task(party.claims.callers.open(a_claim(f"c{n}"), may_wait=True)) for n in range(MANY)]
    await world.rest()
    assert all(one.done() for one in asking)
    assert counting.together == [2 * MANY], "each claim with its instance"
    counting.together.clear()
    now = world.clock.time()
    bound = [found for one in asking if (found := one.result()) is not None]
    ends = [over(one.status or ClaimStatus(), "Released", now) for one in bound]
    await asyncio.gather(*(party.claims.end(one, end) for one, end in zip(bound, ends, strict=True)))
    assert counting.together == [2 * MANY]


async def test_claims_of_one_turn_that_have_to_wait_are_created_together(
    world: World, party: Party, counting: Counting
) -> None:
    names = [f"c{n}" for n in range(2 * MANY)]
    counting.together.clear()
    asking = [asyncio.create_task(party.claims.callers.open(a_claim(one), may_wait=True)) for one in names]
    await world.rest()
    assert counting.together == [2 * MANY + MANY], "half of them with an instance"
    for one in asking:
        one.cancel()
