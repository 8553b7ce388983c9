"""Schedule: every tick of its cron becomes one Task, exactly one, whatever dies, is repeated or is set meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import islice
from typing import Any, NamedTuple, cast

from rota.api import Condition, Object, Schedule, Task
from rota.api.cron import BadCron, Cron, cron
from rota.api.function import ScheduleStatus
from rota.api.problems import invalid
from rota.api.zones import NoSuchZone
from rota.client import Key
from rota.control.gate import ReadyGate, status_of, with_conditions
from rota.control.plane import HERE, Plane
from rota.control.schedules.ahead import READY_MAX, Ahead
from rota.control.schedules.firing import Firing, Shot
from rota.control.schedules.keeping import Keeping, release
from rota.control.schedules.making import COUNTED
from rota.control.schedules.planner import Plan, plan
from rota.control.schedules.regions import region_of
from rota.control.schedules.runs import Run, Runs, to_note, told, too_many
from rota.control.schedules.statuses import (
    INVALID_SCHEDULE,
    Problem,
    clock_behind,
    pause_before,
    planned,
    problem_said,
    said,
    template_problem,
)
from rota.control.schedules.ticker import LOOK_SECONDS, Ticker
from rota.engine import DONE, Context, Done, Outcome, Promise
from rota.engine.objects import get
from rota.registry import ApiError

log = logging.getLogger(__name__)

BATCH_SCHEDULES_MAX = 50
"""Schedules that fire in one commit."""
READY_BATCH = 100
"""Of those that were made ready before: there is little left to do for each."""
PREPARE_SECONDS = 0.5
"""How often it is looked whether there is something to make ready."""
RETRY_SECONDS = 1.0
"""After which a schedule that could not be fired is tried again."""
CONCURRENCY = 64
SPIN_RUNS_MAX = 5_000
"""News of each Task is news of its schedule, and many may be under way."""
PRUNED_AT_ONCE_MAX = 100
"""Tasks of one schedule that are deleted in one look."""


class Standing(NamedTuple):
    """What is to be said of a schedule, and when it is due."""

    status: ScheduleStatus
    problem: Problem | None
    due: float | None
    prunable: list[Run]


class Schedules(ReadyGate[Schedule]):
    """Says how schedules are, and fires those that are due, all of them by one timer."""

    owns = (Task,)
    concurrency = CONCURRENCY
    spin_runs_max = SPIN_RUNS_MAX

    def __init__(self, look_seconds: float = LOOK_SECONDS, plane: Plane = HERE) -> None:
        super().__init__(Schedule)
        self._plane = plane
        self._look_seconds = look_seconds
        self._runs = Runs()
        self._keeping = Keeping()
        self._written: dict[str, float] = {}
        """When the status of a schedule was written, as long as what came of its last run is not."""
        self._wake: Callable[[Key], None] = lambda key: None
        self._context: Context | None = None
        self._ticker: Ticker | None = None
        self._ahead: Ahead | None = None
        self._firing: asyncio.Task[None] | None = None
        self._preparing: asyncio.Task[None] | None = None
        self._prepare_again = 0.0

    def begin(self, wake: Callable[[Key], None]) -> Callable[[], None]:
        self._wake = wake
        return self._end

    def _end(self) -> None:
        if self._ticker is not None:
            self._ticker.stop()
        for task in (self._firing, self._preparing):
            if task is not None:
                task.cancel()
        self._context = self._ticker = self._ahead = self._firing = self._preparing = None
        self._runs.clear()
        self._keeping.clear()
        self._written.clear()

    def _prepare(self, context: Context) -> Ticker:
        self._context = context
        if self._ticker is None:
            self._ticker = Ticker(
                context.clock, self._fire_soon, self._prepare_soon, self._look_at_all, self._look_seconds
            )
            self._ahead = Ahead(self._ticker.heap, self._runs, lambda id_: _find(context, id_))
        return self._ticker

    def wants(self, old: Object | None, new: Object | None) -> bool:
        if not isinstance(new or old, Task):
            return True
        before, after = cast("Task | None", old), cast("Task | None", new)
        waits = self._keeping.hear(before, after)
        return self._runs.hear(before, after) or waits

    async def gone(self, context: Context, key: Key) -> Outcome:
        for name in [*self._keeping.of(key)]:
            await release(context.client, key.namespace, name)
        id_ = Schedule.api.key(*key)
        self._written.pop(id_, None)
        if self._ticker is not None:
            self._ticker.set(id_, None)
        return DONE

    # Looking at one.

    def reconcile(self, context: Context, key: Key) -> Promise:
        return self._in_passing(context, key) or super().reconcile(context, key)

    def _in_passing(self, context: Context, key: Key) -> Outcome | None:
        """Return the outcome of a schedule that is as it should be and waits for its time: most are."""
        ticker = self._prepare(context)
        obj = get(context.objects, Schedule, key.name, key.namespace)
        if obj is None or obj.metadata.deletion_timestamp is not None or context.held_up(obj) is not None:
            ticker.set(context.id, None)
            return None
        standing = self._standing(context, obj, status_of(obj))
        if standing.problem is not None or standing.prunable:
            return None
        if self._keeping.of(key) or to_note(status_of(obj), self._runs.of(obj)):
            return None
        pause = self._pause(context, obj, standing) if standing.status != status_of(obj) else None
        if pause == 0.0:
            return None
        if pause is None:
            self._written.pop(context.id, None)
        ticker.set(context.id, standing.due)
        return DONE if pause is None else Done(again_after=pause)

    def _pause(self, context: Context, obj: Schedule, standing: Standing) -> float:
        """Seconds before the status is written: what comes of a run soon is written with it."""
        written = self._written.get(context.id)
        ago = context.clock.now() - written if written is not None else float("inf")
        return pause_before(obj.status, standing.status, ago)

    async def sync(self, context: Context, obj: Schedule) -> Outcome:
        self._prepare(context).set(context.id, None)
        await self._let_go(context, obj)
        return await super().sync(context, obj)

    async def _let_go(self, context: Context, obj: Schedule) -> None:
        """Let go of the Tasks of ticks that are written down: the process that made them had no time for it."""
        meta, last = obj.metadata, status_of(obj).last_scheduled_time
        newest = last.timestamp() if last is not None else 0.0
        for name, tick in [*self._keeping.of(Key(meta.namespace, meta.name)).items()]:
            if tick <= newest or meta.deletion_timestamp is not None:
                await release(context.client, meta.namespace, name)

    async def go_on(self, context: Context, obj: Schedule, opened: list[Condition]) -> Outcome:
        id_ = context.id
        standing = self._standing(context, obj, with_conditions(context, obj, opened))
        # It does not wait for what is written: that may be refused, and looked at again.
        self._prepare(context).set(id_, standing.due)
        pause = 0.0
        if standing.status != status_of(obj):
            pause = self._pause(context, obj, standing)
            if not pause:
                await context.write_status(obj, standing.status)
        if not pause:
            self._written.pop(id_, None)
        if standing.problem is not None:
            context.tell_once(obj, standing.problem.reason, standing.problem.message)
        await self._note_counted(context, obj, status_of(obj) if pause else standing.status)
        await self._prune(context, obj, standing.prunable)
        return Done(again_after=pause) if pause else DONE

    def _standing(self, context: Context, obj: Schedule, status: ScheduleStatus) -> Standing:
        """How a schedule stands whose references are all there. What is new goes into the status."""
        now, runs = context.clock.time(), self._runs.of(obj)
        region, ticking = region_of(obj.spec.regions, self._plane), _cron_of(obj)
        # A registry in this process has refused what a cluster's API server cannot see.
        template = None if context.client.in_process else template_problem(obj)
        problem = next((one for one in (ticking, template, region) if isinstance(one, Problem)), None)
        due: float | None = None
        if isinstance(ticking, Problem):
            status = planned(status, Plan(), f"{obj.spec.time_zone} {' '.join(obj.spec.cron.split())}")
        elif problem is None:
            found = plan(obj, ticking, runs, now)
            due = now if found.is_due else found.wake
            if not found.is_due:
                status = planned(status, found, ticking.text)
            problem = clock_behind(obj, now) or problem_said(obj)
        newest = status.last_scheduled_time
        prunable = too_many(runs, obj.spec.history, None if newest is None else int(newest.timestamp()))
        city = region if isinstance(region, str) else None
        return Standing(said(obj, told(status, runs), problem, city, now), problem, due, prunable)

    async def _note_counted(self, context: Context, obj: Schedule, status: ScheduleStatus) -> None:
        """Note on the Tasks of runs by hand that the schedule has counted them: from then on they may go."""
        for run in to_note(status, self._runs.of(obj)):
            noted = {"metadata": {"uid": run.uid, "annotations": {COUNTED: "true"}}}
            try:
                await context.client.patch(Task.api, run.name, noted, namespace=obj.metadata.namespace)
            except ApiError as error:
                if error.code not in (404, 409):
                    raise

    async def _prune(self, context: Context, obj: Schedule, runs: list[Run]) -> None:
        kind: Any = Task
        for run in runs[:PRUNED_AT_ONCE_MAX]:
            try:
                await context.client.delete(kind, run.name, namespace=obj.metadata.namespace, uid=run.uid)
            except ApiError as error:
                if error.code not in (404, 409):
                    raise

    def _look_at_all(self) -> None:
        """The clock was set back: some are silent now for a while, and have to say so."""
        assert self._ticker is not None
        for id_ in self._ticker.heap:
            self._wake(_key(id_))

    # Firing those that are due.

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
            self._preparing = asyncio.get_running_loop().create_task(self._make_ready(), name="schedules ahead")

    async def _make_ready(self) -> None:
        context, ahead = self._context, self._ahead
        assert context is not None and ahead is not None
        try:
            await ahead.prepare(Firing(context, self._runs, _firing_cron), context.clock.time())
        except Exception:
            log.exception("what is due soon could not be made ready; it is fired all the same")
        finally:
            if self._ahead is ahead:
                self._preparing = None

    async def _fire(self) -> None:
        """Fire what is due, in batches, until nothing is."""
        context, ticker = self._context, self._ticker
        assert context is not None and ticker is not None
        firing = Firing(context, self._runs, _firing_cron)
        try:
            if self._ahead:
                await self._fire_ready(context, ticker, firing, self._ahead)
            while ids := ticker.heap.pop_due(context.clock.time(), BATCH_SCHEDULES_MAX):
                await self._fire_batch(context, ticker, firing, ids)
        finally:
            if self._ticker is ticker:
                self._firing = None
                ticker.go_on()

    async def _fire_batch(self, context: Context, ticker: Ticker, firing: Firing, ids: list[str]) -> None:
        shots: dict[str, Shot] = {}
        for id_ in ids:
            obj = _find(context, id_)
            aimed = firing.aim(obj) if obj is not None else None
            if isinstance(aimed, Shot):
                shots[id_] = aimed
            else:
                ticker.set(id_, aimed)
        await self._shoot(context, ticker, firing, shots)

    async def _fire_ready(self, context: Context, ticker: Ticker, firing: Firing, ahead: Ahead) -> None:
        """Fire what was made ready, all of it at once. What is not is due as before."""
        now = context.clock.time()
        ready: dict[str, Shot] = {}
        for id_ in ticker.heap.pop_due(now, READY_MAX):
            shot = ahead.take(id_, now)
            if shot is not None:
                ready[id_] = shot
            else:
                ticker.heap.set(id_, now)
        parts = [dict(islice(ready.items(), at, at + READY_BATCH)) for at in range(0, len(ready), READY_BATCH)]
        await asyncio.gather(*(self._shoot(context, ticker, firing, part) for part in parts))

    async def _shoot(self, context: Context, ticker: Ticker, firing: Firing, shots: dict[str, Shot]) -> None:
        """Together if it can be, or else one by one."""
        if not shots:
            return
        try:
            together = await firing.together([*shots.values()])
        except Exception as error:
            self._again(context, ticker, list(shots), error)
            return
        for id_, shot in shots.items():
            if together:
                self._fired(context, ticker, id_, shot.plan.wake)
                continue
            try:
                self._fired(context, ticker, id_, await firing.alone(shot.schedule))
            except Exception as error:
                self._again(context, ticker, [id_], error)

    def _fired(self, context: Context, ticker: Ticker, id_: str, wake: float | None) -> None:
        self._written[id_] = context.clock.now()
        ticker.set(id_, wake)

    def _again(self, context: Context, ticker: Ticker, ids: list[str], error: Exception) -> None:
        """They could not be fired now. Nothing is lost by that but time."""
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
    """The cron of a schedule that may fire."""
    found = _cron_of(obj) if obj.metadata.deletion_timestamp is None else None
    return found if isinstance(found, Cron) else None


def _find(context: Context, id_: str) -> Schedule | None:
    namespace, name = _key(id_)
    return get(context.objects, Schedule, name, namespace)


def _key(id_: str) -> Key:
    """Of a node, which is what schedules go by here too: the text is there already."""
    _, namespace, name = id_.split("/", 2)
    return Key(namespace, name)
