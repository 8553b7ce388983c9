"""Function: its code is made ready, as many workers as its calls need run the newest version, and how it is is said."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Any, cast

import msgspec

from rota.api import BY_BUCKET, Condition, Function, Instance, Object
from rota.api.function import Calls as CallCounts
from rota.api.function import FunctionStatus, LoadedVersion
from rota.client import Client, Key
from rota.control.functions.calls import Calls, Listener
from rota.control.functions.later import Later
from rota.control.functions.line import Line, NotCalled
from rota.control.functions.loading import IS_LOADED, UNKNOWN, Known, as_loaded, last_loaded, written
from rota.control.functions.loads import Loads
from rota.control.functions.planning import CONTAINER, Version, own, plan, version_of
from rota.control.functions.preparing import FAILURES as PREPARING_FAILURES
from rota.control.functions.preparing import Needs, Supply, needs_of, needs_of_version
from rota.control.functions.recording import Recorder
from rota.control.functions.scaling import Wanted
from rota.control.functions.standing import PREPARING, PROGRESS, code_of, not_here, not_ready, readiness
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
"""How old the counts of a function may be, and how often they are written at most."""
SPIN_RUNS_MAX = 1000
IDLE_SLACK_SECONDS = 1.0
"""Beyond its idle time, a worker stays so long: a schedule with just that period finds it there, a little late too."""
LOADED_STAYS_SECONDS = 10.0
"""How long a worker that was only started to load a version stays, for the calls that may follow."""
FAILED_STAYS_SECONDS = 60.0
"""Likewise, of one that could not load it. It tries again meanwhile: what the code needs may be back."""
PASSING = ("InstanceCrashing", "Stopped", "QuotaExceeded")
"""Failures of a worker that pass: it is started anew, or when the budget has room for it."""


class Serving:
    """All that calls need: shared by the edge, the Functions and the Tasks of a server."""

    def __init__(
        self,
        client: Client,
        objects: Objects,
        runners: Runners,
        runtime: Runtime,
        preparing: Supply,
        clock: Clock,
        edge: Callable[[], str] = lambda: "",
    ) -> None:
        """`preparing` makes code and packages ready. `edge`: where functions are called, once that is known."""
        self.client = client
        self.objects = objects
        self.runtime = runtime
        self.clock = clock
        self.calls = Calls(objects, runners, clock)
        self.recorder = Recorder(client, objects, runtime.archive, clock)
        self.later = Later(client, objects)
        self.preparing = preparing
        self.runners = runners
        self.edge = edge


class Functions(Gate[Function]):
    """Sees to the workers of functions."""

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
        self._wake: Callable[[Key], None] = lambda key: None
        self._closing: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._counting: dict[Key, Timer] = {}
        self._loads = Loads(lambda key: self._wake(key))

    def begin(self, wake: Callable[[Key], None]) -> Callable[[], None]:
        self._wake = wake
        listener = Listener(outgrown=wake, changed=wake, counted=self._counted, stuck=self._stuck)
        ends = (self._calls.begin(listener), self._serving.recorder.begin(), self._serving.later.begin())

        def end() -> None:
            for timer in self._counting.values():
                timer.cancel()
            for one in ends:
                one()
            self._closing = asyncio.create_task(self._serving.preparing.close(), name="preparing")

        return end

    def _counted(self, key: Key) -> None:
        """A call has ended: that is told, but not of each by itself."""
        if key not in self._counting:
            due = self._clock.now() + COUNTS_SECONDS
            self._counting[key] = self._clock.call_at(due, lambda: self._count(key))

    def _count(self, key: Key) -> None:
        self._counting.pop(key, None)
        self._wake(key)

    def _stuck(self, subject: Subject) -> None:
        """A worker hangs: it is ended at once, and started anew as any that has ended."""
        task = asyncio.create_task(self._serving.runtime.end(subject, CONTAINER, 0), name=f"end of {subject.name}")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def wants(self, old: Object | None, new: Object | None) -> bool:
        if isinstance(new, Instance) and new.spec.handler is not None and new.metadata.deletion_timestamp is not None:
            self._calls.close(new.metadata.uid)
        return True

    def gone(self, context: Context, key: Key) -> Promise:
        # At once: a call may come in for another function of the name as soon as there is one.
        self._calls.forget(key)
        self._serving.preparing.forget(key)
        self._loads.leave(key, self._clock.now())
        self._serving.recorder.forget(key)
        self._serving.later.forget(key)
        return DONE

    async def sync(self, context: Context, obj: Function) -> Outcome:
        outcome = await super().sync(context, obj)
        if isinstance(outcome, Blocked | Failed):
            self._calls.line(obj).held_up = outcome.message
        return outcome

    def closed(self, obj: Function, held_up: Blocked | Failed) -> list[Condition]:
        return [*super().closed(obj, held_up), not_ready(held_up.reason, held_up.message)]

    async def go_on(self, context: Context, obj: Function, opened: list[Condition]) -> Outcome:
        line = self._calls.line(obj)
        line.held_up = ""
        line.good = line.good or last_loaded(obj.status)
        ignored = conditions(obj, unhonoured(obj))
        record_unhonoured(context, obj, ignored)
        opened = [*opened, *ignored]
        if (elsewhere := not_here(obj, self._plane)) is not None:
            line.held_up = elsewhere.message
            await self._say(context, obj, [*opened, elsewhere], ())
            return DONE
        preparing = self._serving.preparing
        needs = needs_of(obj)
        version = version_of(obj, needs.code, needs.packages)
        if line.known[0] != version.hash:
            line.known = version.hash, written(obj.status, version.hash)
            line.tried_with = None
        if not preparing.is_there(needs):
            return await self._prepare(context, obj, line, needs, opened)
        if line.known[1].reason in PREPARING_FAILURES:
            line.known = version.hash, UNKNOWN
        again_after = await self._run(context, obj, line, version)
        there, known = self._workers_of(context, obj), line.known[1]
        failures = self._failures([one for one in there if one.spec.template_hash == version.hash])
        returning, returns_after = self._returning(there)
        callable_ = line.routing.open_workers() | returning
        ready = readiness(obj, version, there, known=known, good=line.good, callable_=callable_, failures=failures)
        await self._say(context, obj, [*opened, known.condition(), ready], callable_)
        if preparing.collects_now():
            every = cast("list[Function]", context.objects.list(Function.api, ""))
            workers = cast("list[Instance]", context.objects.list(Instance.api, ""))
            await preparing.collect(every, workers, self._calls.versions())
        return _done(again_after, returns_after)

    @staticmethod
    def _workers_of(context: Context, obj: Function) -> list[Instance]:
        return own(obj, cast("Sequence[Instance]", context.objects.owned(Instance.api, obj.metadata.uid)))

    def _returning(self, there: Sequence[Instance]) -> tuple[set[str], float | None]:
        """Workers that were ready when the server went away and have not come back yet, and how long they may take."""
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
        self, context: Context, obj: Function, line: Line, needs: Needs, opened: list[Condition]
    ) -> Outcome:
        failure = self._serving.preparing.failure(line.key, needs)
        if failure is None or failure.due <= self._clock.time():
            self._serving.preparing.start(line.key, obj, needs, lambda: self._wake(line.key))
        if failure is not None:
            line.known = line.known[0], Known("Failed", failure.reason, failure.message)
        known = line.known[1]
        before = self._if_there(line.good)
        again_after = await self._keep_serving(context, obj, line, before) if before is not None else None
        ready = not_ready(PREPARING, "its code and what it requires are being made ready")
        if known.state == "Failed":
            ready = not_ready(known.reason, known.message)
        if failure is not None and before is None and not line.routing.is_served:
            line.trouble = failure.message
            self._calls.fail_waiting(line, NotCalled("NotLoaded", failure.message))
        said = [*opened, known.condition(waits_for=PREPARING), ready]
        await self._say(context, obj, said, line.routing.open_workers())
        left = failure.due - self._clock.time() if failure is not None else 0.0
        if failure is None or left <= 0:
            return _done(again_after)
        return RequeueAfter(left if again_after is None else min(left, again_after), failure.reason, failure.message)

    # Workers.

    def _before(self, line: Line, newest: str) -> Version | None:
        """The version that answers calls while the newest cannot, if there is one and what it needs is still there."""
        return self._if_there(line.good) if line.good is not None and line.good.hash != newest else None

    def _if_there(self, version: Version | None) -> Version | None:
        """A version, if what it needs is there."""
        preparing = self._serving.preparing
        return version if version is not None and preparing.is_there(needs_of_version(version)) else None

    async def _keep_serving(self, context: Context, obj: Function, line: Line, version: Version) -> float | None:
        """Have as many workers of a version that was loaded as calls need, while there can be none of the newest."""
        line.routing.version = version.hash
        there, staying = self._seen(context, obj, line)
        wanted = self._wanted(obj, line, staying)
        await self._carry_out(context, obj, line, plan(obj, version, there, wanted.workers, **self._facts(line)))
        return wanted.again_after

    async def _run(self, context: Context, obj: Function, line: Line, version: Version) -> float | None:
        """Have as many as are needed. Returns in how many seconds there may be fewer."""
        line.routing.version = version.hash
        there, staying = self._seen(context, obj, line)
        await self._learn(context, obj, line, version, staying)
        before = self._look_at(line, staying, version)
        wanted = self._wanted(obj, line, staying)
        newest, again_after = self._newest(context, obj, line, wanted.workers)
        facts = self._facts(line)
        actions = plan(obj, version, there, wanted.workers, newest=newest, before=before, **facts)
        await ask(context, obj, version.template, wanted.workers)
        await self._carry_out(context, obj, line, actions)
        now = self._clock.now()
        if self._loads.is_over(line.key, now):
            self._loads.leave(line.key, now)
        return min((one for one in (wanted.again_after, again_after) if one is not None), default=None)

    def _seen(self, context: Context, obj: Function, line: Line) -> tuple[list[Instance], list[Instance]]:
        """The workers, and those of them that stay, of which it is noted what their runners say."""
        there = self._workers_of(context, obj)
        staying = [one for one in there if one.metadata.deletion_timestamp is None]
        for instance in staying:
            report = self._serving.runners.report(subject_of(instance))
            if report is not None:
                self._calls.see(line, instance, report)
        return there, staying

    def _wanted(self, obj: Function, line: Line, staying: Sequence[Instance]) -> Wanted:
        """How many workers calls need."""
        scale, now = obj.spec.scale, self._clock.now()
        if not line.is_found:
            line.is_found = True
            line.scale.found(len(staying), now)
        idle_seconds = scale.idle_seconds + IDLE_SLACK_SECONDS
        found = line.scale.wanted(line.load, obj.spec.concurrency, scale.min, scale.max, idle_seconds, now)
        line.have = found.workers
        return found

    @staticmethod
    def _facts(line: Line) -> dict[str, Any]:
        load = {worker.subject.uid: len(worker.calls) for worker in line.routing.workers}
        return {"ready": line.routing.open_workers(), "load": load, "finalizers": (RUNTIME_FINALIZER,)}

    async def _carry_out(self, context: Context, obj: Function, line: Line, actions: Sequence[Create | Delete]) -> None:
        for action in actions:
            if isinstance(action, Delete):
                self._calls.close(action.uid)
            await carry_out(context, obj.metadata.namespace, action)

    async def _learn(
        self, context: Context, obj: Function, line: Line, version: Version, staying: Sequence[Instance]
    ) -> None:
        """Find out whether the newest version can be loaded, by what its workers say."""
        known = line.known[1]
        current = [one for one in staying if one.spec.template_hash == version.hash]
        if line.routing.open_workers() & {one.metadata.uid for one in current}:
            line.good = version
            line.known = version.hash, IS_LOADED
        elif failures := self._lasting_failures(current):
            line.known = version.hash, Known("Failed", failures[0].reason, failures[0].message)
            line.tried_with = _versions_referred_to(context, obj)
        elif known.state == "Failed" and line.tried_with is None:
            # It was found out before this server was there. What is as it was is not tried again.
            line.tried_with = _versions_referred_to(context, obj)
        if line.known[1] != known:
            reports = [self._serving.runners.report(subject_of(one)) for one in current]
            said = next((report.said for report in reports if report is not None and report.said), "")
            is_failed = line.known[1].state == "Failed"
            await self._serving.preparing.keep_load_log(obj, (said or line.known[1].message) if is_failed else "")

    def _newest(self, context: Context, obj: Function, line: Line, wanted: int) -> tuple[int, float | None]:
        """How many workers the newest version is to have, and in how many seconds that may be fewer.

        While it is not loaded and another version answers, that is one. It is started also if no call needs it, as far
        as others leave room.
        """
        known, now, idle_seconds = line.known[1], self._clock.now(), float(obj.spec.scale.idle_seconds)
        is_changed = known.state == "Failed" and line.tried_with != _versions_referred_to(context, obj)
        if known.state == "Unknown" or is_changed:
            if wanted or self._loads.begin(line.key, now):
                return (max(1, wanted) if line.good is None and not is_changed else 1), None
            return 0, self._loads.wait_seconds(line.key, now)
        stays_seconds = LOADED_STAYS_SECONDS if known.state == "Loaded" else FAILED_STAYS_SECONDS
        self._loads.end(line.key, now, min(stays_seconds, idle_seconds))
        left = self._loads.left(line.key, now)
        count = max(wanted, int(left > 0))
        return (count if known.state == "Loaded" else min(1, count)), left or None

    def _look_at(self, line: Line, staying: Sequence[Instance], version: Version) -> Version | None:
        """The version that has to go on, since the newest cannot be called, or not yet."""
        current = [one for one in staying if one.spec.template_hash == version.hash]
        before = self._before(line, version.hash)
        older = [one for one in staying if before is not None and one.spec.template_hash == before.hash]
        failures = self._lasting_failures(current)
        line.trouble = ""
        if failures and not line.routing.is_served and (before is None or self._lasting_failures(older)):
            line.trouble = failures[0].message
            self._calls.fail_waiting(line, NotCalled("NotLoaded", line.trouble))
        quota = (one.status.condition("QuotaGranted") for one in current if one.status is not None)
        line.over_budget = next((one.message for one in quota if one is not None and one.reason == "QuotaExceeded"), "")
        if line.over_budget and not line.routing.is_served:
            self._calls.fail_waiting(line, NotCalled("QuotaExceeded", line.over_budget), but_patient=True)
        # From nothing it is the newest that is started, and the one before only if that does not load.
        is_served = line.routing.open_workers() & {one.metadata.uid for one in older}
        return before if line.known[1].state == "Failed" or is_served else None

    def _lasting_failures(self, instances: Sequence[Instance]) -> list[Condition]:
        """Why none of these can be called, ever; empty: one may be."""
        failures = [one for one in self._failures(instances) if one.reason not in PASSING]
        return failures if len(failures) == len(instances) else []

    def _failures(self, instances: Sequence[Instance]) -> list[Condition]:
        """Why workers cannot be called, those that will not be by themselves."""
        found = []
        for one in instances:
            report = self._serving.runners.report(subject_of(one))
            ready = one.status.condition(READY) if one.status is not None else None
            if report is not None and report.phase in ("Failed", "Broken"):
                found.append(not_ready(report.reason, report.message))
            elif report is None and ready is not None and ready.status == "False" and blocker(ready.reason).is_failure:
                found.append(not_ready(ready.reason, ready.message))
        return found

    # What is said.

    async def _say(
        self, context: Context, obj: Function, conditions: Sequence[Condition], callable_: Collection[str]
    ) -> None:
        """Write the status. `callable_`: the workers that can be called."""
        line, status = self._calls.line(obj), cast("FunctionStatus", status_of(obj))
        for condition in conditions:
            status = context.condition(obj, status, condition)
            if condition.type == READY and condition.status == "False" and condition.reason not in PROGRESS:
                context.tell_once(obj, condition.reason, condition.message)
        counts = status.calls or CallCounts()
        succeeded, failed = line.succeeded, line.failed
        edge = self._serving.edge()
        status = msgspec.structs.replace(
            status,
            observed_generation=obj.metadata.generation,
            url=f"{edge}/{obj.metadata.namespace}/{obj.metadata.name}/" if edge else status.url,
            version=line.known[0] or status.version,
            last_loaded=self._last_loaded(context, line, status),
            digest=code_of(line.good),
            region=self._plane.city,
            ready_workers=len(callable_),
            last_call_time=time_of(line.last_call) if line.last_call else status.last_call_time,
            calls=CallCounts(succeeded=counts.succeeded + succeeded, failed=counts.failed + failed)
            if succeeded or failed
            else status.calls,
        )
        await context.write_status(obj, status)
        line.succeeded -= succeeded
        line.failed -= failed

    @staticmethod
    def _last_loaded(context: Context, line: Line, status: FunctionStatus) -> LoadedVersion | None:
        before = status.last_loaded
        if line.good is None or (before is not None and before.version == line.good.hash):
            return before
        return as_loaded(line.good, time_of(context.clock.time()))


def _versions_referred_to(context: Context, obj: Function) -> tuple[str, ...]:
    """What a function refers to, as it is now: what could not be loaded may be once that has changed."""
    found = []
    for edge in context.graph.references(id_of(obj)):
        bucket, namespace, name = edge.target.split("/", 2)
        there = context.find(BY_BUCKET[bucket], namespace, name)
        found.append(there.metadata.resource_version if there is not None else "")
    return tuple(found)


def _done(*again_after: float | None) -> Done:
    return Done(again_after=min((one for one in again_after if one is not None), default=None))
