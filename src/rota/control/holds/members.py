"""The instances that can be held, as they were last read."""

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
    """The last report of its runner; None: it is not connected, or there is none."""
    reset: ResetPolicy
    is_ready: bool
    sent: set[str] = msgspec.field(default_factory=set)
    """The attempts that were sent to its runner on the present stream."""
    ends: int = 0
    """Ends of attempts on it that are being written."""
    was_held: bool = False
    free_since: float | None = None
    """The time at which its last hold ended; None once it can be held again. The time between is that of the reset."""
    is_changing_hands: bool = False
    """A hand-over of it is being written. Only the binder, which writes it, sets this, and looks at it afterwards."""

    def learn(self, instance: Instance) -> None:
        """Take the instance as it is now, unless a later state of it is known: news may come late."""
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
        """Report whether a claim holds it: it got it after the ends of all tasks there were written."""
        assigned = self.instance.spec.assignment
        return assigned is not None and assigned.kind == "Claim"

    @property
    def has_runner(self) -> bool:
        return has_runner(self.instance)

    @property
    def is_made_ready(self) -> bool:
        """Report whether a claim has to wait for it: it is started anew, or rid of what ran the code of tasks."""
        worker = self.instance.spec.worker
        keeps_code = self.reset == "Keep" and worker is not None and worker.type == "python"
        return keeps_code or is_restarted_for(self.instance)

    @property
    def opened(self) -> Opened:
        """Return the requests that it can be given to."""
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
        """Return the requests that it can be given to when a task has ended on it."""
        return {"Keep": Opened.WHOLE, "Clean": Opened.JOBS, "Recreate": Opened.CLOSED}[self.reset]


def _age(instance: Instance) -> tuple[int, int]:
    """Return what grows with each change: marks change without a new generation."""
    meta = instance.metadata
    return meta.generation, int(meta.resource_version) if meta.resource_version.isdecimal() else 0
