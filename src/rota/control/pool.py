"""WorkerPool: as many instances as it asks for, of its newest template."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec

from rota.api import Instance, OwnerReference, WorkerPool
from rota.api.meta import Condition
from rota.client import Key
from rota.control.gate import READY, Gate, status_of
from rota.control.instances import Create, Delete, Desired, Drain, Plan, Undrain, plan, selector, template_hash
from rota.control.instances.states import DRAINING
from rota.control.instances.template import restart_stamps
from rota.control.workers import template_of
from rota.engine import DONE, Context, Done, Outcome
from rota.registry import ApiError
from rota.runtime.interface import Runtime

REPLICAS = 1
"""What a pool has that does not say how many."""
RUNTIME_FINALIZER = "rota.dev/runtime"
"""Whoever made an instance real ends it before it is gone."""


def replicas_of(pool: WorkerPool) -> int:
    if pool.spec.scale is not None:
        return pool.spec.scale.min
    return REPLICAS if pool.spec.replicas is None else pool.spec.replicas


def desired(pool: WorkerPool) -> Desired:
    """The instances that a pool asks for."""
    template = template_of(pool)
    annotations = restart_stamps(pool.metadata.annotations)
    return Desired(
        owner=OwnerReference(
            api_version=pool.api.api_version, kind=pool.api.name, name=pool.metadata.name, uid=pool.metadata.uid
        ),
        namespace=pool.metadata.namespace,
        replicas=replicas_of(pool),
        template=template,
        template_hash=template_hash(template, annotations=annotations),
        annotations=annotations,
        max_unavailable=pool.spec.update.max_unavailable,
        drain_seconds=pool.spec.update.drain_seconds,
        pooled=True,
        finalizers=(RUNTIME_FINALIZER,),
    )


class Pools(Gate[WorkerPool]):
    """Carries out what is planned for the instances of a pool."""

    owns = (Instance,)
    spin_runs_max = 5_000  # the news of a thousand instances is news of their pool

    def __init__(self, runtime: Runtime | None = None) -> None:
        super().__init__(WorkerPool)
        self._runtime = runtime

    def begin(self, wake: Callable[[Key], None]) -> Callable[[], None]:
        # Of pools that went while nobody was there.
        for namespace, owner in self._runtime.storages() if self._runtime is not None else ():
            wake(Key(namespace, owner.name))
        return super().begin(wake)

    async def gone(self, key: Key) -> None:
        """Its storage goes with it. What an instance still has goes with the instance."""
        if self._runtime is None:
            return
        for namespace, owner in list(self._runtime.storages()):
            if (namespace, owner.name) == key:
                await self._runtime.drop_storage(namespace, owner)

    async def go_on(self, context: Context, obj: WorkerPool, opened: list[Condition]) -> Outcome:
        wanted = desired(obj)
        there = cast("list[Instance]", context.objects.list(Instance.api, obj.metadata.namespace))
        made = plan(wanted, there, context.clock.time())
        for action in made.actions:
            await _carry_out(context, obj.metadata.namespace, action)
        await context.write_status(obj, self._status(context, obj, made, opened))
        return DONE if made.again_after is None else Done(again_after=made.again_after)

    @staticmethod
    def _status(context: Context, pool: WorkerPool, made: Plan, opened: list[Condition]) -> Any:
        status = status_of(pool)
        for condition in (*opened, made.condition(READY)):
            status = context.condition(pool, status, condition)
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
            selector=selector(pool.api.name, pool.metadata.name),
        )


async def _carry_out(context: Context, namespace: str, action: Create | Delete | Drain | Undrain) -> None:
    """Each action has a precondition: late or repeated, it has no second effect."""
    kind: Any = Instance
    client = context.client
    try:
        match action:
            case Create():
                await client.create(action.instance)
            case Delete():
                version = action.resource_version
                await client.delete(kind, action.name, namespace=namespace, uid=action.uid, resource_version=version)
            case Drain():
                await client.patch(kind, action.name, _annotated(action, action.mark), namespace=namespace)
            case Undrain():
                await client.patch(kind, action.name, _annotated(action, None), namespace=namespace)
    except ApiError as error:
        # Somebody was faster, or it is gone: the news of that brings the next plan.
        if error.code not in (404, 409):
            raise


def _annotated(action: Drain | Undrain, mark: str | None) -> dict[str, Any]:
    same = {"uid": action.uid, "resourceVersion": action.resource_version}
    return {"metadata": {**same, "annotations": {DRAINING: mark}}}
