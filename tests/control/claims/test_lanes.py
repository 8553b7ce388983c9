"""Workers that are given to the tasks of their pool: several tasks at once, and the way in and out."""

from __future__ import annotations

import asyncio

import pytest

from rota.api import Instance, Task
from tests.control.claims.party import WORKERS, Party, claim, held, is_bound, up
from tests.engine_loop.loops import World


async def a_task(world: World, name: str, **spec: object) -> None:
    await world.create("Task", name, {"command": ["run", name], "workerPoolRef": {"name": "p"}, **spec})
    await world.rest()


async def phases(world: World) -> dict[str, str]:
    found = (await world.client.list(Task)).items
    return {one.metadata.name: (one.status.phase if one.status else None) or "" for one in found}


async def warm(world: World, party: Party, number: int = 3) -> None:
    """Have so many tasks run that it is known that they are short."""
    for i in range(number):
        await a_task(world, f"warm{i}")
        [worker] = party.running()
        party.finish(worker)
        await world.rest()


async def test_several_short_tasks_are_handed_to_a_worker_at_once(world: World, party: Party) -> None:
    await up(world, party, reset="Keep", **WORKERS)
    await warm(world, party)
    for name in "abc":
        await a_task(world, name)
    assert [await _phase(world, name) for name in "abc"] == ["Running"] * 3
    assert party.running() == {"p-0": "run a"}
    for _ in "abc":
        party.finish("p-0")
        await world.rest()
    assert set((await phases(world)).values()) == {"Succeeded"} and await held(world) == {}
    assert party.begun == list(dict.fromkeys(party.begun))


async def test_tasks_that_come_while_a_worker_changes_hands_are_handed_to_it_after_that(
    world: World, party: Party
) -> None:
    await up(world, party, reset="Keep", **WORKERS)
    await warm(world, party)
    party.racing.is_slow, party.racing.hand_overs = True, 0
    await asyncio.gather(*(a_task(world, name) for name in "abc"))
    assert [await _phase(world, name) for name in "abc"] == ["Running"] * 3, "none of them had to try again later"
    assert party.racing.hand_overs == 1, "the worker is given to the tasks of its pool once"
    for _ in "abc":
        party.finish("p-0")
        await world.rest()
    assert party.begun == list(dict.fromkeys(party.begun))


async def test_a_worker_that_is_made_clean_has_one_task_at_a_time(world: World, party: Party) -> None:
    await up(world, party, **WORKERS)
    await warm(world, party)
    for name in "ab":
        await a_task(world, name)
    assert await _phase(world, "a") == "Running" and await _phase(world, "b") != "Running"


async def test_nothing_stands_behind_a_task_that_runs_for_long(world: World, party: Party) -> None:
    await up(world, party, replicas=2, reset="Keep", **WORKERS)
    await warm(world, party)
    await a_task(world, "long")
    await a_task(world, "other")
    await a_task(world, "behind")
    [worker] = [name for name, what in party.running().items() if what == "run long"]
    [spare] = [name for name in ("p-0", "p-1") if name != worker]
    before = (await world.get("Task", "behind")).status.instance_name
    party.linger(worker)
    await world.rest()
    party.finish(spare)
    await world.rest()
    assert party.running() == {worker: "run long", spare: "run behind"}
    assert before in (worker, spare) and len(party.begun) == len(set(party.begun))


async def test_what_was_returned_is_handed_to_the_same_worker_again(world: World, party: Party) -> None:
    await up(world, party, reset="Keep", **WORKERS)
    await warm(world, party)
    await a_task(world, "long")
    await a_task(world, "behind")
    party.linger("p-0")
    await world.rest()
    assert await _phase(world, "behind") in ("Queued", "Waiting")
    party.finish("p-0")
    await world.rest()
    assert party.running() == {"p-0": "run behind"}


async def test_an_urgent_task_goes_before_what_was_handed_on(world: World, party: Party) -> None:
    await up(world, party, reset="Keep", **WORKERS)
    await warm(world, party)
    for i in range(10):
        await a_task(world, f"t{i}")
    await a_task(world, "urgent", priority=1)
    party.finish("p-0")
    await world.rest()
    running = await _phase(world, "urgent")
    for _ in range(10):
        party.finish("p-0")
        await world.rest()
    assert running == "Running" and set((await phases(world)).values()) == {"Succeeded"}


async def test_a_claim_gets_a_worker_that_tasks_stream_through(world: World, party: Party) -> None:
    await up(world, party, reset="Keep", **WORKERS)
    await warm(world, party)
    for i in range(4):
        await a_task(world, f"t{i}")
    await claim(world, "c", waitSeconds=1000)
    await a_task(world, "later")
    for _ in range(4):
        party.finish("p-0")
        await world.rest()
    assert await is_bound(world, "c") and await held(world) == {"p-0": "c"}
    assert await _phase(world, "later") != "Running"


async def test_a_cancelled_task_that_was_handed_on_does_not_begin(world: World, party: Party) -> None:
    await up(world, party, reset="Keep", **WORKERS)
    await warm(world, party)
    for name in "abc":
        await a_task(world, name)
    await world.patch("Task", "b", {"spec": {"cancel": True}})
    await world.rest()
    for _ in "ac":
        party.finish("p-0")
        await world.rest()
    assert {name: phase for name, phase in (await phases(world)).items() if name in "abc"} == {
        "a": "Succeeded",
        "b": "Cancelled",
        "c": "Succeeded",
    }


async def test_a_task_that_is_cancelled_while_it_is_taken_back_is_over(world: World, party: Party) -> None:
    await up(world, party, reset="Keep", **WORKERS)
    await warm(world, party)
    await a_task(world, "long")
    await a_task(world, "behind")
    party.linger("p-0")
    await world.patch("Task", "behind", {"spec": {"cancel": True}})
    await world.rest()
    assert await _phase(world, "behind") == "Cancelled"


async def test_a_task_that_is_cancelled_while_it_is_given_a_worker_is_over(world: World, party: Party) -> None:
    await up(world, party, reset="Keep", **WORKERS)
    party.racing.is_slow = True
    await world.create("Task", "a", {"command": ["run", "a"], "workerPoolRef": {"name": "p"}})
    await world.patch("Task", "a", {"spec": {"cancel": True}})
    await world.rest()
    party.racing.is_slow = False
    await world.pass_time(5, step=0.5)
    assert await _phase(world, "a") == "Cancelled" and await held(world) == {} and party.jobs == {}


async def test_what_was_handed_on_is_not_lost_with_the_server(world: World, party: Party) -> None:
    await up(world, party, reset="Keep", **WORKERS)
    await warm(world, party)
    for name in "abc":
        await a_task(world, name)
    await party.restart()
    for _ in "abc":
        party.finish("p-0")
        await world.rest()
    assert set((await phases(world)).values()) == {"Succeeded"} and len(party.begun) == len(set(party.begun))


async def test_what_was_handed_on_to_a_worker_that_dies_runs_elsewhere(world: World, party: Party) -> None:
    await up(world, party, reset="Keep", **WORKERS)
    await warm(world, party)
    for name in "abc":
        await a_task(world, name)
    await world.delete("Instance", "p-0")
    await world.pass_time(30, step=1)
    for _ in "abc":
        party.finish("p-0")
        await world.rest()
    assert set((await phases(world)).values()) == {"Succeeded"}


@pytest.mark.parametrize("reset", ["Keep", "Clean"])
async def test_a_worker_is_renamed_while_its_last_task_ends(world: World, party: Party, reset: str) -> None:
    await up(world, party, reset=reset, **WORKERS)
    await a_task(world, "a")
    await a_task(world, "b")
    party.finish("p-0")
    await world.rest()
    party.racing.is_slow = True
    party.linger("p-0")
    party.finish("p-0")
    await a_task(world, "c")
    party.racing.is_slow = False
    await world.pass_time(5, step=0.5)
    assert party.running() == {"p-0": "run c"} and await held(world) == {"p-0": "c"}


async def test_an_instance_names_the_task_that_runs_on_it_for_long(world: World, party: Party) -> None:
    await up(world, party, reset="Keep", **WORKERS)
    await a_task(world, "a")
    await a_task(world, "b")
    party.finish("p-0")
    await world.rest()
    party.linger("p-0")
    await world.rest()
    found: Instance = await world.get("Instance", "p-0")
    assert found.spec.assignment is not None and found.spec.assignment.name == "b"


async def test_a_forged_status_gives_a_task_no_worker_of_another_pool(world: World, party: Party) -> None:
    await up(world, party, reset="Keep", **WORKERS)
    await a_task(world, "a")
    await world.create("WorkerPool", "other", {**WORKERS, "replicas": 0})
    await world.create("Task", "b", {"command": ["run", "b"], "workerPoolRef": {"name": "other"}})
    await world.rest()
    worker = await world.get("Instance", "p-0")
    forged = {"phase": "Running", "instanceName": "p-0", "instanceUID": worker.metadata.uid}
    await world.client.patch(Task, "b", {"status": forged}, subresource="status")
    await world.rest()
    party.finish("p-0")
    await world.rest()
    assert party.running() == {} and all("b" not in one.argv for jobs in party.queued.values() for one in jobs)


async def _phase(world: World, name: str) -> str | None:
    status = (await world.get("Task", name)).status
    return status.phase if status is not None else None
