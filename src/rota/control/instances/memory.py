"""The Instance controller's memory of an instance between two reconciliations. It need not outlive the process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rota.api import Instance
from rota.api.instance import InstanceStatus
from rota.control.holds.options import has_runner, is_restarted_for
from rota.control.instances.backoff import RunHistory
from rota.control.instances.states import is_used
from rota.control.making.interface import Observed
from rota.runtime.interface import Run

AT_REST = ("Idle", "Held", "Resetting")


class Baseline(NamedTuple):
    """The state of a ready instance: while only its holder differs from it, no full reconciliation is needed."""

    status: InstanceStatus | None
    configured: str
    runs: Mapping[str, tuple[str, int]]
    versions: tuple[str, ...]
    """The resourceVersions of its references, after the identity of its owner."""

    @classmethod
    def of(cls, obj: Instance, observed: Observed, versions: tuple[str, ...]) -> Baseline:
        configured = observed.report.configured if observed.report is not None else ""
        return cls(obj.status, configured, _alive(observed.runs), versions)

    def holds(self, obj: Instance, observed: Observed, versions: tuple[str, ...]) -> bool:
        """Report whether at most the holder has changed."""
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


class Memory:
    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.history = RunHistory()
        self.renewed_for = ""
        """The hold for which its runs were ended on purpose."""
        self.renewed: dict[str, int] = {}
        """The numbers of the runs that were ended for this hold, by container."""
        self.step: object = None
        """The last step sent to its runner, with the stream and the report before it.

        In this state the step is not sent again, since a runner would carry it out again.
        """
        self.baseline: Baseline | None = None
        """None: each change needs a full reconciliation."""
        self.unwritten_since: float | None = None
        """The time since which its status lacks the present holder or reset."""


def _alive(runs: Mapping[str, Run]) -> dict[str, tuple[str, int]]:
    return {name: (run.id, run.number) for name, run in runs.items() if run.exit is None}
