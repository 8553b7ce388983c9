"""List the instances of a pool or a workload."""

from __future__ import annotations

from typing import Any

from rota.api import Instance, WorkerPool, Workload
from rota.cli.following import everything
from rota.cli.naming import Target
from rota.client import Client
from rota.control.instances.names import WORKLOAD_LABEL

OWNERS = (WorkerPool.api, Workload.api)
"""Kinds whose name stands for their instances."""


async def instances_of(client: Client, target: Target) -> list[dict[str, Any]]:
    """Return the instances of a pool or a workload, by ordinal."""
    owner: dict[str, Any] = await client.get(target.kind, target.name)
    if target.kind is Workload.api:
        found, _ = await everything(client, Instance.api, namespace=None, labels=f"{WORKLOAD_LABEL}={target.name}")
    else:
        uid = owner["metadata"]["uid"]
        every, _ = await everything(client, Instance.api, namespace=None)
        found = [one for one in every if any(o["uid"] == uid for o in one["metadata"].get("ownerReferences", []))]
    return sorted(found, key=lambda one: (one["spec"]["ordinal"], one["metadata"]["name"]))
