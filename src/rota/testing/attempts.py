"""Attempts of tasks: what is to be called now, and how it ended, as the controllers of tasks are told of it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rota.api import Function, Task
from rota.client import Key
from rota.control.functions.tasks import Begun, Ended
from rota.control.schedules.making import SCHEDULE_NAME
from rota.control.tasks.lifecycle import assignment_id, time_of, tries
from rota.engine import VirtualClock
from rota.engine.clock import Timer
from rota.runtime.runner.jobs import Outcome, Reason
from rota.testing.record import Call


class Ending(NamedTuple):
    """How a call ended."""

    reason: Reason
    seconds: float = 0.0
    """After how long, on the virtual clock."""
    message: str = ""
    result: str = ""
    """As JSON."""
    exit_code: int | None = None
    outputs: Mapping[str, str] = {}

    def within(self, seconds: float | None) -> Ending:
        """The same, of what may take so long."""
        if seconds is None or self.seconds <= seconds:
            return self
        return Ending("Timeout", seconds, f"not done in {seconds:g} s")

    def fields(self) -> dict[str, Any]:
        """What an outcome says beside its reason and its times."""
        return {
            "exit_code": self.exit_code,
            "message": self.message,
            "outputs": self.outputs,
            "result": self.result,
        }


class Attempt(NamedTuple):
    """Something to be called now."""

    call: Call
    function: Function | None
    end: Callable[[Ending], None]
    """To be told how it ended, on the loop."""


class MemoryCalls:
    """Calls of functions for tasks: as many at once as all workers of a function could take, and no workers."""

    def __init__(self, clock: VirtualClock, make: Callable[[Attempt], None]) -> None:
        self._clock = clock
        self._make = make
        self._wanted: dict[str, _Wanted] = {}
        """By the uid of the task, from when it is wanted until it has ended."""
        self._waiting: dict[Key, deque[str]] = {}
        self._running: dict[Key, set[str]] = {}
        self._works: set[asyncio.Task[None]] = set()

    def begin(self, wake: Callable[[Key], None]) -> Callable[[], None]:
        def end() -> None:
            for work in self._works:
                work.cancel()

        return end

    def is_under_way(self, task: Task) -> bool:
        return task.metadata.uid in self._wanted

    def is_begun(self, task: Task) -> bool:
        found = self._wanted.get(task.metadata.uid)
        return found is not None and found.started is not None

    def want(self, task: Task, function: Function, begun: Begun, ended: Ended) -> None:
        uid = task.metadata.uid
        if uid in self._wanted:
            return
        wanted = self._wanted[uid] = _Wanted(task, function, begun, ended)
        self._waiting.setdefault(wanted.key, deque()).append(uid)
        self._start(wanted.key)

    def cancel(self, task: Task) -> bool:
        uid = task.metadata.uid
        if self.is_begun(task):
            self._ended(uid, Ending("Cancelled"))
            return True
        self._forget(uid)
        return False

    def gone(self, key: Key) -> None:
        for uid in [uid for uid, one in self._wanted.items() if one.task_key == key]:
            self._forget(uid)

    def _forget(self, uid: str) -> None:
        wanted = self._wanted.pop(uid, None)
        if wanted is not None:
            if wanted.timer is not None:
                wanted.timer.cancel()
            self._running.get(wanted.key, set()).discard(uid)
            self._start(wanted.key)

    def _start(self, key: Key) -> None:
        waiting, running = self._waiting.get(key, deque()), self._running.setdefault(key, set())
        while waiting:
            wanted = self._wanted.get(waiting[0])
            if wanted is not None and wanted.started is None:
                if len(running) >= wanted.function.spec.concurrency * wanted.function.spec.scale.max:
                    return
                running.add(waiting[0])
                wanted.started = self._clock.time()
                self._make(self._attempt(waiting[0], wanted))
            waiting.popleft()

    def _attempt(self, uid: str, wanted: _Wanted) -> Attempt:
        task = wanted.task
        assert task.spec.function is not None
        call = Call(
            wanted.key.name,
            time_of(self._clock.time()),
            task.metadata.name,
            task.metadata.annotations.get(SCHEDULE_NAME, ""),
            attempt=tries(task) + 1,
            event=task.spec.function.payload or {},
        )
        return Attempt(call, wanted.function, lambda ending: self._end_later(uid, wanted, ending))

    def _end_later(self, uid: str, wanted: _Wanted, ending: Ending) -> None:
        if self._wanted.get(uid) is not wanted:
            return
        spec = wanted.function.spec
        ending = ending.within(min(spec.timeout_seconds, wanted.task.spec.timeout_seconds or spec.timeout_seconds))
        if not ending.seconds:
            self._ended(uid, ending)
            return
        work = asyncio.get_running_loop().create_task(self._run(uid, wanted, ending))
        self._works.add(work)
        work.add_done_callback(self._works.discard)

    async def _run(self, uid: str, wanted: _Wanted, ending: Ending) -> None:
        await wanted.begun(wanted.task, wanted.key.name)
        if self._wanted.get(uid) is wanted:
            due = self._clock.now() + ending.seconds
            wanted.timer = self._clock.call_at(due, lambda: self._ended(uid, ending))

    def _ended(self, uid: str, ending: Ending) -> None:
        wanted = self._wanted[uid]
        assert wanted.started is not None
        id_ = assignment_id(wanted.task)
        outcome = Outcome(id_, ending.reason, wanted.started, self._clock.time(), **ending.fields())
        self._forget(uid)
        wanted.ended(outcome)


class _Wanted:
    """One attempt."""

    __slots__ = ("begun", "ended", "function", "key", "started", "task", "task_key", "timer")

    def __init__(self, task: Task, function: Function, begun: Begun, ended: Ended) -> None:
        self.task = task
        self.ended = ended
        self.function = function
        self.begun = begun
        self.key = Key(function.metadata.namespace, function.metadata.name)
        self.task_key = Key(task.metadata.namespace, task.metadata.name)
        self.started: float | None = None
        self.timer: Timer | None = None
