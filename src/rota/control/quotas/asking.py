"""Requests of the owners of instances for a share of their namespace's quota: QuotaClaims and gates."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from rota.api import Instance, InstanceType, Object, ObjectMeta, OwnerReference, Quota, QuotaClaim, WorkloadDeployment
from rota.api.cell import QuotaClaimSpec, QuotaOwner, QuotaSlots
from rota.api.instance import InstanceTemplate, SchedulingGate
from rota.control.cells.names import BOUNDED, source_of
from rota.control.instances.names import controller_of, tailed
from rota.control.instances.reasons import QUOTA_GATE
from rota.control.quotas.amounts import amount_of, names_of, used_of
from rota.control.sizes import counted_of
from rota.control.writing import unless_overtaken
from rota.engine import Context
from rota.engine.objects import Objects, get

READS = (Quota, QuotaClaim, InstanceType)
"""Kinds that a controller that makes instances has to read."""
QUOTA_NAME = "default"
"""The one Quota of a namespace that is enforced."""


def quota_of(objects: Objects, namespace: str) -> Quota | None:
    return get(objects, Quota, QUOTA_NAME, namespace)


def gates_of(objects: Objects, namespace: str) -> tuple[str, ...]:
    """Return the gates of new instances in a namespace: the quota gate if the namespace has a quota."""
    return () if quota_of(objects, namespace) is None else (QUOTA_GATE,)


def is_charged_here(objects: Objects, instance: Instance) -> bool:
    """Report whether an instance is charged to its namespace's quota here. The hub charges what a cell runs for it."""
    return _of_hub(objects, instance) is None


def bounded(objects: Objects, instance: Instance) -> Collection[str]:
    """Return the names of the resources, such as `cpu`, that the quota of an instance bounds, here or at the hub."""
    deployment = _of_hub(objects, instance)
    if deployment is not None:
        return deployment.metadata.annotations.get(BOUNDED, "").split(",")
    quota = quota_of(objects, instance.metadata.namespace)
    if quota is None:
        return ()
    return names_of(quota.spec.hard)


def _of_hub(objects: Objects, instance: Instance) -> WorkloadDeployment | None:
    """Return the deployment for which a cell runs an instance for its hub; None: the instance is the cell's own."""
    owner = controller_of(instance)
    if owner is None or owner.kind != WorkloadDeployment.api.name:
        return None
    deployment = get(objects, WorkloadDeployment, owner.name, instance.metadata.namespace)
    return deployment if deployment is not None and source_of(deployment) is not None else None


def gated(objects: Objects, instance: Instance) -> Instance:
    """Return an instance with the quota gate added, if it is charged to a quota here."""
    if not is_charged_here(objects, instance):
        return instance
    there = [one.name for one in instance.spec.scheduling_gates]
    missing = [one for one in gates_of(objects, instance.metadata.namespace) if one not in there]
    if not missing:
        return instance
    gates = [*instance.spec.scheduling_gates, *(SchedulingGate(name=one) for one in missing)]
    return msgspec.structs.replace(instance, spec=msgspec.structs.replace(instance.spec, scheduling_gates=gates))


def claim_name(owner: Object) -> str:
    """Return the name of an owner's QuotaClaim, in its namespace."""
    return tailed(owner.api.singular, owner.metadata.name, kind=owner.api.name)


async def ask(context: Context, owner: Object, template: InstanceTemplate, count: int) -> None:
    """Write the QuotaClaim of an owner: `count` instances of a template. The grant stays while one is recreated.

    Writes nothing if the namespace has no quota, and deletes a claim that is left from one.
    """
    meta = owner.metadata
    name = claim_name(owner)
    there = get(context.objects, QuotaClaim, name, meta.namespace)
    if quota_of(context.objects, meta.namespace) is None:
        if there is not None:
            await unless_overtaken(
                context.client.delete(QuotaClaim, name, namespace=meta.namespace, uid=there.metadata.uid)
            )
        return
    size = counted_of(context.objects, template)
    slots = [QuotaSlots(hash=size.hash(), count=count, requests=used_of(amount_of(size)))]
    if there is not None and there.spec.owner.uid == meta.uid:
        if there.spec.slots != slots:
            spec = msgspec.structs.replace(there.spec, slots=slots)
            await context.client.update(msgspec.structs.replace(there, spec=spec))
        return
    if there is not None:
        # Left by an earlier owner of this name.
        await unless_overtaken(
            context.client.delete(QuotaClaim, name, namespace=meta.namespace, uid=there.metadata.uid)
        )
    reference = OwnerReference(
        api_version=owner.api.api_version, kind=owner.api.name, name=meta.name, uid=meta.uid, controller=True
    )
    await unless_overtaken(
        context.client.create(
            QuotaClaim(
                metadata=ObjectMeta(name=name, namespace=meta.namespace, owner_references=[reference]),
                spec=QuotaClaimSpec(
                    owner=QuotaOwner(kind=owner.api.name, name=meta.name, uid=meta.uid),  # type: ignore[arg-type]
                    slots=slots,
                ),
            )
        )
    )
