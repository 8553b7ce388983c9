"""The Instance controller: it has a maker run an instance, restarts what has ended, and writes the status.

The decisions are in `instances/lifecycle.py`; a maker behind `making/interface.py` carries them out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import msgspec

from rota.api import BY_BUCKET, Condition, Function, Instance, InstanceType, Quota
from rota.api.instance import InstanceStatus
from rota.client import Key
from rota.control import workers
from rota.control.gate import Gate, status_of
from rota.control.holds.executor import Executor
from rota.control.holds.options import has_runner
from rota.control.instance_actions import RUNTIME_FINALIZER
from rota.control.instances import lifecycle, ready_condition
from rota.control.instances.lifecycle import AVAILABLE, PROGRAMMED, Found, phase_of, unavailable
from rota.control.instances.memory import Baseline, Memory
from rota.control.instances.names import controller_of, owner_of, subject_of
from rota.control.instances.reasons import is_noticed, is_ready
from rota.control.instances.states import USED, is_used
from rota.control.making.interface import InstanceMaker, Observed, Obstacle
from rota.control.plane import HERE, Plane
from rota.control.quotas.gates import GatedInstances, quota_condition
from rota.control.storages import has_heir
from rota.control.unhonoured import conditions
from rota.control.writing import unless_overtaken
from rota.engine import DONE, Context, Done, Outcome, Promise, RequeueAfter, Watch
from rota.engine.references import id_of
from rota.runtime.interface import Overuse
from rota.runtime.runner.messages import Report

CONCURRENCY = 32
"""Instances that are reconciled at the same time: most of the time they wait for the maker."""
UNWRITTEN_SECONDS = 1.0
"""Delay before the status shows a holder or a reset: most are over by then, which saves a write."""
POOLED = ("WorkerPool", "Task")
NOT_RENEWED = "it cannot be started anew with the options of its holder"


class Instances(Gate[Instance]):
    follows = True
    reads = (InstanceType,)
    concurrency = CONCURRENCY
    spin_runs_max = 100_000  # a worker is handed out again and again, and that is all that changes

    def __init__(self, maker: InstanceMaker, executor: Executor | None = None, plane: Plane = HERE) -> None:
        super().__init__(Instance)
        self._maker = maker
        self._runners = maker.runners
        self._executor = executor
        self._plane = plane
        self._memories: dict[Key, Memory] = {}
        self._gated = GatedInstances()
        self.watches = (Watch(Quota, self._gated.by_quota),)

    def begin(self, wake: Callable[[Key], None]) -> Callable[[], None]:
        return self._maker.begin(wake)

    def _memory(self, obj: Instance) -> Memory:
        key = Key(obj.metadata.namespace, obj.metadata.name)
        known = self._memories.get(key)
        if known is None or known.uid != obj.metadata.uid:
            known = self._memories[key] = Memory(obj.metadata.uid)
        return known

    # The fast path.

    def reconcile(self, context: Context, key: Key) -> Promise:
        return self._reconcile_holder(context, key) or super().reconcile(context, key)

    def _reconcile_holder(self, context: Context, key: Key) -> Outcome | None:
        """Reconcile a worker if only its holder has changed, as with most events; None: more has changed."""
        obj, memory = cast("Instance | None", context.find(Instance.api, *key)), self._memories.get(key)
        if obj is None or memory is None or memory.baseline is None or obj.metadata.uid != memory.uid:
            return None
        if obj.metadata.deletion_timestamp is not None:
            return None
        self._record_warnings(context, obj)
        observed = self._maker.observe(obj)
        report = observed.report
        if not memory.baseline.holds(obj, observed, _versions(context, obj)):
            return None
        if report is not None and not self._send_step(context, obj, report, memory.baseline.configured):
            return None
        if report is not None and workers.is_done(report, obj):
            return None  # The status shows at once that the holder has lost what it had.
        self._offer_to_holders(context, obj, report, is_ready=report is None or report.phase in ("Idle", "Held"))
        if (report is None or report.phase != "Resetting") and workers.says_who(obj, report):
            memory.unwritten_since = None
            return DONE
        now = context.clock.time()
        if memory.unwritten_since is None:
            memory.unwritten_since = now
        left = memory.unwritten_since + UNWRITTEN_SECONDS - now
        return Done(again_after=left) if left > 0 else None

    def _keep_baseline(self, context: Context, obj: Instance) -> None:
        """Remember a ready worker's state: while nothing else of it changes, the fast path is enough."""
        memory, observed = self._memory(obj), self._maker.observe(obj)
        memory.unwritten_since = None
        probed = any(one.readiness_probe or one.liveness_probe for one in obj.spec.containers)
        lacks_runner = observed.report is None and has_runner(obj)
        if self._executor is None or not _is_pooled(obj) or lacks_runner or probed or obj.spec.volumes:
            memory.baseline = None
        elif is_ready(obj):
            memory.baseline = Baseline.of(obj, observed, _versions(context, obj))

    # The full path.

    async def sync(self, context: Context, obj: Instance) -> Outcome:
        if not self._plane.runs(obj.spec.cell_name):
            return DONE
        if obj.metadata.deletion_timestamp is not None:
            self._offer_to_holders(context, obj, self._runners.report(subject_of(obj)), is_ready=False)
            if RUNTIME_FINALIZER in obj.metadata.finalizers:
                await self._end(context, obj)
            return DONE
        if is_used(obj) and obj.spec.assignment is None:
            self._offer_to_holders(context, obj, self._runners.report(subject_of(obj)), is_ready=False)
            is_kept = not has_runner(obj) and workers.reset_policy(context.objects, obj) == "Keep"
            marks = dict(obj.metadata.annotations)
            # With Keep, what the holder left running is ended, and the containers start anew on the same files.
            if not is_kept or not await self._renew(obj, marks.pop(USED)):
                await self._replace(context, obj, "")
                return DONE
            metadata = msgspec.structs.replace(obj.metadata, annotations=marks)
            obj = await context.client.update(msgspec.structs.replace(obj, metadata=metadata))
        if (overuse := self._maker.observe(obj).overuse) is not None:
            await self._end_overuse(context, obj, overuse)
            return DONE
        return await super().sync(context, obj)

    async def gone(self, context: Context, key: Key) -> Outcome:
        self._gated.forget(key)
        if self._executor is not None:
            self._executor.remove(key)
        await self._maker.gone(key)
        self._memories.pop(key, None)
        return DONE

    async def go_on(self, context: Context, obj: Instance, opened: list[Condition]) -> Outcome:
        opened = [*opened, quota_condition(context.objects, obj)]
        self._gated.note(obj)
        if lifecycle.is_held_back(obj, copies_gates=self._maker.copies_gates):
            await self._write(context, obj, status_of(obj), opened, "Pending")
            return DONE
        self._record_warnings(context, obj)
        before = self._maker.observe(obj)
        status = lifecycle.with_last_exit(status_of(obj), before.runs)
        found = await self._bring(context, obj, before, status)
        if isinstance(found, Obstacle):
            return await self._not_made(context, obj, status, found, opened)
        made = self._maker.describe(obj)
        for one in made.limits_unmet:
            context.warn_once(obj, "LimitNotHeld", one)
        programmed = Condition(type=PROGRAMMED, status="True", reason=PROGRAMMED)
        ignored = conditions(obj, [*made.unhonoured, *made.limits_unmet])
        said = [*opened, programmed, found.available, *made.conditions, *ignored]
        status = found.status
        if made.addresses is not None:
            status = msgspec.structs.replace(status, addresses=made.addresses)
        written = await self._write(context, obj, status, said, found.phase)
        self._offer_to_holders(context, written, self._runners.report(subject_of(obj)), is_ready=is_ready(written))
        self._keep_baseline(context, written)
        if found.wait is None:
            return DONE
        return RequeueAfter(found.wait, found.available.reason, found.available.message)

    def _record_warnings(self, context: Context, obj: Instance) -> None:
        for reason, message in self._maker.warnings(obj):
            context.events.record(obj, "Warning", reason, message)

    async def _not_made(
        self, context: Context, obj: Instance, status: InstanceStatus, obstacle: Obstacle, opened: list[Condition]
    ) -> Outcome:
        said, phase = lifecycle.not_made(obstacle)
        written = await self._write(context, obj, status, [*opened, *said], phase)
        self._offer_to_holders(context, written, self._runners.report(subject_of(obj)), is_ready=False)
        again = lifecycle.retry_seconds(obj, obstacle)
        return DONE if again is None else RequeueAfter(again, obstacle.reason, obstacle.message)

    # Making.

    async def _bring(
        self, context: Context, obj: Instance, before: Observed, status: InstanceStatus
    ) -> Found | Obstacle:
        """Have the maker run the instance, and restart containers whose back-off is over."""
        memory, now = self._memory(obj), context.clock.time()
        step = lifecycle.hold_step(obj, status, before.runs)
        if step is not None and self._maker.refusal(context.objects, obj) is None:
            if step == "Done":
                return lifecycle.found_done(obj, status)
            assert obj.spec.assignment is not None
            if memory.renewed_for != obj.spec.assignment.id:
                if not await self._renew(obj, obj.spec.assignment.id):
                    await self._replace(context, obj, NOT_RENEWED)
                    return lifecycle.found_done(obj, status)
                before = self._maker.observe(obj)
        memory.history.note(lifecycle.remembered(before.runs, memory.renewed))
        restarts = lifecycle.plan_restarts(obj, before, memory.renewed, memory.history, now)
        after = await self._maker.make(context.objects, obj, restarts.start)
        if after.obstacle is not None and not after.obstacle.is_made:
            return after.obstacle
        crashes = memory.history.crashes(obj.spec.containers[0].name)
        found = lifecycle.found(obj, status, after, restarts.wait, crashes, now)
        if found.available.status != "True":
            return found
        if has_runner(obj):
            found = await self._with_runner(context, obj, after, found)
        if after.unhealthy:
            self._restart(context, obj, after.unhealthy, "Unhealthy", after.unready)
        if after.unready:
            return found._replace(phase="Starting", available=unavailable("Starting", after.unready))
        return found

    async def _renew(self, obj: Instance, hold: str) -> bool:
        """End what runs, without back-off, so that it is started anew for or after a hold. False: the maker cannot."""
        memory, runs = self._memory(obj), self._maker.observe(obj).runs
        if not await self._maker.renew(obj):
            return False
        memory.renewed_for, memory.renewed = hold, {name: run.number for name, run in runs.items()}
        return True

    def _restart(self, context: Context, obj: Instance, container: str, reason: str, why: str) -> None:
        """End the run of a container, with a warning. The restart policy and the back-off apply as after any end."""
        context.events.record(obj, "Warning", reason, why)
        self._maker.restart(obj, container)

    # Runners.

    async def _with_runner(self, context: Context, obj: Instance, observed: Observed, found: Found) -> Found:
        """Return the status with the report of the instance's runner, and send the runner its next step."""
        subject, before = subject_of(obj), status_of(obj)
        report, container = observed.report, obj.spec.containers[0].name
        run = observed.runs[container]
        if report is None and self._runners.is_outdated(subject):
            # The runner's jobs end with it. The next runner sends the outcomes from its journal.
            why = "its runner has another version than the server: it is started anew"
            memory = self._memory(obj)
            memory.renewed_for, memory.renewed = "", {container: run.number}
            self._restart(context, obj, container, "RunnerOutdated", why)
            return found._replace(phase="Starting", available=unavailable("Starting", why))
        if report is None or report.run != run.number:
            known, left = before.condition(AVAILABLE), self._runners.may_return()
            if left > 0 and known is not None and lifecycle.is_same_run(before, run):
                # The server was away, and this runner has not reconnected yet: the status stays.
                return found._replace(phase=before.phase or "Starting", available=known, wait=left)
            return found._replace(phase="Starting", available=workers.available(None, obj))
        if not self._send_step(context, obj, report, observed.configured):
            await self._replace(context, obj, report.message)
        available = workers.available(report, obj)
        status = msgspec.structs.replace(found.status, assignment=workers.assignment(report, obj))
        return Found(status, phase_of(obj) if available.status == "True" else "Starting", available)

    def _send_step(self, context: Context, obj: Instance, report: Report, configured: str) -> bool:
        """Send an instance's runner its next step. Returns False if the instance has to be replaced instead."""
        subject, memory = subject_of(obj), self._memory(obj)
        step = workers.next_step(report, obj, workers.reset_policy(context.objects, obj), configured)
        if step == "Replace":
            return False
        sent = (self._runners.stream(subject), report, step)
        if step is not None and memory.step != sent and self._runners.send(subject, step):
            memory.step = sent
        return True

    def _offer_to_holders(self, context: Context, obj: Instance, report: Report | None, *, is_ready: bool) -> None:
        """Pass the state of an instance on to the executor of holds: this is how a ledger learns of a worker."""
        if self._executor is None:
            return
        if not _is_pooled(obj):
            # Its owner may have orphaned it.
            self._executor.remove(Key(obj.metadata.namespace, obj.metadata.name))
        else:
            self._executor.prepare(context)
            self._executor.observe(obj, report, workers.reset_policy(context.objects, obj), is_ready=is_ready)

    # Writing.

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
        if is_new and is_noticed(ready.reason) and not _is_reported_by_function(obj, ready):
            # Without the time of the restart, so that repeated ones are counted as one Event.
            context.events.record(obj, "Warning", ready.reason, ready.message.partition("; ")[0])
        return written

    # Ending.

    async def _end(self, context: Context, obj: Instance) -> None:
        """End an instance that is being deleted. The finalizer stays until nothing of it is alive."""
        asked = obj.metadata.deletion_timestamp
        passed = context.clock.time() - asked.timestamp() if asked is not None else 0.0
        # Counted from the deletion, so that a restarted server does not begin the grace anew.
        grace = max(0.0, obj.spec.termination_grace_period_seconds - max(0.0, passed))
        if not await self._maker.end(obj, grace, keep_storage=_keeps_storage(context, obj)):
            await self._write(context, obj, status_of(obj), [unavailable("Stopping", "")], "Stopping")
            return
        self._memories.pop(Key(obj.metadata.namespace, obj.metadata.name), None)
        left = [one for one in obj.metadata.finalizers if one != RUNTIME_FINALIZER]
        metadata = msgspec.structs.replace(obj.metadata, finalizers=left)
        await context.client.update(msgspec.structs.replace(obj, metadata=metadata))

    async def _end_overuse(self, context: Context, obj: Instance, overuse: Overuse) -> None:
        """End an instance that exceeds its limits. Storage goes first: a full disk may refuse all other writes."""
        if self._executor is not None and obj.spec.assignment is not None:
            self._executor.blame(obj, f"{overuse.reason}: {overuse.message}")
        self._offer_to_holders(context, obj, self._runners.report(subject_of(obj)), is_ready=False)
        await self._maker.discard(obj)
        why = unavailable(overuse.reason, overuse.message)
        written = await self._write(context, obj, status_of(obj), [why], "Failed")
        await self._delete(context, written)

    async def _replace(self, context: Context, obj: Instance, why: str) -> None:
        """Delete an instance with its storage, without grace: a holder's data must not reach the next holder."""
        if why:
            context.events.record(obj, "Warning", "Replaced", why)
        await self._maker.discard(obj)
        await self._delete(context, obj)

    @staticmethod
    async def _delete(context: Context, obj: Instance) -> None:
        meta = obj.metadata
        await unless_overtaken(context.client.delete(Instance, meta.name, namespace=meta.namespace, uid=meta.uid))


def _versions(context: Context, obj: Instance) -> tuple[str, ...]:
    """Return the identity of an instance's owner, and the resourceVersions of its references."""
    owners = [f"{one.kind}/{one.name}/{one.uid}" for one in obj.metadata.owner_references if one.controller]
    found = []
    for edge in context.graph.references(id_of(obj)):
        bucket, namespace, name = edge.target.split("/", 2)
        target = context.find(BY_BUCKET[bucket], namespace, name)
        found.append(target.metadata.resource_version if target is not None else "")
    return (*owners, *found)


def _keeps_storage(context: Context, obj: Instance) -> bool:
    """Report whether the storage of an instance is kept for the next one of its ordinal."""
    if obj.spec.storage is None or _is_soiled(context, obj):
        return False
    return has_heir(context.objects, obj.metadata.namespace, owner_of(obj))


def _is_soiled(context: Context, obj: Instance) -> bool:
    """Report whether a holder's data is in the storage of an instance, and nothing will reset it."""
    if has_runner(obj):
        return False  # The next runner resets it.
    held = obj.spec.assignment
    is_kept = workers.reset_policy(context.objects, obj) == "Keep"
    return not is_kept and ((held is not None and held.kind == "Claim") or is_used(obj))


def _is_pooled(obj: Instance) -> bool:
    """Report whether an instance can be held by a task or a claim."""
    owner = controller_of(obj)
    return owner is not None and owner.kind in POOLED


def _is_reported_by_function(obj: Instance, ready: Condition) -> bool:
    """Report whether code or packages cannot be loaded: the Function controller records an Event for that."""
    owner = controller_of(obj)
    return owner is not None and owner.kind == Function.api.name and ready.reason == "ConfigurationError"
