"""Carry out the planned actions on the instances of an owner: create, delete, drain, undrain."""

from __future__ import annotations

from typing import Any

from rota.api import Instance
from rota.control.instances import Create, Delete, Drain, Undrain
from rota.control.instances.states import DRAINING
from rota.control.quotas.asking import gated
from rota.engine import Context
from rota.registry import ApiError

RUNTIME_FINALIZER = "rota.dev/runtime"
"""The finalizer of an instance: its maker ends what runs before the object is gone."""


async def carry_out(context: Context, namespace: str, action: Create | Delete | Drain | Undrain) -> None:
    """Write one action. Each has a precondition: late or repeated, it has no second effect."""
    client = context.client
    try:
        match action:
            case Create():
                await client.create(gated(context.objects, action.instance))
            case Delete():
                version = action.resource_version
                await client.delete(
                    Instance, action.name, namespace=namespace, uid=action.uid, resource_version=version
                )
            case Drain():
                await client.patch(Instance, action.name, _annotated(action, action.mark), namespace=namespace)
            case Undrain():
                await client.patch(Instance, action.name, _annotated(action, None), namespace=namespace)
    except ApiError as error:
        if not error.is_overtaken:
            raise


def _annotated(action: Drain | Undrain, mark: str | None) -> dict[str, Any]:
    same = {"uid": action.uid, "resourceVersion": action.resource_version}
    return {"metadata": {**same, "annotations": {DRAINING: mark}}}
