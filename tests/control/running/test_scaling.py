"""Pools that scale by demand, on a runtime in memory and on virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from rota.api import Instance, WorkerPool
from rota.control.holds.members import PoolKey
from rota.control.instance import Instances
from rota.control.making.local import LocalMaker
from rota.control.pool import COUNTS_SECONDS, Pools
from rota.registry import ApiError
from tests.control.running.fake import FakeRuntime
from tests.engine_loop.loops import World

WINDOW = 300.0
LATE = WINDOW / 10
HELD = {"id": "h", "kind": "Task", "name": "t", "uid": "u", "since": "2024-01-01T00:00:00Z"}


class Waiters:
    """The requests that wait for the instances of a pool, as the ledger reports them."""

    def __init__(self) -> None:
        self.number = 0
        self._heard: Any = None

    def on_demand(self, heard: Any) -> Any:
        self._heard = heard
        return lambda: None

    def prepare(self, *_: object) -> None:
        """It knows all there is to know."""

    def come(self, number: int) -> None:
        """So many wait from now on."""
        self.number = number
        self._heard(PoolKey("default", "p"))

    def waiting(self, pool: WorkerPool) -> int:
        return self.number

    def completed(self, pool: WorkerPool) -> int:
        return 0

    def counted(self, pool: WorkerPool, number: int) -> None: ...


class Scaled:
    """A pool, what runs of it, and who wants it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.runtime = FakeRuntime(world.clock)
        self.waiters = Waiters()

    async def up(self, least: int = 0, most: int = 6, idle: int = 0, command: str = "serve") -> None:
        template = {"containers": [{"name": "main", "command": [command]}]}
        scale = {"min": least, "max": most, "targetIdle": idle, "scaleDownSeconds": int(WINDOW)}
        await self.world.create("WorkerPool", "p", {"template": template, "scale": scale})
        await self.serve()

    async def serve(self) -> None:
        executor: Any = self.waiters
        self.pools = Pools(self.runtime, executor)
        await self.world.serve(self.pools, Instances(LocalMaker(self.runtime)))

    async def wait(self, number: int) -> None:
        self.waiters.come(number)
        await self.world.rest()

    async def hold(self, *names: str) -> None:
        """Bind waiting requests to these instances. That they wait no more is known before that they hold something."""
        self.waiters.come(max(0, self.waiters.number - len(names)))
        for name in names:
            await self.world.client.patch(Instance, name, {"spec": {"assignment": HELD}})
        await self.world.rest()

    async def release(self, *names: str) -> None:
        for name in names:
            await self.world.client.patch(Instance, name, {"spec": {"assignment": None}})
        await self.world.rest()

    @property
    def running(self) -> list[str]:
        return sorted(one.name for one, runs in self.runtime.alive.items() if runs["main"].exit is None)

    async def status(self) -> Any:
        return (await self.world.get("WorkerPool", "p")).status


@pytest.fixture
async def pool(world: World) -> Scaled:
    return Scaled(world)


async def test_it_begins_with_the_least_or_with_what_is_kept_idle(world: World, pool: Scaled) -> None:
    await pool.up(least=1, idle=2)
    assert pool.running == ["p-0", "p-1"]
    status = await pool.status()
    assert (status.phase, status.replicas, status.idle) == ("Ready", 2, 2)


async def test_it_has_none_when_none_is_wanted(world: World, pool: Scaled) -> None:
    await pool.up()
    assert pool.running == [] and (await pool.status()).phase == "Ready"


async def test_it_grows_at_once_by_all_that_is_lacking(world: World, pool: Scaled) -> None:
    await pool.up(least=1)
    await pool.wait(4)
    assert pool.running == ["p-0", "p-1", "p-2", "p-3"] and world.clock.now() == 0


async def test_it_grows_while_its_counts_are_not_due_yet(world: World, pool: Scaled) -> None:
    await pool.up(least=2)
    await pool.hold("p-0")
    await pool.hold("p-1")
    await pool.wait(1)
    assert pool.running == ["p-0", "p-1", "p-2"]


async def test_it_keeps_some_idle_ahead_of_the_demand(world: World, pool: Scaled) -> None:
    await pool.up(idle=1)
    await pool.hold("p-0")
    assert pool.running == ["p-0", "p-1"] and world.clock.now() == 0


async def test_it_stops_at_the_most_and_says_so(world: World, pool: Scaled) -> None:
    await pool.up(most=2)
    await pool.wait(9)
    assert pool.running == ["p-0", "p-1"]
    limited = (await pool.status()).condition("ScalingLimited")
    assert (limited.status, limited.reason) == ("True", "AtMax") and "which is 2" in limited.message
    await pool.wait(0)
    await world.pass_time(2 * COUNTS_SECONDS, step=COUNTS_SECONDS)
    assert (await pool.status()).condition("ScalingLimited").status == "False"


async def test_what_is_idle_for_long_enough_goes_in_one_batch(world: World, pool: Scaled) -> None:
    await pool.up(least=1)
    await pool.wait(4)
    await pool.hold("p-0", "p-1", "p-2", "p-3")
    await pool.release("p-0", "p-1", "p-2", "p-3")
    await world.pass_time(WINDOW - 1, step=1)
    assert len(pool.running) == 4
    await world.pass_time(LATE + 3, step=1)
    assert pool.running == ["p-0"] and pool.runtime.stopped == ["p-3", "p-2", "p-1"]
    await world.pass_time(4 * WINDOW, step=10)
    assert pool.running == ["p-0"] and len(pool.runtime.orders) == 4


async def test_whoever_works_stays_and_the_idle_go_around_it(world: World, pool: Scaled) -> None:
    await pool.up()
    await pool.wait(4)
    await pool.hold("p-0", "p-1", "p-2", "p-3")
    await pool.release("p-0", "p-1", "p-3")
    await world.pass_time(WINDOW + LATE + 3, step=1)
    assert pool.running == ["p-2"]
    await pool.wait(1)
    assert pool.running == ["p-0", "p-2"]


async def test_a_hold_within_the_time_protects_what_it_had(world: World, pool: Scaled) -> None:
    """It lasts for less than the counts of a pool are old."""
    await pool.up()
    await pool.wait(3)
    await pool.hold("p-0", "p-1", "p-2")
    await pool.release("p-0", "p-1", "p-2")
    for _ in range(4):
        await world.pass_time(WINDOW / 2, step=10)
        await pool.hold("p-0", "p-1")
        await pool.release("p-0", "p-1")
    assert pool.running == ["p-0", "p-1"]


async def test_who_waits_while_it_would_shrink_keeps_it_from_that(world: World, pool: Scaled) -> None:
    await pool.up()
    await pool.wait(3)
    await pool.hold("p-0", "p-1", "p-2")
    await pool.release("p-0", "p-1", "p-2")
    await world.pass_time(WINDOW - 1, step=10)
    await pool.wait(3)
    await world.pass_time(WINDOW, step=10)
    assert len(pool.running) == 3 and pool.runtime.stopped == []


async def test_a_new_process_waits_its_whole_time_again(world: World, pool: Scaled) -> None:
    await pool.up()
    await pool.wait(3)
    await pool.wait(0)
    await world.pass_time(WINDOW - 1, step=10)
    await world.stop()
    await pool.serve()
    await world.pass_time(WINDOW - 1, step=10)
    assert len(pool.running) == 3
    await world.pass_time(LATE + 3, step=1)
    assert pool.running == []


async def test_who_sees_to_it_again_after_another_did_knows_nothing_of_before(world: World, pool: Scaled) -> None:
    await pool.up()
    await pool.wait(3)
    await pool.wait(0)
    await world.pass_time(WINDOW - 1, step=10)
    await world.stop()
    await world.serve(pool.pools, Instances(LocalMaker(pool.runtime)))
    await world.pass_time(WINDOW - 1, step=10)
    assert len(pool.running) == 3


async def test_what_keeps_dying_does_not_make_it_grow_for_ever(world: World, pool: Scaled) -> None:
    pool.runtime.dies_at_once = "bad"
    await pool.up(most=50, idle=1, command="bad")
    await pool.wait(3)
    await world.pass_time(120, step=5)
    assert len((await world.client.list(Instance)).items) == 4
    assert (await pool.status()).phase == "Degraded"


async def test_it_is_ready_while_it_grows_and_its_phase_tells(world: World, pool: Scaled) -> None:
    await pool.up(least=1)
    await world.stop()
    await world.serve(pool.pools)  # Nobody brings up what it makes.
    await pool.wait(3)
    status = await pool.status()
    assert (status.phase, status.condition("Ready").status, status.replicas) == ("Scaling", "True", 3)


async def test_how_many_wait_is_told_of_any_pool(world: World, pool: Scaled) -> None:
    await world.create("WorkerPool", "p", {"template": {"containers": [{"name": "main", "command": ["serve"]}]}})
    await pool.serve()
    await pool.wait(2)
    await world.pass_time(2 * COUNTS_SECONDS, step=COUNTS_SECONDS)
    assert (await pool.status()).waiting == 2 and pool.running == ["p-0"]


async def test_a_number_instead_of_bounds_holds_at_once(world: World, pool: Scaled) -> None:
    await pool.up(least=1)
    await pool.wait(4)
    await world.client.patch(WorkerPool, "p", {"spec": {"scale": None, "replicas": 2}})
    await world.rest()
    status = await pool.status()
    assert pool.running == ["p-0", "p-1"] and status.condition("ScalingLimited") is None


async def test_a_pool_that_scales_by_demand_takes_no_number(world: World, pool: Scaled) -> None:
    await pool.up(least=1)
    with pytest.raises(ApiError, match="replicas and scale exclude each other"):
        await world.client.set_scale(WorkerPool.api, "p", 3)
    await world.rest()
    assert pool.running == ["p-0"]
