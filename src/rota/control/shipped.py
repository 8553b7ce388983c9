"""What Rota ships: a size, a city and a cell to begin with."""

from __future__ import annotations

from typing import Any

from rota.api import Cell, InstanceType, Location
from rota.client import Key
from rota.engine import DONE, Context, Outcome, Reconciler, Watch
from rota.registry import ApiError

SHIPPED: tuple[tuple[type[Any], str, dict[str, Any]], ...] = (
    (InstanceType, "d1-standard-2", {"cpu": 1, "memory": "2Gi"}),
    (Location, "local", {"cityCode": "local", "displayName": "This machine"}),
    (Cell, "local", {"cityCode": "local"}),
)
ALL = Key("", "all")


def _all(obj: object) -> tuple[Key]:
    return (ALL,)


class Shipped(Reconciler):
    """Makes what is shipped, unless something of that name is there. What people change in it stays as they want it."""

    name = "shipped"
    seeds = (ALL,)
    watches = tuple(Watch(kind, _all) for kind in dict.fromkeys(kind for kind, _, _ in SHIPPED))

    async def reconcile(self, context: Context, key: Key) -> Outcome:
        for kind, name, spec in SHIPPED:
            if context.find(kind.api, "", name) is None:
                body = {
                    "apiVersion": kind.api.api_version,
                    "kind": kind.api.name,
                    "metadata": {"name": name},
                    "spec": spec,
                }
                try:
                    await context.client.create(body)
                except ApiError as error:
                    if error.reason != "AlreadyExists":
                        raise
        return DONE
