"""A project under test."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine, Mapping
from datetime import datetime, timedelta
from types import ModuleType, TracebackType
from typing import Any, TypeVar

from rota.testing.asynchronous import AsyncProject
from rota.testing.performing import Attempt, StandIn
from rota.testing.record import Call, Run
from rota.testing.sources import Source
from rota.testing.stage import Raised, Stage
from rota.testing.works import IDLE_WITHIN, START, moment

R = TypeVar("R")


class Project:
    """A project in memory, under a virtual clock, in a `with`; with `async with` it is an `AsyncProject`.

    `source` is a project file, a folder (with a `rota.yaml`, or else of manifests), a file of manifests, or the text of
    either, which is told from a path by its line breaks; None: nothing to begin with. `at` is when it is: a time
    without a zone is in UTC. `environment` is what `${NAME}` is taken from, by default that of the process.

    Whatever is wrong with the source is raised by the `with`: `ManifestError`, or `DeployRefused`, with file and line,
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
        self._open: Stage | None = None
        self._runner: asyncio.Runner | None = None
        self._form: AsyncProject | None = None

    # From beginning to end.

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

    def _opened(self) -> Stage:
        return Stage(self._start, self._environment, self._namespace)

    def _close(self) -> None:
        stage, runner = self._stage, self._runner
        self._open = self._runner = None
        try:
            if runner is not None:
                runner.close()
        finally:
            stage.close()

    @property
    def _stage(self) -> Stage:
        if self._open is None:
            raise RuntimeError("a project is used inside its `with`")
        return self._open

    # Time.

    @property
    def now(self) -> datetime:
        """The time, as it is for the project."""
        return self._stage.now

    def advance(
        self, by: timedelta | None = None, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> None:
        """Let so much time pass. Everything that comes due is done at its moment, the last one included."""
        self._go(self._stage.after(by, days, hours, minutes, seconds))

    def until(self, at: datetime | str) -> None:
        """Let time pass until a moment; without a zone it is in UTC."""
        self._go(self._stage.until(at))

    def down(
        self, by: timedelta | None = None, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> None:
        """Let so much time pass while the server is down, to see what is made up for.

        What workers have begun goes on. Calls of functions that are under way are lost, and made again.
        """
        self._stage.down(self._stage.after(by, days, hours, minutes, seconds))
        self._go(self._stage.at)

    def run_until_idle(self, within: timedelta = IDLE_WITHIN) -> None:
        """Let as much time pass as it takes for all Tasks to be over. Raises `NotIdle` when they are not by then."""
        began = self._stage.at
        while (due := self._stage.before_idle(began, within)) is not None:
            self._go(due)

    def _go(self, until: float) -> None:
        attempt = self._stage.step(until)
        while attempt is not None:
            attempt = self._stage.step(until, attempt, self._made(attempt))

    def _made(self, attempt: Attempt) -> Any:
        """What a call comes to; those that have to be awaited share a loop."""
        try:
            found = self._stage.performer.thunk(attempt.call, attempt.function)()
            if not inspect.isawaitable(found):
                return found
            if self._runner is None:
                self._runner = asyncio.Runner()
            return self._runner.run(_awaited(found))
        except (Exception, SystemExit) as error:
            return Raised(error)

    # What happened.

    def runs(self, schedule: str | None = None) -> list[Run]:
        """All runs of a schedule, or of all of them, by their ticks: also those that its history no longer has."""
        return self._stage.runs(schedule)

    def calls(self, name: str | None = None) -> list[Call]:
        """All calls of a function, of a pool's workers, or for a schedule or task; or all there were, in order."""
        return self._stage.calls(name)

    # What is called.

    def on(self, name: str, do: StandIn | None = None, *, takes: timedelta | float = 0) -> None:
        """Have calls of a name made by `do`, which gets the `Call`; without it, as they are made anyway.

        The name is a function's, a pool's, a schedule's or a task's; a task's own goes before its schedule's, and that
        before its function's or pool's. What `do` returns is the result (or a `Result`), what it raises a failure.
        `takes` is how long it takes on the virtual clock, as a timedelta or in seconds.
        """
        self._stage.stand_in(name, do, takes)

    def call(self, function: str, event: Any = None) -> Any:
        """Call a function with an event, as it is, and return its result, as JSON has it. Raises what it raises.

        No Task is made of it.
        """
        attempt = self._stage.begin_call(function, event)
        return self._stage.end_call(attempt, self._made(attempt))

    def submit(self, function: str, event: Any = None) -> str:
        """Call a function as a client does that does not wait for the answer. Returns the name of the call's Task."""
        return self._done(self._stage.works.submit(function, event))

    def module(self, function: str) -> ModuleType:
        """The module that a function's handler is in, for a test that has to change something in it."""
        return self._stage.module(function)

    # Objects.

    def apply(self, source: Source) -> None:
        """Change the project: by anything that a `Project` is made from, or by one object as a mapping."""
        self._done(self._stage.works.apply(source))

    def get(self, kind: str, name: str) -> Any:
        """An object, such as `get("Schedule", "nightly").status.next_run_time`. Raises `ApiError`, with 404."""
        return self._stage.do(self._stage.works.get(kind, name))

    def list(self, kind: str, labels: str = "") -> list[Any]:
        """The objects of a kind, by their names; `labels` is a selector, such as `app=shop`."""
        return self._stage.do(self._stage.works.list(kind, labels))

    def delete(self, kind: str, name: str) -> None:
        """Delete an object, and what it owns."""
        self._done(self._stage.works.delete(kind, name))

    def pause(self, schedule: str) -> None:
        """Stop a schedule from ticking. What runs goes on."""
        self._done(self._stage.works.enable(schedule, enabled=False))

    def resume(self, schedule: str) -> None:
        """Let a schedule tick again. What it missed while it was paused is not made up for."""
        self._done(self._stage.works.enable(schedule, enabled=True))

    def run(self, schedule: str) -> Run:
        """Run a schedule now, beside its ticks."""
        task = self._done(self._stage.works.run(schedule))
        return next(run for run in self.runs(schedule) if run.task == task)

    def cancel(self, task: str) -> None:
        """Ask a Task to end."""
        self._done(self._stage.works.cancel(task))

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

        `lease` is how long it is held unless it is renewed, `wait` how long it waits for an instance: timedeltas, or
        seconds; by default as the kind and the pool say.
        """
        made = self._done(self._stage.works.claim(pool, name, lease=lease, wait=wait, priority=priority))
        return self.get("Claim", made)

    def renew(self, claim: str) -> None:
        """Renew the lease of a claim, from now on."""
        self._done(self._stage.works.renew(claim))

    def release(self, claim: str) -> None:
        """Release a claim: its instance is made ready for the next one."""
        self._done(self._stage.works.release(claim))

    def kill(self, instance: str) -> None:
        """Kill what runs in an instance, a worker's too. It is started again, as on a server."""
        self._done(self._stage.works.kill(instance))

    def _done(self, work: Coroutine[Any, Any, R]) -> R:
        """Have something done, with all that follows from it at once."""
        done = self._stage.do(work)
        self._go(self._stage.at)
        return done


async def _awaited(found: Any) -> Any:
    return await found


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
