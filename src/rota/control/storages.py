"""The storage of instances. It outlives each instance, and is dropped when the owner of the instances is gone."""

from __future__ import annotations

from rota.api import Object, WorkerPool, WorkloadDeployment
from rota.client import Key
from rota.control.making.interface import InstanceResources
from rota.engine import DONE, Context, Outcome
from rota.engine.objects import Objects, get
from rota.runtime.interface import Owner

OWNERS: tuple[type[Object], ...] = (WorkerPool, WorkloadDeployment)
"""Kinds whose instances keep their storage when they are recreated."""


def has_heir(objects: Objects, namespace: str, owner: Owner) -> bool:
    """Report whether the owner of a storage still exists, and so can give it to another instance."""
    found = (get(objects, kind, owner.name, namespace) for kind in OWNERS)
    return any(
        one is not None and one.metadata.uid == owner.uid and one.metadata.deletion_timestamp is None for one in found
    )


async def drop_left(context: Context, resources: InstanceResources, key: Key) -> Outcome:
    """Drop the storage of deleted owners of this name."""
    for namespace, owner in list(resources.storages()):
        if (namespace, owner.name) == key and not has_heir(context.objects, namespace, owner):
            await resources.drop_storage(namespace, owner)
    return DONE
