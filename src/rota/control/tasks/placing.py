"""The pool of a task, its request there, and the worker that its status names."""

from __future__ import annotations

from datetime import datetime

import msgspec

from rota.api import Instance, Task
from rota.api.task import TaskStatus
from rota.client import Key
from rota.control.holds.members import Member, PoolKey
from rota.control.instances.names import controller_of
from rota.control.tasks.lifecycle import running
from rota.engine.objects import Objects, get
from rota.pools import Binding, Request


def request(task: Task, arrival: float) -> Request:
    spec = task.spec
    prefers = spec.affinity.key if spec.affinity is not None else ""
    return Request(
        task.metadata.uid, spec.holder or "", spec.priority, arrival, prefers, shares=True, kind=Task.api.name
    )


def begun_task(task: Task, member: Member, binding: Binding, now: datetime) -> Task:
    """Return a task as it is when it is given to a worker."""
    meta = member.instance.metadata
    status = running(task.status or TaskStatus(), meta.name, meta.uid, now, binding.request.arrival)
    return msgspec.structs.replace(task, status=status)


def pool_of(task: Task) -> PoolKey:
    """Return the pool whose workers run a task. A task with a worker of its own is its own pool."""
    ref = task.spec.worker_pool_ref
    if ref is None:
        return PoolKey(task.metadata.namespace, task.metadata.name, Task.api.name)
    return PoolKey(task.metadata.namespace, ref.name)


def worker_of(objects: Objects, task: Task) -> Instance | None:
    """Return the instance that the status of a running task names, if it exists and is given to tasks."""
    status = task.status
    instance = get(objects, Instance, status.instance_name or "", task.metadata.namespace) if status else None
    return instance if instance is not None and is_on(task, instance) else None


def is_on(task: Task, instance: Instance) -> bool:
    """Report whether the status of a task says that it runs on this instance, which is given to tasks of the pool."""
    status, assigned, owner = task.status, instance.spec.assignment, controller_of(instance)
    if status is None or status.phase != "Running" or assigned is None or assigned.kind != "Task":
        return False
    # A user who can write statuses must not choose a worker of another pool by one.
    if owner is None or (owner.name, owner.kind) != pool_of(task)[1:]:
        return False
    return status.instance_name == instance.metadata.name and status.instance_uid in (None, instance.metadata.uid)


def is_plain(task: Task) -> bool:
    """Report whether a task is new and needs only a worker of a pool."""
    spec = task.spec
    named = spec.function or spec.worker or spec.depends_on or spec.branch
    return task.status is None and not named and not spec.cancel and task.metadata.deletion_timestamp is None


def has_more_to_come(task: Task) -> bool:
    """Report whether a task needs its controller, besides its attempt: before the attempt, or after its end."""
    spec, meta = task.spec, task.metadata
    is_plain = task.over() and spec.ttl_seconds_after_finished is None and spec.worker is None and not spec.branch
    return not is_plain or bool(meta.finalizers) or meta.deletion_timestamp is not None


def key_of(task: Task) -> Key:
    return Key(task.metadata.namespace, task.metadata.name)


def task_uid(id_: str) -> str:
    """Return the uid of an attempt's task."""
    return id_.rpartition(".")[0]
