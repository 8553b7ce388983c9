"""Candidates that are stopped and killed at random, on a network that loses, delays and cuts: never two that lead."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rota import ApiError, Client
from rota.api import Kind, Lease
from rota.client import LocalBackend
from rota.client.backend import Batches, Written
from rota.engine import VirtualClock
from rota.engine.leadership import LEASE_SECONDS, Leadership
from rota.registry import Answer, Operation, Registry, WatchOptions
from rota.store import MemoryStore
from tests.amount import amount

NAME = "rota-controllers"
STEPS = 120
STEP_SECONDS_MAX = 0.8
TURNS_MAX = 40
"""Turns of the loop in a step: sometimes too few for what could be done, as on a busy machine."""
DELAY_SECONDS_MAX = 4.0
RATE_ERROR_MAX = 0.05
"""The share by which a clock may go faster or slower than another."""
CALM_SECONDS = 3 * LEASE_SECONDS
CALM_STEP_SECONDS = 0.1


class Process:
    """Time as one process sees it: from another start, faster or slower, and not at all while it is stopped."""

    def __init__(self, world: VirtualClock, random: Random) -> None:
        self._world = world
        self._rate = 1 + random.uniform(-RATE_ERROR_MAX, RATE_ERROR_MAX)
        self._start = random.uniform(0, 1e6)
        self._wall = random.uniform(0, 2e9)
        self._going = asyncio.Event()
        self._due: list[Callable[[], None]] = []
        self.go()

    @property
    def stopped(self) -> bool:
        return not self._going.is_set()

    def stop(self) -> None:
        self._going.clear()

    def go(self) -> None:
        self._going.set()
        due, self._due = self._due, []
        for callback in due:
            callback()

    async def goes(self) -> None:
        await self._going.wait()

    can_be_set = True

    def now(self) -> float:
        return self._start + self._world.now() * self._rate

    def time(self) -> float:
        return self._wall + self._world.now()

    def call_at(self, when: float, callback: Callable[[], None]) -> Call:
        call = Call(callback)
        self._world.call_at((when - self._start) / self._rate, lambda: self._fire(call))
        return call

    def _fire(self, call: Call) -> None:
        if self.stopped:
            self._due.append(call)
        else:
            call()


class Call:
    """A call that is to come, unless it is cancelled."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback: Callable[[], None] | None = callback

    def __call__(self) -> None:
        if self._callback is not None:
            self._callback()

    def cancel(self) -> None:
        self._callback = None


class Network(LocalBackend):
    """A network that delivers what a process has sent, whatever becomes of the process."""

    def __init__(self, registry: Registry, world: VirtualClock, process: Process, random: Random) -> None:
        super().__init__(registry)
        self._world, self._process, self._random = world, process, random
        self._under_way: set[asyncio.Task[Any]] = set()
        self.faulty = True
        self.dead = False

    async def _delay(self) -> None:
        arrived = asyncio.Event()
        seconds = self._random.uniform(0, DELAY_SECONDS_MAX) ** 2 / DELAY_SECONDS_MAX
        self._world.call_at(self._world.now() + seconds, arrived.set)
        await arrived.wait()

    async def _send(self, call: Callable[[], Awaitable[Any]]) -> Any:
        if self.dead:
            raise OSError("killed")
        task = asyncio.create_task(self._carry(call))
        self._under_way.add(task)
        task.add_done_callback(self._arrived)
        await asyncio.wait((task,))
        await self._process.goes()
        return task.result()

    def _arrived(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()

    async def _carry(self, call: Callable[[], Awaitable[Any]]) -> Any:
        fate = self._random.choices(
            ("fine", "refused", "busy", "late", "answer late", "answer lost"), (12, 1, 1, 2, 2, 2)
        )[0]
        if not self.faulty:
            fate = "fine"
        if fate == "refused":
            raise OSError("refused")
        if fate == "busy":
            raise ApiError(503, "ServiceUnavailable", "busy")
        if fate == "late":
            await self._delay()
        answer = await call()
        if fate == "answer late":
            await self._delay()
        if fate == "answer lost":
            raise OSError("cut")
        return answer

    async def get(self, kind: Kind, namespace: str, name: str, *, subresource: str = "") -> Answer:
        get = super().get
        answer: Answer = await self._send(lambda: get(kind, namespace, name))
        return answer

    async def write(self, operations: Sequence[Operation], *, atomic: bool = True) -> Written:
        write = super().write
        written: Written = await self._send(lambda: write(operations, atomic=atomic))
        return written

    def watch(self, kind: Kind, namespace: str, options: WatchOptions) -> Batches:
        return self._watch(super().watch(kind, namespace, options))

    async def _watch(self, batches: Any) -> Batches:
        try:
            async for batch in batches:
                if self.faulty and self._random.random() < 0.2:
                    await self._delay()
                await self._process.goes()
                if self.dead or (self.faulty and self._random.random() < 0.1):
                    raise OSError("cut")
                yield batch
        finally:
            await batches.aclose()


class Candidate:
    """A process with its network, and what it does when it leads."""

    def __init__(self, registry: Registry, world: VirtualClock, identity: str, random: Random) -> None:
        self.identity = identity
        self.process = Process(world, random)
        self.network = Network(registry, world, self.process, random)
        self.leadership = Leadership(Client(self.network), identity, clock=self.process)
        self.leads = False
        self.task = asyncio.create_task(self.leadership.run(self._lead))

    async def _lead(self) -> None:
        assert not self.leads, "led twice at once"
        self.leads = True
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.leads = False


class World:
    """Three candidates for one lease."""

    def __init__(self, registry: Registry, random: Random) -> None:
        self.clock = VirtualClock(1_800_000_000.0)
        self.random = random
        self._registry = registry
        self._client = Client.local(registry)
        self._kills = random.random() < 0.5
        self._deleted_at = self.clock.now()
        self.living = [Candidate(registry, self.clock, identity, random) for identity in "abc"]
        self.leaving: list[Candidate] = []
        self.dead: list[Candidate] = []

    def check(self) -> list[Candidate]:
        leaders = [candidate for candidate in (*self.living, *self.leaving) if candidate.leadership.held]
        assert len(leaders) <= 1, f"{[leader.identity for leader in leaders]} lead at {self.clock.now():.2f}"
        for candidate in self.living:
            if candidate.task.done():
                candidate.task.result()
        return leaders

    async def step(self, seconds: float, turns: int) -> None:
        self.clock.advance(seconds)
        self.check()
        for _ in range(turns):
            await asyncio.sleep(0)
            self.check()

    async def act(self) -> None:
        """Something happens to a process, or to the lease."""
        candidate = self.random.choice(self.living)
        act = self.random.choice(("stop", "go", "go", "kill", "label", "delete", "leave"))
        if act == "stop":
            candidate.process.stop()
        elif act == "go":
            candidate.process.go()
        elif act == "kill" and self._kills:
            self.kill(candidate)
        elif act == "leave" and self._kills:
            self.leave(candidate)
        elif act == "label":
            await self._write(lambda: self._client.patch(Lease, NAME, {"metadata": {"labels": {"at": self._now()}}}))
        elif act == "delete" and not self._kills and self._all_know():
            self._deleted_at = self.clock.now()
            await self._write(lambda: self._client.delete(Lease, NAME))

    def _all_know(self) -> bool:
        """Nobody would take a deleted lease for one that never was: nobody is new, and nobody's creation under way."""
        long_ago = self.clock.now() - self._deleted_at > CALM_SECONDS
        return long_ago and all(candidate.leadership.holder for candidate in self.living)

    def _now(self) -> str:
        return str(int(self.clock.now() * 1000))

    async def _write(self, write: Callable[[], Awaitable[Any]]) -> None:
        try:
            await write()
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    def kill(self, candidate: Candidate) -> None:
        """It is gone, and comes back under its name."""
        candidate.network.dead = True
        candidate.process.stop()
        self.dead.append(candidate)
        self.replace(candidate, candidate.identity)

    def leave(self, candidate: Candidate) -> None:
        """It ends in good order, as far as it can, and another takes its place."""
        if not candidate.process.stopped:
            candidate.task.cancel()
            self.leaving.append(candidate)
            self.replace(candidate, candidate.identity + "'")

    def replace(self, candidate: Candidate, identity: str) -> None:
        self.living.remove(candidate)
        self.living.append(Candidate(self._registry, self.clock, identity, self.random))

    async def calm(self) -> None:
        """Everything is well again."""
        for candidate in self.living:
            candidate.process.go()
            candidate.network.faulty = False
        for _ in range(round(CALM_SECONDS / CALM_STEP_SECONDS)):
            await self.step(CALM_STEP_SECONDS, TURNS_MAX)

    async def end(self) -> None:
        everyone = (*self.living, *self.leaving, *self.dead)
        for candidate in everyone:
            candidate.network.dead = True
            candidate.process.go()
            candidate.task.cancel()
        await asyncio.gather(*(candidate.task for candidate in everyone), return_exceptions=True)


async def simulate(seed: int) -> None:
    random = Random(seed)
    store = MemoryStore()
    registry = Registry(store)
    await registry.start()
    world = World(registry, random)
    try:
        for _ in range(STEPS):
            await world.step(random.uniform(0, STEP_SECONDS_MAX), random.randrange(1, TURNS_MAX))
            if random.random() < 0.15:
                await world.act()
        await world.calm()
        leaders = world.check()
        assert len(leaders) == 1 and [each.leads for each in world.living].count(True) == 1 and leaders[0].leads
    finally:
        await world.end()
        await registry.stop()
        await store.close()


@settings(max_examples=amount(12, 200), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32))
def test_whatever_happens_there_are_never_two_leaders_and_in_the_end_there_is_one(seed: int) -> None:
    asyncio.run(simulate(seed))
