"""A worker and a task together: what each says of the other, and what is written when one gets the other."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from rota.api import Instance, Task
from rota.api.instance import Assignment
from rota.api.task import TaskStatus
from rota.client import Key
from rota.control.instances.states import is_draining
from rota.control.tasks.lifecycle import assignment_id, running
from rota.pools import Binding, Offer, Request
from rota.runtime.interface import Subject
from rota.runtime.runner.messages import Report, ResetPolicy


class PoolKey(NamedTuple):
    """A pool, or a task that has a worker of its own."""

    namespace: str
    name: str
    kind: str = "WorkerPool"


class Worker(msgspec.Struct):
    """An instance that runs tasks, as it was last seen."""

    subject: Subject
    pool: PoolKey
    instance: Instance
    report: Report | None
    reset: ResetPolicy
    is_ready: bool
    told: str = ""
    """The assignment that its runner was told of, on the stream that it has now."""
    affinity: str = ""
    is_turning: bool = False
    """It is just being given from one to another: whoever does that sees to everything else."""

    @property
    def can_be_had(self) -> bool:
        report = self.report
        return self.is_ready and report is not None and report.phase == "Idle" and not is_draining(self.instance)


def request(task: Task, arrival: float) -> Request:
    spec = task.spec
    prefers = spec.affinity.key if spec.affinity is not None else ""
    return Request(task.metadata.uid, spec.holder or "", spec.priority, arrival, prefers=prefers)


def offer(worker: Worker) -> Offer:
    return Offer(worker.subject.uid, last=worker.affinity)


def beginning(task: Task, worker: Worker, binding: Binding) -> tuple[Assignment, Task]:
    """What is written when a task gets a worker: whose the worker is, and that the task runs."""
    now = datetime.now(UTC)
    meta = task.metadata
    assignment = Assignment(id=assignment_id(task), kind="Task", name=meta.name, uid=meta.uid, since=now)
    arrival = binding.request.arrival
    came = arrival if isinstance(arrival, float) else None
    status = running(task.status or TaskStatus(), worker.subject.name, now, came)
    return assignment, msgspec.structs.replace(task, status=status)


def has_more_to_come(task: Task) -> bool:
    """Whether there is something to be done about a task that has ended."""
    spec, meta = task.spec, task.metadata
    is_plain = task.over() and spec.ttl_seconds_after_finished is None and spec.worker is None and not spec.branch
    return not is_plain or bool(meta.finalizers) or meta.deletion_timestamp is not None


def key_of(task: Task) -> Key:
    return Key(task.metadata.namespace, task.metadata.name)


def is_attempt(task: Task, assigned: Assignment) -> bool:
    """Whether a task waits for this very attempt."""
    return task.metadata.uid == assigned.uid and not task.over() and assignment_id(task) == assigned.id


def is_running_on(task: Task, instance: str) -> bool:
    """Whether it is written down that a task runs there. Before that it must not begin."""
    status = task.status
    return status is not None and status.phase == "Running" and status.instance_name == instance
