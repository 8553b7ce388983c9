"""A worker and a task together: what each says of the other, and what is written when one gets the other."""

from __future__ import annotations

from datetime import datetime

import msgspec

from rota.api import Task
from rota.api.instance import Assignment
from rota.api.task import TaskStatus
from rota.client import Key
from rota.control.holds.members import Member
from rota.control.tasks.lifecycle import assignment_id, running
from rota.pools import Binding, Request


def request(task: Task, arrival: float) -> Request:
    spec = task.spec
    prefers = spec.affinity.key if spec.affinity is not None else ""
    return Request(task.metadata.uid, spec.holder or "", spec.priority, arrival, prefers=prefers)


def beginning(task: Task, worker: Member, binding: Binding, now: datetime) -> tuple[Assignment, Task]:
    """What is written when a task gets a worker: whose the worker is, and that the task runs."""
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
