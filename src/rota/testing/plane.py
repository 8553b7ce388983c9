"""A control plane in memory, with a clock that jumps. It runs only while it is told to, and never waits."""

from __future__ import annotations

import asyncio
import os
import random
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from rota.api import Function, Instance, Namespace, ObjectMeta, Task
from rota.client import Client
from rota.client.target import DEFAULT_NAMESPACE
from rota.control.function import Serving
from rota.control.leading import Leading
from rota.control.schedules.making import SCHEDULE_NAME
from rota.control.spawner import Spawning
from rota.control.tasks.lifecycle import time_of, tries
from rota.engine import StoreObjects, VirtualClock, chance
from rota.engine.objects import get
from rota.registry import Registry, metadata
from rota.runtime.interface import NotRunning, Subject
from rota.runtime.runner import messages
from rota.runtime.runner.jobs import Job
from rota.store import MemoryStore
from rota.testing.edges import CodeInPlace, NoApis
from rota.testing.loop import IdleLoop
from rota.testing.performing import Attempt, Ending, Performer
from rota.testing.record import Call, Record
from rota.testing.runners import MemoryRunners
from rota.testing.runtime import MemoryRuntime

R = TypeVar("R")

CONTROLLERS = "rota-controllers"
SEED = 0
"""Of all that is drawn here, so that it is the same on every run."""


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
        self.serving: Serving
        """What calls functions, of the server that is up, or was last."""
        self._deaf: Callable[[], None] = lambda: None
        self._runtime = MemoryRuntime(self.clock)
        self._runners = MemoryRunners(self.clock, self._runtime, self._begun, self._called)
        self._chance = random.Random(SEED)

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
        """Begin to lead, as a server that was just started."""
        client = Client.local(self._registry, manager=CONTROLLERS)
        objects, runtime, runners, clock = self.objects, self._runtime, self._runners, self.clock
        self.serving = Serving(client, objects, runners, runtime, CodeInPlace(), clock)
        spawning = Spawning(client, objects, clock, NoApis())
        leading = Leading(
            client, objects, clock, runtime=runtime, runners=runners, serving=self.serving, spawning=spawning
        )
        self._tasks = [asyncio.create_task(leading.run())]

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
        with self._drawing():
            return self._loop.run_until_complete(work)

    def go(self, until: float) -> Attempt | None:
        """Let time pass until a moment of the clock, at the most: something to be called, or None when it is then.

        What is due at that very moment is done.
        """
        self._until = until
        with self._drawing():
            self._loop.run_idle(self._idle)
        for task in self._tasks:
            if task.done():
                task.result()
        return self._due.popleft() if self._due else None

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        """Have uids, names and pauses drawn from this plane's own source meanwhile."""
        metadata.random_bytes, chance.uniform = self._chance.randbytes, self._chance.uniform
        try:
            yield
        finally:
            metadata.random_bytes, chance.uniform = os.urandom, random.uniform

    def _idle(self) -> None:
        """Nothing runs and nothing can: time goes on."""
        if self._due or not self.clock.advance_once(self._until):
            self._loop.stop()

    def end(self, attempt: Attempt, ending: Ending) -> None:
        """What was to be called has been."""
        self._loop.call_soon(attempt.end, ending)

    async def kill(self, instance: str) -> None:
        """Kill what runs in an instance. Raises LookupError if nothing does."""
        try:
            self._runtime.kill(self.client.namespace, instance)
        except NotRunning as error:
            raise LookupError(str(error)) from None

    # What workers begin.

    def _begun(self, subject: Subject, begun: Job) -> None:
        task = get(self.objects, Task, begun.env["ROTA_TASK"], subject.namespace)
        if task is None:
            return  # It was deleted, and the runner is about to be told.
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
        self._due.append(Attempt(call, None, lambda ending: self._end_job(subject, begun, ending)))

    def _end_job(self, subject: Subject, begun: Job, ending: Ending) -> None:
        ending = ending.within(begun.timeout_seconds)

        def end() -> None:
            if self._runners.jobs.get(subject) is begun:
                self._runners.conclude(subject, ending.reason, **ending.fields())

        self._after(ending.seconds, end)

    # What functions are called with.

    def _called(self, subject: Subject, asked: messages.Call) -> None:
        worker = get(self.objects, Instance, subject.name, subject.namespace)
        assert worker is not None and worker.spec.handler is not None
        function = get(self.objects, Function, worker.spec.handler.function, subject.namespace)
        task = get(self.objects, Task, asked.name, subject.namespace)
        call = Call(
            worker.spec.handler.function,
            time_of(self.clock.time()),
            asked.name,
            task.metadata.annotations.get(SCHEDULE_NAME, "") if task is not None else "",
            tries(task) + 1 if task is not None else 1,
            event=msgspec.json.decode(asked.event),
        )
        self._due.append(Attempt(call, function, lambda ending: self._end_call(subject, asked, ending)))

    def _end_call(self, subject: Subject, asked: messages.Call, ending: Ending) -> None:
        ending = ending.within(asked.seconds)
        result = msgspec.Raw(ending.result.encode()) if ending.result else messages.NO_RESULT
        called = messages.Called(asked.id, ending.reason, result, ending.message, ending.exit_code)
        self._after(ending.seconds, lambda: self._runners.answer(subject, called))

    def _after(self, seconds: float, do: Callable[[], None]) -> None:
        if seconds:
            self.clock.call_at(self.clock.now() + seconds, do)
        else:
            do()
