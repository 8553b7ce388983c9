"""Instance: what should run is started, what has ended is started again or told of, what is to go is ended first."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from rota.api import Condition, Function, Instance, InstanceType, Quota
from rota.api.instance import AssignmentStatus, Container, InstanceStatus
from rota.client import Key
from rota.control import inputs, networks, ports, workers
from rota.control.carrying import RUNTIME_FINALIZER
from rota.control.cells.fence import Fence
from rota.control.endings import Endings
from rota.control.gate import Gate, status_of
from rota.control.holds.executor import Executor
from rota.control.holds.options import has_runner, is_restarted_for
from rota.control.instances import crashes_in_a_row, ready_condition, restart_delay, restarts, storage_name
from rota.control.instances.names import controller_of
from rota.control.instances.reasons import is_noticed, is_ready
from rota.control.instances.states import MORE_NETWORK, NOT_ISOLATED, USED, is_used
from rota.control.orders import order, owner_of, subject_of
from rota.control.plane import HERE, Plane
from rota.control.quotas.telling import Gated, quota_condition
from rota.control.seen import AVAILABLE, Seen, phase_of, seen, unavailable, with_last_exit
from rota.control.settled import Settled
from rota.control.storages import has_heir
from rota.control.unhonoured import conditions, of_template
from rota.engine import DONE, Context, Done, Outcome, RequeueAfter, Watch
from rota.engine.references import id_of
from rota.registry import ApiError
from rota.runtime.interface import Order, Overuse, Refused, Run, Runtime, Subject
from rota.runtime.keeper.lease import LEASE_ENDED
from rota.runtime.probes import Probes
from rota.runtime.runner.messages import Report
from rota.runtime.runners import Runners

PROGRAMMED, ISOLATED = "Programmed", "Isolated"
BOUNDED = "StorageBounded"
MEASURED = "this host has no quota for folders, so it is measured every few seconds"
KEEPER_LOST = "KeeperLost"
RUNS_REMEMBERED = 16
"""Runs of a container that count for the pause before the next one."""
CONCURRENCY = 32
"""Instances that are looked at together: most of the time is spent on waiting for the runtime."""
UNSAID_SECONDS = 1.0
"""For how long it need not be said who has an instance, or that it is being reset."""
IMAGE_RETRY_SECONDS = 30.0
"""How often an image that cannot be had is asked for again."""
CODE_RETRY_SECONDS = 1.0
COMING = frozenset(("Provisioning", "HubUnreachable"))
"""Reasons why something does not run that are no fault of its own, and pass."""
POOLED = ("WorkerPool", "Task")
KILL = 9
POLICY_GRACE_SECONDS_MAX = 5
"""Within which an instance has to end that has more network than the server gives by now."""


class Instances(Gate[Instance]):
    """Has a runtime do what instances ask for, and says what came of it."""

    follows = True
    reads = (InstanceType,)
    concurrency = CONCURRENCY
    spin_runs_max = 100_000  # a worker is handed out again and again, and that is all that changes

    def __init__(
        self,
        runtime: Runtime,
        runners: Runners | None = None,
        executor: Executor | None = None,
        plane: Plane = HERE,
        fence: Fence | None = None,
    ) -> None:
        super().__init__(Instance)
        self._plane = plane
        self._fence = fence
        self._runtime = runtime
        self._runners = runners or Runners()
        self._executor = executor
        self._probes = Probes(self._run_command)
        self._endings = Endings()
        self._wake: Callable[[Key], None] = lambda key: None
        self._past: dict[str, dict[int, tuple[float, float]]] = {}
        self._ports: dict[Subject, dict[str, dict[str, int]]] = {}
        self._told: dict[Subject, tuple[object, str]] = {}
        """What runners were told last: the stream on which they were, and the digest."""
        self._steps: dict[Subject, tuple[object, Report, object]] = {}
        """What runners were told last of who has them, and what they had said before."""
        self._anew_for: dict[Subject, tuple[str, dict[str, int]]] = {}
        """The hold for which runs were ended to be started anew, and their numbers."""
        self._overused: dict[Subject, Overuse] = {}
        self._settled: dict[str, Settled] = {}
        self._gated = Gated()
        self.watches = (Watch(Quota, self._gated.by_quota),)
        self._unsaid: dict[str, float] = {}
        """Since when the status of an instance does not say who has it, or that it is being reset."""

    def begin(self, wake: Callable[[Key], None]) -> Callable[[], None]:
        def heard(subject: Subject) -> None:
            wake(Key(subject.namespace, subject.name))

        self._wake = wake
        ends = [source.listen(heard) for source in (self._runtime, self._runners, self._probes)]
        if self._fence is not None:
            ends.append(self._fence.listen(wake))
        return lambda: self._stop(ends)

    def _stop(self, ends: Sequence[Callable[[], None]]) -> None:
        for end in ends:
            end()
        self._endings.close()
        self._probes.stop()

    def at_once(self, context: Context, key: Key) -> Outcome | None:
        """A worker that is handed out and comes back, all day long, and of which nothing else changes."""
        obj = cast("Instance | None", context.find(Instance.api, *key))
        settled = self._settled.get(obj.metadata.uid) if obj is not None else None
        if obj is None or settled is None or obj.metadata.deletion_timestamp is not None:
            return None
        subject = subject_of(obj)
        self._tell_refused(context, obj)
        report = self._runners.report(subject)
        if self._overuse(subject) is not None:
            return None
        if not settled.holds(context, obj, report, self._runtime.runs(subject)):
            return None
        if report is not None and not self._stepped(obj, report, settled.configured, context):
            return None
        if report is not None and _is_done(report, obj):
            return None  # Whoever has it has lost what it had: that is said at once.
        self._show(context, obj, is_ready=report is None or report.phase in ("Idle", "Held"))
        uid, now = obj.metadata.uid, context.clock.time()
        is_resetting = report is not None and report.phase == "Resetting"
        if not is_resetting and _says_who(obj, report):
            self._unsaid.pop(uid, None)
            return DONE
        left = self._unsaid.setdefault(uid, now) + UNSAID_SECONDS - now
        return Done(again_after=left) if left > 0 else None

    def _stepped(self, obj: Instance, report: Report, configured: str, context: Context) -> bool:
        """Tell its runner of who has it. Whether that is all there is to do."""
        subject, stream = subject_of(obj), self._runners.stream(subject_of(obj))
        step = workers.next_step(report, obj, workers.reset_policy(context.objects, obj), configured)
        if step == "Replace":
            return False
        told = (stream, report, step)
        # Said again, it would be done again.
        if step is not None and self._steps.get(subject) != told and self._runners.send(subject, step):
            self._steps[subject] = told
        return True

    async def look(self, context: Context, obj: Instance) -> Outcome:
        if not self._plane.runs(obj.spec.cell_name):
            return DONE
        if obj.metadata.deletion_timestamp is None and is_used(obj) and obj.spec.assignment is None:
            self._show(context, obj, is_ready=False)
            if has_runner(obj) or workers.reset_policy(context.objects, obj) != "Keep":
                await self._replace(context, obj, "")
                return DONE
            obj = await self._begun_anew(context, obj)
        if obj.metadata.deletion_timestamp is None and (overuse := self._overuse(subject_of(obj))) is not None:
            await self._end_overuse(context, obj, overuse)
            return DONE
        if obj.metadata.deletion_timestamp is None:
            return await super().look(context, obj)
        self._show(context, obj, is_ready=False)
        if RUNTIME_FINALIZER in obj.metadata.finalizers:
            await self._end(context, obj)
        return DONE

    def _overuse(self, subject: Subject) -> Overuse | None:
        """Why an instance must end, if it must. It is remembered: what has ended uses nothing."""
        found = self._runtime.overuse(subject)
        if found is not None:
            self._overused[subject] = found
        return self._overused.get(subject)

    async def _end_overuse(self, context: Context, obj: Instance, overuse: Overuse) -> None:
        """Make room first: with a full disk nothing can be written before. Its owner makes another one."""
        if self._executor is not None and obj.spec.assignment is not None:
            self._executor.blame(obj, f"{overuse.reason}: {overuse.message}")
        self._show(context, obj, is_ready=False)
        await self._remove(obj)
        why = unavailable(overuse.reason, overuse.message)
        written = await self._write(context, obj, status_of(obj), [why], "Failed")
        await self._delete(context, written)

    async def gone(self, context: Context, key: Key) -> None:
        self._gated.forget(key)
        if self._executor is not None:
            self._executor.remove(key)
        for subject in self._runtime.known(*key):
            await self._runtime.stop(subject, 0)
        # Also of one that never ran, or whose finalizers somebody has removed.
        for subject in [one for one in self._ports if (one.namespace, one.name) == key]:
            self._forget(subject)
        prefix = f"{Instance.api.key(*key)}/"
        for container in [one for one in self._past if one.startswith(prefix)]:
            del self._past[container]

    async def go_on(self, context: Context, obj: Instance, opened: list[Condition]) -> Outcome:
        if self._gated.note(obj):
            said = [*opened, quota_condition(context.objects, obj)]
            await self._write(context, obj, status_of(obj), said, "Pending")
            return DONE
        subject = subject_of(obj)
        self._tell_refused(context, obj)
        for other in self._runtime.known(obj.metadata.namespace, obj.metadata.name):
            if other.uid != obj.metadata.uid:
                # Left behind by a namesake whose end nobody saw.
                await self._runtime.stop(other, 0)
        status = with_last_exit(status_of(obj), self._runtime.runs(subject))
        try:
            found = await self._run(context, obj, status)
        except Refused as refused:
            why = unavailable(refused.reason, str(refused))
            said = [*opened, quota_condition(context.objects, obj), msgspec.structs.replace(why, type=PROGRAMMED), why]
            return await self._refused(context, obj, status, refused, said)
        programmed = Condition(type=PROGRAMMED, status="True", reason=PROGRAMMED)
        unlimited = self._unlimited(obj)
        for one in unlimited:
            context.tell_once(obj, "LimitNotHeld", one)
        ignored = conditions(obj, [*of_template(obj.spec, "spec."), *unlimited])
        granted = quota_condition(context.objects, obj)
        said = [*opened, granted, programmed, found.available, *self._kept_apart(obj), *_bounded(obj), *ignored]
        written = await self._write(context, obj, found.status, said, found.phase)
        self._show(context, written, is_ready=is_ready(written))
        self._settle(context, written)
        if found.wait is None:
            return DONE
        return RequeueAfter(found.wait, found.available.reason, found.available.message)

    def _tell_refused(self, context: Context, obj: Instance) -> None:
        """What it is not told itself, so that it learns nothing of what is there."""
        for one in self._runtime.refused(subject_of(obj)):
            context.events.record(obj, "Warning", "EgressRefused", f"{one.host} port {one.port}: {one.why}")

    def _settle(self, context: Context, obj: Instance) -> None:
        """From now on it is only looked at in passing, as long as nothing else of it changes."""
        subject = subject_of(obj)
        self._unsaid.pop(subject.uid, None)
        report = self._runners.report(subject)
        probed = any(one.readiness_probe or one.liveness_probe for one in obj.spec.containers)
        lacks_runner = report is None and has_runner(obj)
        if self._executor is None or not _is_pooled(obj) or lacks_runner or probed or obj.spec.volumes:
            self._settled.pop(subject.uid, None)
        elif is_ready(obj):
            self._settled[subject.uid] = Settled.of(context, obj, report, self._runtime.runs(subject))

    def _show(self, context: Context, obj: Instance, *, is_ready: bool) -> None:
        """Tell whoever hands out workers how this one is."""
        if self._executor is None:
            return
        if not _is_pooled(obj):
            # Its owner may have let go of it.
            self._executor.remove(Key(obj.metadata.namespace, obj.metadata.name))
        else:
            self._executor.prepare(context)
            report = self._runners.report(subject_of(obj))
            self._executor.observe(obj, report, workers.reset_policy(context.objects, obj), is_ready=is_ready)

    async def _refused(
        self, context: Context, obj: Instance, status: InstanceStatus, refused: Refused, said: list[Condition]
    ) -> Outcome:
        is_coming = refused.reason in COMING
        written = await self._write(context, obj, status, said, "Pending" if is_coming else "Failed")
        self._show(context, written, is_ready=False)
        if refused.reason == "ImageUnavailable":
            # Nobody tells when one is there.
            return RequeueAfter(IMAGE_RETRY_SECONDS, refused.reason, str(refused))
        if is_coming and obj.spec.handler is not None:
            # The code of a function, which is being put there.
            return RequeueAfter(CODE_RETRY_SECONDS, refused.reason, str(refused))
        return DONE

    # Running.

    async def _run(self, context: Context, obj: Instance, status: InstanceStatus) -> Seen:
        subject = subject_of(obj)
        if why := networks.check(context.objects, obj, self._runtime.policy):
            if self._runtime.runs(subject):  # It was started under another policy.
                grace = min(obj.spec.termination_grace_period_seconds, POLICY_GRACE_SECONDS_MAX)
                await self._runtime.stop(subject, grace)
            raise Refused("ConfigurationError", why)
        if why := self._taken_from_others(context, obj):
            raise Refused("ConfigurationError", why)
        network = networks.network_of(obj.spec, self._runtime.policy)
        self._ports[subject] = ports.allot(obj, self._taken(subject), network)
        is_anew = is_restarted_for(obj)
        if is_anew and (ended := await self._anew(obj, status)) is not None:
            status = ended
            if ended.assignment is not None and ended.assignment.phase == "Done":
                return Seen(status, "Failed", unavailable("Stopped", "what ran for who has it has ended"))
        wait = await self._run_all(context, obj)
        runs = self._runtime.runs(subject)
        past = self._past.get(f"{id_of(obj)}/{obj.spec.containers[0].name}", {})
        found = seen(obj, status, runs, wait, crashes_in_a_row(past.values()), context.clock.time())
        addresses = ports.addresses(self._ports[subject], network)
        found = found._replace(status=msgspec.structs.replace(found.status, addresses=addresses))
        if found.available.status != "True":
            return found
        if is_anew and obj.spec.assignment is not None:
            running = AssignmentStatus(id=obj.spec.assignment.id, phase="Running")
            found = found._replace(status=msgspec.structs.replace(found.status, assignment=running))
        if has_runner(obj):
            found = await self._worker(context, obj, runs, found)
        return self._probed(context, obj, runs, found)

    def _taken_from_others(self, context: Context, obj: Instance) -> str:
        """Say which input of an instance that reaches the host is not an admin's; empty: all are."""
        isolated, _ = self._runtime.isolates(obj.spec.isolation, obj.spec.runtime)
        has_more = networks.beyond_policy(obj.spec.network, obj.spec.egress, self._runtime.policy)
        # What asks for a sandbox gets one, or is not started.
        if (isolated or obj.spec.isolation == "sandbox") and not has_more:
            why_open = inputs.host_files(context.objects, obj.metadata.namespace, obj.spec.workspace_ref)
        else:
            why_open = NOT_ISOLATED if not isolated else MORE_NETWORK
        if not why_open:
            return ""
        owner = inputs.made_for(context.objects, obj) or obj
        where = f"{owner.api.name}/{owner.metadata.name}"
        return inputs.refusal(context.objects, where, why_open, obj, owner)

    async def _anew(self, obj: Instance, status: InstanceStatus) -> InstanceStatus | None:
        """What runs is ended, once, so that it is started as who has the instance wants it. What ends then is over."""
        subject, held = subject_of(obj), obj.spec.assignment
        assert held is not None
        runs, known = self._runtime.runs(subject), status.assignment
        if known is not None and known.id == held.id:
            has_ended = known.phase == "Done" or any(run.exit is not None for run in runs.values())
            done = AssignmentStatus(id=held.id, phase="Done")
            return msgspec.structs.replace(status, assignment=done) if has_ended else None
        if self._anew_for.get(subject, ("", {}))[0] != held.id:
            self._anew_for[subject] = (held.id, {name: run.number for name, run in runs.items()})
            for name, run in runs.items():
                if run.exit is None:
                    await self._runtime.end(subject, name, 0)
        return None

    async def _begun_anew(self, context: Context, obj: Instance) -> Instance:
        """End all that a holder left running. It is started again, on the files that are there, for the next one."""
        subject, marks = subject_of(obj), dict(obj.metadata.annotations)
        runs = self._runtime.runs(subject)
        self._anew_for[subject] = (marks.pop(USED), {name: run.number for name, run in runs.items()})
        for name, run in runs.items():
            if run.exit is None:
                await self._runtime.end(subject, name, 0)
        metadata = msgspec.structs.replace(obj.metadata, annotations=marks)
        return await context.client.update(msgspec.structs.replace(obj, metadata=metadata))

    def _taken(self, subject: Subject) -> set[int]:
        """The ports of all others."""
        others = (each for whose, each in self._ports.items() if whose != subject)
        return {number for containers in others for named in containers.values() for number in named.values()}

    async def _run_all(self, context: Context, obj: Instance) -> float | None:
        """Start what should run and does not. Returns in how many seconds something is to be started again, if so."""
        waits = []
        subject = subject_of(obj)
        for container in obj.spec.containers:
            run = self._runtime.runs(subject).get(container.name)
            if run is not None and run.exit is None:
                if obj.spec.volumes:
                    await self._runtime.update(order(context.objects, obj, container, policy=self._runtime.policy))
                continue
            if run is not None and self._anew_for.get(subject, ("", {}))[1].get(container.name) != run.number:
                wait = self._pause(obj, container, run, context.clock.time())
                if wait is None:
                    continue
                if wait > 0:
                    waits.append(wait)
                    continue
            number = 0 if run is None else run.number + 1
            ordered = self._order(context, obj, container, number)
            await self._runtime.start(ordered)
            self._runners.forget(subject)  # Whichever version the last runner was of, it has ended.
            left = self._fence.left(obj) if self._fence is not None else None
            if ordered.lease_seconds is None and left is not None:
                # It has become one that is moved meanwhile.
                await self._runtime.extend({subject: left})
        return min(waits, default=None)

    def _order(self, context: Context, obj: Instance, container: Container, number: int = 0) -> Order:
        allotted = self._ports[subject_of(obj)][container.name]
        made = order(context.objects, obj, container, number, allotted, policy=self._runtime.policy)
        left = self._fence.left(obj) if self._fence is not None else None
        if left is None:
            return made
        if left <= 0:
            raise Refused("HubUnreachable", "it is moved when this cell is lost, so it runs only while the hub says so")
        return msgspec.structs.replace(made, lease_seconds=left)

    def _pause(self, obj: Instance, container: Container, run: Run, now: float) -> float | None:
        """Seconds before a run that has ended is followed by another; None: it is not."""
        assert run.exit is not None
        if not restarts(obj.spec.restart_policy, failed=run.exit.failed):
            return None
        if run.exit.reason in (KEEPER_LOST, LEASE_ENDED):
            return 0.0  # no fault of its own
        past = self._past.setdefault(f"{id_of(obj)}/{container.name}", {})
        past[run.number] = (run.started, run.exit.time)
        if len(past) > RUNS_REMEMBERED:
            del past[min(past)]
        return restart_delay(crashes_in_a_row(past.values()), run.exit.time, now)

    # Looking after what runs.

    async def _worker(self, context: Context, obj: Instance, runs: Mapping[str, Run], found: Seen) -> Seen:
        """What its runner says of itself; it is told what to prepare when it does not know, or no longer."""
        subject, container = subject_of(obj), obj.spec.containers[0]
        report = self._runners.report(subject)
        before = status_of(obj)
        if report is None and self._runners.is_outdated(subject):
            return found._replace(phase="Starting", available=self._renew_runner(context, obj, runs))
        if report is None or report.run != runs[container.name].number:
            known, left = before.condition(AVAILABLE), self._runners.may_return()
            if left > 0 and known is not None and before.runtime_id == runs[container.name].id:
                # The server was away, and this runner has not come back yet: it is as it was.
                return found._replace(phase=before.phase or "Starting", available=known, wait=left)
            return found._replace(phase="Starting", available=workers.available(None, obj))
        ordered = self._order(context, obj, container)
        prepared = workers.preparation(context.objects, obj, ordered, self._runtime.policy)
        digest = prepared.digest()
        stream, told = self._told.get(subject, (None, ""))
        # What was told on a stream that broke may never have come.
        if digest != (told if stream is self._runners.stream(subject) else report.configured):
            message = await workers.configuration(self._runtime, prepared, digest)
            if self._runners.send(subject, message):
                self._told[subject] = (self._runners.stream(subject), digest)
        if not self._stepped(obj, report, digest, context):
            await self._replace(context, obj, report.message)
        available = workers.available(report, obj)
        status = msgspec.structs.replace(found.status, assignment=workers.assignment(report, obj))
        return Seen(status, phase_of(obj) if available.status == "True" else "Starting", available)

    def _renew_runner(self, context: Context, obj: Instance, runs: Mapping[str, Run]) -> Condition:
        """End a runner that the server cannot talk to, and have the next one started at once.

        What it ran is lost with it. Its journal stays, from which the next runner sends the outcomes.
        """
        name, why = obj.spec.containers[0].name, "its runner is of another version than the server: it is started anew"
        self._anew_for[subject_of(obj)] = ("", {name: runs[name].number})
        self._restart(context, obj, name, why, reason="RunnerOutdated")
        return unavailable("Starting", why)

    def _probed(self, context: Context, obj: Instance, runs: Mapping[str, Run], found: Seen) -> Seen:
        """What its probes say: it is ready when all of them do."""
        subject, before = subject_of(obj), status_of(obj)
        known = before.condition(AVAILABLE)
        was_ready = known is not None and known.status == "True" and before.runtime_id == found.status.runtime_id
        isolated, _ = self._runtime.isolates(obj.spec.isolation, obj.spec.runtime)
        network = networks.network_of(obj.spec, self._runtime.policy) if isolated else "host"
        for container in obj.spec.containers:
            if container.readiness_probe is None and container.liveness_probe is None:
                continue
            run = runs[container.name]
            self._probes.follow(subject, container, run, network=network, was_ready=was_ready)
            if (why := self._probes.must_restart(subject, container.name)) is not None:
                self._restart(context, obj, container.name, why)
                return found._replace(phase="Starting", available=unavailable("Starting", why))
            ready, why_not = self._probes.ready(subject, container.name)
            if not ready:
                return found._replace(phase="Starting", available=unavailable("Starting", why_not))
        return found

    def _restart(self, context: Context, obj: Instance, container: str, why: str, reason: str = "Unhealthy") -> None:
        """End a run that is not alive; what comes then is as after any end."""
        context.events.record(obj, "Warning", reason, why)
        subject, grace = subject_of(obj), obj.spec.termination_grace_period_seconds
        self._endings.begin((subject, container), lambda: self._runtime.end(subject, container, grace))

    async def _run_command(self, subject: Subject, container: str, argv: Sequence[str], seconds: float) -> int:
        """A probe's command: its exit code. Raises TimeoutError."""
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            running = await self._runtime.exec(
                subject, container, argv, env={}, streams=(nothing, nothing, nothing), tty=False
            )
        finally:
            os.close(nothing)
        try:
            async with asyncio.timeout(seconds):
                return await running.wait()
        except BaseException:
            await running.signal(KILL)
            raise

    def _unlimited(self, obj: Instance) -> list[str]:
        """Limits that this machine cannot hold, of what runs now."""
        runs = self._runtime.runs(subject_of(obj))
        return [
            f"spec.containers[{i}].resources.limits.{name} is not held: this host has no cgroup for it (`rota doctor`)"
            for i, container in enumerate(obj.spec.containers)
            for name in (runs[container.name].limits_unmet if container.name in runs else ())
        ]

    def _kept_apart(self, obj: Instance) -> list[Condition]:
        isolated, how = self._runtime.isolates(obj.spec.isolation, obj.spec.runtime)
        confined = networks.condition(obj, self._runtime.policy, isolated=isolated)
        if isolated:
            return [Condition(type=ISOLATED, status="True", reason=how), confined]
        return [Condition(type=ISOLATED, status="False", reason="NotSandboxed", message=how), confined]

    @staticmethod
    async def _write(
        context: Context, obj: Instance, status: InstanceStatus, conditions: list[Condition], phase: str
    ) -> Instance:
        for condition in conditions:
            status = context.condition(obj, status, condition)
        status = msgspec.structs.replace(status, phase=phase)
        ready = ready_condition(msgspec.structs.replace(obj, status=status))
        before = status_of(obj).condition("Ready")
        written = await context.write_status(obj, context.condition(obj, status, ready))
        is_new = ready.status != "True" and (before is None or before.reason != ready.reason)
        if is_new and is_noticed(ready.reason) and not _is_told_by_function(obj, ready):
            # Without when it is started again: many that say the same are one Event.
            context.events.record(obj, "Warning", ready.reason, ready.message.partition("; ")[0])
        return written

    # Ending.

    async def _end(self, context: Context, obj: Instance) -> None:
        """Nothing of it may be alive when it is gone."""
        subject, asked = subject_of(obj), obj.metadata.deletion_timestamp
        passed = context.clock.time() - asked.timestamp() if asked is not None else 0.0
        # Counted from when it was asked for: another server that goes on with it does not begin anew.
        grace = max(0.0, obj.spec.termination_grace_period_seconds - max(0.0, passed))
        key = Key(subject.namespace, subject.name)
        if not await self._endings.over(subject, lambda: self._runtime.stop(subject, grace), lambda: self._wake(key)):
            await self._write(context, obj, status_of(obj), [unavailable("Stopping", "")], "Stopping")
            return
        self._forget(subject)
        for container in obj.spec.containers:
            self._past.pop(f"{id_of(obj)}/{container.name}", None)
        if obj.spec.storage is not None and (_is_soiled(context, obj) or not _has_heir(context, obj)):
            await self._runtime.drop_storage(obj.metadata.namespace, owner_of(obj), storage_name(obj))
        left = [one for one in obj.metadata.finalizers if one != RUNTIME_FINALIZER]
        metadata = msgspec.structs.replace(obj.metadata, finalizers=left)
        await context.client.update(msgspec.structs.replace(obj, metadata=metadata))

    async def _replace(self, context: Context, obj: Instance, why: str) -> None:
        """Something of a holder would stay, or is not to: it is given to nobody any more, and neither its storage."""
        if why:
            context.events.record(obj, "Warning", "Replaced", why)
        await self._remove(obj)
        await self._delete(context, obj)

    async def _remove(self, obj: Instance) -> None:
        """Nothing of it is alive, nor on the disk, when this returns."""
        await self._runtime.stop(subject_of(obj), 0)
        await self._runtime.drop_storage(obj.metadata.namespace, owner_of(obj), storage_name(obj))

    @staticmethod
    async def _delete(context: Context, obj: Instance) -> None:
        kind: Any = Instance
        meta = obj.metadata
        try:
            await context.client.delete(kind, meta.name, namespace=meta.namespace, uid=meta.uid)
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    def _forget(self, subject: Subject) -> None:
        self._runners.forget(subject)
        self._told.pop(subject, None)
        self._steps.pop(subject, None)
        self._anew_for.pop(subject, None)
        self._overused.pop(subject, None)
        self._settled.pop(subject.uid, None)
        self._unsaid.pop(subject.uid, None)
        self._ports.pop(subject, None)
        self._probes.forget(subject)


def _has_heir(context: Context, obj: Instance) -> bool:
    """Whether there may be another one that the storage of an instance is for."""
    return has_heir(context.objects, obj.metadata.namespace, owner_of(obj))


def _is_soiled(context: Context, obj: Instance) -> bool:
    """Whether what a holder left is in the storage of an instance, and nobody makes that as new."""
    if has_runner(obj):
        return False  # The next runner does.
    held = obj.spec.assignment
    is_kept = workers.reset_policy(context.objects, obj) == "Keep"
    return not is_kept and ((held is not None and held.kind == "Claim") or is_used(obj))


def _says_who(obj: Instance, report: Report | None) -> bool:
    """Whether it is written down who has it, and how far its runner is with that."""
    status = status_of(obj)
    return status.phase == phase_of(obj) and (report is None or workers.assignment(report, obj) == status.assignment)


def _is_done(report: Report, obj: Instance) -> bool:
    now = workers.assignment(report, obj)
    return now is not None and now.phase == "Done" and now != status_of(obj).assignment


def _is_pooled(obj: Instance) -> bool:
    """Whether it is there to be had by somebody."""
    owner = controller_of(obj)
    return owner is not None and owner.kind in POOLED


def _bounded(obj: Instance) -> list[Condition]:
    """How the size of its storage is held, if it has any."""
    if obj.spec.storage is None:
        return []
    message = f"{MEASURED}: with more than {obj.spec.storage.size} the instance is ended and its storage removed"
    return [Condition(type=BOUNDED, status="True", reason="Measured", message=message)]


def _is_told_by_function(obj: Instance, ready: Condition) -> bool:
    """Whether code or packages cannot be loaded: the Function has an Event of its own for that."""
    owner = controller_of(obj)
    return owner is not None and owner.kind == Function.api.name and ready.reason == "ConfigurationError"
