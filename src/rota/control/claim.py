"""The controller of claims. A claim waits, holds an instance while its lease is renewed, and ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import msgspec

from rota.api import Claim, Condition, Instance, WorkerPool
from rota.api.pool import ClaimStatus
from rota.client import Key, Operation
from rota.control.claims import lifecycle
from rota.control.claims.ended import Ended
from rota.control.claims.holds import ClaimHolds
from rota.control.gate import RESOLVED, Gate, may_be_coming, status_of
from rota.control.holds.options import is_restarted_for
from rota.control.instances.reasons import blocker, is_ready
from rota.control.tasks.waits import PoolWait, wait_of
from rota.control.workers import template_of
from rota.control.writing import unless_overtaken
from rota.engine import DONE, Blocked, Context, Done, Failed, Outcome, Promise, RequeueAfter
from rota.engine.objects import Objects, get
from rota.registry import ApiError, DeleteOptions

CONCURRENCY = 64
IN_FLIGHT_SECONDS = 0.25
"""Pause before a claim whose binding is being written is looked at again."""


class Claims(Gate[Claim]):
    concurrency = CONCURRENCY

    def __init__(self, holds: ClaimHolds) -> None:
        super().__init__(Claim)
        self.holds = holds
        self._ended = Ended()

    def begin(self, wake: Callable[[Key], None]) -> Callable[[], None]:
        return self.holds.close

    def gone(self, context: Context, key: Key) -> Promise:
        self._ended.forget(key)
        self.holds.gone(key)
        return DONE

    def reconcile(self, context: Context, key: Key) -> Promise:
        return self._reconcile_unchanged(context, key) or super().reconcile(context, key)

    def _reconcile_unchanged(self, context: Context, key: Key) -> Outcome | None:
        """Reconcile a claim that needs no write, as most do. Returns None if there is more to do."""
        obj = cast("Claim | None", context.find(Claim.api, *key))
        if obj is None or obj.metadata.deletion_timestamp is not None or not self.holds.executor.is_prepared:
            return None
        now = context.clock.time()
        if obj.over():
            due = self._ended.is_due(obj, now) or self._ended.is_full(key.namespace)
            if due or self.holds.knows(obj.metadata.uid):
                return None
            self.holds.callers.answer(key, obj)
            return self._ended.keep(obj, now)
        status, is_new = status_of(obj), self.holds.is_being_created(obj)
        if status.phase != "Bound" or obj.spec.release or status.conditions or not (is_new or self._is_well(obj)):
            return None
        expires = lifecycle.expiry(obj, now)
        if expires is None or expires != status.expires_at or expires.timestamp() <= now:
            return None
        if not is_new:
            self.holds.callers.answer(key, obj)
        return Done(again_after=expires.timestamp() - now)

    def why_waiting(self, objects: Objects, obj: Claim) -> tuple[str, str] | None:
        wait = self.wait(objects, obj)
        if wait is None:
            return None
        if self.holds.callers.lacks_caller(obj):
            return "Waiting", "who asked for it has not come back since the server was started again"
        return "Waiting", wait.message

    def wait(self, objects: Objects, obj: Claim) -> PoolWait | None:
        """Return the wait of a claim for an instance of its pool; None: it does not wait for one."""
        pool = get(objects, WorkerPool, obj.spec.pool_ref.name, obj.metadata.namespace)
        if pool is None or status_of(obj).phase != "Waiting":
            return None
        return wait_of(pool, self.holds.before(obj), objects, self.holds.executor.holders_of)

    def _is_well(self, obj: Claim) -> bool:
        """Report whether the claimed run of a claim's instance still goes on."""
        member = self.holds.member_of(obj)
        if member is None or member.instance.metadata.deletion_timestamp is not None:
            return False
        return not self.holds.is_another_run(member) and not is_restarted_for(member.instance)

    async def sync(self, context: Context, obj: Claim) -> Outcome:
        self.holds.executor.prepare(context)
        if obj.metadata.deletion_timestamp is not None:
            self.holds.forget(obj)
            return DONE
        if obj.over():
            return await self._after(context, obj)
        if obj.spec.release:
            return await self._end(context, obj, "Released")
        if status_of(obj).phase == "Bound":
            return await self._hold(context, obj)
        return await self._wait(context, obj)

    # Before it has one.

    async def _wait(self, context: Context, obj: Claim) -> Outcome:
        now, status = context.clock.time(), status_of(obj)
        pool = get(context.objects, WorkerPool, obj.spec.pool_ref.name, obj.metadata.namespace)
        if self.holds.member_of(obj) is not None:
            return await self._bind(context, obj, status)
        is_leaving = pool is not None and pool.metadata.deletion_timestamp is not None
        if is_leaving or (pool is None and status.arrival is not None):
            message = f"WorkerPool/{obj.spec.pool_ref.name} was deleted"
            return await self._end(context, obj, "Failed", "PoolDeleted", message)
        held_up = context.held_up(obj, coming=may_be_coming(status.condition(RESOLVED), now))
        if held_up is not None or pool is None:
            return await self._held_up(context, obj, held_up)
        wrong = lifecycle.unfit(obj.spec.images, obj.spec.labels, obj.spec.annotations, template_of(pool))
        if wrong is not None:
            return await self._end(context, obj, "Failed", "Invalid", wrong)
        absent_left, left = self.holds.callers.return_seconds_left(obj), lifecycle.deadline(obj, pool) - now
        if absent_left is not None and left > 0:
            if absent_left > 0:
                return Done(again_after=min(left, absent_left))
            await self.holds.callers.remove_unattended(obj)
            return DONE
        # A claim that was queued before a restart is queued again.
        is_new = status.arrival is None and not self.holds.knows(obj.metadata.uid)
        if is_new and self.holds.is_full(pool):
            message = f"{pool.spec.queue.limit} wait for WorkerPool/{pool.metadata.name} already"
            return await self._end(context, obj, "Failed", "QueueFull", message)
        arrival = self.holds.arrivals.when(obj)
        seconds = lifecycle.wait_seconds(obj, pool)
        left = arrival + seconds - now
        # A claim that may not wait is queued once, so that it gets a free instance.
        if left > 0 or (seconds == 0 and status.arrival is None):
            self.holds.queue(obj, arrival)
        if self.holds.is_bound_soon(obj):
            return Done(again_after=IN_FLIGHT_SECONDS)
        if left <= 0 or seconds == 0:
            message = f"no instance of WorkerPool/{pool.metadata.name} was free within {seconds} s"
            return await self._end(context, obj, "Failed", "WaitTimeout", message)
        if status.condition(RESOLVED) is not None:
            status = context.condition(obj, status, Condition(type=RESOLVED, status="True", reason="Resolved"))
        await context.write_status(obj, lifecycle.waiting(status, lifecycle.time_of(arrival)))
        return Done(again_after=left)

    async def _held_up(self, context: Context, obj: Claim, held_up: Blocked | Failed | None) -> Outcome:
        """Write that a claim waits for a pool that does not exist."""
        left = lifecycle.deadline(obj, None) - context.clock.time()
        if left <= 0:
            message = f"there was no WorkerPool/{obj.spec.pool_ref.name}"
            return await self._end(context, obj, "Failed", "WaitTimeout", message)
        reason, message = (held_up.reason, held_up.message) if held_up is not None else ("NotFound", "")
        closed = Condition(type=RESOLVED, status="False", reason=reason, message=message)
        said = msgspec.structs.replace(status_of(obj), phase="Waiting", reason=reason, message=message)
        await context.write_status(obj, context.condition(obj, said, closed))
        # It is reconciled again when its pool exists, and when its time to wait is over.
        self.holds.wake_at(Key(obj.metadata.namespace, obj.metadata.name), left)
        return held_up if held_up is not None else RequeueAfter(left, reason, message)

    async def _bind(self, context: Context, obj: Claim, status: ClaimStatus) -> Outcome:
        """Write that a claim is bound, after its instance was assigned to it."""
        member = self.holds.member_of(obj)
        assert member is not None and member.instance.spec.assignment is not None
        now = lifecycle.time_of(context.clock.time())
        since = member.instance.spec.assignment.since
        written = await context.write_status(obj, lifecycle.bound(obj, member.instance, status.arrival or since, now))
        return await self._hold(context, written)

    # While it has one.

    async def _hold(self, context: Context, obj: Claim) -> Outcome:
        status = status_of(obj)
        name = status.instance_name or ""
        member = self.holds.member_of(obj)
        # The cache lags behind what was just written.
        cached = get(context.objects, Instance, name, obj.metadata.namespace)
        instance = member.instance if member is not None else cached
        assigned = instance.spec.assignment if instance is not None else None
        if instance is None or assigned is None or assigned.uid != obj.metadata.uid:
            return await self._end(context, obj, "Failed", "InstanceLost", f"its instance {name} is gone")
        if instance.metadata.deletion_timestamp is not None:
            return await self._end(context, obj, "Failed", "InstanceLost", f"its instance {name} was deleted")
        if member is not None and self.holds.is_another_run(member):
            return await self._end(context, obj, "Failed", "InstanceCrashed", _crash(instance))
        now = context.clock.time()
        expires = lifecycle.expiry(obj, now)
        assert expires is not None
        if expires.timestamp() <= now:
            message = f"it was not renewed within {obj.spec.lease_seconds} s"
            return await self._end(context, obj, "Expired", "LeaseExpired", message)
        if member.is_made_ready if member is not None else is_restarted_for(instance):
            ready = instance.status.condition("Ready") if instance.status is not None else None
            if ready is not None and ready.status != "True" and blocker(ready.reason).is_failure:
                return await self._end(context, obj, "Failed", ready.reason, ready.message)
            known = instance.status.assignment if instance.status is not None else None
            if known is None or known.id != assigned.id or not is_ready(instance):
                return Done(again_after=expires.timestamp() - now)
        addresses = instance.status.addresses if instance.status is not None else []
        if status.expires_at != expires or status.addresses != addresses:
            obj = await context.write_status(obj, lifecycle.renewed(obj, expires, addresses))
        self.holds.callers.answer(Key(obj.metadata.namespace, obj.metadata.name), obj)
        return Done(again_after=expires.timestamp() - now)

    async def _end(self, context: Context, obj: Claim, phase: str, reason: str = "", message: str = "") -> Outcome:
        now = context.clock.time()
        ended = lifecycle.over(status_of(obj), phase, now, reason or None, message or None)
        return await self._after(context, await self.holds.end(obj, ended))

    # When it is over.

    async def _after(self, context: Context, obj: Claim) -> Outcome:
        self.holds.forget(obj)
        self.holds.callers.answer(Key(obj.metadata.namespace, obj.metadata.name), obj)
        now = context.clock.time()
        if not self._ended.is_due(obj, now):
            kept = self._ended.keep(obj, now)
            await self._remove(context, self._ended.surplus(obj.metadata.namespace))
            return kept
        await self._remove(context, [(Key(obj.metadata.namespace, obj.metadata.name), obj.metadata.uid)])
        return DONE

    @staticmethod
    async def _remove(context: Context, ended: list[tuple[Key, str]]) -> None:
        if not ended:
            return
        if context.client.atomic and len(ended) > 1:
            removals = [
                Operation("delete", Claim.api, *key, delete=DeleteOptions(uid=uid))
                for key, uid in ended
                if get(context.objects, Claim, key.name, key.namespace) is not None
            ]
            try:
                await context.client.batch(removals, typed=True)
                return
            except ApiError as error:
                if not error.is_overtaken:
                    raise
        for key, uid in ended:
            await unless_overtaken(context.client.delete(Claim, key.name, namespace=key.namespace, uid=uid))


def _crash(instance: Instance) -> str:
    known = instance.status.last_exit if instance.status is not None else None
    if known is None:
        return f"what ran in {instance.metadata.name} has ended"
    how = known.reason or (f"signal {known.signal}" if known.signal is not None else f"exit code {known.code}")
    return f"what ran in {instance.metadata.name} has ended: {how}"
