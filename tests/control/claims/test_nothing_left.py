"""Tasks, claims and pools that come and go: afterwards no table of a controller, or of the engine, has grown."""

from __future__ import annotations

import pytest

from rota.server.tables import Tables
from tests.control.claims.party import WORKERS, Party, claim, release, up
from tests.engine_loop.loops import World

MANY = 12
BOUNDED = (
    "control.holds.executor.Executor.paces",
    "pools.waiting.",
    "pools.ordered.",
    "engine.timers.",
    "engine.recorder.",
)
"""Tables that keep a few that are over: each has a bound of its own, with a test."""
OF_WORLD = ("engine.clock.", "client.cache.", "asyncio.", "store.")
"""Tables of what is no controller."""


def sizes(world: World) -> dict[str, int]:
    """Return the sizes of the tables of all controllers and of the engine that have any entries."""
    found = Tables()
    found.add(world.loop)
    return {
        name: size
        for name, size in found.sizes().items()
        if size and not name.startswith(BOUNDED + OF_WORLD) and not name.endswith("()")
    }


async def a_task(world: World, name: str) -> None:
    await world.create("Task", name, {"command": ["run"], "workerPoolRef": {"name": "p"}})
    await world.rest()


async def tasks(world: World, party: Party, number: int) -> None:
    """One that ends, one that is deleted while it runs, and one that is deleted while it waits."""
    for name in ("ends", "runs", "waits"):
        await a_task(world, f"{name}-{number}")
    await world.delete("Task", f"waits-{number}")
    [worker] = party.running()
    party.finish(worker)
    await world.rest()
    await world.delete("Task", f"runs-{number}")
    await world.delete("Task", f"ends-{number}")
    await world.pass_time(60, step=5)


async def claims(world: World, party: Party, number: int) -> None:
    """One that is released, one that is deleted while it is bound, and one that is deleted while it waits."""
    for name in ("released", "bound", "waits"):
        await claim(world, f"{name}-{number}")
    await world.delete("Claim", f"waits-{number}")
    await release(world, f"released-{number}")
    await world.pass_time(60, step=5)
    await world.delete("Claim", f"bound-{number}")
    await world.delete("Claim", f"released-{number}")
    await world.pass_time(60, step=5)


async def pools(world: World, party: Party, number: int) -> None:
    """One that is used, and deleted with what waits for it."""
    name = f"pool-{number}"
    await world.create("WorkerPool", name, {**WORKERS, "replicas": 1})
    await world.pass_time(60, step=5)
    await world.create("Task", name, {"command": ["run"], "workerPoolRef": {"name": name}})
    await world.create("Claim", name, {"poolRef": {"name": name}})
    await world.rest()
    await world.delete("WorkerPool", name)
    await world.pass_time(60, step=5)
    await world.delete("Task", name)
    await world.delete("Claim", name)
    await world.pass_time(60, step=5)


@pytest.mark.parametrize("come_and_go", [tasks, claims, pools])
async def test_no_table_grows_by_what_comes_and_goes(world: World, party: Party, come_and_go: object) -> None:
    await up(world, party, **WORKERS)
    assert callable(come_and_go)
    await come_and_go(world, party, 0)
    before = sizes(world)
    for number in range(1, MANY):
        await come_and_go(world, party, number)
    now = sizes(world)
    assert {name: (before.get(name, 0), size) for name, size in now.items() if size > before.get(name, 0)} == {}


@pytest.mark.parametrize("kind", ["Task", "Claim"])
async def test_an_instance_that_goes_while_it_is_given_away_is_nobodys(world: World, party: Party, kind: str) -> None:
    await up(world, party, **WORKERS)
    party.racing.is_slow = True
    await world.delete("WorkerPool", "p")
    spec = {"command": ["run"], "workerPoolRef": {"name": "p"}} if kind == "Task" else {"poolRef": {"name": "p"}}
    await world.create(kind, "a", spec)
    await world.rest()
    party.racing.is_slow = False
    await world.pass_time(60, step=5)
    await world.delete(kind, "a")
    await world.pass_time(60, step=5)
    assert party.executor.members == {} and party.executor.ledgers == {}
