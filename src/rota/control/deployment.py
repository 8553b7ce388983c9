"""The WorkloadDeployment controller: it keeps the instances of one placement in one cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import msgspec

from rota.api import Condition, Instance, OwnerReference, QuotaClaim, WorkloadDeployment
from rota.client import Key
from rota.control.cells.binding import Binding, of_source
from rota.control.cells.fence import Fence
from rota.control.cells.grants import granted_to, opening
from rota.control.cells.names import is_bound, source_of
from rota.control.gate import Gate, status_of
from rota.control.instance_actions import RUNTIME_FINALIZER, carry_out
from rota.control.instances import Desired, Plan, plan, selector, settle_seconds, template_hash
from rota.control.instances.names import CELL_LABEL, CITY_LABEL, PLACEMENT_LABEL, TERM, WORKLOAD_LABEL, derived
from rota.control.instances.reasons import HUB_QUOTA_GATE
from rota.control.instances.states import is_programmed
from rota.control.instances.template import UNIT_NANOS
from rota.control.making.interface import InstanceResources
from rota.control.plane import Plane
from rota.control.quotas.asking import READS, ask, gates_of
from rota.control.quotas.gates import open_gate
from rota.control.sizes import size_of
from rota.control.storages import drop_left
from rota.control.unhonoured import conditions, of_template, record_unhonoured
from rota.control.workloads.sampling import TICK_SECONDS, Sampler
from rota.engine import DONE, Context, Done, Outcome, Promise, Watch
from rota.registry.privileges import inherited

AVAILABLE = "Available"
REPLICAS_READY = "ReplicasReady"
NO_RUNTIME = "nothing runs instances on this server: they wait until something does"
UNAVAILABLE_MAX = 1
"""Wanted instances that a rollout may make unavailable at a time."""


def desired(deployment: WorkloadDeployment, gates: tuple[str, ...] = ()) -> Desired:
    """Return the desired instances of a deployment. `gates` are the scheduling gates of new ones."""
    spec, meta = deployment.spec, deployment.metadata
    marks = spec.template.metadata
    labels = dict(marks.labels) if marks is not None else {}
    annotations = dict(marks.annotations) if marks is not None else {}
    return Desired(
        owner=OwnerReference(
            api_version=deployment.api.api_version, kind=deployment.api.name, name=meta.name, uid=meta.uid
        ),
        namespace=meta.namespace,
        replicas=spec.replicas,
        template=spec.template.spec,
        template_hash=template_hash(spec.template.spec, labels, annotations),
        labels={
            **labels,
            WORKLOAD_LABEL: derived(spec.workload_ref.name),
            PLACEMENT_LABEL: spec.placement_name,
            CITY_LABEL: spec.city_code,
            CELL_LABEL: spec.cell_name,
        },
        annotations={
            **annotations,
            TERM: str(spec.term),
            **inherited(meta.annotations),
        },
        max_unavailable=UNAVAILABLE_MAX,
        settle_seconds=settle_seconds(spec.template.spec),
        gates=gates,
        finalizers=(RUNTIME_FINALIZER,),
        cell_name=spec.cell_name,
    )


class Deployments(Gate[WorkloadDeployment]):
    """Keeps the instances of this cell's deployments. At a hub, it binds other deployments to their cells."""

    owns = (Instance, QuotaClaim)
    reads = (*READS, *Binding.reads)
    watches = (Watch(WorkloadDeployment, of_source),)
    # A changed reference is copied to other cells anew.
    follows = True

    def __init__(self, plane: Plane, resources: InstanceResources | None = None, fence: Fence | None = None) -> None:
        super().__init__(WorkloadDeployment)
        self._fence = fence
        self._plane = plane
        self._binding = Binding()
        self._resources = resources
        self._sampler = Sampler(resources) if resources is not None else None

    def begin(self, wake: Callable[[Key], None]) -> Callable[[], None]:
        # Deployments that were deleted while no process led.
        for namespace, owner in self._resources.storages() if self._resources is not None else ():
            wake(Key(namespace, owner.name))
        return super().begin(wake)

    def gone(self, context: Context, key: Key) -> Promise:
        if self._resources is None:
            return DONE
        assert self._sampler is not None
        self._sampler.forget(key)
        return drop_left(context, self._resources, key)

    async def sync(self, context: Context, obj: WorkloadDeployment) -> Outcome:
        if self._plane.runs(obj.spec.cell_name):
            return await super().sync(context, obj)
        if self._plane.places and not is_bound(obj):
            return await self._binding.sync(context, obj)
        return DONE

    def closed(self, obj: WorkloadDeployment, held_up: Any) -> list[Condition]:
        said = [AVAILABLE, REPLICAS_READY]
        found = [Condition(type=one, status="False", reason=held_up.reason, message=held_up.message) for one in said]
        return [*super().closed(obj, held_up), *found]

    async def go_on(self, context: Context, obj: WorkloadDeployment, opened: list[Condition]) -> Outcome:
        meta = obj.metadata
        there = cast("Sequence[Instance]", context.objects.owned(Instance.api, meta.uid))
        wanted = desired(obj, self._gates(context, obj))
        is_taken = partial(context.objects.has, Instance.api, meta.namespace)
        if source_of(obj) is None:
            await ask(context, obj, wanted.template, wanted.replicas)
        made = plan(wanted, there, context.clock.time(), is_taken)
        for action in made.actions:
            await carry_out(context, meta.namespace, action)
        if source_of(obj) is not None:
            for one in opening(context.objects, there, granted_to(obj)):
                await open_gate(context, meta.namespace, one.metadata.name, HUB_QUOTA_GATE)
            if self._fence is not None:
                await self._fence.hold(obj)
        percent = await self._percent(context, obj, there)
        ignored = self._unhonoured(obj, there)
        status = _status(context, obj, wanted, made, [*opened, *ignored])
        await context.write_status(obj, msgspec.structs.replace(status, cpu_percent=percent))
        record_unhonoured(context, obj, ignored)
        waits = [] if made.again_after is None else [made.again_after]
        if obj.spec.metric is not None and self._sampler is not None:
            waits.append(TICK_SECONDS)
        return Done(again_after=min(waits)) if waits else DONE

    def _unhonoured(self, obj: WorkloadDeployment, there: Sequence[Instance]) -> list[Condition]:
        """Return the condition Honoured. Without a runtime, it says that nothing runs instances."""
        if self._resources is not None:
            if self._resources.is_cluster:
                return conditions(obj, [])
            return conditions(obj, of_template(obj.spec.template.spec, "spec.template.spec."))
        return conditions(obj, [] if any(map(is_programmed, there)) else [NO_RUNTIME])

    @staticmethod
    def _gates(context: Context, obj: WorkloadDeployment) -> tuple[str, ...]:
        """Return the gates of new instances. A hub's deployment is charged to the hub's quota only."""
        if source_of(obj) is None:
            return gates_of(context.objects, obj.metadata.namespace)
        return () if granted_to(obj) is None else (HUB_QUOTA_GATE,)

    async def _percent(self, context: Context, obj: WorkloadDeployment, there: Sequence[Instance]) -> int | None:
        """Return the average CPU use of the instances, if a metric asks for it."""
        if self._sampler is None:
            return None
        key = Key(obj.metadata.namespace, obj.metadata.name)
        if obj.spec.metric is None:
            self._sampler.forget(key)
            return None
        needs = size_of(context.objects, obj.spec.template.spec)
        return await self._sampler.percent(
            key,
            there,
            wanted=obj.spec.replicas,
            cores=(needs.cpu_nanos or UNIT_NANOS) / UNIT_NANOS,
            now=context.clock.now(),
        )


def _status(
    context: Context, obj: WorkloadDeployment, wanted: Desired, made: Plan, conditions: Sequence[Condition]
) -> Any:
    # A rollout makes one instance unavailable at a time: the deployment is Available meanwhile.
    needed = min(made.wanted, max(1, made.wanted - UNAVAILABLE_MAX))
    said = [made.condition(AVAILABLE, needed=needed), made.condition(REPLICAS_READY)]
    status = status_of(obj)
    for condition in (*conditions, *said):
        status = context.condition(obj, status, condition)
    counts = made.counts
    return msgspec.structs.replace(
        status,
        observed_generation=obj.metadata.generation,
        replicas=counts.replicas,
        current_replicas=counts.current,
        updated_replicas=counts.updated,
        desired_replicas=made.wanted,
        ready_replicas=counts.ready,
        selector=selector(obj.api.name, obj.metadata.name),
        template_hash=wanted.template_hash,
    )
