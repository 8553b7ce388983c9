"""WorkerPool: as many instances as it asks for, or as its load asks for, of its newest template."""

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
from rota.control.scaling import Book, Decision
from rota.control.storages import drop_left
from rota.control.unhonoured import conditions, tell, unhonoured
from rota.control.workers import template_of
from rota.engine import DONE, Context, Done, Outcome, Promise
from rota.registry.privileges import inherited

REPLICAS = 1
"""What a pool has that does not say how many."""
COUNTS_SECONDS = 1.0
"""How old the counts of a pool may be."""
LIMITED = "ScalingLimited"
"""The condition that says whether the load is more than a pool may grow to."""


def desired(pool: WorkerPool, replicas: int, gates: tuple[str, ...] = ()) -> Desired:
    """The instances that a pool asks for, when they are to be so many, and the gates that new ones begin with."""
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
    """Carries out what is planned for the instances of a pool."""

    owns = (Instance,)
    reads = READS
    spin_runs_max = 100_000  # the news of a thousand instances, each handed out all the time, is news of their pool

    def __init__(self, resources: InstanceResources | None = None, executor: Executor | None = None) -> None:
        super().__init__(WorkerPool)
        self._resources = resources
        self._executor = executor
        self._looked: dict[Key, object] = {}
        """What a pool asked for when it was looked at."""
        self._stale: dict[Key, float | None] = {}
        """Pools of which only who has their instances has changed since, and from when on that is known."""
        self._books: dict[Key, Book] = {}
        """Of pools that scale by demand."""

    def wants(self, old: Object | None, new: Object | None) -> bool:
        if not isinstance(new or old, Instance):
            return True
        owner = controller_of(cast(Instance, new or old))
        if owner is None or owner.kind != WorkerPool.api.name:
            return True
        key = Key((new or old).metadata.namespace, owner.name)  # type: ignore[union-attr]
        book = self._books.get(key)
        if book is not None and owner.uid == book.pool.metadata.uid:
            book.seen(cast("Instance | None", new), (new or old).metadata.uid)  # type: ignore[union-attr]
            if book.is_outgrown:
                self._looked.pop(key, None)
                return True
        if key in self._looked and isinstance(old, Instance) and isinstance(new, Instance) and _same_but_held(old, new):
            # It is looked at when its counts are old enough.
            return self._stale.setdefault(key, None) is None
        self._looked.pop(key, None)
        return True

    def reconcile(self, context: Context, key: Key) -> Promise:
        return self._put_off(context, key) or super().reconcile(context, key)

    def _put_off(self, context: Context, key: Key) -> Outcome | None:
        """Return when to reconcile a pool of which only the counts of holders changed: once a second."""
        looked, pool = self._looked.get(key), context.find(WorkerPool.api, *key)
        if looked is None or key not in self._stale or pool is None or _asked(pool) != looked:
            return None
        now = context.clock.time()
        since = self._stale[key]
        if since is None:
            since = self._stale[key] = now
        left = since + COUNTS_SECONDS - now
        return Done(again_after=left) if left > 0 else None

    def begin(self, wake: Callable[[Key], None]) -> Callable[[], None]:
        # What was known may be from a time when somebody else saw to the pools.
        self._books.clear()
        # Of pools that went while nobody was there.
        for namespace, owner in self._resources.storages() if self._resources is not None else ():
            wake(Key(namespace, owner.name))
        end = super().begin(wake)
        if self._executor is None:
            return end
        deaf = self._executor.on_demand(lambda pool: self._demand_changed(pool, wake))

        def silent() -> None:
            deaf()
            end()

        return silent

    def _demand_changed(self, pool: PoolKey, wake: Callable[[Key], None]) -> None:
        """Others wait for a pool's instances than before. If it has to grow it is looked at at once."""
        if pool.kind != WorkerPool.api.name:
            return
        key = Key(pool.namespace, pool.name)
        book = self._books.get(key)
        if book is not None and self._executor is not None:
            book.waits(self._executor.waiting(book.pool))
            if book.is_outgrown:
                self._looked.pop(key, None)
                wake(key)
                return
        # One that has not been looked at since something else changed is about to be.
        if key in self._looked and key not in self._stale:
            self._stale[key] = None
            wake(key)

    def gone(self, context: Context, key: Key) -> Promise:
        self._looked.pop(key, None)
        self._stale.pop(key, None)
        self._books.pop(key, None)
        if self._executor is not None:
            self._executor.forget(PoolKey(key.namespace, key.name))
        return DONE if self._resources is None else drop_left(context, self._resources, key)

    async def go_on(self, context: Context, obj: WorkerPool, opened: list[Condition]) -> Outcome:
        key = Key(obj.metadata.namespace, obj.metadata.name)
        self._stale.pop(key, None)
        self._looked[key] = _asked(obj)
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
            self._looked.pop(key, None)
        done = self._executor.completed(obj) if self._executor is not None else 0
        is_cluster = self._resources is not None and self._resources.is_cluster
        ignored = conditions(obj, [] if is_cluster else unhonoured(obj))
        await context.write_status(obj, self._status(context, obj, made, [*opened, *ignored], done))
        tell(context, obj, ignored)
        if self._executor is not None:
            self._executor.counted(obj, done)
        waits = [one.again_after for one in (made, scaled) if one is not None and one.again_after is not None]
        return Done(again_after=min(waits)) if waits else DONE

    def _scaled(self, key: Key, pool: WorkerPool, there: Sequence[Instance], now: float) -> Decision | None:
        """What its load asks for, of a pool that scales by demand."""
        scale = pool.spec.scale
        if scale is None:
            self._books.pop(key, None)
            return None
        book = self._books.get(key)
        if book is None or book.pool.metadata.uid != pool.metadata.uid:
            book = self._books[key] = Book(pool, scale)
        own = [one for one in there if (owner := controller_of(one)) is not None and owner.uid == pool.metadata.uid]
        return book.look(pool, scale, own, self._executor.waiting(pool) if self._executor is not None else None, now)

    def _status(self, context: Context, pool: WorkerPool, made: Plan, opened: list[Condition], done: int) -> Any:
        status = status_of(pool)
        scale = pool.spec.scale
        # One that grows is no less ready than it was.
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
        book = self._books.get(Key(pool.metadata.namespace, pool.metadata.name))
        scale = pool.spec.scale
        if book is None or scale is None:
            return []
        if not book.is_limited:
            return [Condition(type=LIMITED, status="False", reason="WithinBounds")]
        message = f"more is asked for than scale.max allows, which is {scale.max}"
        return [Condition(type=LIMITED, status="True", reason="AtMax", message=message)]


def _asked(pool: Object) -> object:
    meta = pool.metadata
    return meta.uid, meta.generation, meta.annotations, meta.deletion_timestamp


def _same_but_held(old: Instance, new: Instance) -> bool:
    """Whether nothing but who has an instance has changed, of one that is to stay."""
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
