"""Fire schedules: create the Tasks of their ticks and write their status, in one commit if the server can.

The commit has the schedule's resourceVersion as its precondition, and the name of a Task follows from its tick. So two
processes that both take themselves for the leader do not fire a tick twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from rota.api import Schedule, Task
from rota.api.cron import Cron
from rota.api.function import ScheduleStatus
from rota.client import Operation, status_body
from rota.control.gate import Problem, status_of
from rota.control.schedules.finalizers import release, with_finalizer
from rota.control.schedules.making import Body, task_name, task_of
from rota.control.schedules.planner import TickPlan, plan
from rota.control.schedules.runs import Run, ScheduleRuns, identity, schedule_of, with_runs
from rota.control.schedules.statuses import (
    INVALID_TASK,
    invalid_task,
    recorded_problem,
    with_error,
    with_plan,
    with_ready,
)
from rota.control.writing import unless_overtaken
from rota.engine import Context
from rota.engine.references import id_of
from rota.registry import ApiError
from rota.registry.amendment import Amendment
from rota.registry.errors import conflict

log = logging.getLogger(__name__)

TRIES_MAX = 5
"""Tries to fire a schedule that others change meanwhile."""

_MADE: Body = {}
CANCEL: Body = {"spec": {"cancel": True}}

Read = Callable[[Schedule], Cron | None]
"""Returns the cron of a schedule; None: the schedule must not fire."""


class TickTask(NamedTuple):
    tick: int
    name: str
    body: Body

    @property
    def run(self) -> Run:
        return Run(self.name, "", self.tick, manual=False, phase="")


class Launch(NamedTuple):
    """The writes by which one schedule fires: new Tasks, Tasks to cancel, and the next status."""

    schedule: Schedule
    plan: TickPlan
    tasks: tuple[TickTask, ...]
    cancel: tuple[str, ...]
    status: ScheduleStatus
    prepared: Sequence[Operation] = ()
    """The operations, if they were prepared; otherwise empty."""

    def operations(self, *, quick: bool) -> Sequence[Operation]:
        """Return the writes. `quick`: in the form that only the registry of this process takes."""
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

    def __init__(self, context: Context, runs: ScheduleRuns, read: Read) -> None:
        self._context = context
        self._client = context.client
        self._runs = runs
        self._read = read

    def plan_launch(self, schedule: Schedule, now: float | None = None) -> Launch | float | None:
        """Plan the launch of a schedule now, or for a later moment.

        Returns the time at which the schedule is due if that is after the moment; None: never.
        """
        cron = self._read(schedule)
        if cron is None:
            return None
        now = self._context.clock.time() if now is None else now
        found = plan(schedule, cron, self._runs.of(schedule), now)
        if not found.is_due:
            return found.wake
        names = {tick: task_name(schedule, tick) for tick in found.fire}
        tasks = tuple(TickTask(tick, name, task_of(schedule, tick, name)) for tick, name in names.items())
        return self._launch(schedule, found, tasks, cron.text)

    def _launch(
        self,
        schedule: Schedule,
        found: TickPlan,
        tasks: tuple[TickTask, ...],
        text: str,
        problem: Problem | None = None,
    ) -> Launch:
        # The runs may include a Task of this launch that was created already.
        made = {task.name: task.run for task in tasks}
        runs = (made | {run.name: run for run in self._runs.of(schedule)}).values()
        status = with_runs(with_plan(status_of(schedule), found, text), runs)
        if problem is not None:
            status = with_error(status, problem)
        elif not found.fire and not found.found:
            problem = recorded_problem(schedule)
        status = with_ready(schedule, status, problem, status.region, self._context.clock.time())
        return Launch(schedule, found, tasks, found.cancel, status)

    def prepared(self, schedule: Schedule, due: float) -> Launch | None:
        """Prepare the launch of a schedule for when it is due; None: it cannot be prepared."""
        planned_launch = self.plan_launch(schedule, due)
        if not isinstance(planned_launch, Launch):
            return None
        try:
            prepared = self._client.prepare(planned_launch.operations(quick=True), due)
        except ApiError as error:
            log.debug("%s cannot be prepared: %s", id_of(schedule), error)
            return None
        # The bodies are in `prepared`: to save memory, they are kept only once.
        return planned_launch._replace(
            prepared=prepared, tasks=tuple(task._replace(body=_MADE) for task in planned_launch.tasks)
        )

    async def fire_together(self, launches: Sequence[Launch]) -> bool:
        """Fire several schedules in one commit. Returns False if nothing was written."""
        if not self._client.atomic:
            return False
        try:
            await self._commit(launches)
        except ApiError as error:
            log.debug("%d schedules cannot fire together: %s", len(launches), error)
            return False
        return True

    async def fire_one(self, schedule: Schedule) -> float | None:
        """Fire one schedule; after a conflict, try again. Returns when it is due again. Raises ApiError, OSError."""
        for left in reversed(range(TRIES_MAX)):
            planned_launch = self.plan_launch(schedule)
            if not isinstance(planned_launch, Launch):
                return planned_launch
            try:
                await (
                    self._fire_in_one_commit(planned_launch)
                    if self._client.atomic
                    else self._fire_in_steps(planned_launch)
                )
            except ApiError as error:
                if error.reason != "Conflict" or not left:
                    raise
            else:
                return planned_launch.plan.wake
            fresh = await self._fresh(schedule)
            if fresh is None:
                return None
            schedule = fresh
        raise AssertionError("the last try returns or raises")

    async def _fire_in_one_commit(self, launch: Launch) -> None:
        """Fire in one commit, without the Tasks that the server refuses."""
        try:
            await self._commit([launch])
        except ApiError as error:
            if not self._client.atomic:
                await self._fire_in_steps(launch)
                return
            if _is_passing(error):
                raise
        else:
            return
        await self._cancel(launch)
        accepted = await self._accepted(launch, dry_run=True)
        await self._commit([accepted._replace(cancel=())])

    async def _fire_in_steps(self, launch: Launch) -> None:
        """Fire in several writes: create the Tasks with a finalizer, write the status, remove the finalizers.

        A Task with the finalizer cannot vanish, so that a repeated creation finds it. A recorded Task can vanish: so
        the schedule is read from the server first, since the cache may lag behind.
        """
        meta = launch.schedule.metadata
        fresh = await self._fresh(launch.schedule)
        if fresh is None or fresh.metadata.resource_version != meta.resource_version:
            raise conflict(Schedule.api, meta.name)
        made = await self._accepted(
            launch._replace(tasks=tuple(task._replace(body=with_finalizer(task.body)) for task in launch.tasks)),
            dry_run=False,
        )
        await self._cancel(launch)
        self._note([made])
        await self._context.write_status(launch.schedule, made.status)
        for tick in (*launch.plan.found, *launch.plan.fire):
            await release(self._client, meta.namespace, task_name(launch.schedule, tick))

    async def _accepted(self, launch: Launch, *, dry_run: bool) -> Launch:
        """Create the Tasks, and return the launch without the Tasks that the server refuses.

        A tick whose Task is refused is skipped; one whose Task exists counts as fired. A dry run creates nothing, and
        leaves the Tasks in the launch that do not exist yet.
        """
        left: list[TickTask] = []
        missing: list[int] = []
        problem: Problem | None = None
        for task in launch.tasks:
            try:
                await self._client.create(task.body, dry_run=dry_run)
                left.append(task)
            except ApiError as error:
                if _is_passing(error):
                    raise
                wrong = await self._in_the_way(launch.schedule, task, error)
                if wrong is not None:
                    problem = wrong
                    missing.append(task.tick)
        if problem is not None:
            self._context.warn_once(launch.schedule, problem.reason, problem.message)
        fire = tuple(tick for tick in launch.plan.fire if tick not in missing)
        found = launch.plan._replace(fire=fire, skipped=launch.plan.skipped + len(missing))
        return self._launch(launch.schedule, found, tuple(left), launch.status.observed_cron or "", problem)

    async def _in_the_way(self, schedule: Schedule, task: TickTask, error: ApiError) -> Problem | None:
        """Return the problem because of which a Task could not be created; None: it exists, and is this schedule's."""
        if error.reason != "AlreadyExists":
            return invalid_task(error)
        name = task.run.name
        there: Task = await self._client.get(Task, name, namespace=schedule.metadata.namespace)
        if schedule_of(there) == identity(schedule):
            return None
        return Problem(INVALID_TASK, f"Task/{name} exists and is not of this schedule: delete it")

    async def _cancel(self, launch: Launch) -> None:
        for name in launch.cancel:
            await unless_overtaken(
                self._client.patch(Task.api, name, CANCEL, namespace=launch.schedule.metadata.namespace)
            )

    async def _commit(self, launches: Sequence[Launch]) -> None:
        quick = self._client.in_process
        for launch in launches:
            self._context.memory.expect(id_of(launch.schedule), launch.status)
        try:
            await self._client.batch([one for launch in launches for one in launch.operations(quick=quick)], typed=True)
        except BaseException:
            for launch in launches:
                self._context.memory.unexpect(id_of(launch.schedule))
            raise
        self._note(launches)

    async def _fresh(self, schedule: Schedule) -> Schedule | None:
        """Read a schedule from the server, since the cache may lag behind; None: it is gone."""
        meta = schedule.metadata
        try:
            found: Schedule = await self._client.get(Schedule, meta.name, namespace=meta.namespace)
        except ApiError as error:
            if error.code == 404:
                return None
            raise
        return found if found.metadata.uid == meta.uid else None

    def _note(self, launches: Sequence[Launch]) -> None:
        """Count created Tasks at once, before their watch events arrive."""
        for launch in launches:
            for task in launch.tasks:
                self._runs.add(launch.schedule, task.run)


def _is_passing(error: ApiError) -> bool:
    """Report whether the same write may succeed later."""
    return error.reason == "Conflict" or error.code >= 500 or error.code == 429
