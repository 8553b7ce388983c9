"""The instances that can be had, as they were last seen."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from rota.api import Instance
from rota.control.holds.options import has_runner
from rota.control.instances.states import is_draining, is_used
from rota.pools import Offer
from rota.runtime.interface import Subject
from rota.runtime.runner.messages import Report, ResetPolicy


class PoolKey(NamedTuple):
    """A pool, or a task that has a worker of its own."""

    namespace: str
    name: str
    kind: str = "WorkerPool"


class Member(msgspec.Struct):
    """An instance that can be had, as it was last seen."""

    subject: Subject
    pool: PoolKey
    instance: Instance
    report: Report | None
    """What its runner says; None: it is not connected, or there is none."""
    reset: ResetPolicy
    is_ready: bool
    told: str = ""
    """The assignment that its runner was told of, on the stream that it has now."""
    affinity: str = ""
    held_last: bool = False
    free_since: float | None = None
    """It was somebody's, and since when it is nobody's: what is between that and the next is what a reset takes."""
    is_turning: bool = False
    """It is just being given from one to another: whoever does that sees to everything else."""

    def learn(self, instance: Instance) -> None:
        """Take the instance as it is now, unless a later state of it is known: what is written may be told late."""
        if _age(instance) >= _age(self.instance):
            self.instance = instance

    @property
    def has_runner(self) -> bool:
        return has_runner(self.instance)

    @property
    def can_be_had(self) -> bool:
        if not self.is_ready or is_draining(self.instance) or is_used(self.instance):
            return False
        return not self.has_runner or (self.report is not None and self.report.phase == "Idle")


def _age(instance: Instance) -> tuple[int, int]:
    """Return what grows with each change: marks change without a new generation."""
    meta = instance.metadata
    return meta.generation, int(meta.resource_version) if meta.resource_version.isdecimal() else 0


def offer(member: Member) -> Offer:
    return Offer(member.subject.uid, last=member.affinity)
