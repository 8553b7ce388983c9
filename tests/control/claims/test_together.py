"""Claims and tasks in one queue."""

from __future__ import annotations

import errno
import json
from typing import Any

import pytest

from rota.registry import ApiError
from rota.registry.metadata import new_uid
from rota.runtime.runner.jobs import Outcome
from tests.control.claims.party import (
    WORKERS,
    Party,
    Racing,
    claim,
    held,
    is_clean,
    phases,
    release,
    settles,
    status,
    up,
)
from tests.engine_loop.loops import World


async def a_task(world: World, name: str, **spec: object) -> None:
    await world.create("Task", name, {"command": ["run", name], "workerPoolRef": {"name": "p"}, **spec})
    await world.rest()


async def test_a_claim_is_next_when_a_task_ends_and_a_task_when_a_claim_does(world: World, party: Party) -> None:
    await up(world, party, **WORKERS)
    for name in ("t1", "c1", "t2", "c2"):
        await (a_task(world, name) if name[0] == "t" else claim(world, name))
        await world.pass_time(1, step=0.25)
    assert await held(world) == {"p-0": "t1"} and party.running() == {"p-0": "run t1"}
    party.finish("p-0")
    await world.rest()
    assert await held(world) == {"p-0": "c1"} and party.running() == {}
    await release(world, "c1")
    assert await held(world) == {"p-0": "t2"} and party.running() == {"p-0": "run t2"} and party.resets == ["p-0"]
    party.finish("p-0")
    await world.rest()
    assert await held(world) == {"p-0": "c2"}
    await release(world, "c2")
    await world.pass_time(5, step=1)
    assert await held(world) == {} and is_clean(party)
    assert set((await phases(world)).values()) == {"Released"}
    assert {(await world.get("Task", name)).status.phase for name in ("t1", "t2")} == {"Succeeded"}


async def test_a_task_that_is_more_urgent_goes_before_a_claim_and_the_other_way_round(
    world: World, party: Party
) -> None:
    await up(world, party, **WORKERS)
    await a_task(world, "t0")
    await claim(world, "c1")
    await a_task(world, "t1", priority=5)
    await claim(world, "c2", priority=9)
    party.finish("p-0")
    await world.rest()
    assert await held(world) == {"p-0": "c2"}
    await release(world, "c2")
    assert await held(world) == {"p-0": "t1"}
    party.finish("p-0")
    await world.rest()
    assert await held(world) == {"p-0": "c1"}


async def test_a_claim_that_is_cancelled_while_a_task_ends_leaves_the_worker_to_the_next(
    world: World, party: Party
) -> None:
    await up(world, party, **WORKERS)
    await a_task(world, "t0")
    await claim(world, "c1")
    await a_task(world, "t1")
    party.finish("p-0")
    await world.delete("Claim", "c1")
    await world.rest()
    assert await held(world) == {"p-0": "t1"} and party.running() == {"p-0": "run t1"}


async def test_both_have_their_places_again_after_a_restart(world: World, party: Party) -> None:
    await up(world, party, **WORKERS)
    await a_task(world, "t0")
    for name in ("c1", "t1", "c2", "t2"):
        await (a_task(world, name) if name[0] == "t" else claim(world, name, waitSeconds=1000))
        await world.pass_time(1, step=0.25)
    order: list[str] = []
    for _ in range(4):
        await party.restart()
        [who] = (await held(world)).values()
        if who.startswith("t"):
            party.finish("p-0")
        else:
            await release(world, who)
        await world.rest()
        order += (await held(world)).values()
    assert order == ["c1", "t1", "c2", "t2"]


async def test_a_worker_that_cannot_be_given_back_at_once_is_given_back_in_the_end(world: World, party: Party) -> None:
    await up(world, party, reset="Keep", **WORKERS)
    for name in ("t1", "t2"):
        await a_task(world, name)
        party.racing.failures = [ApiError(409, "Conflict", "somebody was faster") for _ in range(2)]
        party.finish("p-0")
        await settles(world, lambda: is_free(world))
    await claim(world, "c")
    assert (await status(world, "c")).phase == "Bound"


@pytest.mark.parametrize("restarts", [True, False])
async def test_a_claim_gets_no_worker_before_the_end_of_its_last_task_is_written(
    world: World, party: Party, monkeypatch: pytest.MonkeyPatch, restarts: bool
) -> None:
    """Else a server that is killed in between would find a task that runs nowhere, and run it again."""
    is_full = True

    put = party.runtime.archive.put

    async def put_if_there_is_room(*kept: Any) -> None:
        if is_full:
            raise OSError(errno.ENOSPC, "no space left on device")
        await put(*kept)

    monkeypatch.setattr(party.runtime.archive, "put", put_if_there_is_room)
    await up(world, party, reset="Keep", **WORKERS)
    await a_task(world, "t1")
    await claim(world, "c1", waitSeconds=1000)
    party.finish("p-0", result=json.dumps("x" * 5000))
    await world.pass_time(3, step=0.5)
    assert await held(world) == {"p-0": "t1"} and (await status(world, "c1")).phase == "Waiting"
    is_full = False
    if restarts:
        await party.restart()
    await world.pass_time(3, step=0.5)
    task = (await world.get("Task", "t1")).status
    assert (task.phase, task.losses or 0, len(party.begun)) == ("Succeeded", 0, 1)
    assert await held(world) == {"p-0": "c1"} and (await status(world, "c1")).phase == "Bound"


@pytest.mark.parametrize("restarts", [True, False])
async def test_an_outcome_that_nobody_acknowledged_does_not_keep_a_claim_from_its_worker(
    world: World, party: Party, monkeypatch: pytest.MonkeyPatch, restarts: bool
) -> None:
    """A leader that ends after the end of a task is written, and before its runner hears that, leaves one behind."""
    monkeypatch.setattr(Racing, "registry", None)
    await up(world, party, reset="Keep", **WORKERS)
    await claim(world, "c1")
    subject = party.subject("p-0")
    left = Outcome(f"{new_uid()}.1", "Succeeded", 0.0, 1.0)
    party.pending[subject] = {left.id: left}
    await (party.restart() if restarts else world.rest())
    if not restarts:
        party.reconnect()
    await world.pass_time(1, step=0.25)
    assert party.outcomes(subject) == [] and await held(world) == {"p-0": "c1"}
    await release(world, "c1")
    await world.pass_time(5, step=1)
    await a_task(world, "t1")
    await world.pass_time(1, step=0.25)
    assert party.running() == {"p-0": "run t1"}


async def is_free(world: World) -> bool:
    return await held(world) == {}


async def test_a_claim_of_a_worker_that_a_task_has_alone_is_not_served_from_it(world: World, party: Party) -> None:
    await up(world, party, 0)
    await world.create("Task", "p", {"command": ["run", "p"], "worker": {"type": "shell"}})
    await claim(world, "a", waitSeconds=10)
    await world.pass_time(11, step=1)
    assert (await status(world, "a")).reason == "WaitTimeout" and "run p" in party.running().values()
