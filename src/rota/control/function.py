"""Function: its code is made ready, as many workers as its calls need run the newest version, and how it is is said."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import msgspec

from rota.api import Condition, Function, Instance, Object
from rota.api.function import Calls as CallCounts
from rota.api.function import FunctionStatus
from rota.client import Client, Key
from rota.control.carrying import RUNTIME_FINALIZER, carry_out
from rota.control.functions.calls import Calls
from rota.control.functions.later import Later
from rota.control.functions.line import Line, NotCalled
from rota.control.functions.planning import CONTAINER, Version, own, plan, version_in, version_of
from rota.control.functions.preparing import Needs, Preparing
from rota.control.functions.recording import Recorder
from rota.control.functions.standing import not_ready, standing
from rota.control.gate import READY, Gate, status_of
from rota.control.instances import Delete
from rota.control.instances.reasons import blocker
from rota.control.orders import subject_of
from rota.control.tasks.lifecycle import time_of
from rota.engine import DONE, Blocked, Context, Done, Failed, Objects, Outcome, RequeueAfter
from rota.runtime.interface import Runtime, Subject
from rota.runtime.runners import Runners

LOCAL = "local"
"""The city of a server that is a hub with one cell."""
COUNTS_SECONDS = 1.0
"""How old the counts of a function may be, and how often they are written at most."""
SPIN_RUNS_MAX = 1000
PROGRESS = ("Preparing", "Starting", "Updating")
"""Reasons for not being ready that pass, and that nobody has to be told of."""
PASSING = ("InstanceCrashing", "Stopped")
"""Failures of a worker that calls wait for: it is started anew."""


class Serving:
    """All that calls need: shared by the edge, the Functions and the Tasks of a server."""

    def __init__(
        self,
        client: Client,
        objects: Objects,
        runners: Runners,
        runtime: Runtime,
        home: Path,
        edge: Callable[[], str] = lambda: "",
    ) -> None:
        """`edge`: where functions are called, once that is known."""
        self.client = client
        self.objects = objects
        self.runtime = runtime
        self.calls = Calls(objects, runners)
        self.recorder = Recorder(client, objects, runtime.keep_result)
        self.later = Later(client, objects)
        self.preparing = Preparing(home)
        self.runners = runners
        self.edge = edge


class Functions(Gate[Function]):
    """Sees to the workers of functions."""

    owns = (Instance,)
    spin_runs_max = SPIN_RUNS_MAX

    def __init__(self, serving: Serving) -> None:
        super().__init__(Function)
        self._serving = serving
        self._calls = serving.calls
        self._wake: Callable[[Key], None] = lambda key: None
        self._closing: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._counting: dict[Key, asyncio.TimerHandle] = {}

    def begin(self, wake: Callable[[Key], None]) -> Callable[[], None]:
        self._wake = self._calls.outgrown = wake
        self._calls.counted = self._counted
        self._calls.stuck = self._stuck
        ends = (self._calls.begin(), self._serving.recorder.begin(), self._serving.later.begin())

        def end() -> None:
            self._calls.outgrown = self._calls.counted = lambda key: None
            self._calls.stuck = lambda subject: None
            for timer in self._counting.values():
                timer.cancel()
            for one in ends:
                one()
            self._closing = asyncio.create_task(self._serving.preparing.close(), name="preparing")

        return end

    def _counted(self, key: Key) -> None:
        """A call has ended: that is told, but not of each by itself."""
        if key not in self._counting:
            self._counting[key] = asyncio.get_running_loop().call_later(COUNTS_SECONDS, self._count, key)

    def _count(self, key: Key) -> None:
        self._counting.pop(key, None)
        self._wake(key)

    def _stuck(self, subject: Subject) -> None:
        """A worker hangs: it is ended at once, and started anew as any that has ended."""
        task = asyncio.create_task(self._serving.runtime.end(subject, CONTAINER, 0), name=f"end of {subject.name}")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def overhear(self, old: Object | None, new: Object | None) -> bool:
        instance = cast("Instance", new or old)
        if instance.spec.handler is not None and new is not None and new.metadata.deletion_timestamp is not None:
            self._calls.close(new.metadata.uid)
        return False

    async def gone(self, context: Context, key: Key) -> None:
        self._calls.forget(key)
        self._serving.preparing.forget(key)

    async def look(self, context: Context, obj: Function) -> Outcome:
        outcome = await super().look(context, obj)
        if isinstance(outcome, Blocked | Failed):
            self._calls.line(obj).held_up = outcome.message
        return outcome

    def closed(self, held_up: Blocked | Failed) -> list[Condition]:
        return [*super().closed(held_up), not_ready(held_up.reason, held_up.message)]

    async def go_on(self, context: Context, obj: Function, opened: list[Condition]) -> Outcome:
        line = self._calls.line(obj)
        line.held_up = ""
        if obj.spec.regions and LOCAL not in obj.spec.regions:
            named = ", ".join(obj.spec.regions)
            message = f"none of its regions is served here: {named}; this server is {LOCAL}"
            line.held_up = message
            digest = obj.status.digest if obj.status is not None else None
            await self._say(context, obj, [*opened, not_ready("RegionNotServed", message)], digest)
            return DONE
        preparing = self._serving.preparing
        needs = preparing.needs(obj)
        if not preparing.is_there(needs):
            return await self._prepare(context, obj, line, needs, opened)
        version = line.newest = version_of(obj, needs.code, needs.packages)
        again_after = await self._run(context, obj, line, version)
        there = self._workers_of(context, obj)
        failures = self._failures([one for one in there if one.spec.template_hash == version.hash])
        found = standing(obj, version, there, callable_=line.routing.open_workers(), failures=failures)
        await self._say(context, obj, [*opened, found.ready], found.digest)
        every = cast("list[Function]", context.objects.list(Function.api, ""))
        workers = cast("list[Instance]", context.objects.list(Instance.api, ""))
        await preparing.collect(every, workers, self._calls.versions())
        return DONE if again_after is None else Done(again_after=again_after)

    @staticmethod
    def _workers_of(context: Context, obj: Function) -> list[Instance]:
        return own(obj, cast("list[Instance]", context.objects.list(Instance.api, obj.metadata.namespace)))

    # Before there can be workers.

    async def _prepare(
        self, context: Context, obj: Function, line: Line, needs: Needs, opened: list[Condition]
    ) -> Outcome:
        key = Key(obj.metadata.namespace, obj.metadata.name)
        failure = self._serving.preparing.failure(key, needs)
        if failure is None or failure.due <= time.time():
            self._serving.preparing.start(key, obj, needs, lambda: self._wake(key))
        before = self._if_there(line.newest) or self._before(line, self._workers_of(context, obj), "")
        again_after = await self._run(context, obj, line, before) if before is not None else None
        digest = obj.status.digest if obj.status is not None else None
        if failure is None:
            said = not_ready("Preparing", "its code and what it requires are being made ready")
            await self._say(context, obj, [*opened, said], digest)
            return DONE if again_after is None else Done(again_after=again_after)
        if before is None and not line.routing.is_served:
            line.trouble = failure.message
            self._calls.fail_waiting(line, NotCalled("NotLoaded", failure.message))
        await self._say(context, obj, [*opened, not_ready(failure.reason, failure.message)], digest)
        left = failure.due - time.time()
        if left <= 0:
            return DONE
        return RequeueAfter(left if again_after is None else min(left, again_after), failure.reason, failure.message)

    # Workers.

    def _before(self, line: Line, there: Sequence[Instance], newest: str) -> Version | None:
        """The version that answers calls while the newest cannot, if there is one and what it needs is still there."""
        if line.good is None:
            # A server that has just come up knows it by its workers alone.
            opened = line.routing.open_workers()
            served = [one for one in there if one.metadata.uid in opened and one.spec.template_hash != newest]
            line.good = version_in(max(served, key=_made_at)) if served else None
        return self._if_there(line.good) if line.good is not None and line.good.hash != newest else None

    def _if_there(self, version: Version | None) -> Version | None:
        """A version, if what it needs is there."""
        preparing = self._serving.preparing
        return version if version is not None and preparing.is_there(preparing.needs_of(version)) else None

    async def _run(self, context: Context, obj: Function, line: Line, version: Version) -> float | None:
        """Have as many as are needed. Returns in how many seconds there may be fewer."""
        line.routing.version = version.hash
        spec, now = obj.spec, time.monotonic()
        there = self._workers_of(context, obj)
        staying = [one for one in there if one.metadata.deletion_timestamp is None]
        if not line.is_found:
            line.is_found = True
            line.scale.found(len(staying), now)
        before = self._look_at(line, staying, version)
        scale = spec.scale
        wanted = line.scale.wanted(line.load, spec.concurrency, scale.min, scale.max, scale.idle_seconds, now)
        load = {worker.subject.uid: len(worker.calls) for worker in line.routing.workers}
        actions = plan(
            obj,
            version,
            there,
            wanted.workers,
            ready=line.routing.open_workers(),
            load=load,
            before=before,
            finalizers=(RUNTIME_FINALIZER,),
        )
        line.have = wanted.workers
        for action in actions:
            if isinstance(action, Delete):
                self._calls.close(action.uid)
            await carry_out(context, obj.metadata.namespace, action)
        return wanted.again_after

    def _look_at(self, line: Line, staying: Sequence[Instance], version: Version) -> Version | None:
        """What runners say. Returns the version that has to go on, since this one cannot be called or not yet."""
        for instance in staying:
            report = self._serving.runners.report(subject_of(instance))
            if report is not None:
                self._calls.see(line, instance, report)
        current = [one for one in staying if one.spec.template_hash == version.hash]
        if line.routing.open_workers() & {one.metadata.uid for one in current}:
            line.good = version
        before = self._before(line, staying, version.hash)
        older = [one for one in staying if before is not None and one.spec.template_hash == before.hash]
        why = self._why_hopeless(current)
        line.trouble = ""
        if why and not line.routing.is_served and (before is None or self._why_hopeless(older)):
            line.trouble = why
            self._calls.fail_waiting(line, NotCalled("NotLoaded", line.trouble))
        # From nothing it is the newest that is started, and the one before only if that does not load.
        return before if why or line.routing.open_workers() & {one.metadata.uid for one in older} else None

    def _why_hopeless(self, instances: Sequence[Instance]) -> str:
        """Why none of these can be called, ever; empty: one may be."""
        failures = [one for one in self._failures(instances) if one.reason not in PASSING]
        return failures[0].message if failures and len(failures) == len(instances) else ""

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

    async def _say(self, context: Context, obj: Function, conditions: Sequence[Condition], digest: str | None) -> None:
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
            digest=digest,
            region=LOCAL,
            ready_workers=len(line.routing.open_workers()),
            last_call_time=time_of(line.last_call) if line.last_call else status.last_call_time,
            calls=CallCounts(succeeded=counts.succeeded + succeeded, failed=counts.failed + failed)
            if succeeded or failed
            else status.calls,
        )
        await context.write_status(obj, status)
        line.succeeded -= succeeded
        line.failed -= failed


def _made_at(instance: Instance) -> float:
    made = instance.metadata.creation_timestamp
    return made.timestamp() if made is not None else 0.0
