"""Claims and tasks on instances in memory, on virtual time: runners that hold and reset, and instances without one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from rota.api import Claim, Instance, ObjectMeta, Task
from rota.api.model import Ref
from rota.api.pool import ClaimSpec
from rota.client import Client, LocalBackend, Operation
from rota.client.backend import Written
from rota.control.claim import Claims
from rota.control.claims.counting import ClaimCounting
from rota.control.claims.holds import ClaimHolds
from rota.control.claims.lifecycle import ATTENDED
from rota.control.holds.executor import Executor
from rota.control.instance import Instances
from rota.control.making.local import LocalMaker
from rota.control.pool import Pools
from rota.control.task import Tasks
from rota.control.tasks.attempts import Attempts
from rota.control.tasks.jobs import job
from rota.engine.metrics import Metrics
from rota.registry import Answer, ApiError, Registry
from rota.registry.metadata import new_uid
from rota.runtime.archive import keep_result
from rota.runtime.interface import Subject
from rota.runtime.runner.jobs import Job
from rota.runtime.runner.messages import Configure, Hold, Release, ToRunner
from tests.control.running.fake import FakeRuntime
from tests.control.tasks.crew import Crew
from tests.engine_loop.loops import World
from tests.unchecked import stored
from tests.until import until_async

R = TypeVar("R")

PLAIN: dict[str, Any] = {"template": {"containers": [{"name": "main", "command": ["sleep"]}]}}
"""Instances that nothing can make as new."""
WORKERS: dict[str, Any] = {"worker": {"type": "shell"}}
"""Instances with a runner, which can."""
LINGER_TURNS = 10
WAIT_SECONDS = 60.0
STEP_SECONDS = 0.02
"""For what is looked at again a moment after a race was lost."""


class Racing(LocalBackend):
    """A server on which the writes of controllers to instances can be made to fail."""

    def __init__(self, registry: Registry) -> None:
        super().__init__(registry)
        self.failures: list[ApiError] = []
        """Errors of the next writes that bind an instance."""
        self.is_slow = False
        """If true, writes are answered some turns of the loop later."""
        self.hand_overs = 0
        """The number of writes of instances that were tried."""
        self.meanwhile: Callable[[], None] = lambda: None
        """Happens when an instance is written, and before whoever wrote it goes on."""

    async def write(self, operations: Sequence[Operation], *, atomic: bool = True) -> Written:
        hand_overs = sum(is_hand_over(one) for one in operations)
        self.hand_overs += hand_overs
        is_binding = hand_overs > 0
        if is_binding and self.failures:
            if atomic:
                raise self.failures.pop(0)
            return await self._fail_bindings(operations)
        answers = await super().write(operations, atomic=atomic)
        if is_binding:
            self.meanwhile()
        for _ in range(LINGER_TURNS if self.is_slow else 0):
            await asyncio.sleep(0)
        return answers

    async def _fail_bindings(self, operations: Sequence[Operation]) -> Written:
        """Refuse one hand-over of an instance after the other, as long as there are failures; write the rest."""
        groups: list[list[Operation]] = []
        for one in operations:
            if one.joined:
                groups[-1].append(one)
            else:
                groups.append([one])
        answers: list[Answer | ApiError] = []
        for group in groups:
            if is_hand_over(group[0]) and self.failures:
                answers += [self.failures.pop(0)] * len(group)
            else:
                answers += await super().write(group, atomic=False)
        return answers


def is_hand_over(operation: Operation) -> bool:
    return operation.kind is Instance.api and operation.verb in ("amend", "patch")


class Party(Crew):
    """Runners that are held, and made as new when they are not any more."""

    def __init__(self, world: World, runtime: FakeRuntime) -> None:
        super().__init__(world, runtime)
        self.resets: list[str] = []
        """Instances that were made as new by their runner, in order."""
        self.is_slow = False
        """If true, a reset goes on until a test ends it."""
        self.is_deaf = False
        """If true, the news of a hold arrives late."""
        self.unheard: list[tuple[Subject, Hold]] = []
        self.ended: list[str] = []
        """Claims that have lost their instance, as whoever serves them is told."""
        self.entries: Callable[[Instance], int] | None = None
        """The number of commands that were run in an instance, if anybody counts them."""
        self.executor = Executor()
        self.claims: ClaimHolds
        self.racing: Racing

    def controllers(self) -> tuple[Any, ...]:
        def make(objects: Any, task: Any, instance: Any, id_: str) -> Job:
            return job(objects, task, instance, id_, "")

        self.executor = Executor()
        attempts = Attempts(self.executor, self, make, partial(keep_result, self.runtime.archive), linger_seconds=0.0)
        self.claims = ClaimHolds(
            self.executor, ClaimCounting(Metrics()), on_ended=self.ended.append, entries=self.entries
        )
        return (
            Pools(self.runtime, self.executor),
            Instances(LocalMaker(self.runtime, self), self.executor),
            Tasks(attempts, self.runtime),
            Claims(self.claims),
        )

    def send(self, subject: Subject, message: ToRunner) -> bool:
        report = self._reports.get(subject)
        match message:
            case Hold() if self.is_deaf and not self.is_away:
                self.unheard.append((subject, message))
            case Hold() if report is not None and not self.is_away and report.phase == "Idle":
                self._send_report(subject, msgspec.structs.replace(report, phase="Held", holder=message.id))
            case Release() if report is not None and not self.is_away and report.holder:
                self._reset(subject)
            case Configure() if report is not None and report.phase == "Resetting":
                self._send_report(subject, msgspec.structs.replace(report, configured=message.digest))
            case _:
                return super().send(subject, message)
        return True

    def lose_box(self, name: str) -> None:
        """End the run of an instance, whose runner lives on."""
        self._reset(self.subject(name))

    def _reset(self, subject: Subject) -> None:
        self._send_report(subject, msgspec.structs.replace(self._reports[subject], phase="Resetting"))
        if not self.is_slow:
            asyncio.get_running_loop().call_soon(self.reset_done, subject.name)

    def reset_done(self, name: str) -> None:
        subject = self.subject(name)
        self.resets.append(name)
        self._send_report(subject, msgspec.structs.replace(self._reports[subject], phase="Idle", holder=""))

    def hear(self) -> None:
        """Runners hear again."""
        self.is_deaf = False
        for subject, message in self.unheard:
            self.send(subject, message)

    def subject(self, name: str) -> Subject:
        return next(one for one in self._reports if one.name == name)

    async def up(self) -> None:
        """The server is there."""
        self.racing = Racing(self.world.registry)
        client = Client(self.racing, manager="controllers", namespace="default")
        await self.world.serve(*self.controllers(), client=client)

    async def restart(self) -> None:
        """The server is a new one, in the same world."""
        await self.world.stop()
        await self.up()
        self.reconnect()
        await self.world.rest()


def a_claim(name: str, pool: str = "p", **spec: Any) -> Claim:
    """As the gateway makes one."""
    metadata = ObjectMeta(name=name, namespace="default", uid=new_uid(), annotations={ATTENDED: "true"})
    return Claim(metadata=metadata, spec=ClaimSpec(pool_ref=Ref(name=pool), **spec))


async def up(world: World, party: Party, replicas: int = 1, **spec: Any) -> None:
    kind = {} if "worker" in spec or "template" in spec else PLAIN
    await world.create("WorkerPool", "p", {**kind, "replicas": replicas, **spec})
    await party.up()
    await world.pass_time(30, step=5)


async def claim(world: World, name: str, **spec: Any) -> None:
    await world.create("Claim", name, {"poolRef": {"name": "p"}, **spec})
    await world.rest()


async def took(world: World, name: str, **spec: Any) -> None:
    """A claim that a cluster's API server took, which makes none of Rota's own checks."""
    await stored(world.registry, "Claim", name, {"poolRef": {"name": "p"}, **spec})
    await world.rest()


async def release(world: World, name: str) -> None:
    await world.patch("Claim", name, {"spec": {"release": True}})
    await world.rest()


async def status(world: World, name: str) -> Any:
    return (await world.get("Claim", name)).status


async def is_bound(world: World, name: str) -> bool:
    found = await status(world, name)
    return found is not None and found.phase == "Bound"


async def is_over(world: World, name: str) -> bool:
    return bool((await world.get("Claim", name)).over())


async def phases(world: World) -> dict[str, str]:
    found = (await world.client.list(Claim)).items
    return {one.metadata.name: (one.status.phase if one.status else None) or "" for one in found}


async def held(world: World) -> dict[str, str]:
    """Return the holder of each instance that has one, as objects say."""
    tasks = (await world.client.list(Task)).items
    on = {one.status.instance_name: one.metadata.name for one in tasks if one.status and one.status.phase == "Running"}
    given = [(one.metadata.name, one.spec.assignment) for one in (await world.client.list(Instance)).items]
    return {
        name: on.get(name, assigned.name) if assigned.kind == "Task" else assigned.name
        for name, assigned in given
        if assigned is not None
    }


async def answer_of(world: World, asking: Coroutine[Any, Any, R] | asyncio.Future[R]) -> R:
    """Let time pass until a caller has its answer. Returns that."""
    answer = asyncio.ensure_future(asking)

    async def answered() -> bool:
        return answer.done()

    await settles(world, answered)
    return answer.result()


async def settles(world: World, what: Any) -> None:
    """Go on when something is so. What lost a race is tried again a moment later."""

    async def so() -> bool:
        if await what():
            return True
        await asyncio.sleep(0)  # Whoever has just asked begins before any time passes.
        await world.pass_time(STEP_SECONDS)
        return False

    await until_async(so, lambda: phases(world), seconds=WAIT_SECONDS, poll_seconds=0)


def is_clean(party: Party) -> bool:
    """Return whether nothing is kept of claims that are over."""
    claims: Any = party.claims
    callers = claims.callers
    kept = (
        claims.active,
        claims.unstored,
        claims._cancelled,
        claims.arrivals,
        claims._runs._accepted,
        callers._creations,
        callers._cancelled_creations,
        callers._orphans,
        callers._absent_since,
    )
    ledgers = party.executor.ledgers.values()
    return not any(kept) and not len(callers) and not any(one.depth + one.in_flight for one in ledgers)
