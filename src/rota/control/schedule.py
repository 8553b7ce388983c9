"""The Schedule controller: it fires the ticks of a cron, each as one Task, and writes the status."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple, cast

from rota.api import Condition, Object, Schedule, Task
from rota.api.cron import BadCron, Cron, cron
from rota.api.function import ScheduleStatus
from rota.api.problems import invalid
from rota.api.zones import NoSuchZone
from rota.client import Key
from rota.control.gate import Problem, ReadyGate, status_of, with_conditions
from rota.control.plane import HERE, Plane, region_of
from rota.control.schedules.finalizers import UnrecordedTasks, release
from rota.control.schedules.firing import Firing, Launch
from rota.control.schedules.making import COUNTED
from rota.control.schedules.planner import TickPlan, plan
from rota.control.schedules.prepared import READY_MAX, PreparedLaunches
from rota.control.schedules.runs import Run, ScheduleRuns, to_note, too_many, with_runs
from rota.control.schedules.statuses import (
    INVALID_SCHEDULE,
    clock_behind,
    pause_before,
    recorded_problem,
    template_problem,
    with_plan,
    with_ready,
)
from rota.control.schedules.ticker import LOOK_SECONDS, Ticker
from rota.control.writing import unless_overtaken
from rota.engine import DONE, Context, Done, Outcome, Promise
from rota.engine.objects import get
from rota.registry import ApiError

log = logging.getLogger(__name__)

BATCH_SCHEDULES_MAX = 50
"""Schedules that fire in one commit."""
READY_BATCH = 100
"""Prepared schedules that fire in one commit. They are more, since each takes less time."""
PREPARE_SECONDS = 0.5
"""Pause between two passes that prepare launches."""
RETRY_SECONDS = 1.0
"""Pause before a schedule that could not fire is tried again."""
CONCURRENCY = 64
SPIN_RUNS_MAX = 5_000
"""Reconciliations of a schedule that are not a spin: each change of one of its many Tasks may wake it."""
PRUNED_AT_ONCE_MAX = 100
"""The most Tasks of one schedule that are deleted in one reconciliation."""


class ScheduleState(NamedTuple):
    """The next status of a schedule, and the time at which the schedule is due."""

    status: ScheduleStatus
    problem: Problem | None
    due: float | None
    prunable: list[Run]


class Schedules(ReadyGate[Schedule]):
    """Writes the status of schedules, and fires those that are due, with one timer for all."""

    owns = (Task,)
    concurrency = CONCURRENCY
    spin_runs_max = SPIN_RUNS_MAX

    def __init__(self, look_seconds: float = LOOK_SECONDS, plane: Plane = HERE) -> None:
        super().__init__(Schedule)
        self._plane = plane
        self._look_seconds = look_seconds
        self._runs = ScheduleRuns()
        self._unrecorded = UnrecordedTasks()
        self._written: dict[str, float] = {}
        """The time of the last write of each status that lacks results of runs."""
        self._context: Context | None = None
        self._ticker: Ticker | None = None
        self._prepared: PreparedLaunches | None = None
        self._firing: asyncio.Task[None] | None = None
        self._preparing: asyncio.Task[None] | None = None
        self._prepare_again = 0.0

    def begin(self, wake: Callable[[Key], None]) -> Callable[[], None]:
        return self._end

    def _end(self) -> None:
        if self._ticker is not None:
            self._ticker.stop()
        for task in (self._firing, self._preparing):
            if task is not None:
                task.cancel()
        self._context = self._ticker = self._prepared = self._firing = self._preparing = None
        self._runs.clear()
        self._unrecorded.clear()
        self._written.clear()

    def _prepare(self, context: Context) -> Ticker:
        self._context = context
        if self._ticker is None:
            self._ticker = Ticker(
                context.clock, self._fire_soon, self._prepare_soon, self._look_at_all, self._look_seconds
            )
            self._prepared = PreparedLaunches(self._ticker.heap, self._runs, lambda id_: _find(context, id_))
        return self._ticker

    def wants(self, old: Object | None, new: Object | None) -> bool:
        if not isinstance(new or old, Task):
            return True
        before, after = cast("Task | None", old), cast("Task | None", new)
        waits = self._unrecorded.note_task(before, after)
        return self._runs.note_task(before, after) or waits

    async def gone(self, context: Context, key: Key) -> Outcome:
        for name in [*self._unrecorded.of(key)]:
            await release(context.client, key.namespace, name)
        id_ = Schedule.api.key(*key)
        self._written.pop(id_, None)
        if self._ticker is not None:
            self._ticker.set(id_, None)
        return DONE

    # Reconciling one.

    def reconcile(self, context: Context, key: Key) -> Promise:
        return self._reconcile_waiting(context, key) or super().reconcile(context, key)

    def _reconcile_waiting(self, context: Context, key: Key) -> Outcome | None:
        """Reconcile a schedule that only waits for its next tick, as most do. Returns None if there is more to do."""
        ticker = self._prepare(context)
        obj = get(context.objects, Schedule, key.name, key.namespace)
        if obj is None or obj.metadata.deletion_timestamp is not None or context.held_up(obj) is not None:
            ticker.set(context.id, None)
            return None
        state = self._state(context, obj, status_of(obj))
        if state.problem is not None or state.prunable:
            return None
        if self._unrecorded.of(key) or to_note(status_of(obj), self._runs.of(obj)):
            return None
        pause = self._pause(context, obj, state) if state.status != status_of(obj) else None
        if pause == 0.0:
            return None
        if pause is None:
            self._written.pop(context.id, None)
        ticker.set(context.id, state.due)
        return DONE if pause is None else Done(again_after=pause)

    def _pause(self, context: Context, obj: Schedule, state: ScheduleState) -> float:
        """Return the seconds before the status is written, so that results that come soon are written with it."""
        written = self._written.get(context.id)
        ago = context.clock.now() - written if written is not None else float("inf")
        return pause_before(obj.status, state.status, ago)

    async def sync(self, context: Context, obj: Schedule) -> Outcome:
        self._prepare(context).set(context.id, None)
        await self._release(context, obj)
        return await super().sync(context, obj)

    async def _release(self, context: Context, obj: Schedule) -> None:
        """Remove the finalizer of recorded Tasks: the process that created them ended before it could."""
        meta, last = obj.metadata, status_of(obj).last_scheduled_time
        newest = last.timestamp() if last is not None else 0.0
        for name, tick in [*self._unrecorded.of(Key(meta.namespace, meta.name)).items()]:
            if tick <= newest or meta.deletion_timestamp is not None:
                await release(context.client, meta.namespace, name)

    async def go_on(self, context: Context, obj: Schedule, opened: list[Condition]) -> Outcome:
        id_ = context.id
        state = self._state(context, obj, with_conditions(context, obj, opened))
        # Before the write, which may be refused: the schedule fires on time nevertheless.
        self._prepare(context).set(id_, state.due)
        pause = 0.0
        if state.status != status_of(obj):
            pause = self._pause(context, obj, state)
            if not pause:
                await context.write_status(obj, state.status)
        if not pause:
            self._written.pop(id_, None)
        if state.problem is not None:
            context.warn_once(obj, state.problem.reason, state.problem.message)
        await self._note_counted(context, obj, status_of(obj) if pause else state.status)
        await self._prune(context, obj, state.prunable)
        return Done(again_after=pause) if pause else DONE

    def _state(self, context: Context, obj: Schedule, status: ScheduleStatus) -> ScheduleState:
        """Compute the state of a schedule whose references are all there. `status` is what it is based on."""
        now, runs = context.clock.time(), self._runs.of(obj)
        region, ticking = region_of(obj.spec.regions, self._plane), _cron_of(obj)
        # The registry in this process refuses wrong templates; the API server of a cluster cannot check them.
        template = None if context.client.in_process else template_problem(obj)
        problem = next((one for one in (ticking, template, region) if isinstance(one, Problem)), None)
        due: float | None = None
        if isinstance(ticking, Problem):
            status = with_plan(status, TickPlan(), f"{obj.spec.time_zone} {' '.join(obj.spec.cron.split())}")
        elif problem is None:
            found = plan(obj, ticking, runs, now)
            due = now if found.is_due else found.wake
            if not found.is_due:
                status = with_plan(status, found, ticking.text)
            problem = clock_behind(obj, now) or recorded_problem(obj)
        newest = status.last_scheduled_time
        prunable = too_many(runs, obj.spec.history, None if newest is None else int(newest.timestamp()))
        city = region if isinstance(region, str) else None
        return ScheduleState(with_ready(obj, with_runs(status, runs), problem, city, now), problem, due, prunable)

    async def _note_counted(self, context: Context, obj: Schedule, status: ScheduleStatus) -> None:
        """Annotate the Tasks of manual runs that the schedule has counted: from then on they may be deleted."""
        for run in to_note(status, self._runs.of(obj)):
            noted = {"metadata": {"uid": run.uid, "annotations": {COUNTED: "true"}}}
            await unless_overtaken(context.client.patch(Task.api, run.name, noted, namespace=obj.metadata.namespace))

    async def _prune(self, context: Context, obj: Schedule, runs: list[Run]) -> None:
        for run in runs[:PRUNED_AT_ONCE_MAX]:
            await unless_overtaken(context.client.delete(Task, run.name, namespace=obj.metadata.namespace, uid=run.uid))

    def _look_at_all(self) -> None:
        """Reconcile all schedules after the clock was set back: some must report that they do not fire for a while."""
        assert self._ticker is not None and self._context is not None
        for id_ in self._ticker.heap:
            self._context.memory.wake(id_)

    # Firing.

    def _fire_soon(self) -> None:
        if self._firing is None:
            self._firing = asyncio.get_running_loop().create_task(self._fire(), name="schedules")

    def _prepare_soon(self) -> None:
        context = self._context
        assert context is not None
        now = context.clock.now()
        if (
            self._preparing is None
            and now >= self._prepare_again
            and context.client.atomic
            and context.client.in_process
        ):
            self._prepare_again = now + PREPARE_SECONDS
            self._preparing = asyncio.get_running_loop().create_task(self._make_ready(), name="schedules preparing")

    async def _make_ready(self) -> None:
        context, prepared = self._context, self._prepared
        assert context is not None and prepared is not None
        try:
            await prepared.prepare(Firing(context, self._runs, _firing_cron), context.clock.time())
        except Exception:
            log.exception("launches could not be prepared; the schedules fire all the same")
        finally:
            if self._prepared is prepared:
                self._preparing = None

    async def _fire(self) -> None:
        """Fire the due schedules, in batches, until none is due."""
        context, ticker = self._context, self._ticker
        assert context is not None and ticker is not None
        firing = Firing(context, self._runs, _firing_cron)
        try:
            if self._prepared:
                await self._fire_ready(context, ticker, firing, self._prepared)
            while ids := ticker.heap.pop_due(context.clock.time(), BATCH_SCHEDULES_MAX):
                await self._fire_batch(context, ticker, firing, ids)
        finally:
            if self._ticker is ticker:
                self._firing = None
                ticker.go_on()

    async def _fire_batch(self, context: Context, ticker: Ticker, firing: Firing, ids: list[str]) -> None:
        launches: dict[str, Launch] = {}
        for id_ in ids:
            obj = _find(context, id_)
            planned_launch = firing.plan_launch(obj) if obj is not None else None
            if isinstance(planned_launch, Launch):
                launches[id_] = planned_launch
            else:
                ticker.set(id_, planned_launch)
        await self._launch(context, ticker, firing, launches)

    async def _fire_ready(self, context: Context, ticker: Ticker, firing: Firing, prepared: PreparedLaunches) -> None:
        """Fire all schedules that are due and prepared. The others stay due."""
        now = context.clock.time()
        ready: dict[str, Launch] = {}
        for id_ in ticker.heap.pop_due(now, READY_MAX):
            launch = prepared.take(id_, now)
            if launch is not None:
                ready[id_] = launch
            else:
                ticker.heap.set(id_, now)
        parts = [dict(islice(ready.items(), at, at + READY_BATCH)) for at in range(0, len(ready), READY_BATCH)]
        await asyncio.gather(*(self._launch(context, ticker, firing, part) for part in parts))

    async def _launch(self, context: Context, ticker: Ticker, firing: Firing, launches: dict[str, Launch]) -> None:
        """Fire these schedules in one commit, or one by one if that fails."""
        if not launches:
            return
        try:
            together = await firing.fire_together([*launches.values()])
        except Exception as error:
            self._again(context, ticker, list(launches), error)
            return
        for id_, launch in launches.items():
            if together:
                self._fired(context, ticker, id_, launch.plan.wake)
                continue
            try:
                self._fired(context, ticker, id_, await firing.fire_one(launch.schedule))
            except Exception as error:
                self._again(context, ticker, [id_], error)

    def _fired(self, context: Context, ticker: Ticker, id_: str, wake: float | None) -> None:
        self._written[id_] = context.clock.now()
        ticker.set(id_, wake)

    def _again(self, context: Context, ticker: Ticker, ids: list[str], error: Exception) -> None:
        """Try schedules that could not fire again soon."""
        level = logging.WARNING if isinstance(error, ApiError | OSError) else logging.ERROR
        log.log(level, "%s: not fired: %s; again in %.1f s", ", ".join(ids), error, RETRY_SECONDS, exc_info=error)
        for id_ in ids:
            ticker.set(id_, context.clock.time() + RETRY_SECONDS)


def _cron_of(obj: Schedule) -> Cron | Problem:
    try:
        return cron(obj.spec.cron, obj.spec.time_zone)
    except BadCron as why:
        return Problem(INVALID_SCHEDULE, str(invalid("spec.cron", obj.spec.cron, str(why))))
    except NoSuchZone as why:
        return Problem(INVALID_SCHEDULE, str(invalid("spec.timeZone", obj.spec.time_zone, str(why))))


def _firing_cron(obj: Schedule) -> Cron | None:
    """Return the cron of a schedule; None: it must not fire."""
    found = _cron_of(obj) if obj.metadata.deletion_timestamp is None else None
    return found if isinstance(found, Cron) else None


def _find(context: Context, id_: str) -> Schedule | None:
    namespace, name = _key(id_)
    return get(context.objects, Schedule, name, namespace)


def _key(id_: str) -> Key:
    """Return the key of a schedule from its id in the engine and the heap."""
    _, namespace, name = id_.split("/", 2)
    return Key(namespace, name)
