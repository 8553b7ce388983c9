"""A project under test."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine, Mapping
from datetime import datetime, timedelta
from types import ModuleType, TracebackType
from typing import Any, TypeVar

from rota.testing.async_project import AsyncProject
from rota.testing.open_project import OpenProject, Raised
from rota.testing.performer import Attempt, StandIn
from rota.testing.record import Call, Run
from rota.testing.sources import Source
from rota.testing.verbs import IDLE_WITHIN, START, moment

R = TypeVar("R")


class Project:
    """A project in memory, under a virtual clock, in a `with`; with `async with` it is an `AsyncProject`.

    `source` is a project file, a folder (with a `rota.yaml`, or else of manifests), a file of manifests, or the text of
    either, which is distinguished from a path by its line breaks; None for an empty project. `at` is the start: a time
    without a zone is in UTC. `environment` has the values of `${NAME}`, by default those of the process.

    The `with` raises the problems of the source: `ManifestError`, or `DeployRefused`, with file and line,
    as `rota deploy` prints it.
    """

    def __init__(
        self,
        source: Source | None = "rota.yaml",
        *,
        at: datetime | str = START,
        environment: Mapping[str, str] | None = None,
        namespace: str = "default",
    ) -> None:
        self._source = source
        self._start = moment(at)
        self._environment = environment
        self._namespace = namespace
        self._open: OpenProject | None = None
        self._runner: asyncio.Runner | None = None
        self._form: AsyncProject | None = None

    # Opening and closing.

    def __enter__(self) -> Project:
        if _is_in_loop():
            raise RuntimeError("in async code, say `async with Project(…)`, and await what it does")
        if self._open is not None:
            raise RuntimeError("it is open already")
        self._open = self._opened()
        try:
            if self._source is not None:
                self.apply(self._source)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._close()

    async def __aenter__(self) -> AsyncProject:
        if self._form is not None:
            raise RuntimeError("it is open already")
        self._form = await AsyncProject.opened(self._opened, self._source)
        return self._form

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        assert self._form is not None
        form, self._form = self._form, None
        await form.close()

    def _opened(self) -> OpenProject:
        return OpenProject(self._start, self._environment, self._namespace)

    def _close(self) -> None:
        project, runner = self._project, self._runner
        self._open = self._runner = None
        try:
            if runner is not None:
                runner.close()
        finally:
            project.close()

    @property
    def _project(self) -> OpenProject:
        if self._open is None:
            raise RuntimeError("a project is used inside its `with`")
        return self._open

    # Time.

    @property
    def now(self) -> datetime:
        """Return the time of the project."""
        return self._project.now

    def advance(
        self, by: timedelta | None = None, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> None:
        """Advance time. Everything that comes due is done at its time, the last instant included."""
        self._go(self._project.after(by, days, hours, minutes, seconds))

    def until(self, at: datetime | str) -> None:
        """Advance time to an instant; without a zone it is in UTC."""
        self._go(self._project.until(at))

    def down(
        self, by: timedelta | None = None, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> None:
        """Advance time while the server is down, to test the catch-up of missed ticks.

        Jobs of workers go on. Calls of functions in progress are lost, and made again.
        """
        self._project.down(self._project.after(by, days, hours, minutes, seconds))
        self._go(self._project.at)

    def run_until_idle(self, within: timedelta = IDLE_WITHIN) -> None:
        """Advance time until all Tasks are finished. Raises `NotIdle` if they are not within `within`."""
        began = self._project.at
        while (due := self._project.before_idle(began, within)) is not None:
            self._go(due)

    def _go(self, until: float) -> None:
        attempt = self._project.step(until)
        while attempt is not None:
            attempt = self._project.step(until, attempt, self._made(attempt))

    def _made(self, attempt: Attempt) -> Any:
        """Make a call and return its result. Awaitables share a loop."""
        try:
            found = self._project.performer.thunk(attempt.call, attempt.function)()
            if not inspect.isawaitable(found):
                return found
            if self._runner is None:
                self._runner = asyncio.Runner()
            return self._runner.run(_awaited(found))
        except (Exception, SystemExit) as error:
            return Raised(error)

    # Results.

    def runs(self, schedule: str | None = None) -> list[Run]:
        """Return the runs of a schedule, or of all, ordered by tick, also those that its history no longer has."""
        return self._project.runs(schedule)

    def calls(self, name: str | None = None) -> list[Call]:
        """Return the calls of a function, of a pool's workers, or for a schedule or task; or all, in order."""
        return self._project.calls(name)

    # Calls.

    def on(self, name: str, do: StandIn | None = None, *, takes: timedelta | float = 0) -> None:
        """Have calls of a name made by `do`, which gets the `Call`; without `do`, only set their duration.

        The name is that of a function, pool, schedule or task; a task's precedes its schedule's, which precedes
        its function's or pool's. `do` returns the result (or a `Result`); an exception is a failure.
        `takes` is the duration on the virtual clock, as a timedelta or in seconds.
        """
        self._project.stand_in(name, do, takes)

    def call(self, function: str, event: Any = None) -> Any:
        """Call a function directly with an event and return its result, as decoded from JSON. Raises its exceptions.

        No Task is created.
        """
        attempt = self._project.begin_call(function, event)
        return self._project.end_call(attempt, self._made(attempt))

    def submit(self, function: str, event: Any = None) -> str:
        """Call a function asynchronously, like a client that does not wait. Return the name of the call's Task."""
        return self._done(self._project.verbs.submit(function, event))

    def module(self, function: str) -> ModuleType:
        """Return the module of a function's handler, for tests that patch it."""
        return self._project.module(function)

    # Objects.

    def apply(self, source: Source) -> None:
        """Change the project by any source of a `Project`, or by one object as a mapping."""
        self._done(self._project.verbs.apply(source))

    def get(self, kind: str, name: str) -> Any:
        """Return an object, such as `get("Schedule", "nightly").status.next_run_time`. Raises `ApiError` 404."""
        return self._project.do(self._project.verbs.get(kind, name))

    def list(self, kind: str, labels: str = "") -> list[Any]:
        """Return the objects of a kind, sorted by name; `labels` is a selector, such as `app=shop`."""
        return self._project.do(self._project.verbs.list(kind, labels))

    def delete(self, kind: str, name: str) -> None:
        """Delete an object and its dependents."""
        self._done(self._project.verbs.delete(kind, name))

    def pause(self, schedule: str) -> None:
        """Pause a schedule. Its runs go on."""
        self._done(self._project.verbs.enable(schedule, enabled=False))

    def resume(self, schedule: str) -> None:
        """Resume a schedule. Ticks missed meanwhile are not made up for."""
        self._done(self._project.verbs.enable(schedule, enabled=True))

    def run(self, schedule: str) -> Run:
        """Run a schedule now, in addition to its ticks."""
        task = self._done(self._project.verbs.run(schedule))
        return next(run for run in self.runs(schedule) if run.task == task)

    def cancel(self, task: str) -> None:
        """Cancel a Task."""
        self._done(self._project.verbs.cancel(task))

    # Claims and instances.

    def claim(
        self,
        pool: str,
        name: str = "",
        *,
        lease: timedelta | float | None = None,
        wait: timedelta | float | None = None,
        priority: int = 0,
    ) -> Any:
        """Claim an instance of a pool. Returns the Claim: Bound, or Waiting if no instance is free.

        `lease` is the time it is held unless renewed, `wait` the time it waits for an instance: timedeltas, or
        seconds. The defaults are those of the kind and the pool.
        """
        made = self._done(self._project.verbs.claim(pool, name, lease=lease, wait=wait, priority=priority))
        return self.get("Claim", made)

    def renew(self, claim: str) -> None:
        """Renew the lease of a claim."""
        self._done(self._project.verbs.renew(claim))

    def release(self, claim: str) -> None:
        """Release a claim. Its instance is reset for the next one."""
        self._done(self._project.verbs.release(claim))

    def kill(self, instance: str) -> None:
        """Kill the processes of an instance, also of a worker. It is restarted, as on a server."""
        self._done(self._project.verbs.kill(instance))

    def _done(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine, and everything that follows from it without advancing time."""
        done = self._project.do(work)
        self._go(self._project.at)
        return done


async def _awaited(found: Any) -> Any:
    return await found


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
