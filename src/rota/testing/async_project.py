"""The async form of `Project`, with the same methods.

The project has a thread and loop of its own, which end with the `with`. Awaitables that
handlers return are awaited on the test's loop, so that they can use the test's objects there.
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

from rota.testing.open_project import OpenProject, Raised
from rota.testing.performer import Attempt, StandIn
from rota.testing.record import Call, Run
from rota.testing.sources import Source
from rota.testing.verbs import IDLE_WITHIN

P = ParamSpec("P")
R = TypeVar("R")


class AsyncProject:
    """The project of `async with Project(…)`. Each method does what that of `Project` does."""

    def __init__(self, project: OpenProject, thread: ThreadPoolExecutor) -> None:
        self._project = project
        self._thread = thread

    @classmethod
    async def opened(cls, make: Callable[[], OpenProject], source: Source | None) -> AsyncProject:
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
            await self._in_thread(self._project.close)
        finally:
            self._thread.shutdown()

    async def _in_thread(self, do: Callable[P, R], *args: P.args, **more: P.kwargs) -> R:
        """Call a function in the thread."""
        context = copy_context()
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: context.run(do, *args, **more))

    # Time.

    @property
    def now(self) -> datetime:
        return self._project.now

    async def advance(
        self, by: timedelta | None = None, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> None:
        await self._go(self._project.after(by, days, hours, minutes, seconds))

    async def until(self, at: datetime | str) -> None:
        await self._go(self._project.until(at))

    async def down(
        self, by: timedelta | None = None, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> None:
        await self._in_thread(self._project.down, self._project.after(by, days, hours, minutes, seconds))
        await self._go(self._project.at)

    async def run_until_idle(self, within: timedelta = IDLE_WITHIN) -> None:
        began = self._project.at
        while (due := self._project.before_idle(began, within)) is not None:
            await self._go(due)

    async def _go(self, until: float) -> None:
        attempt = await self._in_thread(self._project.step, until)
        while attempt is not None:
            found = await self._made(attempt)
            attempt = await self._in_thread(self._project.step, until, attempt, found)

    async def _made(self, attempt: Attempt) -> Any:
        try:
            thunk = self._project.performer.thunk(attempt.call, attempt.function)
            found = await self._in_thread(thunk)
            return await found if inspect.isawaitable(found) else found
        except (Exception, SystemExit) as error:
            return Raised(error)

    # Results.

    async def runs(self, schedule: str | None = None) -> list[Run]:
        return await self._in_thread(self._project.runs, schedule)

    async def calls(self, name: str | None = None) -> list[Call]:
        return await self._in_thread(self._project.calls, name)

    # Calls.

    async def on(self, name: str, do: StandIn | None = None, *, takes: timedelta | float = 0) -> None:
        await self._in_thread(self._project.stand_in, name, do, takes)

    async def call(self, function: str, event: Any = None) -> Any:
        attempt = await self._in_thread(self._project.begin_call, function, event)
        found = await self._made(attempt)
        return await self._in_thread(self._project.end_call, attempt, found)

    async def submit(self, function: str, event: Any = None) -> str:
        return await self._done(self._project.verbs.submit(function, event))

    async def module(self, function: str) -> ModuleType:
        return await self._in_thread(self._project.module, function)

    # Objects.

    async def apply(self, source: Source) -> None:
        await self._done(self._project.verbs.apply(source))

    async def get(self, kind: str, name: str) -> Any:
        return await self._in_thread(self._project.do, self._project.verbs.get(kind, name))

    async def list(self, kind: str, labels: str = "") -> list[Any]:
        return await self._in_thread(self._project.do, self._project.verbs.list(kind, labels))

    async def delete(self, kind: str, name: str) -> None:
        await self._done(self._project.verbs.delete(kind, name))

    async def pause(self, schedule: str) -> None:
        await self._done(self._project.verbs.enable(schedule, enabled=False))

    async def resume(self, schedule: str) -> None:
        await self._done(self._project.verbs.enable(schedule, enabled=True))

    async def run(self, schedule: str) -> Run:
        task = await self._done(self._project.verbs.run(schedule))
        return next(run for run in await self.runs(schedule) if run.task == task)

    async def cancel(self, task: str) -> None:
        await self._done(self._project.verbs.cancel(task))

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
        made = await self._done(self._project.verbs.claim(pool, name, lease=lease, wait=wait, priority=priority))
        return await self.get("Claim", made)

    async def renew(self, claim: str) -> None:
        await self._done(self._project.verbs.renew(claim))

    async def release(self, claim: str) -> None:
        await self._done(self._project.verbs.release(claim))

    async def kill(self, instance: str) -> None:
        await self._done(self._project.verbs.kill(instance))

    async def _done(self, work: Coroutine[Any, Any, R]) -> R:
        done: R = await self._in_thread(self._project.do, work)
        await self._go(self._project.at)
        return done
