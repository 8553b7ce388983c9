"""The place of a task: its pool, its request there, and the worker that its status names."""

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
    """Return a task with the status that it has when it is handed to a worker."""
    meta = member.instance.metadata
    status = running(task.status or TaskStatus(), meta.name, meta.uid, now, binding.request.arrival)
    return msgspec.structs.replace(task, status=status)


def pool_of(task: Task) -> PoolKey:
    """Return the pool whose workers run a task; one with a worker of its own is its own."""
    ref = task.spec.worker_pool_ref
    if ref is None:
        return PoolKey(task.metadata.namespace, task.metadata.name, Task.api.name)
    return PoolKey(task.metadata.namespace, ref.name)


def worker_of(objects: Objects, task: Task) -> Instance | None:
    """Return the instance on which a task is written to run, if it is there and given to tasks."""
    status = task.status
    instance = get(objects, Instance, status.instance_name or "", task.metadata.namespace) if status else None
    return instance if instance is not None and is_on(task, instance) else None


def is_on(task: Task, instance: Instance) -> bool:
    """Report whether a task is written to run on this very instance, which the tasks of its pool have."""
    status, assigned, owner = task.status, instance.spec.assignment, controller_of(instance)
    if status is None or status.phase != "Running" or assigned is None or assigned.kind != "Task":
        return False
    # Who may write a status must not choose a worker of another pool by it.
    if owner is None or (owner.name, owner.kind) != pool_of(task)[1:]:
        return False
    return status.instance_name == instance.metadata.name and status.instance_uid in (None, instance.metadata.uid)


def is_plain(task: Task) -> bool:
    """Report whether a task is new and names nothing but the pool that it runs on."""
    spec = task.spec
    named = spec.function or spec.worker or spec.depends_on or spec.branch
    return task.status is None and not named and not spec.cancel and task.metadata.deletion_timestamp is None


def has_more_to_come(task: Task) -> bool:
    """Report whether a task needs a reconcile besides its attempt: before it, or after its end."""
    spec, meta = task.spec, task.metadata
    is_plain = task.over() and spec.ttl_seconds_after_finished is None and spec.worker is None and not spec.branch
    return not is_plain or bool(meta.finalizers) or meta.deletion_timestamp is not None


def key_of(task: Task) -> Key:
    return Key(task.metadata.namespace, task.metadata.name)


def task_uid(id_: str) -> str:
    """Return the uid of the task that an attempt is of."""
    return id_.rpartition(".")[0]
