"""What has to stay as it is for an instance to need no more than a passing look."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rota.api import BY_BUCKET, Instance
from rota.api.instance import InstanceStatus
from rota.control.holds.options import has_runner, is_restarted_for
from rota.control.instances.states import is_used
from rota.engine import Context
from rota.engine.references import id_of
from rota.runtime.interface import Run
from rota.runtime.runner.messages import Report

AT_REST = ("Idle", "Held", "Resetting")


class Settled(NamedTuple):
    """An instance that can be had, when all of it was as it should be."""

    status: InstanceStatus | None
    configured: str
    runs: Mapping[str, str]
    versions: tuple[str, ...]
    """Of everything that it refers to, and of the pool that it is of."""

    @classmethod
    def of(cls, context: Context, obj: Instance, report: Report | None, runs: Mapping[str, Run]) -> Settled:
        alive = {name: run.id for name, run in runs.items() if run.exit is None}
        return cls(obj.status, report.configured if report is not None else "", alive, _versions(context, obj))

    def holds(self, context: Context, obj: Instance, report: Report | None, runs: Mapping[str, Run]) -> bool:
        """Whether nothing has changed but who has it."""
        if report is None and has_runner(obj):
            return False
        if report is not None and (report.phase not in AT_REST or report.configured != self.configured):
            return False
        if is_restarted_for(obj) or is_used(obj):
            return False
        if {name: run.id for name, run in runs.items() if run.exit is None} != self.runs:
            return False
        return obj.status == self.status and _versions(context, obj) == self.versions


def _versions(context: Context, obj: Instance) -> tuple[str, ...]:
    owners = [f"{one.kind}/{one.name}/{one.uid}" for one in obj.metadata.owner_references if one.controller]
    found = []
    for edge in context.graph.references(id_of(obj)):
        bucket, namespace, name = edge.target.split("/", 2)
        target = context.find(BY_BUCKET[bucket], namespace, name)
        found.append(target.metadata.resource_version if target is not None else "")
    return (*owners, *found)
