"""Firing: the Tasks of ticks are made and written down, those of many schedules in one commit where the server can.

Whoever fires has read the schedule, and what it writes is refused when that has changed since. So two processes that
both take themselves for the leader do not fire a tick twice; the names of Tasks do the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from rota.api import Schedule, Task
from rota.api.cron import Cron
from rota.api.function import ScheduleStatus
from rota.client import Operation, status_body
from rota.control.gate import status_of
from rota.control.schedules.keeping import kept, release
from rota.control.schedules.making import Body, task_name, task_of
from rota.control.schedules.planner import Plan, plan
from rota.control.schedules.runs import Run, Runs, identity, schedule_of, told
from rota.control.schedules.statuses import INVALID_TASK, Problem, invalid_task, planned, problem_said, refused, said
from rota.engine import Context
from rota.engine.references import id_of
from rota.registry import ApiError
from rota.registry.amendment import Amendment
from rota.registry.errors import conflict

log = logging.getLogger(__name__)

TRIES_MAX = 5
"""Of firing, where others change the schedule meanwhile."""

_MADE: Body = {}
CANCEL: Body = {"spec": {"cancel": True}}

Read = Callable[[Schedule], Cron | None]
"""The cron of a schedule that may fire; None if it may not."""


class Made(NamedTuple):
    """A Task of a tick."""

    tick: int
    name: str
    body: Body

    @property
    def run(self) -> Run:
        return Run(self.name, "", self.tick, manual=False, phase="")


class Shot(NamedTuple):
    """A schedule that fires: what is made, and what it says then."""

    schedule: Schedule
    plan: Plan
    tasks: tuple[Made, ...]
    cancel: tuple[str, ...]
    status: ScheduleStatus
    prepared: Sequence[Operation] = ()
    """What is to be written, decided already."""

    def operations(self, *, quick: bool) -> Sequence[Operation]:
        """`quick`: for the registry of this process."""
        if self.prepared:
            return self.prepared
        namespace = self.schedule.metadata.namespace
        return [
            *(Operation("create", Task.api, namespace, body=task.body) for task in self.tasks),
            *(Operation("patch", Task.api, namespace, name, body=CANCEL) for name in self.cancel),
            self._writing(quick),
        ]

    def _writing(self, quick: bool) -> Operation:
        meta = self.schedule.metadata
        where = (Schedule.api, meta.namespace, meta.name)
        if quick:
            status = msgspec.to_builtins(self.status)
            return Operation("amend", *where, Amendment(meta.uid, meta.resource_version, status=status))
        written = status_body(msgspec.structs.replace(self.schedule, status=self.status))
        return Operation("update", *where, written, subresource="status")


class Firing:
    """Fires schedules that are due."""

    def __init__(self, context: Context, runs: Runs, read: Read) -> None:
        self._context = context
        self._client = context.client
        self._runs = runs
        self._read = read

    def aim(self, schedule: Schedule, now: float | None = None) -> Shot | float | None:
        """What a schedule does now, or at a moment to come; or when it is due, if it does nothing then."""
        cron = self._read(schedule)
        if cron is None:
            return None
        now = self._context.clock.time() if now is None else now
        found = plan(schedule, cron, self._runs.of(schedule), now)
        if not found.is_due:
            return found.wake
        names = {tick: task_name(schedule, tick) for tick in found.fire}
        tasks = tuple(Made(tick, name, task_of(schedule, tick, name)) for tick, name in names.items())
        return self._shot(schedule, found, tasks, cron.text)

    def _shot(
        self, schedule: Schedule, found: Plan, tasks: tuple[Made, ...], text: str, problem: Problem | None = None
    ) -> Shot:
        # One that was made already may have been heard of.
        made = {task.name: task.run for task in tasks}
        runs = (made | {run.name: run for run in self._runs.of(schedule)}).values()
        status = told(planned(status_of(schedule), found, text), runs)
        if problem is not None:
            status = refused(status, problem)
        elif not found.fire and not found.found:
            problem = problem_said(schedule)
        status = said(schedule, status, problem, status.region, self._context.clock.time())
        return Shot(schedule, found, tasks, found.cancel, status)

    def prepared(self, schedule: Schedule, due: float) -> Shot | None:
        """What a schedule will do when it is due, made ready; None if nothing can be said of that now."""
        aimed = self.aim(schedule, due)
        if not isinstance(aimed, Shot):
            return None
        try:
            prepared = self._client.prepare(aimed.operations(quick=True), due)
        except ApiError as error:
            log.debug("%s cannot be made ready: %s", id_of(schedule), error)
            return None
        # Of many, all that is kept is what is left to do.
        return aimed._replace(prepared=prepared, tasks=tuple(task._replace(body=_MADE) for task in aimed.tasks))

    async def together(self, shots: Sequence[Shot]) -> bool:
        """Fire several in one commit. Whether that was done; if not, nothing was."""
        if not self._client.atomic:
            return False
        try:
            await self._commit(shots)
        except ApiError as error:
            log.debug("%d schedules cannot fire together: %s", len(shots), error)
            return False
        return True

    async def alone(self, schedule: Schedule) -> float | None:
        """Fire one, whatever is in the way of that. Returns when it is due again. Raises ApiError, OSError."""
        for left in reversed(range(TRIES_MAX)):
            aimed = self.aim(schedule)
            if not isinstance(aimed, Shot):
                return aimed
            try:
                await (self._at_once(aimed) if self._client.atomic else self._step_by_step(aimed))
            except ApiError as error:
                if error.reason != "Conflict" or not left:
                    raise
            else:
                return aimed.plan.wake
            fresh = await self._fresh(schedule)
            if fresh is None:
                return None
            schedule = fresh
        raise AssertionError("the last try returns or raises")

    async def _at_once(self, shot: Shot) -> None:
        """In one commit. Nothing is made that is not written down, whoever else fires."""
        try:
            await self._commit([shot])
        except ApiError as error:
            if not self._client.atomic:
                await self._step_by_step(shot)
                return
            if _is_passing(error):
                raise
        else:
            return
        await self._cancel(shot)
        possible = await self._possible(shot, dry_run=True)
        await self._commit([possible._replace(cancel=())])

    async def _step_by_step(self, shot: Shot) -> None:
        """Where there is no such thing as one commit: make, write down, let go.

        Made a second time, it is there already: it cannot vanish before it is written down. After that it can, so it
        is looked first whether it is; what is known here may be behind.
        """
        meta = shot.schedule.metadata
        fresh = await self._fresh(shot.schedule)
        if fresh is None or fresh.metadata.resource_version != meta.resource_version:
            raise conflict(Schedule.api, meta.name)
        made = await self._possible(
            shot._replace(tasks=tuple(task._replace(body=kept(task.body)) for task in shot.tasks)), dry_run=False
        )
        await self._cancel(shot)
        self._note([made])
        await self._context.write_status(shot.schedule, made.status)
        for tick in (*shot.plan.found, *shot.plan.fire):
            await release(self._client, meta.namespace, task_name(shot.schedule, tick))

    async def _possible(self, shot: Shot, *, dry_run: bool) -> Shot:
        """What the server takes of it. A tick whose Task it does not take is passed over; one that is there was fired.

        With a dry run only those that are still to be made are left in it.
        """
        left: list[Made] = []
        missing: list[int] = []
        problem: Problem | None = None
        for task in shot.tasks:
            try:
                await self._client.create(task.body, dry_run=dry_run)
                left.append(task)
            except ApiError as error:
                if _is_passing(error):
                    raise
                wrong = await self._in_the_way(shot.schedule, task, error)
                if wrong is not None:
                    problem = wrong
                    missing.append(task.tick)
        if problem is not None:
            self._context.warn_once(shot.schedule, problem.reason, problem.message)
        fire = tuple(tick for tick in shot.plan.fire if tick not in missing)
        found = shot.plan._replace(fire=fire, skipped=shot.plan.skipped + len(missing))
        return self._shot(shot.schedule, found, tuple(left), shot.status.observed_cron or "", problem)

    async def _in_the_way(self, schedule: Schedule, task: Made, error: ApiError) -> Problem | None:
        """Why a Task is not made; None if it was made before."""
        if error.reason != "AlreadyExists":
            return invalid_task(error)
        kind: Any = Task
        name = task.run.name
        there: Task = await self._client.get(kind, name, namespace=schedule.metadata.namespace)
        if schedule_of(there) == identity(schedule):
            return None
        return Problem(INVALID_TASK, f"there is a Task/{name} that is not of this schedule: delete it")

    async def _cancel(self, shot: Shot) -> None:
        for name in shot.cancel:
            try:
                await self._client.patch(Task.api, name, CANCEL, namespace=shot.schedule.metadata.namespace)
            except ApiError as error:
                if error.code not in (404, 409):
                    raise

    async def _commit(self, shots: Sequence[Shot]) -> None:
        quick = self._client.in_process
        for shot in shots:
            self._context.memory.expect(id_of(shot.schedule), shot.status)
        try:
            await self._client.batch([one for shot in shots for one in shot.operations(quick=quick)], typed=True)
        except BaseException:
            for shot in shots:
                self._context.memory.unexpect(id_of(shot.schedule))
            raise
        self._note(shots)

    async def _fresh(self, schedule: Schedule) -> Schedule | None:
        """A schedule as the server has it now: what is known of it may be behind."""
        kind: Any = Schedule
        meta = schedule.metadata
        try:
            found: Schedule = await self._client.get(kind, meta.name, namespace=meta.namespace)
        except ApiError as error:
            if error.code == 404:
                return None
            raise
        return found if found.metadata.uid == meta.uid else None

    def _note(self, shots: Sequence[Shot]) -> None:
        """What was made counts at once, also where the news of it takes a while."""
        for shot in shots:
            for task in shot.tasks:
                self._runs.note(shot.schedule, task.run)


def _is_passing(error: ApiError) -> bool:
    """Whether the same may be taken another time."""
    return error.reason == "Conflict" or error.code >= 500 or error.code == 429
