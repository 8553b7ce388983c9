"""The WorkerPool controller: it keeps the number of instances that a pool or its demand asks for, of its template."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import msgspec

from rota.api import Instance, Object, OwnerReference, WorkerPool
from rota.api.meta import Condition
from rota.client import Key
from rota.control.gate import READY, Gate, status_of
from rota.control.holds.executor import Executor
from rota.control.holds.members import PoolKey
from rota.control.instance_actions import RUNTIME_FINALIZER, carry_out
from rota.control.instances import Desired, Plan, plan, selector, settle_seconds, template_hash
from rota.control.instances.names import controller_of
from rota.control.instances.states import is_draining
from rota.control.instances.template import restart_stamps
from rota.control.making.interface import InstanceResources
from rota.control.quotas.asking import READS, ask, gates_of
from rota.control.scaling import Autoscaler, Decision
from rota.control.storages import drop_left
from rota.control.unhonoured import conditions, record_unhonoured, unhonoured
from rota.control.workers import template_of
from rota.engine import DONE, Context, Done, Outcome, Promise
from rota.registry.privileges import inherited

REPLICAS = 1
"""Instances of a pool without `spec.replicas`."""
COUNTS_SECONDS = 1.0
"""Delay with which the counts of holders are written."""
LIMITED = "ScalingLimited"
"""The condition that is True while the demand exceeds `spec.scale.max`."""


def desired(pool: WorkerPool, replicas: int, gates: tuple[str, ...] = ()) -> Desired:
    """Return the desired instances of a pool. `gates` are the scheduling gates of new ones."""
    template = template_of(pool)
    annotations = restart_stamps(pool.metadata.annotations)
    return Desired(
        owner=OwnerReference(
            api_version=pool.api.api_version, kind=pool.api.name, name=pool.metadata.name, uid=pool.metadata.uid
        ),
        namespace=pool.metadata.namespace,
        replicas=replicas,
        template=template,
        template_hash=template_hash(template, annotations=annotations),
        annotations={**annotations, **inherited(pool.metadata.annotations)},
        max_unavailable=pool.spec.update.max_unavailable,
        drain_seconds=pool.spec.update.drain_seconds,
        settle_seconds=settle_seconds(template),
        pooled=True,
        sparse=pool.spec.scale is not None,
        gates=gates,
        finalizers=(RUNTIME_FINALIZER,),
    )


class Pools(Gate[WorkerPool]):
    owns = (Instance,)
    reads = READS
    spin_runs_max = 100_000  # the news of a thousand instances, each handed out all the time, is news of their pool

    def __init__(self, resources: InstanceResources | None = None, executor: Executor | None = None) -> None:
        super().__init__(WorkerPool)
        self._resources = resources
        self._executor = executor
        self._reconciled: dict[Key, object] = {}
        """The demand (`_asked`) of each pool at its last reconciliation, unless more than holders has changed since."""
        self._stale: dict[Key, float | None] = {}
        """Pools of which only holders have changed since their last reconciliation; the time of the first change."""
        self._autoscalers: dict[Key, Autoscaler] = {}
        """The autoscalers of pools with `spec.scale`."""

    def wants(self, old: Object | None, new: Object | None) -> bool:
        if not isinstance(new or old, Instance):
            return True
        owner = controller_of(cast(Instance, new or old))
        if owner is None or owner.kind != WorkerPool.api.name:
            return True
        key = Key((new or old).metadata.namespace, owner.name)  # type: ignore[union-attr]
        autoscaler = self._autoscalers.get(key)
        if autoscaler is not None and owner.uid == autoscaler.pool.metadata.uid:
            autoscaler.note_instance(cast("Instance | None", new), (new or old).metadata.uid)  # type: ignore[union-attr]
            if autoscaler.is_outgrown:
                self._reconciled.pop(key, None)
                return True
        if (
            key in self._reconciled
            and isinstance(old, Instance)
            and isinstance(new, Instance)
            and _same_but_held(old, new)
        ):
            # `_put_off` delays this reconciliation: one wake-up is enough.
            return self._stale.setdefault(key, None) is None
        self._reconciled.pop(key, None)
        return True

    def reconcile(self, context: Context, key: Key) -> Promise:
        return self._put_off(context, key) or super().reconcile(context, key)

    def _put_off(self, context: Context, key: Key) -> Outcome | None:
        """Return when to reconcile a pool of which only the counts of holders have changed: at most once a second."""
        reconciled, pool = self._reconciled.get(key), context.find(WorkerPool.api, *key)
        if reconciled is None or key not in self._stale or pool is None or _asked(pool) != reconciled:
            return None
        now = context.clock.time()
        since = self._stale[key]
        if since is None:
            since = self._stale[key] = now
        left = since + COUNTS_SECONDS - now
        return Done(again_after=left) if left > 0 else None

    def begin(self, wake: Callable[[Key], None]) -> Callable[[], None]:
        # Another process may have led since they were filled.
        self._autoscalers.clear()
        # Pools that were deleted while no process led.
        for namespace, owner in self._resources.storages() if self._resources is not None else ():
            wake(Key(namespace, owner.name))
        end = super().begin(wake)
        if self._executor is None:
            return end
        unsubscribe = self._executor.on_demand(lambda pool: self._demand_changed(pool, wake))

        def stop() -> None:
            unsubscribe()
            end()

        return stop

    def _demand_changed(self, pool: PoolKey, wake: Callable[[Key], None]) -> None:
        """Take a change of the number of waiting requests. A pool that has to grow is reconciled at once."""
        if pool.kind != WorkerPool.api.name:
            return
        key = Key(pool.namespace, pool.name)
        autoscaler = self._autoscalers.get(key)
        if autoscaler is not None and self._executor is not None:
            autoscaler.note_waiting(self._executor.waiting(autoscaler.pool))
            if autoscaler.is_outgrown:
                self._reconciled.pop(key, None)
                wake(key)
                return
        # A pool that is not in `_reconciled` is queued already.
        if key in self._reconciled and key not in self._stale:
            self._stale[key] = None
            wake(key)

    def gone(self, context: Context, key: Key) -> Promise:
        self._reconciled.pop(key, None)
        self._stale.pop(key, None)
        self._autoscalers.pop(key, None)
        if self._executor is not None:
            self._executor.forget(PoolKey(key.namespace, key.name))
        return DONE if self._resources is None else drop_left(context, self._resources, key)

    async def go_on(self, context: Context, obj: WorkerPool, opened: list[Condition]) -> Outcome:
        key = Key(obj.metadata.namespace, obj.metadata.name)
        self._stale.pop(key, None)
        self._reconciled[key] = _asked(obj)
        if self._executor is not None:
            self._executor.prepare(context)
        there = cast("Sequence[Instance]", context.objects.owned(Instance.api, obj.metadata.uid))
        scaled = self._scaled(key, obj, there, context.clock.now())
        replicas = REPLICAS if obj.spec.replicas is None else obj.spec.replicas
        gates = gates_of(context.objects, key.namespace)
        wanted = desired(obj, replicas if scaled is None else scaled.replicas, gates)
        await ask(context, obj, wanted.template, wanted.replicas)
        made = plan(wanted, there, context.clock.time(), partial(context.objects.has, Instance.api, key.namespace))
        for action in made.actions:
            await carry_out(context, obj.metadata.namespace, action)
        if made.actions:
            self._reconciled.pop(key, None)
        done = self._executor.completed(obj) if self._executor is not None else 0
        is_cluster = self._resources is not None and self._resources.is_cluster
        ignored = conditions(obj, [] if is_cluster else unhonoured(obj))
        await context.write_status(obj, self._status(context, obj, made, [*opened, *ignored], done))
        record_unhonoured(context, obj, ignored)
        if self._executor is not None:
            self._executor.counted(obj, done)
        waits = [one.again_after for one in (made, scaled) if one is not None and one.again_after is not None]
        return Done(again_after=min(waits)) if waits else DONE

    def _scaled(self, key: Key, pool: WorkerPool, there: Sequence[Instance], now: float) -> Decision | None:
        """Evaluate the autoscaler of a pool; None: the pool has no `spec.scale`."""
        scale = pool.spec.scale
        if scale is None:
            self._autoscalers.pop(key, None)
            return None
        autoscaler = self._autoscalers.get(key)
        if autoscaler is None or autoscaler.pool.metadata.uid != pool.metadata.uid:
            autoscaler = self._autoscalers[key] = Autoscaler(pool, scale)
        own = [one for one in there if (owner := controller_of(one)) is not None and owner.uid == pool.metadata.uid]
        return autoscaler.evaluate(
            pool, scale, own, self._executor.waiting(pool) if self._executor is not None else None, now
        )

    def _status(self, context: Context, pool: WorkerPool, made: Plan, opened: list[Condition], done: int) -> Any:
        status = status_of(pool)
        scale = pool.spec.scale
        # A pool with a scale is ready with its minimum, so that it stays ready while it grows.
        ready = made.condition(READY, needed=None if scale is None else scale.min)
        for condition in (*opened, ready, *self._limited(pool)):
            status = context.condition(pool, status, condition)
        if scale is None:
            status = context.no_condition(status, LIMITED)
        counts = made.counts
        return msgspec.structs.replace(
            status,
            observed_generation=pool.metadata.generation,
            phase=made.phase,
            replicas=counts.replicas,
            ready_replicas=counts.ready,
            updated_replicas=counts.updated,
            idle=counts.idle,
            busy=counts.busy,
            waiting=self._executor.waiting(pool) if self._executor is not None else 0,
            tasks_completed=status.tasks_completed + done,
            selector=selector(pool.api.name, pool.metadata.name),
        )

    def _limited(self, pool: WorkerPool) -> list[Condition]:
        autoscaler = self._autoscalers.get(Key(pool.metadata.namespace, pool.metadata.name))
        scale = pool.spec.scale
        if autoscaler is None or scale is None:
            return []
        if not autoscaler.is_limited:
            return [Condition(type=LIMITED, status="False", reason="WithinBounds")]
        message = f"the demand is more than scale.max allows, which is {scale.max}"
        return [Condition(type=LIMITED, status="True", reason="AtMax", message=message)]


def _asked(pool: Object) -> object:
    meta = pool.metadata
    return meta.uid, meta.generation, meta.annotations, meta.deletion_timestamp


def _same_but_held(old: Instance, new: Instance) -> bool:
    """Report whether only the holder of an instance has changed, and the instance is not draining."""
    before, after = old.metadata, new.metadata
    if is_draining(new) or old.status != new.status or before.annotations != after.annotations:
        return False
    if (before.deletion_timestamp, before.labels, before.owner_references) != (
        after.deletion_timestamp,
        after.labels,
        after.owner_references,
    ):
        return False
    return msgspec.structs.replace(old.spec, assignment=None) == msgspec.structs.replace(new.spec, assignment=None)
