"""The async form: the same names, awaited.

The project is in a thread of its own, which ends with the `with`: its loop is not the test's. What has to be awaited of
a handler is awaited on the test's loop, so that it can use what the test has there.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from datetime import datetime, timedelta
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

from rota.testing.performing import Attempt, StandIn
from rota.testing.record import Call, Run
from rota.testing.sources import Source
from rota.testing.stage import Raised, Stage
from rota.testing.works import IDLE_WITHIN

P = ParamSpec("P")
R = TypeVar("R")


class AsyncProject:
    """What `async with Project(…)` gives. Each method does what that of `Project` does."""

    def __init__(self, stage: Stage, thread: ThreadPoolExecutor) -> None:
        self._stage = stage
        self._thread = thread

    @classmethod
    async def opened(cls, make: Callable[[], Stage], source: Source | None) -> AsyncProject:
        thread = ThreadPoolExecutor(1, thread_name_prefix="rota-testing")
        try:
            project = cls(await asyncio.get_running_loop().run_in_executor(thread, make), thread)
        except BaseException:
            thread.shutdown()
            raise
        try:
            if source is not None:
                await project.apply(source)
        except BaseException:
            await project.close()
            raise
        return project

    async def close(self) -> None:
        try:
            await self._there(self._stage.close)
        finally:
            self._thread.shutdown()

    async def _there(self, do: Callable[P, R], *args: P.args, **more: P.kwargs) -> R:
        """Do something in the thread."""
        context = copy_context()
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: context.run(do, *args, **more))

    # Time.

    @property
    def now(self) -> datetime:
        return self._stage.now

    async def advance(
        self, by: timedelta | None = None, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> None:
        await self._go(self._stage.after(by, days, hours, minutes, seconds))

    async def until(self, at: datetime | str) -> None:
        await self._go(self._stage.until(at))

    async def down(
        self, by: timedelta | None = None, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> None:
        await self._there(self._stage.down, self._stage.after(by, days, hours, minutes, seconds))
        await self._go(self._stage.at)

    async def run_until_idle(self, within: timedelta = IDLE_WITHIN) -> None:
        began = self._stage.at
        while (due := self._stage.before_idle(began, within)) is not None:
            await self._go(due)

    async def _go(self, until: float) -> None:
        attempt = await self._there(self._stage.step, until)
        while attempt is not None:
            found = await self._made(attempt)
            attempt = await self._there(self._stage.step, until, attempt, found)

    async def _made(self, attempt: Attempt) -> Any:
        try:
            thunk = self._stage.performer.thunk(attempt.call, attempt.function)
            found = await self._there(thunk)
            return await found if inspect.isawaitable(found) else found
        except (Exception, SystemExit) as error:
            return Raised(error)

    # What happened.

    async def runs(self, schedule: str | None = None) -> list[Run]:
        return await self._there(self._stage.runs, schedule)

    async def calls(self, name: str | None = None) -> list[Call]:
        return await self._there(self._stage.calls, name)

    # What is called.

    async def on(self, name: str, do: StandIn | None = None, *, takes: timedelta | float = 0) -> None:
        await self._there(self._stage.stand_in, name, do, takes)

    async def call(self, function: str, event: Any = None) -> Any:
        attempt = await self._there(self._stage.begin_call, function, event)
        found = await self._made(attempt)
        return await self._there(self._stage.end_call, attempt, found)

    async def submit(self, function: str, event: Any = None) -> str:
        return await self._done(self._stage.works.submit(function, event))

    async def module(self, function: str) -> ModuleType:
        return await self._there(self._stage.module, function)

    # Objects.

    async def apply(self, source: Source) -> None:
        await self._done(self._stage.works.apply(source))

    async def get(self, kind: str, name: str) -> Any:
        return await self._there(self._stage.do, self._stage.works.get(kind, name))

    async def list(self, kind: str, labels: str = "") -> list[Any]:
        return await self._there(self._stage.do, self._stage.works.list(kind, labels))

    async def delete(self, kind: str, name: str) -> None:
        await self._done(self._stage.works.delete(kind, name))

    async def pause(self, schedule: str) -> None:
        await self._done(self._stage.works.enable(schedule, enabled=False))

    async def resume(self, schedule: str) -> None:
        await self._done(self._stage.works.enable(schedule, enabled=True))

    async def run(self, schedule: str) -> Run:
        task = await self._done(self._stage.works.run(schedule))
        return next(run for run in await self.runs(schedule) if run.task == task)

    async def cancel(self, task: str) -> None:
        await self._done(self._stage.works.cancel(task))

    # Claims and instances.

    async def claim(
        self,
        pool: str,
        name: str = "",
        *,
        lease: timedelta | float | None = None,
        wait: timedelta | float | None = None,
        priority: int = 0,
    ) -> Any:
        made = await self._done(self._stage.works.claim(pool, name, lease=lease, wait=wait, priority=priority))
        return await self.get("Claim", made)

    async def renew(self, claim: str) -> None:
        await self._done(self._stage.works.renew(claim))

    async def release(self, claim: str) -> None:
        await self._done(self._stage.works.release(claim))

    async def kill(self, instance: str) -> None:
        await self._done(self._stage.works.kill(instance))

    async def _done(self, work: Coroutine[Any, Any, R]) -> R:
        done: R = await self._there(self._stage.do, work)
        await self._go(self._stage.at)
        return done
