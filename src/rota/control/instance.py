"""Instance: what should run is started, what has ended is started again or told of, what is to go is ended first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from rota.api import Condition, Instance, WorkerPool
from rota.api.instance import Container, InstanceStatus, LastExit
from rota.client import Key
from rota.control import workers
from rota.control.gate import Gate, status_of
from rota.control.instances import crashes_in_a_row, ready_condition, restart_delay, restarts, storage_name
from rota.control.instances.crashes import crashing, ending
from rota.control.orders import order, owner_of, subject_of
from rota.control.pool import RUNTIME_FINALIZER
from rota.engine import DONE, Context, Outcome, RequeueAfter
from rota.engine.objects import get
from rota.engine.references import id_of
from rota.registry import ApiError
from rota.runtime.interface import Exit, Refused, Run, Runtime, Subject
from rota.runtime.runners import Runners

PROGRAMMED, AVAILABLE, ISOLATED, QUOTA = "Programmed", "Available", "Isolated", "QuotaGranted"
KEEPER_LOST = "KeeperLost"
RUNS_REMEMBERED = 16
"""Runs of a container that count for the pause before the next one."""


class Instances(Gate[Instance]):
    """Has a runtime do what instances ask for, and says what came of it."""

    follows = True

    def __init__(self, runtime: Runtime, runners: Runners | None = None) -> None:
        super().__init__(Instance)
        self._runtime = runtime
        self._runners = runners or Runners()
        self._past: dict[str, dict[int, tuple[float, float]]] = {}
        self._told: dict[Subject, tuple[int, str]] = {}
        """What runners were told last: the run that was told, and the digest."""

    def begin(self, wake: Callable[[Key], None]) -> Callable[[], None]:
        def heard(subject: Subject) -> None:
            wake(Key(subject.namespace, subject.name))

        deaf, unheard = self._runtime.listen(heard), self._runners.listen(heard)

        def end() -> None:
            deaf()
            unheard()

        return end

    async def look(self, context: Context, obj: Instance) -> Outcome:
        if obj.metadata.deletion_timestamp is None:
            return await super().look(context, obj)
        if RUNTIME_FINALIZER in obj.metadata.finalizers:
            await self._end(context, obj)
        return DONE

    async def gone(self, key: Key) -> None:
        for subject in self._runtime.known(*key):
            await self._runtime.stop(subject, 0)

    async def go_on(self, context: Context, obj: Instance, opened: list[Condition]) -> Outcome:
        if obj.spec.scheduling_gates:
            await self._write(context, obj, status_of(obj), opened, "Pending")
            return DONE
        for other in self._runtime.known(obj.metadata.namespace, obj.metadata.name):
            if other.uid != obj.metadata.uid:
                # Left behind by a namesake whose end nobody saw.
                await self._runtime.stop(other, 0)
        status = self._with_last_exit(status_of(obj), self._runtime.runs(subject_of(obj)))
        try:
            wait = await self._run_all(context, obj)
        except Refused as refused:
            said = [
                *opened,
                _quota(),
                Condition(type=PROGRAMMED, status="False", reason=refused.reason, message=str(refused)),
                Condition(type=AVAILABLE, status="False", reason=refused.reason, message=str(refused)),
            ]
            await self._write(context, obj, status, said, "Failed")
            return DONE
        runs = self._runtime.runs(subject_of(obj))
        status, phase, available = self._seen(obj, status, runs, wait, context.clock.time())
        if obj.spec.worker is not None and available.status == "True":
            phase, available, wait = await self._worker(context, obj, runs)
        programmed = Condition(type=PROGRAMMED, status="True", reason=PROGRAMMED)
        said = [*opened, _quota(), programmed, available, self._isolated(obj)]
        await self._write(context, obj, status, said, phase)
        return DONE if wait is None else RequeueAfter(wait, available.reason, available.message)

    async def _run_all(self, context: Context, obj: Instance) -> float | None:
        """Start what should run and does not. Returns in how many seconds something is to be started again, if so."""
        waits = []
        for container in obj.spec.containers:
            run = self._runtime.runs(subject_of(obj)).get(container.name)
            if run is not None and run.exit is None:
                continue
            if run is not None:
                wait = self._pause(obj, container, run, context.clock.time())
                if wait is None:
                    continue
                if wait > 0:
                    waits.append(wait)
                    continue
            number = 0 if run is None else run.number + 1
            await self._runtime.start(order(context.objects, obj, container, number))
        return min(waits, default=None)

    def _pause(self, obj: Instance, container: Container, run: Run, now: float) -> float | None:
        """Seconds before a run that has ended is followed by another; None: it is not."""
        assert run.exit is not None
        if not restarts(obj.spec.restart_policy, failed=run.exit.failed):
            return None
        if run.exit.reason == KEEPER_LOST:
            return 0.0  # no fault of its own
        past = self._past.setdefault(f"{id_of(obj)}/{container.name}", {})
        past[run.number] = (run.started, run.exit.time)
        if len(past) > RUNS_REMEMBERED:
            del past[min(past)]
        return restart_delay(crashes_in_a_row(past.values()), run.exit.time, now)

    def _seen(
        self, obj: Instance, status: InstanceStatus, runs: Mapping[str, Run], wait: float | None, now: float
    ) -> tuple[InstanceStatus, str, Condition]:
        """The status, phase and condition Available that the runs of an instance come to."""
        first_name = obj.spec.containers[0].name
        first = runs[first_name]
        last = _last_of(runs)
        status = msgspec.structs.replace(
            status,
            observed_generation=obj.metadata.generation,
            observed_template_hash=obj.spec.template_hash,
            runtime_id=first.id,
            start_time=_time(first.started),
            restarts=max(status.restarts, max(run.number for run in runs.values())),
        )
        if last is None:
            phase = "Running" if obj.spec.assignment is not None else "Idle"
            return status, phase, Condition(type=AVAILABLE, status="True", reason=AVAILABLE)
        if wait is not None:
            past = self._past.get(f"{id_of(obj)}/{first_name}", {})
            crashes = max(1, crashes_in_a_row(past.values()))
            said = crashing(_last_exit(last), crashes, now + wait, last.lines.splitlines())
            return status, "Starting", said
        message = "\n".join([f"it {ending(_last_exit(last))}", *last.lines.splitlines()])
        stopped = Condition(type=AVAILABLE, status="False", reason="Stopped", message=message)
        return status, "Failed" if last.failed else "Succeeded", stopped

    @staticmethod
    def _with_last_exit(status: InstanceStatus, runs: Mapping[str, Run]) -> InstanceStatus:
        """Before what has ended is started again: then nobody could tell any more how it did."""
        last = _last_of(runs)
        return status if last is None else msgspec.structs.replace(status, last_exit=_last_exit(last))

    async def _worker(
        self, context: Context, obj: Instance, runs: Mapping[str, Run]
    ) -> tuple[str, Condition, float | None]:
        """What its runner says of itself; it is told what to prepare when it does not know, or no longer."""
        subject = subject_of(obj)
        report = self._runners.report(subject)
        container = obj.spec.containers[0]
        said = workers.available(report)
        if report is None:
            before = status_of(obj)
            known = before.condition(AVAILABLE)
            left = self._runners.may_return()
            if left > 0 and known is not None and before.runtime_id == runs[container.name].id:
                # The server was away, and this runner has not come back yet: it is as it was.
                return before.phase or "Starting", known, left
            return "Starting", said, None
        prepared = workers.preparation(context.objects, obj, order(context.objects, obj, container))
        digest = prepared.digest()
        if report.configured != digest and self._told.get(subject) != (report.run, digest):
            self._told[subject] = (report.run, digest)
            self._runners.send(subject, await workers.configuration(self._runtime, prepared, digest))
        if report.phase == "Broken":
            await self._replace(context, obj, report.message)
        if said.status != "True":
            return "Starting", said, None
        return "Running" if obj.spec.assignment is not None else "Idle", said, None

    async def _replace(self, context: Context, obj: Instance, why: str) -> None:
        """Something of a holder would stay: it is given to nobody any more, and neither is its storage."""
        context.events.record(obj, "Warning", "Replaced", why)
        kind: Any = Instance
        meta = obj.metadata
        try:
            await context.client.delete(kind, meta.name, namespace=meta.namespace, uid=meta.uid)
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    def _isolated(self, obj: Instance) -> Condition:
        isolated, why_not = self._runtime.isolates(obj.spec.isolation)
        if isolated:
            return Condition(type=ISOLATED, status="True", reason="Sandboxed")
        return Condition(type=ISOLATED, status="False", reason="NotSandboxed", message=why_not)

    @staticmethod
    async def _write(
        context: Context, obj: Instance, status: InstanceStatus, conditions: list[Condition], phase: str
    ) -> None:
        for condition in conditions:
            status = context.condition(obj, status, condition)
        status = msgspec.structs.replace(status, phase=phase)
        ready = ready_condition(msgspec.structs.replace(obj, status=status))
        await context.write_status(obj, context.condition(obj, status, ready))

    async def _end(self, context: Context, obj: Instance) -> None:
        """Nothing of it may be alive when it is gone."""
        await self._runtime.stop(subject_of(obj), obj.spec.termination_grace_period_seconds)
        self._told.pop(subject_of(obj), None)
        for container in obj.spec.containers:
            self._past.pop(f"{id_of(obj)}/{container.name}", None)
        if obj.spec.storage is not None and not self._has_heir(context, obj):
            await self._runtime.drop_storage(obj.metadata.namespace, owner_of(obj), storage_name(obj))
        left = [one for one in obj.metadata.finalizers if one != RUNTIME_FINALIZER]
        metadata = msgspec.structs.replace(obj.metadata, finalizers=left)
        await context.client.update(msgspec.structs.replace(obj, metadata=metadata))

    @staticmethod
    def _has_heir(context: Context, obj: Instance) -> bool:
        """Whether there may be another one that its storage is for."""
        owner = owner_of(obj)
        pool = get(context.objects, WorkerPool, owner.name, obj.metadata.namespace)
        return pool is not None and pool.metadata.uid == owner.uid and pool.metadata.deletion_timestamp is None


def _quota() -> Condition:
    return Condition(type=QUOTA, status="True", reason="NotRequired")


def _last_of(runs: Mapping[str, Run]) -> Exit | None:
    """How the last of those that run no more ended."""
    return max((run.exit for run in runs.values() if run.exit is not None), key=lambda end: end.time, default=None)


def _last_exit(exit_: Exit) -> LastExit:
    return LastExit(code=exit_.code, signal=exit_.signal, reason=exit_.reason or None, time=_time(exit_.time))


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(int(seconds), UTC)
