"""The Function controller: it prepares code, keeps the workers that calls need, and writes the status."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, cast

import msgspec

from rota.api import BY_BUCKET, Condition, Function, Instance, Object
from rota.api.function import Calls as CallCounts
from rota.api.function import FunctionStatus, LoadedVersion
from rota.client import Client, Key
from rota.control.functions.asynchronous import AsynchronousCalls
from rota.control.functions.calls import Calls, FunctionListener
from rota.control.functions.load_queue import LoadQueue
from rota.control.functions.loading import IS_LOADED, UNKNOWN, LoadState, as_loaded, last_loaded, written
from rota.control.functions.planning import CONTAINER, Version, own, plan, version_of
from rota.control.functions.preparing import FAILURES as PREPARING_FAILURES
from rota.control.functions.preparing import Needs, Preparer, needs_of, needs_of_version
from rota.control.functions.readiness import PREPARING, PROGRESS, code_of, not_ready, not_served_here, readiness
from rota.control.functions.recording import Recorder
from rota.control.functions.scaling import WorkerCount
from rota.control.functions.served import NotCalled, ServedFunction
from rota.control.gate import READY, Gate, status_of
from rota.control.instance_actions import RUNTIME_FINALIZER, carry_out
from rota.control.instances import Create, Delete
from rota.control.instances.names import subject_of
from rota.control.instances.reasons import blocker, is_ready
from rota.control.plane import HERE, Plane
from rota.control.quotas.asking import READS, ask
from rota.control.tasks.lifecycle import time_of
from rota.control.unhonoured import conditions, record_unhonoured, unhonoured
from rota.engine import DONE, Blocked, Context, Done, Failed, Objects, Outcome, Promise, RequeueAfter
from rota.engine.clock import Clock, Timer
from rota.engine.references import id_of
from rota.runtime.interface import Runtime, Subject
from rota.runtime.runners import Runners

COUNTS_SECONDS = 1.0
"""Delay with which the counts of calls are written."""
SPIN_RUNS_MAX = 1000
IDLE_SLACK_SECONDS = 1.0
"""Time that a worker stays beyond `idleSeconds`, so that a schedule with that period still finds it."""
LOADED_STAYS_SECONDS = 10.0
"""Time that a worker stays after it was started only to load a version: calls may follow."""
FAILED_STAYS_SECONDS = 60.0
"""Time that such a worker stays after a failed load. It retries meanwhile: a missing dependency may appear."""
PASSING = ("InstanceCrashing", "Stopped", "QuotaExceeded")
"""Failures of a worker that pass by themselves: the worker is restarted, or started when the quota has room."""


class Serving:
    """The parts that serve calls, shared by the edge and the Function and Task controllers."""

    def __init__(
        self,
        client: Client,
        objects: Objects,
        runners: Runners,
        runtime: Runtime,
        preparing: Preparer,
        clock: Clock,
        edge: Callable[[], str] = lambda: "",
    ) -> None:
        """`preparing` prepares code and packages. `edge` returns the URL of the edge; empty: it is not known yet."""
        self.client = client
        self.objects = objects
        self.runtime = runtime
        self.clock = clock
        self.calls = Calls(objects, runners, clock)
        self.recorder = Recorder(client, objects, runtime.archive, clock)
        self.asynchronous = AsynchronousCalls(client, objects)
        self.preparing = preparing
        self.runners = runners
        self.edge = edge


class Functions(Gate[Function]):
    owns = (Instance,)
    reads = READS
    follows = True
    spin_runs_max = SPIN_RUNS_MAX

    def __init__(self, serving: Serving, plane: Plane = HERE) -> None:
        super().__init__(Function)
        self._serving = serving
        self._plane = plane
        self._clock = serving.clock
        self._calls = serving.calls
        self._closing: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._counting: dict[Key, Timer] = {}
        self._load_queue: LoadQueue
        """Made when it begins."""

    def begin(self, wake: Callable[[Key], None]) -> Callable[[], None]:
        self._load_queue = LoadQueue(wake)
        counted = partial(self._counted, wake)
        listener = FunctionListener(outgrown=wake, changed=wake, counted=counted, stuck=self._stuck)
        ends = (self._calls.begin(listener), self._serving.recorder.begin(), self._serving.asynchronous.begin())

        def end() -> None:
            for timer in self._counting.values():
                timer.cancel()
            for one in ends:
                one()
            self._closing = asyncio.create_task(self._serving.preparing.close(), name="preparing")

        return end

    def _counted(self, wake: Callable[[Key], None], key: Key) -> None:
        """Write the status soon after a call has ended. Calls until then are in the same write."""

        def count() -> None:
            self._counting.pop(key, None)
            wake(key)

        if key not in self._counting:
            due = self._clock.now() + COUNTS_SECONDS
            self._counting[key] = self._clock.call_at(due, count)

    def _stuck(self, subject: Subject) -> None:
        """End a stuck worker at once. It is restarted as any that has ended."""
        task = asyncio.create_task(self._serving.runtime.end(subject, CONTAINER, 0), name=f"end of {subject.name}")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def wants(self, old: Object | None, new: Object | None) -> bool:
        if isinstance(new, Instance) and new.spec.handler is not None and new.metadata.deletion_timestamp is not None:
            self._calls.close(new.metadata.uid)
        return True

    def gone(self, context: Context, key: Key) -> Promise:
        # At once: there may soon be another function of the name, with calls of its own.
        self._calls.forget(key)
        self._serving.preparing.forget(key)
        self._load_queue.leave(key, self._clock.now())
        self._serving.recorder.forget(key)
        self._serving.asynchronous.forget(key)
        return DONE

    async def sync(self, context: Context, obj: Function) -> Outcome:
        outcome = await super().sync(context, obj)
        if isinstance(outcome, Blocked | Failed):
            self._calls.served(obj).held_up = outcome.message
        return outcome

    def closed(self, obj: Function, held_up: Blocked | Failed) -> list[Condition]:
        return [*super().closed(obj, held_up), not_ready(held_up.reason, held_up.message)]

    async def go_on(self, context: Context, obj: Function, opened: list[Condition]) -> Outcome:
        served = self._calls.served(obj)
        served.held_up = ""
        served.good = served.good or last_loaded(obj.status)
        ignored = conditions(obj, unhonoured(obj))
        record_unhonoured(context, obj, ignored)
        opened = [*opened, *ignored]
        if (elsewhere := not_served_here(obj, self._plane)) is not None:
            served.held_up = elsewhere.message
            await self._write_status(context, obj, [*opened, elsewhere], ())
            return DONE
        preparing = self._serving.preparing
        needs = needs_of(obj)
        version = version_of(obj, needs.code, needs.packages)
        if served.known[0] != version.hash:
            served.known = version.hash, written(obj.status, version.hash)
            served.tried_with = None
        if not preparing.is_there(needs):
            return await self._prepare(context, obj, served, needs, opened)
        if served.known[1].reason in PREPARING_FAILURES:
            served.known = version.hash, UNKNOWN
        again_after = await self._run(context, obj, served, version)
        there, known = self._workers_of(context, obj), served.known[1]
        failures = self._failures([one for one in there if one.spec.template_hash == version.hash])
        returning, returns_after = self._returning(there)
        callable_ = served.routing.open_workers() | returning
        ready = readiness(obj, version, there, known=known, good=served.good, callable_=callable_, failures=failures)
        await self._write_status(context, obj, [*opened, known.condition(), ready], callable_)
        if preparing.collects_now():
            every = cast("list[Function]", context.objects.list(Function.api, ""))
            workers = cast("list[Instance]", context.objects.list(Instance.api, ""))
            await preparing.collect(every, workers, self._calls.versions())
        return _done(again_after, returns_after)

    @staticmethod
    def _workers_of(context: Context, obj: Function) -> list[Instance]:
        return own(obj, cast("Sequence[Instance]", context.objects.owned(Instance.api, obj.metadata.uid)))

    def _returning(self, there: Sequence[Instance]) -> tuple[set[str], float | None]:
        """Return the uids of ready workers that may still reconnect after a server restart, and the time for that."""
        runners = self._serving.runners
        left = runners.may_return()
        if left <= 0:
            return set(), None
        found = {
            one.metadata.uid
            for one in there
            if is_ready(one) and one.metadata.deletion_timestamp is None and runners.report(subject_of(one)) is None
        }
        return found, left if found else None

    # Before there can be workers.

    async def _prepare(
        self, context: Context, obj: Function, served: ServedFunction, needs: Needs, opened: list[Condition]
    ) -> Outcome:
        failure = self._serving.preparing.failure(served.key, needs)
        if failure is None or failure.due <= self._clock.time():
            self._serving.preparing.start(served.key, obj, needs, lambda: context.memory.wake(context.id))
        if failure is not None:
            served.known = served.known[0], LoadState("Failed", failure.reason, failure.message)
        known = served.known[1]
        before = self._if_there(served.good)
        again_after = await self._keep_serving(context, obj, served, before) if before is not None else None
        ready = not_ready(PREPARING, "its code and packages are being prepared")
        if known.state == "Failed":
            ready = not_ready(known.reason, known.message)
        if failure is not None and before is None and not served.routing.is_served:
            served.trouble = failure.message
            self._calls.fail_waiting(served, NotCalled("NotLoaded", failure.message))
        said = [*opened, known.condition(waits_for=PREPARING), ready]
        await self._write_status(context, obj, said, served.routing.open_workers())
        left = failure.due - self._clock.time() if failure is not None else 0.0
        if failure is None or left <= 0:
            return _done(again_after)
        return RequeueAfter(left if again_after is None else min(left, again_after), failure.reason, failure.message)

    # Workers.

    def _before(self, served: ServedFunction, newest: str) -> Version | None:
        """Return the version that can answer calls while the newest cannot; None: there is none."""
        return self._if_there(served.good) if served.good is not None and served.good.hash != newest else None

    def _if_there(self, version: Version | None) -> Version | None:
        """Return a version if its folders exist."""
        preparing = self._serving.preparing
        return version if version is not None and preparing.is_there(needs_of_version(version)) else None

    async def _keep_serving(
        self, context: Context, obj: Function, served: ServedFunction, version: Version
    ) -> float | None:
        """Keep the workers that calls need, of the version that was loaded before, while the newest cannot have any."""
        served.routing.version = version.hash
        there, staying = self._take_reports(context, obj, served)
        wanted = self._wanted(obj, served, staying)
        await self._carry_out(context, obj, served, plan(obj, version, there, wanted.workers, **self._facts(served)))
        return wanted.again_after

    async def _run(self, context: Context, obj: Function, served: ServedFunction, version: Version) -> float | None:
        """Keep the workers that calls need. Returns the seconds until there may be fewer."""
        served.routing.version = version.hash
        there, staying = self._take_reports(context, obj, served)
        await self._learn(context, obj, served, version, staying)
        before = self._fail_unservable(served, staying, version)
        wanted = self._wanted(obj, served, staying)
        newest, again_after = self._newest(context, obj, served, wanted.workers)
        facts = self._facts(served)
        actions = plan(obj, version, there, wanted.workers, newest=newest, before=before, **facts)
        await ask(context, obj, version.template, wanted.workers)
        await self._carry_out(context, obj, served, actions)
        now = self._clock.now()
        if self._load_queue.is_over(served.key, now):
            self._load_queue.leave(served.key, now)
        return min((one for one in (wanted.again_after, again_after) if one is not None), default=None)

    def _take_reports(
        self, context: Context, obj: Function, served: ServedFunction
    ) -> tuple[list[Instance], list[Instance]]:
        """Take the reports of all workers. Returns all workers, and those that are not being deleted."""
        there = self._workers_of(context, obj)
        staying = [one for one in there if one.metadata.deletion_timestamp is None]
        for instance in staying:
            report = self._serving.runners.report(subject_of(instance))
            if report is not None:
                self._calls.note_report(served, instance, report)
        return there, staying

    def _wanted(self, obj: Function, served: ServedFunction, staying: Sequence[Instance]) -> WorkerCount:
        """Return the number of workers that calls need."""
        scale, now = obj.spec.scale, self._clock.now()
        if not served.is_found:
            served.is_found = True
            served.scale.found(len(staying), now)
        idle_seconds = scale.idle_seconds + IDLE_SLACK_SECONDS
        found = served.scale.wanted(served.load, obj.spec.concurrency, scale.min, scale.max, idle_seconds, now)
        served.have = found.workers
        return found

    @staticmethod
    def _facts(served: ServedFunction) -> dict[str, Any]:
        load = {worker.subject.uid: len(worker.calls) for worker in served.routing.workers}
        return {"ready": served.routing.open_workers(), "load": load, "finalizers": (RUNTIME_FINALIZER,)}

    async def _carry_out(
        self, context: Context, obj: Function, served: ServedFunction, actions: Sequence[Create | Delete]
    ) -> None:
        for action in actions:
            if isinstance(action, Delete):
                self._calls.close(action.uid)
            await carry_out(context, obj.metadata.namespace, action)

    async def _learn(
        self, context: Context, obj: Function, served: ServedFunction, version: Version, staying: Sequence[Instance]
    ) -> None:
        """Update the load state of the newest version from the reports of its workers."""
        known = served.known[1]
        current = [one for one in staying if one.spec.template_hash == version.hash]
        if served.routing.open_workers() & {one.metadata.uid for one in current}:
            served.good = version
            served.known = version.hash, IS_LOADED
        elif failures := self._lasting_failures(current):
            served.known = version.hash, LoadState("Failed", failures[0].reason, failures[0].message)
            served.tried_with = _reference_versions(context, obj)
        elif known.state == "Failed" and served.tried_with is None:
            # The failure is from before this process. It is not retried until a reference changes.
            served.tried_with = _reference_versions(context, obj)
        if served.known[1] != known:
            reports = [self._serving.runners.report(subject_of(one)) for one in current]
            said = next((report.said for report in reports if report is not None and report.said), "")
            is_failed = served.known[1].state == "Failed"
            await self._serving.preparing.keep_load_log(obj, (said or served.known[1].message) if is_failed else "")

    def _newest(self, context: Context, obj: Function, served: ServedFunction, wanted: int) -> tuple[int, float | None]:
        """Return the number of workers of the newest version, and the seconds until that may fall.

        There is one while it is not loaded and another version answers. It may be started before a call needs it, as
        far as the queue of loads allows.
        """
        known, now, idle_seconds = served.known[1], self._clock.now(), float(obj.spec.scale.idle_seconds)
        is_changed = known.state == "Failed" and served.tried_with != _reference_versions(context, obj)
        if known.state == "Unknown" or is_changed:
            if wanted or self._load_queue.begin(served.key, now):
                return (max(1, wanted) if served.good is None and not is_changed else 1), None
            return 0, self._load_queue.wait_seconds(served.key, now)
        stays_seconds = LOADED_STAYS_SECONDS if known.state == "Loaded" else FAILED_STAYS_SECONDS
        self._load_queue.end(served.key, now, min(stays_seconds, idle_seconds))
        left = self._load_queue.left(served.key, now)
        count = max(wanted, int(left > 0))
        return (count if known.state == "Loaded" else min(1, count)), left or None

    def _fail_unservable(self, served: ServedFunction, staying: Sequence[Instance], version: Version) -> Version | None:
        """Fail calls that cannot be served. Returns the version that answers while the newest cannot, if any."""
        current = [one for one in staying if one.spec.template_hash == version.hash]
        before = self._before(served, version.hash)
        older = [one for one in staying if before is not None and one.spec.template_hash == before.hash]
        failures = self._lasting_failures(current)
        served.trouble = ""
        if failures and not served.routing.is_served and (before is None or self._lasting_failures(older)):
            served.trouble = failures[0].message
            self._calls.fail_waiting(served, NotCalled("NotLoaded", served.trouble))
        quota = (one.status.condition("QuotaGranted") for one in current if one.status is not None)
        served.over_budget = next(
            (one.message for one in quota if one is not None and one.reason == "QuotaExceeded"), ""
        )
        if served.over_budget and not served.routing.is_served:
            self._calls.fail_waiting(served, NotCalled("QuotaExceeded", served.over_budget), but_patient=True)
        # Without workers the newest version is started, and the one before only if that does not load.
        is_served = served.routing.open_workers() & {one.metadata.uid for one in older}
        return before if served.known[1].state == "Failed" or is_served else None

    def _lasting_failures(self, instances: Sequence[Instance]) -> list[Condition]:
        """Return the failures of these workers if all failed for good; empty: one may still become ready."""
        failures = [one for one in self._failures(instances) if one.reason not in PASSING]
        return failures if len(failures) == len(instances) else []

    def _failures(self, instances: Sequence[Instance]) -> list[Condition]:
        """Return the conditions of failed workers."""
        found = []
        for one in instances:
            report = self._serving.runners.report(subject_of(one))
            ready = one.status.condition(READY) if one.status is not None else None
            if report is not None and report.phase in ("Failed", "Broken"):
                found.append(not_ready(report.reason, report.message))
            elif report is None and ready is not None and ready.status == "False" and blocker(ready.reason).is_failure:
                found.append(not_ready(ready.reason, ready.message))
        return found

    # The status.

    async def _write_status(
        self, context: Context, obj: Function, conditions: Sequence[Condition], callable_: Collection[str]
    ) -> None:
        """Write the status. `callable_`: the workers that can be called."""
        served, status = self._calls.served(obj), cast("FunctionStatus", status_of(obj))
        for condition in conditions:
            status = context.condition(obj, status, condition)
            if condition.type == READY and condition.status == "False" and condition.reason not in PROGRESS:
                context.warn_once(obj, condition.reason, condition.message)
        counts = status.calls or CallCounts()
        succeeded, failed = served.succeeded, served.failed
        edge = self._serving.edge()
        status = msgspec.structs.replace(
            status,
            observed_generation=obj.metadata.generation,
            url=f"{edge}/{obj.metadata.namespace}/{obj.metadata.name}/" if edge else status.url,
            version=served.known[0] or status.version,
            last_loaded=self._last_loaded(context, served, status),
            digest=code_of(served.good),
            region=self._plane.city,
            ready_workers=len(callable_),
            last_call_time=time_of(served.last_call) if served.last_call else status.last_call_time,
            calls=CallCounts(succeeded=counts.succeeded + succeeded, failed=counts.failed + failed)
            if succeeded or failed
            else status.calls,
        )
        await context.write_status(obj, status)
        served.succeeded -= succeeded
        served.failed -= failed

    @staticmethod
    def _last_loaded(context: Context, served: ServedFunction, status: FunctionStatus) -> LoadedVersion | None:
        before = status.last_loaded
        if served.good is None or (before is not None and before.version == served.good.hash):
            return before
        return as_loaded(served.good, time_of(context.clock.time()))


def _reference_versions(context: Context, obj: Function) -> tuple[str, ...]:
    """Return the resourceVersions of a function's references: a failed load is retried when one changes."""
    found = []
    for edge in context.graph.references(id_of(obj)):
        bucket, namespace, name = edge.target.split("/", 2)
        there = context.find(BY_BUCKET[bucket], namespace, name)
        found.append(there.metadata.resource_version if there is not None else "")
    return tuple(found)


def _done(*again_after: float | None) -> Done:
    return Done(again_after=min((one for one in again_after if one is not None), default=None))
