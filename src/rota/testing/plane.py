"""A control plane in memory, with a clock that jumps. It runs only while it is told to, and never waits."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from rota.api import (
    AgentConfig,
    Claim,
    Function,
    Instance,
    Namespace,
    ObjectMeta,
    Task,
    TaskSpawner,
    Workspace,
)
from rota.client import Client
from rota.client.target import DEFAULT_NAMESPACE
from rota.control.cell import Cells
from rota.control.deployment import Deployments
from rota.control.gate import Gate, Settling
from rota.control.holds.executor import Executor
from rota.control.instance import Instances
from rota.control.making.local import LocalMaker
from rota.control.plane import HERE
from rota.control.pool import Pools
from rota.control.quota import Quotas
from rota.control.retention import EventRetention
from rota.control.schedule import Schedules
from rota.control.schedules.making import SCHEDULE_NAME
from rota.control.shipped import Shipped
from rota.control.task import Tasks
from rota.control.tasks.attempts import Attempts as TaskAttempts
from rota.control.tasks.jobs import job
from rota.control.tasks.lifecycle import time_of, tries
from rota.control.workload import Workloads
from rota.engine import ControlLoop, Reconciler, StoreObjects, VirtualClock
from rota.engine.objects import Objects, get
from rota.engine.recorder import Recorder
from rota.registry import Registry
from rota.runtime.interface import Subject
from rota.runtime.runner.jobs import Job
from rota.store import MemoryStore
from rota.testing.attempts import Attempt, Ending, MemoryCalls
from rota.testing.loop import IdleLoop
from rota.testing.performing import Performer
from rota.testing.record import Call, Record
from rota.testing.runners import MemoryRunners
from rota.testing.runtime import MemoryRuntime

R = TypeVar("R")

CONTROLLERS = "rota-controllers"
NEVER_SECONDS = 1e12
"""Nobody sets the virtual clock, so nobody has to look whether somebody has."""


class Plane:
    """A registry, the controllers, and the loop that both are on. All of it is for one thread at a time."""

    def __init__(self, start: float, namespace: str) -> None:
        self.clock = VirtualClock(start)
        self.record = Record()
        self._loop = IdleLoop()
        self._registry = Registry(MemoryStore(), clock=self.clock.time)
        self.objects = StoreObjects(self._registry)
        self.client = Client.local(self._registry, manager="rota-testing", namespace=namespace)
        self.performer = Performer(self.objects, self.record)
        self._due: deque[Attempt] = deque()
        """What is to be called now."""
        self._until = 0.0
        self._tasks: list[asyncio.Task[None]] = []
        self._deaf: Callable[[], None] = lambda: None
        self._runtime = MemoryRuntime(self.clock)
        self._runners = MemoryRunners(self.clock, self._runtime)
        self._runners.on_begin = self._begun

    def _controllers(self) -> list[Reconciler]:
        """Those of a server, but for what runs functions, hands out claims and asks trackers."""
        executor, runtime = Executor(), self._runtime
        maker = LocalMaker(runtime, self._runners)
        attempts = TaskAttempts(executor, self._runners, _job, runtime.keep_result, linger_seconds=0.0)
        tasks = Tasks(attempts, runtime, MemoryCalls(self.clock, self._due.append))
        return [
            Shipped(),
            EventRetention(),
            Settling(Workspace),
            Settling(AgentConfig),
            Settling(Function),
            Pools(maker, executor),
            Instances(maker, executor),
            tasks,
            Schedules(NEVER_SECONDS),
            Gate(Claim),
            Gate(TaskSpawner),
            Quotas(),
            Workloads(),
            Cells(HERE),
            Deployments(HERE, maker),
        ]

    # From beginning to end.

    def open(self) -> None:
        self.do(self._open())

    async def _open(self) -> None:
        await self._registry.start()
        if self.client.namespace != DEFAULT_NAMESPACE:
            await self.client.create(Namespace(metadata=ObjectMeta(name=self.client.namespace)))
        self._deaf = self.objects.listen((Task.api,), self.record.hear)
        self._serve()

    def _serve(self) -> None:
        client = Client.local(self._registry, manager=CONTROLLERS)
        recorder = Recorder(client, component=CONTROLLERS, clock=self.clock)
        loop = ControlLoop(client, self.objects, self._controllers(), recorder, clock=self.clock)
        self._tasks = [asyncio.create_task(one) for one in (recorder.run(), loop.serve())]

    def close(self) -> None:
        """Nothing of it is left: no task, no thread, no module."""
        try:
            self.do(self._close())
        finally:
            self.performer.code.close()
            self._loop.close()

    async def _close(self) -> None:
        await self._stop()
        self._deaf()
        await self._registry.stop()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    def down(self, until: float) -> None:
        """There are no controllers until then. What workers have begun goes on; calls of functions are lost."""
        self.do(self._stop())
        self.go(until)
        self.do(self._up())

    async def _up(self) -> None:
        self._serve()
        self._runners.reconnect()

    # Steps.

    def do(self, work: Coroutine[Any, Any, R]) -> R:
        """What some work on the registry comes to. Time stands still."""
        return self._loop.run_until_complete(work)

    def go(self, until: float) -> Attempt | None:
        """Let time pass until a moment of the clock, at the most: something to be called, or None when it is then.

        What is due at that very moment is done.
        """
        self._until = until
        self._loop.run_idle(self._idle)
        for task in self._tasks:
            if task.done():
                task.result()
        return self._due.popleft() if self._due else None

    def _idle(self) -> None:
        """Nothing runs and nothing can: time goes on."""
        if self._due:
            self._loop.stop()
            return
        due = self.clock.next_due()
        if due is not None and due <= self._until:
            self.clock.advance_to(due)
        else:
            self.clock.advance_to(self._until)
            self._loop.stop()

    def end(self, attempt: Attempt, ending: Ending) -> None:
        """What was to be called has been."""
        self._loop.call_soon(attempt.end, ending)

    # What workers begin.

    def _begun(self, subject: Subject, begun: Job) -> None:
        task = self._task(subject)
        if task is None:
            return
        ref, notes = task.spec.worker_pool_ref, task.metadata.annotations
        call = Call(
            ref.name if ref is not None else "",
            time_of(self.clock.time()),
            task.metadata.name,
            notes.get(SCHEDULE_NAME, ""),
            tries(task) + 1,
            command=begun.argv,
            stdin=begun.stdin,
            env=begun.env,
        )
        self._due.append(Attempt(call, None, lambda ending: self._end_later(subject, begun, ending)))

    def _task(self, subject: Subject) -> Task | None:
        instance = get(self.objects, Instance, subject.name, subject.namespace)
        assigned = instance.spec.assignment if instance is not None else None
        return get(self.objects, Task, assigned.name, subject.namespace) if assigned is not None else None

    def _end_later(self, subject: Subject, begun: Job, ending: Ending) -> None:
        ending = ending.within(begun.timeout_seconds)

        def end() -> None:
            if self._runners.jobs.get(subject) is begun:
                self._runners.conclude(subject, ending.reason, **ending.fields())

        self.clock.call_at(self.clock.now() + ending.seconds, end)


def _job(objects: Objects, task: Task, instance: Instance, id_: str) -> Job:
    return job(objects, task, instance, id_, "")
