"""What happens to a worker at once: one task ends on it, another begins. In one commit where there is such a thing.

Where there is not, one write follows the other, and each is true whatever becomes of the next: an end is written down
before the worker is another's, and a worker is a task's before it is written down that the task runs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from rota.api import Instance, Task
from rota.api.instance import Assignment
from rota.client import Client, Operation, status_body
from rota.runtime.interface import Subject


class Turn(NamedTuple):
    """One worker's change of hands."""

    subject: Subject
    before: str | None
    """The assignment that it has; None: it has none."""
    after: Assignment | None
    ends: Task | None = None
    """The task that had it, with the status that it has then."""
    begins: Task | None = None
    """The task that gets it, with the status that it has then."""


class Turned(NamedTuple):
    """What was written."""

    instance: Instance
    ended: Task | None
    begun: Task | None


async def write(client: Client, turn: Turn) -> Turned:
    """Raises `ApiError`: with 404, 409 or 422 when something is not as it was thought to be."""
    if client.atomic:
        return await _write_at_once(client, turn)
    ended = await client.update_status(turn.ends) if turn.ends is not None else None
    name, namespace = turn.subject.name, turn.subject.namespace
    kind: Any = Instance
    instance: Instance = await client.patch(kind, name, _patch(turn), namespace=namespace, type="json")
    return Turned(instance, ended, None)


async def _write_at_once(client: Client, turn: Turn) -> Turned:
    subject = turn.subject
    operations = [
        Operation("patch", Instance.api, subject.namespace, subject.name, _patch(turn), patch_type="json"),
        *(_status(task) for task in (turn.ends, turn.begins) if task is not None),
    ]
    instance, *tasks = await client.batch(operations, typed=True)
    ended = tasks.pop(0) if turn.ends is not None else None
    return Turned(instance, ended, tasks.pop(0) if turn.begins is not None else None)


def _status(task: Task) -> Operation:
    meta = task.metadata
    return Operation("update", Task.api, meta.namespace, meta.name, status_body(task), subresource="status")


def _patch(turn: Turn) -> list[dict[str, Any]]:
    """Only if it is the same instance, and has what it is thought to have. No version: a status is no matter."""
    operations: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": turn.subject.uid}]
    if turn.before is None:
        operations.append({"op": "test", "path": "/spec/assignment", "value": None})
    else:
        operations.append({"op": "test", "path": "/spec/assignment/id", "value": turn.before})
    if turn.after is None:
        operations.append({"op": "remove", "path": "/spec/assignment"})
    else:
        operations.append({"op": "add", "path": "/spec/assignment", "value": msgspec.to_builtins(turn.after)})
    return operations
