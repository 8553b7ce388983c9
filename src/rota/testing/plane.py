"""A control plane in memory, with a virtual clock. It runs only when it is advanced, and never waits."""

from __future__ import annotations

import asyncio
import os
import random
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from rota.api import Function, Instance, Namespace, ObjectMeta, Task
from rota.client import Client, Key
from rota.client.target import DEFAULT_NAMESPACE
from rota.control.function import Serving
from rota.control.functions.planning import Version
from rota.control.functions.preparing import Failure, Needs
from rota.control.leading import Leading
from rota.control.schedules.making import SCHEDULE_NAME
from rota.control.spawner import Spawning
from rota.control.spawners.apis import Api, Apis
from rota.control.tasks.lifecycle import time_of, tries
from rota.engine import StoreObjects, VirtualClock, chance
from rota.engine.objects import get
from rota.registry import Registry, metadata
from rota.runtime.interface import NotRunning, Subject
from rota.runtime.runner import messages
from rota.runtime.runner.jobs import Job
from rota.store import MemoryStore
from rota.testing.loop import IdleLoop
from rota.testing.performer import Attempt, CallOutcome, Performer
from rota.testing.record import Call, Record
from rota.testing.runners import MemoryRunners
from rota.testing.runtime import NOWHERE, MemoryRuntime

R = TypeVar("R")

CONTROLLERS = "rota-controllers"
SEED = 0
"""The seed of all random choices, so that every run is the same."""


class Plane:
    """A registry, the controllers, and their loop. For one thread at a time."""

    def __init__(self, start: float, namespace: str) -> None:
        self.clock = VirtualClock(start)
        self.record = Record()
        self._loop = IdleLoop()
        self._registry = Registry(MemoryStore(), clock=self.clock.time)
        self.objects = StoreObjects(self._registry)
        self.client = Client.local(self._registry, manager="rota-testing", namespace=namespace)
        self.performer = Performer(self.objects, self.record)
        self._due: deque[Attempt] = deque()
        """The calls to make now."""
        self._until = 0.0
        self._tasks: list[asyncio.Task[None]] = []
        self.serving: Serving
        """The callers of functions of the current or last server."""
        self._stop_listening: Callable[[], None] = lambda: None
        self._runtime = MemoryRuntime(self.clock)
        self._runners = MemoryRunners(self.clock, self._runtime, self._begun, self._called)
        self._chance = random.Random(SEED)

    # Opening and closing.

    def open(self) -> None:
        self.do(self._open())

    async def _open(self) -> None:
        await self._registry.start()
        if self.client.namespace != DEFAULT_NAMESPACE:
            await self.client.create(Namespace(metadata=ObjectMeta(name=self.client.namespace)))
        self._stop_listening = self.objects.listen((Task.api,), self.record.update)
        self._serve()

    def _serve(self) -> None:
        """Start the controllers, like a server that has just started."""
        client = Client.local(self._registry, manager=CONTROLLERS)
        objects, runtime, runners, clock = self.objects, self._runtime, self._runners, self.clock
        self.serving = Serving(client, objects, runners, runtime, CodeInPlace(), clock)
        spawning = Spawning(client, objects, clock, NoApis())
        leading = Leading(
            client, objects, clock, runtime=runtime, runners=runners, serving=self.serving, spawning=spawning
        )
        self._tasks = [asyncio.create_task(leading.run())]

    def close(self) -> None:
        """Close the plane. No task, thread or module of it is left."""
        try:
            self.do(self._close())
        finally:
            self.performer.code.close()
            self._loop.close()

    async def _close(self) -> None:
        await self._stop()
        self._stop_listening()
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
        """Run without controllers until a time. Jobs of workers go on; calls of functions are lost."""
        self.do(self._stop())
        self.go(until)
        self.do(self._up())

    async def _up(self) -> None:
        self._serve()
        self._runners.reconnect()

    # Steps.

    def do(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine and return its result, without advancing time."""
        with self._drawing():
            return self._loop.run_until_complete(work)

    def go(self, until: float) -> Attempt | None:
        """Advance time up to `until`. Return the next call to make, or None at that time.

        Everything due at that very time is done.
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
        """Take random uids, names and pauses from this plane's seeded source in the body."""
        metadata.random_bytes, chance.uniform = self._chance.randbytes, self._chance.uniform
        try:
            yield
        finally:
            metadata.random_bytes, chance.uniform = os.urandom, random.uniform

    def _idle(self) -> None:
        """Advance time when nothing can run."""
        if self._due or not self.clock.advance_once(self._until):
            self._loop.stop()

    def end(self, attempt: Attempt, outcome: CallOutcome) -> None:
        """Report the outcome of a call."""
        self._loop.call_soon(attempt.end, outcome)

    async def kill(self, instance: str) -> None:
        """Kill the processes of an instance. Raises LookupError if there are none."""
        try:
            self._runtime.kill(self.client.namespace, instance)
        except NotRunning as error:
            raise LookupError(str(error)) from None

    # Jobs of workers.

    def _begun(self, subject: Subject, begun: Job) -> None:
        task = get(self.objects, Task, begun.env["ROTA_TASK"], subject.namespace)
        if task is None:
            return  # It was deleted, and the runner is about to be cancelled.
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
        self._due.append(Attempt(call, None, lambda outcome: self._end_job(subject, begun, outcome)))

    def _end_job(self, subject: Subject, begun: Job, outcome: CallOutcome) -> None:
        outcome = outcome.within(begun.timeout_seconds)

        def end() -> None:
            if self._runners.jobs.get(subject) is begun:
                self._runners.conclude(subject, outcome.reason, **outcome.fields())

        self._after(outcome.seconds, end)

    # Calls of functions.

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
        self._due.append(Attempt(call, function, lambda outcome: self._end_call(subject, asked, outcome)))

    def _end_call(self, subject: Subject, asked: messages.Call, outcome: CallOutcome) -> None:
        outcome = outcome.within(asked.seconds)
        result = msgspec.Raw(outcome.result.encode()) if outcome.result else messages.NO_RESULT
        called = messages.Called(asked.id, outcome.reason, result, outcome.message, outcome.exit_code)
        self._after(outcome.seconds, lambda: self._runners.answer(subject, called))

    def _after(self, seconds: float, do: Callable[[], None]) -> None:
        if seconds:
            self.clock.call_at(self.clock.now() + seconds, do)
        else:
            do()


# Stand-ins for the surroundings of a server.


class CodeInPlace:
    """A code cache in which all code is present: nothing is unpacked or installed."""

    def is_there(self, needs: Needs) -> bool:
        return True

    def failure(self, key: Key, needs: Needs) -> Failure | None:
        return None

    def start(self, key: Key, function: Function, needs: Needs, done: Callable[[], None]) -> None:
        raise AssertionError("all code is there")

    def forget(self, key: Key) -> None:
        """Do nothing: there is no state."""

    def collects_now(self) -> bool:
        return False

    async def collect(
        self, functions: Sequence[Function], instances: Iterable[Instance], versions: Iterable[Version]
    ) -> None:
        """Do nothing: nothing is kept."""

    def packages_log(self, function: Function) -> Path | None:
        return None

    def load_log(self, function: Function) -> Path:
        return NOWHERE / function.metadata.uid

    async def keep_load_log(self, function: Function, said: str) -> None:
        """Do nothing: nobody reads it."""

    async def close(self) -> None:
        """Do nothing: nothing is in progress."""


class NoApis(Apis):
    """APIs of trackers, none of which is reachable."""

    def find(self, url: str) -> Api | None:
        return None

    def refusal(self, url: str, of: str = "") -> str | None:
        return f"{url} is not asked by rota.testing: make the tasks of its items in the test"
