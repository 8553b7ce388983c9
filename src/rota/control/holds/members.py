"""Instances that can be held, with their last reports."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from rota.api import Instance
from rota.api.instance import Assignment
from rota.control.holds.options import has_runner, is_restarted_for
from rota.control.instances.states import is_draining, is_used
from rota.pools import Opened
from rota.runtime.interface import Subject
from rota.runtime.runner.messages import Report, ResetPolicy


class PoolKey(NamedTuple):
    """A pool, or a task that has a worker of its own."""

    namespace: str
    name: str
    kind: str = "WorkerPool"


class Member(msgspec.Struct, eq=False):
    """An instance that can be held."""

    subject: Subject
    pool: PoolKey
    instance: Instance
    report: Report | None
    """The last report of its runner; None: it has no runner, or the runner is not connected."""
    reset: ResetPolicy
    is_ready: bool
    sent: set[str] = msgspec.field(default_factory=set)
    """The attempts that were sent to its runner on the present stream."""
    ends: int = 0
    """The number of attempts on it whose ends are being written."""
    was_held: bool = False
    free_since: float | None = None
    """The time at which its last hold ended; None: it is held, or can be held again. The reset is in between."""
    is_changing_hands: bool = False
    """A hand-over of it is being written. Only the binder, which writes it, sets this. It evaluates the assignment
    afterwards."""

    def learn(self, instance: Instance) -> None:
        """Take the present state of the instance, unless a later one is known, since watch events may be late."""
        if _age(instance) >= _age(self.instance):
            self.instance = instance

    @property
    def assignment(self) -> Assignment | None:
        return self.instance.spec.assignment

    @property
    def lane(self) -> str | None:
        """The id of the assignment to the tasks of its pool; None: it is not assigned to them."""
        assigned = self.instance.spec.assignment
        return assigned.id if assigned is not None and assigned.kind == "Task" else None

    @property
    def is_claimed(self) -> bool:
        """Report whether a claim holds it. Then the ends of all tasks on it are written."""
        assigned = self.instance.spec.assignment
        return assigned is not None and assigned.kind == "Claim"

    @property
    def has_runner(self) -> bool:
        return has_runner(self.instance)

    @property
    def is_made_ready(self) -> bool:
        """Report whether a claim waits until it is made ready: started anew, or rid of what ran the code of tasks."""
        worker = self.instance.spec.worker
        keeps_code = self.reset == "Keep" and worker is not None and worker.type == "python"
        return keeps_code or is_restarted_for(self.instance)

    @property
    def opened(self) -> Opened:
        """Return the kind of requests that it can be given to now."""
        if not self.is_ready or is_draining(self.instance) or is_used(self.instance):
            return Opened.CLOSED
        if self.assignment is not None and self.lane is None:
            return Opened.CLOSED
        if not self.has_runner:
            return Opened.WHOLE if self.assignment is None else Opened.CLOSED
        report = self.report
        if report is None or (report.holder and not report.has_task):
            return Opened.CLOSED
        if report.phase == "Idle":
            return Opened.WHOLE
        if self.lane is None or report.phase not in ("Held", "Resetting"):
            return Opened.CLOSED
        return self.reopened

    @property
    def reopened(self) -> Opened:
        """Return the kind of requests that it can be given to after the end of a task."""
        return {"Keep": Opened.WHOLE, "Clean": Opened.JOBS, "Recreate": Opened.CLOSED}[self.reset]


def _age(instance: Instance) -> tuple[int, int]:
    """Return a sort key that grows with each change. The generation alone does not grow when marks change."""
    meta = instance.metadata
    return meta.generation, int(meta.resource_version) if meta.resource_version.isdecimal() else 0
