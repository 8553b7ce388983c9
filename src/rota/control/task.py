"""The controller of tasks. A task waits for what it needs, gets a worker, runs, and is over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from rota.api import Condition, Function, Instance, Object, OwnerReference, Task, WorkerPool
from rota.api.task import TaskStatus
from rota.api.templates import TemplateError
from rota.client import Key
from rota.control import inputs, networks
from rota.control.functions.call_tasks import ended_status, kept_uid
from rota.control.functions.tasks import FunctionCaller
from rota.control.gate import RESOLVED, Gate, lasts, may_be_coming, status_of
from rota.control.holds.named import ByName
from rota.control.instance_actions import RUNTIME_FINALIZER, carry_out
from rota.control.instances import Desired, plan, template_hash
from rota.control.instances.names import instance_name
from rota.control.instances.reasons import blocker
from rota.control.instances.states import MORE_NETWORK, NOT_ISOLATED
from rota.control.quotas.asking import READS
from rota.control.tasks import lifecycle
from rota.control.tasks.attempts import Attempts
from rota.control.tasks.jobs import CannotRun, check, worker_of
from rota.control.tasks.locks import BRANCH_LOCKED, Locks
from rota.control.tasks.notices import QUEUED_NOTICE_SECONDS
from rota.control.tasks.placing import has_more_to_come, is_on, is_plain, key_of, pool_of
from rota.control.tasks.templating import given_payload
from rota.control.tasks.waits import PoolWait, wait_of, warn
from rota.control.unhonoured import conditions, record_unhonoured, unhonoured
from rota.control.workers import worker_template
from rota.control.writing import unless_overtaken
from rota.engine import DONE, Blocked, Context, Done, Failed, Outcome, Promise, RequeueAfter
from rota.engine.objects import Objects, get
from rota.engine.references import CYCLE, NOT_READY
from rota.registry import ApiError
from rota.registry.privileges import RESTRICTED, is_restricted
from rota.runtime.interface import Runtime

QUOTA_EXCEEDED = "QuotaExceeded"
"""Reason of a task that waits in the queue until the budget has room for its worker."""
DEPENDENTS_FINALIZER = "rota.dev/dependents"
"""Finalizer that keeps an ended task until the tasks that wait for it have recorded its end."""
AWAITED_SECONDS = 1.0
"""Pause before an expired task, which another one still needs, is checked again."""
CONCURRENCY = 64
CONFLICTS_MAX = 5
"""Tries to write the beginning of a call in its Task, which others may change meanwhile."""


def uid_of(objects: Objects, namespace: str, name: str) -> str:
    """Return the uid under which the output of a Task is kept; empty: there is no such Task."""
    found = get(objects, Task, name, namespace)
    return kept_uid(found) if found is not None else ""


class Tasks(Gate[Task]):
    concurrency = CONCURRENCY
    owns = (Instance,)
    reads = READS

    def __init__(self, attempts: Attempts, runtime: Runtime, caller: FunctionCaller | None = None) -> None:
        """`caller` calls functions for tasks; None: this server calls none."""
        super().__init__(Task)
        self._attempts = attempts
        self._caller = caller
        self._runtime = runtime
        self._locks = Locks(attempts.wake)
        self._newcomers: ByName[None] = ByName()
        """Tasks that the metrics have counted as created, until they are over."""

    def begin(self, wake: Callable[[Key], None]) -> Callable[[], None]:
        end = self._attempts.serve()

        def ended() -> None:
            end()
            if self._caller is not None:
                self._caller.close()

        return ended

    def wants(self, old: Object | None, new: Object | None) -> bool:
        # The Task of a synchronous call is created when the call is over, and needs nothing.
        return not isinstance(new, Task) or has_more_to_come(new)

    def reconcile(self, context: Context, key: Key) -> Promise:
        return self._reconcile_plain(context, key) or super().reconcile(context, key)

    def _reconcile_plain(self, context: Context, key: Key) -> Outcome | None:
        """Reconcile a task that needs only a worker, or is over, as most do. Returns None if there is more to do."""
        obj = cast("Task | None", context.find(Task.api, *key))
        if obj is None:
            return None
        if not obj.over():
            return DONE if is_plain(obj) and self._admit_at_once(context, obj) else None
        if has_more_to_come(obj):
            return None
        self._release(obj)
        return DONE

    def _admit_at_once(self, context: Context, obj: Task) -> bool:
        """Queue a new task that needs only a worker. Returns False if its status must be written first."""
        self._attempts.executor.prepare(context)
        self._count_created(obj)
        if context.held_up(obj, coming=True) is not None:
            return False
        try:
            check(obj, *worker_of(context.objects, obj, self._runtime.policy))
        except (TemplateError, CannotRun):
            return False
        self._attempts.queue(obj, pool_of(obj), self._attempts.arrivals.when(obj))
        return True

    def _count_created(self, obj: Task) -> None:
        """Count a task as created, once."""
        if obj.metadata.uid not in self._newcomers:
            self._newcomers.put(obj.metadata.uid, key_of(obj), None)
            self._attempts.counting.created(obj)

    def gone(self, context: Context, key: Key) -> Promise:
        # Awaits nothing: calls are recorded and removed by the hundred in a second.
        self._newcomers.drop(key)
        self._attempts.gone(key)
        if self._caller is not None:
            self._caller.gone(key)
        self._locks.gone(key)
        self._runtime.archive.drop(*key, lambda namespace, name: uid_of(context.objects, namespace, name))
        return DONE

    def _release(self, task: Task) -> None:
        if task.over() or task.metadata.deletion_timestamp is not None:
            self._newcomers.pop(task.metadata.uid)
            self._locks.leave(task)

    async def sync(self, context: Context, obj: Task) -> Outcome:
        self._attempts.executor.prepare(context)
        if obj.over() or obj.metadata.deletion_timestamp is not None:
            return await self._after(context, obj)
        if obj.status is None and not context.client.in_process and (ended := ended_status(obj)) is not None:
            # A recorded call, on a server where an object gets its status only by a second write.
            await context.write_status(obj, ended)
            return DONE
        status: TaskStatus = status_of(obj)
        if obj.status is None:
            self._count_created(obj)
        if self._attempts.is_ending(obj):
            return DONE  # It is reconciled again when the outcome is written.
        if status.phase == "Running":
            return await self._run(context, obj, status)
        if obj.spec.cancel:
            if self._caller is not None and self._caller.cancel(obj):
                return DONE
            self._attempts.cancel(obj)
            return await self._finish(context, obj, status, "Cancelled", "Cancelled", "")
        return await self._admit(context, obj, status)

    # Why it waits.

    def why_waiting(self, objects: Objects, obj: Task) -> tuple[str, str] | None:
        status: TaskStatus = status_of(obj)
        if status.phase == "Waiting" and status.reason == BRANCH_LOCKED:
            return BRANCH_LOCKED, self._locks.place(obj)
        wait = self.wait(objects, obj)
        return ("Queued", wait.message) if wait is not None else None

    def wait(self, objects: Objects, obj: Task) -> PoolWait | None:
        """Return the wait of a task for a worker of its pool; None: it does not wait for one."""
        ref = obj.spec.worker_pool_ref
        if ref is None or status_of(obj).phase != "Queued":
            return None
        pool = get(objects, WorkerPool, ref.name, obj.metadata.namespace)
        return (
            wait_of(pool, self._attempts.before(obj), objects, self._attempts.executor.holders_of)
            if pool is not None
            else None
        )

    # Before it runs.

    async def _admit(self, context: Context, obj: Task, status: TaskStatus) -> Outcome:
        known = {one.name for one in status.dependencies}
        held_up = context.held_up(
            obj,
            ignored=[Task.api.key(obj.metadata.namespace, name) for name in known],
            coming=may_be_coming(status.condition(RESOLVED), context.clock.time()),
        )
        ended = self._ended_dependencies(context, obj)
        if await self._marked(context, obj, [one for one in ended if one.metadata.name not in known]):
            return DONE  # The change wakes it again.
        try:
            status = lifecycle.copied(status, ended)
        except lifecycle.TooMuchOutput as error:
            return await self._finish(context, obj, status, "Failed", "TooMuchOutput", str(error))
        if held_up is not None:
            self._attempts.cancel(obj)
            return await self._held_up(context, obj, status, held_up)
        self._wake_cycle(context, obj, None)
        if status.condition(RESOLVED) is not None:
            status = context.condition(obj, status, Condition(type=RESOLVED, status="True", reason="Resolved"))
        now = context.clock.time()
        due = lifecycle.retried_at(obj)
        if due > now:
            return RequeueAfter(due - now, "Retrying", status.message or "")
        if obj.spec.function is not None:
            return await self._call(context, obj, status, now)
        try:
            check(msgspec.structs.replace(obj, status=status), *worker_of(context.objects, obj, self._runtime.policy))
        except (TemplateError, CannotRun) as error:
            reason = error.reason if isinstance(error, CannotRun) else "TemplateError"
            return await self._finish(context, obj, status, "Failed", reason, str(error))
        if obj.spec.worker is not None:
            ignored = conditions(obj, unhonoured(obj))
            for condition in ignored:
                status = context.condition(obj, status, condition)
            record_unhonoured(context, obj, ignored)
        if obj.spec.worker is not None and (why := await self._own_worker(context, obj)) is not None:
            if why[0] != QUOTA_EXCEEDED:
                return await self._wait(context, obj, status, *why)
            arrival = lifecycle.time_of(self._attempts.arrivals.when(obj))
            status = lifecycle.queued(status, arrival, QUOTA_EXCEEDED, why[1])
        elif status.phase == "Queued" and status.reason == QUOTA_EXCEEDED:
            status = lifecycle.queued(status, lifecycle.time_of(self._attempts.arrivals.when(obj)))
        if not self._locks.acquire(context.objects, obj):
            return await self._wait(context, obj, status, BRANCH_LOCKED, self._locks.message(obj))
        return await self._queue(context, obj, status, now)

    async def _queue(self, context: Context, obj: Task, status: TaskStatus, now: float) -> Outcome:
        arrival = self._attempts.arrivals.when(obj)
        if status != status_of(obj):
            obj = await context.write_status(obj, status)
        self._attempts.queue(obj, pool_of(obj), arrival)
        return DONE

    async def _call(self, context: Context, obj: Task, status: TaskStatus, now: float) -> Outcome:
        """Run a task that calls a function, on one of the function's own workers."""
        assert obj.spec.function is not None
        function = get(context.objects, Function, obj.spec.function.name, obj.metadata.namespace)
        if self._caller is None or function is None:
            return await self._wait(context, obj, status, "NotServed", "functions are not run in this server")
        beyond = networks.beyond_policy(function.spec.network, function.spec.egress, self._runtime.policy)
        if beyond or function.spec.isolation == "none":
            why = MORE_NETWORK if beyond else NOT_ISOLATED
            refused = inputs.refusal(context.objects, f"Function/{function.metadata.name}", why, obj)
            if refused:
                return await self._finish(context, obj, status, "Failed", "NotAllowed", refused)

        async def begun(task: Task, instance: str) -> None:
            await self._begun(context, task, instance)

        try:
            given_payload(obj.spec, status.dependencies)
        except TemplateError as error:
            return await self._finish(context, obj, status, "Failed", "TemplateError", str(error))
        since = self._attempts.arrivals.when(obj)
        if status != status_of(obj):
            # The call reads the outputs of dependencies from the written status.
            obj = await context.write_status(obj, status)
        self._caller.queue(obj, function, begun, lambda outcome: self._attempts.ends.end(obj, outcome))
        if status.phase != "Queued" and now - since < QUEUED_NOTICE_SECONDS:
            return Done(again_after=QUEUED_NOTICE_SECONDS)
        if status.phase != "Queued" and not self._caller.is_begun(obj):
            await context.write_status(obj, lifecycle.queued(status, lifecycle.time_of(since)))
        return DONE

    async def _begun(self, context: Context, obj: Task, instance: str) -> None:
        """Write that a call has a worker, before it begins. Raises `ApiError`."""
        for left in reversed(range(CONFLICTS_MAX)):
            now = get(context.objects, Task, obj.metadata.name, obj.metadata.namespace)
            if now is None or now.metadata.uid != obj.metadata.uid or now.over():
                raise LookupError(f"{obj.metadata.name} is gone")
            since = self._attempts.arrivals.when(now)
            began = lifecycle.time_of(context.clock.time())
            status = lifecycle.running(status_of(now), instance, None, began, since)
            try:
                await context.write_status(now, status)
                return
            except ApiError as error:
                if error.code != 409 or not left:
                    raise

    async def _held_up(self, context: Context, obj: Task, status: TaskStatus, held_up: Blocked | Failed) -> Outcome:
        before = status.condition(RESOLVED)
        closed = Condition(type=RESOLVED, status="False", reason=held_up.reason, message=held_up.message)
        status = context.condition(obj, status, closed)
        if isinstance(held_up, Failed):
            await self._finish(context, obj, status, "Failed", held_up.reason, held_up.message)
            return held_up
        await context.write_status(obj, lifecycle.waiting(status, held_up.reason, held_up.message))
        await self._keep_dependencies(context, obj)
        if held_up.reason != NOT_READY and lasts(before, held_up, context.clock.time()):
            context.warn_once(obj, held_up.reason, held_up.message)
        self._wake_cycle(context, obj, held_up)
        return held_up

    def _wake_cycle(self, context: Context, obj: Task, held_up: Blocked | None) -> None:
        """Wake the other tasks of a dependency cycle that this task closes or opens, since no event wakes them.

        They wait, and do not fail: once one of them is recreated without its dependency, all of them can run.
        """
        if held_up is not None and held_up.reason == CYCLE:
            _, cycle = context.memory.cycles.get(context.id, (0, None))
            ids, says_so = cycle or (), False
        elif status_of(obj).reason == CYCLE:
            ids, says_so = tuple(context.graph.referrers(context.id)), True
        else:
            return
        for id_ in ids:
            bucket, namespace, name = id_.split("/", 2)
            other = get(context.objects, Task, name, namespace) if bucket == Task.api.bucket else None
            if other is not None and id_ != context.id and (status_of(other).reason == CYCLE) == says_so:
                self._attempts.wake(Key(namespace, name))

    async def _wait(self, context: Context, obj: Task, status: TaskStatus, reason: str, message: str) -> Outcome:
        await context.write_status(obj, lifecycle.waiting(status, reason, message))
        return DONE

    async def _own_worker(self, context: Context, obj: Task, replicas: int = 1) -> tuple[str, str] | None:
        """Create or delete the task's own instance. Return reason and message if it cannot be used."""
        assert obj.spec.worker is not None
        template = worker_template(obj.spec.worker)
        meta = obj.metadata
        owner = OwnerReference(api_version=obj.api.api_version, kind=obj.api.name, name=meta.name, uid=meta.uid)
        wanted = Desired(
            owner=owner,
            namespace=meta.namespace,
            replicas=replicas,
            template=template,
            template_hash=template_hash(template),
            pooled=True,
            finalizers=(RUNTIME_FINALIZER,),
        )
        name = instance_name(owner.kind, owner.name, 0)
        there = get(context.objects, Instance, name, meta.namespace)
        for action in plan(wanted, [there] if there is not None else [], context.clock.time()).actions:
            await carry_out(context, meta.namespace, action)
        ready = there.status.condition("Ready") if there is not None and there.status is not None else None
        if ready is None or ready.status == "True" or not blocker(ready.reason).is_failure:
            return None
        return ready.reason, f"its worker {name} is not ready: {ready.message}"

    @staticmethod
    async def _marked(context: Context, obj: Task, ended: Sequence[Task]) -> bool:
        """Mark a task as restricted if it gets results that are not an admin's: the check cannot be repeated later."""
        if not ended or is_restricted(obj.metadata.annotations) or not inputs.foreign(context.objects, *ended):
            return False
        meta = obj.metadata
        patch = {"metadata": {"uid": meta.uid, "annotations": {RESTRICTED: "true"}}}
        await context.client.patch(Task, meta.name, patch, namespace=meta.namespace)
        return True

    @staticmethod
    def _ended_dependencies(context: Context, obj: Task) -> list[Task]:
        found = [get(context.objects, Task, name, obj.metadata.namespace) for name in obj.spec.depends_on]
        return [one for one in found if one is not None and one.over()]

    # While it runs.

    async def _run(self, context: Context, obj: Task, status: TaskStatus) -> Outcome:
        name = status.instance_name or ""
        if obj.spec.function is not None and self._caller is not None and self._caller.is_under_way(obj):
            if obj.spec.cancel:
                self._caller.cancel(obj)
            return DONE
        instance = get(context.objects, Instance, name, obj.metadata.namespace)
        if instance is None or not is_on(obj, instance):
            self._attempts.ends.lost(obj)
            return DONE
        self._locks.take(context.objects, obj)
        self._attempts.resume(obj, instance)
        return DONE

    async def _finish(
        self, context: Context, obj: Task, status: TaskStatus, phase: str, reason: str, message: str
    ) -> Outcome:
        """End a task that has no worker."""
        self._attempts.cancel(obj)
        self._locks.leave(obj)
        now = lifecycle.time_of(context.clock.time())
        written = await context.write_status(obj, lifecycle.over(status, phase, reason, message, now))
        warn(context.events, context.objects, written, reason, message)
        self._attempts.counting.completed(written)
        self._attempts.executor.forget_if_gone(pool_of(obj))
        return await self._after(context, written)

    # When it is over.

    async def _after(self, context: Context, obj: Task) -> Outcome:
        self._release(obj)
        # A task that is deleted before it is over keeps nobody waiting: its dependents wait for a new one of its name.
        if DEPENDENTS_FINALIZER in obj.metadata.finalizers and not (obj.over() and self._is_awaited(context, obj)):
            obj = await self._without_finalizer(context, obj)
        if obj.metadata.deletion_timestamp is not None:
            self._attempts.cancel(obj)
            if self._caller is not None and obj.spec.function is not None:
                self._caller.cancel(obj)
            return DONE
        if obj.spec.worker is not None:
            await self._own_worker(context, obj, replicas=0)
        ttl = obj.spec.ttl_seconds_after_finished
        completed = obj.status.completion_time if obj.status is not None else None
        if ttl is None or completed is None:
            return DONE
        left = completed.timestamp() + ttl - context.clock.time()
        if left <= 0 and DEPENDENTS_FINALIZER not in obj.metadata.finalizers and self._is_awaited(context, obj):
            # A new task needs it that was not reconciled yet, and so has not added the finalizer.
            left = AWAITED_SECONDS
        if left > 0:
            return Done(again_after=left)
        meta = obj.metadata
        await unless_overtaken(context.client.delete(Task, meta.name, namespace=meta.namespace, uid=meta.uid))
        return DONE

    @staticmethod
    def _is_awaited(context: Context, obj: Task) -> bool:
        """Report whether another task still needs the outcome of this one."""
        for id_ in context.graph.referrers(Task.api.key(obj.metadata.namespace, obj.metadata.name)):
            kind, namespace, name = id_.split("/", 2)
            other = get(context.objects, Task, name, namespace) if kind == Task.api.bucket else None
            if other is None or other.over() or other.metadata.deletion_timestamp is not None:
                continue
            if all(one.name != obj.metadata.name for one in status_of(other).dependencies):
                return True
        return False

    async def _keep_dependencies(self, context: Context, obj: Task) -> None:
        """Add a finalizer to the tasks that this one waits for. It stays until this one has recorded their ends."""
        for name in obj.spec.depends_on:
            other = get(context.objects, Task, name, obj.metadata.namespace)
            if other is None or DEPENDENTS_FINALIZER in other.metadata.finalizers or other.metadata.deletion_timestamp:
                continue
            patch: list[dict[str, Any]] = [
                {"op": "test", "path": "/metadata/uid", "value": other.metadata.uid},
                {"op": "test", "path": "/metadata/resourceVersion", "value": other.metadata.resource_version},
                {
                    "op": "add",
                    "path": "/metadata/finalizers",
                    "value": [*other.metadata.finalizers, DEPENDENTS_FINALIZER],
                },
            ]
            await self._patch(context, other, patch)

    async def _without_finalizer(self, context: Context, obj: Task) -> Task:
        left = [one for one in obj.metadata.finalizers if one != DEPENDENTS_FINALIZER]
        patch: list[dict[str, Any]] = [
            {"op": "test", "path": "/metadata/uid", "value": obj.metadata.uid},
            {"op": "test", "path": "/metadata/resourceVersion", "value": obj.metadata.resource_version},
            {"op": "add", "path": "/metadata/finalizers", "value": left},
        ]
        return await self._patch(context, obj, patch) or obj

    @staticmethod
    async def _patch(context: Context, obj: Task, patch: list[dict[str, Any]]) -> Task | None:
        meta = obj.metadata
        try:
            patched: Task = await context.client.patch(Task, meta.name, patch, namespace=meta.namespace, type="json")
        except ApiError as error:
            if error.code in (404, 409, 422):
                return None
            raise
        return patched
