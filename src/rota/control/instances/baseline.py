"""The state of an instance that is ready: while it stays, there is nothing to do but to send its runner who has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rota.api import Instance
from rota.api.instance import InstanceStatus
from rota.control.holds.options import has_runner, is_restarted_for
from rota.control.instances.states import is_used
from rota.control.making.interface import Observed
from rota.runtime.interface import Run

AT_REST = ("Idle", "Held", "Resetting")


class Baseline(NamedTuple):
    """An instance that can be had, when all of it was as it should be."""

    status: InstanceStatus | None
    configured: str
    runs: Mapping[str, tuple[str, int]]
    versions: tuple[str, ...]
    """Of everything that it refers to, and of the pool that it is of."""

    @classmethod
    def of(cls, obj: Instance, observed: Observed, versions: tuple[str, ...]) -> Baseline:
        configured = observed.report.configured if observed.report is not None else ""
        return cls(obj.status, configured, _alive(observed.runs), versions)

    def holds(self, obj: Instance, observed: Observed, versions: tuple[str, ...]) -> bool:
        """Report whether nothing has changed but who has it."""
        report = observed.report
        if report is None and has_runner(obj):
            return False
        if report is not None and (report.phase not in AT_REST or report.configured != self.configured):
            return False
        if observed.overuse is not None or observed.obstacle is not None:
            return False
        if is_restarted_for(obj) or is_used(obj):
            return False
        return _alive(observed.runs) == self.runs and obj.status == self.status and versions == self.versions


def _alive(runs: Mapping[str, Run]) -> dict[str, tuple[str, int]]:
    return {name: (run.id, run.number) for name, run in runs.items() if run.exit is None}
