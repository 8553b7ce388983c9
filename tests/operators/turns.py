"""Two operators that run one site by turns, clients that never rest, and what all of them left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from rota.api import Claim, Instance, Task
from rota.client import Cache, Client, Update
from rota.server.home import Home
from tests.operators.processes import Operator, holder
from tests.server.live import ROTA, die_with_parent
from tests.until import until_async
from tests.workers.farm import runners_of

API = "rota.dev/v1alpha1"
HAND_OVER_SECONDS_MAX = 40.0
END_SECONDS_MAX = 120.0
"""Generous, for busy machines; nothing waits for them to pass."""
LIVE_MAX = 24
"""With so many tasks that are not over, no more come."""
CLAIM_LEASE_SECONDS = 300
LOST = ("InstanceCrashed", "InstanceLost")
"""The reasons of claims whose instance was killed."""
POOLS = {"solo": 1, "crew": 3}
"""Instances of each. On the one of `solo`, what runs after what is the order of the queue itself."""


class RunningProcess(Operator):
    """An operator with a runtime, which may be killed, stopped, continued and started again."""

    def __init__(self, kubeconfig: Path, site: Path, log: Path) -> None:
        self._site = site
        super().__init__(kubeconfig, log)

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.operators.running_operator", str(self._kubeconfig), str(self._site)],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )


class Held(NamedTuple):
    """A claim, for as long as its client relied on it."""

    instance: str
    since: int
    until: int
    claim: str


class Line(NamedTuple):
    """A line that an attempt of a task wrote about itself."""

    what: str
    attempt: str
    instance: str
    at: int
    task: str


class Change(NamedTuple):
    """A state of an object, at the revision at which it was stored."""

    revision: int
    kind: str
    name: str
    obj: Any


class Turns:
    """A server without controllers, a site with two operators, and their clients."""

    def __init__(self, client: Client, site: Path, kubeconfigs: list[Path], seed: int) -> None:
        self.chance = random.Random(seed)
        self.client = client
        self.site = site
        self.effects = site.parent / "effects"
        Home(site).prepare()
        self.operators = [
            RunningProcess(path, site, site.parent / f"operator-{number}.log")
            for number, path in enumerate(kubeconfigs)
        ]
        self.submitted: dict[str, list[str]] = {}
        """The names of tasks in the order in which they came, by pool and holder."""
        self.cancelled: set[str] = set()
        self.held: list[Held] = []
        self.done: Counter[str] = Counter()
        """The acts on operators and workers."""
        self.history: list[Change] = []
        self._tasks: Cache[Task] | None = None
        self._claims: Cache[Claim] | None = None
        self._instances: Cache[Instance] | None = None
        self._is_over = False
        self._numbers = iter(range(1_000_000))

    # Those who look.

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        def note(kind: str) -> Callable[[Update[Any]], None]:
            def noted(update: Update[Any]) -> None:
                if update.new is not None:
                    meta = update.new.metadata
                    self.history.append(Change(int(meta.resource_version), kind, meta.name, update.new))

            return noted

        client = self.client
        async with (
            Cache(client, Task) as self._tasks,
            Cache(client, Claim) as self._claims,
            Cache(client, Instance) as self._instances,
        ):
            for cache in (self._tasks, self._claims, self._instances):
                cache.subscribe(note(cache._type.__name__))
            yield

    def tasks(self) -> list[Task]:
        assert self._tasks is not None
        return list(self._tasks.list())

    def instances(self) -> list[Instance]:
        assert self._instances is not None
        return list(self._instances.list())

    def told(self) -> str:
        said = [one.said()[-6000:] for one in self.operators]
        stuck = [str(one) for one in self.tasks() if not one.over()][:10]
        assert self._claims is not None
        claims = [str(one) for one in self._claims.list() if not one.over()][:10]
        return "\n\n".join([*said, *stuck, *claims, *map(str, self.instances())])

    async def until(self, so: Callable[[], Awaitable[bool]], seconds: float = END_SECONDS_MAX) -> None:
        await until_async(so, self.told, seconds=seconds)

    # Clients.

    async def begin(self) -> None:
        for name, replicas in POOLS.items():
            spec = {"replicas": replicas, "reset": "Keep", "worker": {"type": "shell", "isolation": "none"}}
            await self.client.create(_object("WorkerPool", name, spec))

        async def all_there() -> bool:
            return len(self.instances()) == sum(POOLS.values()) and all(map(is_idle, self.instances()))

        await self.until(all_there)

    async def submit(self) -> None:
        """Send tasks, each when the one before is stored, until it is over."""
        while not self._is_over:
            if sum(not one.over() for one in self.tasks()) >= LIVE_MAX:
                await asyncio.sleep(0.02)
                continue
            pool, who = self.chance.choice(("solo", "solo", "crew")), self.chance.choice("xy")
            # Numbers without leading zeros: the order of names is not the order in which they came.
            name, seconds = f"t-{next(self._numbers)}", self.chance.choice((0, 0, 0, 0.02, 0.2))
            spec = {
                "workerPoolRef": {"name": pool},
                "holder": who,
                "command": ["sh", "-c", self._script(seconds)],
                "retry": {"limit": 0, "reasons": ["WorkerLost"]},
            }
            await self.client.create(_object("Task", name, spec))
            self.submitted.setdefault(f"{pool}/{who}", []).append(name)
            if self.chance.random() < 0.05:
                self.cancelled.add(name)
                await self.client.patch(Task, name, {"spec": {"cancel": True}}, namespace="default")

    def _script(self, seconds: float) -> str:
        def line(what: str) -> str:
            said = f"{what} $ROTA_ATTEMPT ${{PWD}} $(date +%s%N) $ROTA_TASK"
            return f'echo "{said}" >> {self.effects}'

        return f"{line('begin')}; sleep {seconds}; {line('end')}"

    async def claim(self, number: int) -> None:
        """Claim an instance, rely on it for a moment, give it back, again and again."""
        while not self._is_over:
            name = f"c-{number}-{next(self._numbers)}"
            pool = self.chance.choice(("solo", "crew", "crew"))
            spec = {"poolRef": {"name": pool}, "leaseSeconds": CLAIM_LEASE_SECONDS, "waitSeconds": 600}
            await self.client.create(_object("Claim", name, {**spec, "holder": self.chance.choice("xyz")}))
            if self.chance.random() < 0.2:
                # Given up at any instant, also while an instance is just being given to it.
                await asyncio.sleep(self.chance.random() * 0.1)
            else:
                await self.until(lambda name=name: self._is_bound(name))  # type: ignore[misc]
                since, found = time.time_ns(), await self.client.get(Claim, name, namespace="default")
                assert self._is_well(found), found
                await asyncio.sleep(self.chance.random() * 0.1)
                until, after = time.time_ns(), await self.client.get(Claim, name, namespace="default")
                assert self._is_well(after), after
                if found.status is not None and after.status is not None and after.status.phase == "Bound":
                    self.held.append(Held(found.status.instance_name or "", since, until, name))
            await self.client.patch(Claim, name, {"spec": {"release": True}}, namespace="default")

    async def _is_bound(self, name: str) -> bool:
        assert self._claims is not None
        found = self._claims.get(name, "default")
        if found is None or found.status is None:
            return False
        assert not found.over() or self._is_well(found), found
        return found.over() or found.status.phase == "Bound"

    def _is_well(self, claim: Claim) -> bool:
        """Return whether a claim has its instance, or has lost it to a kill."""
        status = claim.status
        assert status is not None
        return status.phase == "Bound" or (bool(self.done["worker"]) and status.reason in LOST)

    # What is done to them.

    async def leader(self) -> RunningProcess | None:
        now = await holder(self.client)
        return next((one for one in self.operators if one.leads(now)), None)

    async def led(self) -> RunningProcess:
        """The one that leads, as soon as there is one."""

        async def is_led() -> bool:
            return await self.leader() is not None

        await self.until(is_led, HAND_OVER_SECONDS_MAX)
        found = await self.leader()
        assert found is not None
        return found

    async def progress(self) -> None:
        """Let something be done: a drawn number of tasks, with the one that leads."""
        wanted = self.count_over() + self.chance.randint(1, 12)

        async def enough() -> bool:
            return self.count_over() >= wanted

        await self.until(enough)
        # At any instant of what follows the end of that one.
        await asyncio.sleep(self.chance.random() * 0.05)

    def count_over(self) -> int:
        return sum(one.over() for one in self.tasks())

    async def kill_leader(self) -> None:
        first = await self.led()
        await asyncio.to_thread(first.kill)
        self.done["killed"] += 1
        await self._another_than(first)
        first.start()

    async def stop_leader(self) -> None:
        """It sleeps past its lease, and goes on when the other one leads."""
        first = await self.led()
        first.send(signal.SIGSTOP)
        self.done["stopped"] += 1
        try:
            await self._another_than(first)
            await asyncio.sleep(self.chance.random())
        finally:
            first.send(signal.SIGCONT)

    async def pause_leader(self) -> None:
        """It sleeps for less than its lease, or for hardly more."""
        first = await self.led()
        first.send(signal.SIGSTOP)
        self.done["paused"] += 1
        try:
            await asyncio.sleep(self.chance.uniform(0.1, 3.5))
        finally:
            first.send(signal.SIGCONT)

    async def end_leader(self) -> None:
        first = await self.led()
        first.send(signal.SIGTERM)
        self.done["ended"] += 1
        assert await asyncio.to_thread(first.process.wait, 30) == 0, first.said()
        first.start()

    async def kill_worker(self) -> None:
        """The runner of an instance is killed, whoever leads and whatever runs there."""
        found = runners_of(self.site)
        if found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.chance.choice([pid for _, pid in sorted(found.items())]), signal.SIGKILL)
                self.done["worker"] += 1

    async def kill_worker_and_leader(self) -> None:
        """A runner is killed while nobody leads."""
        first = await self.led()
        await asyncio.to_thread(first.kill)
        self.done["killed"] += 1
        await self.kill_worker()
        await self._another_than(first)
        first.start()

    async def _another_than(self, first: RunningProcess) -> None:
        async def another() -> bool:
            return await self.leader() not in (None, first)

        await self.until(another, HAND_OVER_SECONDS_MAX)

    # The end.

    async def settle(self, clients: list[asyncio.Task[None]]) -> None:
        self._is_over = True
        for one in clients:
            await one

        async def all_over() -> bool:
            assert self._claims is not None
            return all(one.over() for one in (*self.tasks(), *self._claims.list()))

        async def all_idle() -> bool:
            return len(self.instances()) == sum(POOLS.values()) and all(map(is_idle, self.instances()))

        await self.until(all_over)
        await self.until(all_idle)

    async def end(self) -> None:
        for one in self.operators:
            if one.process.poll() is None:
                one.send(signal.SIGCONT)
                one.send(signal.SIGTERM)
        for one in self.operators:
            code = await asyncio.to_thread(one.process.wait, 30)
            assert code in (0, -signal.SIGKILL), one.said()

    def close(self) -> None:
        for one in self.operators:
            if one.process.poll() is None:
                one.kill()
        stop = (ROTA, "stop", "--grace", "0", "--home", str(self.site))
        subprocess.run(stop, capture_output=True, timeout=60, check=False)

    def lines(self) -> list[Line]:
        """Return the lines that tasks wrote, in the order in which they did."""
        found = []
        for line in self.effects.read_text().splitlines():
            what, attempt, folder, at, task = line.split()
            instance = next(step for step in Path(folder).parts if step.startswith(tuple(f"{one}-" for one in POOLS)))
            found.append(Line(what, attempt, instance, int(at), task))
        return found


def is_idle(instance: Instance) -> bool:
    status = instance.status
    return instance.spec.assignment is None and status is not None and status.phase == "Idle"


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec}
