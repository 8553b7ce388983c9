"""The objects that a new plane has: an InstanceType, and the Location and Cell that it runs in."""

from __future__ import annotations

from typing import Any

from rota.api import Cell, InstanceType, Location
from rota.client import Key
from rota.control.plane import HERE, LOCAL, Plane
from rota.engine import DONE, Context, Outcome, Reconciler, Watch
from rota.registry import ApiError

Thing = tuple[type[Any], str, dict[str, Any]]
ALL = Key("", "all")


def shipped(plane: Plane) -> list[Thing]:
    """Return the type, name and spec of each object of a new plane."""
    here = {"displayName": "This machine"} if plane.city == LOCAL else {}
    own: list[Thing] = []
    if plane.cell is not None:
        own = [
            (Location, plane.city, {"cityCode": plane.city, **here}),
            (Cell, plane.cell, {"cityCode": plane.city}),
        ]
    return [(InstanceType, "d1-standard-2", {"cpu": 1, "memory": "2Gi"}), *own]


def _all(obj: object) -> tuple[Key]:
    return (ALL,)


class Shipped(Reconciler):
    """Creates the shipped objects that are not there. Existing ones are never changed."""

    name = "shipped"
    seeds = (ALL,)
    watches = tuple(Watch(kind, _all) for kind in (InstanceType, Location, Cell))

    def __init__(self, plane: Plane = HERE) -> None:
        self._shipped = shipped(plane)

    async def reconcile(self, context: Context, key: Key) -> Outcome:
        for kind, name, spec in self._shipped:
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
