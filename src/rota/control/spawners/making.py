"""Create the Task of each item, and record it in the spawner's status, in one commit if the server can.

The commit has the spawner's resourceVersion as its precondition. So two processes that both take themselves for the
leader, or two deliveries at once, do not create more Tasks than the spawner allows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from rota.api import Kind, Task, TaskSpawner
from rota.api.spawner import ITEMS_MAX, TaskSpawnerStatus
from rota.api.templates.items import fill, resolver
from rota.client import Client, Operation, Update, status_body
from rota.control.gate import status_of
from rota.control.inputs import marks
from rota.control.spawners.items import DELIVERIES_MAX, Item, extended_record, label_of, tail_of, task_name
from rota.engine.objects import Objects
from rota.registry import ApiError

log = logging.getLogger(__name__)

SPAWNER_LABEL = "rota.dev/spawner"
ITEM_ANNOTATION = "rota.dev/item"
ITEM_LENGTH_MAX = 253
STATUS_TRIES_MAX = 5
"""Tries to write the status of a spawner that others change meanwhile."""

Body = dict[str, Any]
NextStatus = Callable[[TaskSpawner], TaskSpawnerStatus]
"""Returns the status with the new Tasks, for a spawner as it was last read."""


class Capacity(NamedTuple):
    """The number of Tasks that a spawner may create now, and its limit."""

    left: int | None
    """The number of further Tasks; None: no limit."""
    limit: str = ""
    is_final: bool = False
    """True: the limit stays until somebody changes the spawner."""


def capacity_of(spawner: TaskSpawner, active: int) -> Capacity:
    spec, created = spawner.spec, status_of(spawner).created
    if spec.max_total is not None and created >= spec.max_total:
        return Capacity(0, f"maxTotal: {created} of {spec.max_total} tasks were made", is_final=True)
    rooms = []
    if spec.max_total is not None:
        rooms.append(spec.max_total - created)
    if spec.max_concurrency is not None:
        rooms.append(max(0, spec.max_concurrency - active))
    if not rooms:
        return Capacity(None)
    return Capacity(min(rooms), f"maxConcurrency: {active} of {spec.max_concurrency} tasks are under way")


def task_of(objects: Objects, spawner: TaskSpawner, item: Item) -> Body:
    """Return the Task of an item. Raises TemplateError."""
    meta = spawner.metadata
    owner = {
        "apiVersion": spawner.api.api_version,
        "kind": spawner.api.name,
        "name": meta.name,
        "uid": meta.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": Task.api.api_version,
        "kind": Task.api.name,
        "metadata": {
            "name": task_name(meta.name, item),
            "namespace": meta.namespace,
            "labels": {SPAWNER_LABEL: label_of(meta.name)},
            "annotations": {ITEM_ANNOTATION: item.shown[:ITEM_LENGTH_MAX], **marks(objects, spawner)},
            "ownerReferences": [owner],
        },
        "spec": fill(spawner.spec.task_template, resolver(item.fields)),
    }


def with_tasks(spawner: TaskSpawner, tasks: Sequence[str], listed: frozenset[str] = frozenset()) -> TaskSpawnerStatus:
    """Return the status of a spawner after it created these Tasks."""
    status: TaskSpawnerStatus = status_of(spawner)
    record = frozenset(status.items)
    new = [tail for tail in map(tail_of, tasks) if tail not in record]
    items = extended_record(status.items, new, listed, record_max(spawner))
    return msgspec.structs.replace(status, created=status.created + len(new), items=items)


def record_max(spawner: TaskSpawner) -> int:
    return ITEMS_MAX if spawner.spec.source.github is not None else DELIVERIES_MAX


def adopted(spawner: TaskSpawner, active: Collection[str]) -> TaskSpawnerStatus:
    """Add Tasks to the status of a spawner that were created but not recorded: a process ended between the writes.

    If the record is full, the status is unchanged: the record may have had such a Task, and dropped it.
    """
    status: TaskSpawnerStatus = status_of(spawner)
    if len(status.items) >= record_max(spawner):
        return status
    record = frozenset(status.items)
    missing = sorted(task for task in active if tail_of(task) not in record)
    return with_tasks(spawner, missing) if missing else status


class TaskMaker:
    """Creates Tasks for spawners, and keeps the names of those that are not over."""

    def __init__(self, client: Client, objects: Objects) -> None:
        self._client = client
        self._objects = objects
        self._under_way: dict[str, set[str]] = {}

    def begin(self) -> Callable[[], None]:
        """Follow the Tasks. Returns a function that ends that."""
        end_listening = self._objects.listen((Task.api,), self._task_changed)

        def end() -> None:
            end_listening()
            self._under_way.clear()

        return end

    @property
    def atomic(self) -> bool:
        """True if Tasks and status are written in one commit."""
        return self._client.atomic

    def active(self, spawner: TaskSpawner) -> Collection[str]:
        """Return the names of a spawner's Tasks that are not over."""
        return self._under_way.get(_identity(spawner), frozenset())

    def is_made(self, spawner: TaskSpawner) -> Callable[[str], bool]:
        """Return a function that reports whether a Task of this name was ever created."""
        namespace, record = spawner.metadata.namespace, frozenset(status_of(spawner).items)
        return lambda task: tail_of(task) in record or self._objects.find(Task.api, namespace, task) is not None

    async def make(self, spawner: TaskSpawner, tasks: Sequence[Body], next_status: NextStatus) -> TaskSpawner:
        """Create Tasks and record them. Raises ApiError, and then none was created.

        Without `atomic`, only one Task can be created. A Conflict means that the spawner has changed; without `atomic`,
        the status is then read and written again, since the Task exists by then.
        """
        if self.atomic:
            made = await self._make_in_one_commit(spawner, tasks, next_status)
            if made is not None:
                return made
        (task,) = tasks
        await self._client.create(task)
        self._note(_identity(spawner), task["metadata"]["name"])
        return await self._write_status(spawner, next_status)

    async def _make_in_one_commit(
        self, spawner: TaskSpawner, tasks: Sequence[Body], next_status: NextStatus
    ) -> TaskSpawner | None:
        meta = spawner.metadata
        status = status_body(msgspec.structs.replace(spawner, status=next_status(spawner)))
        operations = [Operation("create", Task.api, meta.namespace, body=task) for task in tasks]
        update = Operation("update", TaskSpawner.api, meta.namespace, meta.name, body=status, subresource="status")
        try:
            *_, changed = await self._client.batch([*operations, update], typed=True)
        except ApiError:
            if self._client.atomic:
                raise
            return None
        for task in tasks:
            self._note(_identity(spawner), task["metadata"]["name"])
        return cast(TaskSpawner, changed)

    async def _write_status(self, spawner: TaskSpawner, next_status: NextStatus) -> TaskSpawner:
        for left in reversed(range(STATUS_TRIES_MAX)):
            try:
                return await self._client.update_status(msgspec.structs.replace(spawner, status=next_status(spawner)))
            except ApiError as error:
                if error.reason != "Conflict" or not left:
                    raise
            spawner = await self._client.get(TaskSpawner, spawner.metadata.name, namespace=spawner.metadata.namespace)
        raise AssertionError("the last try returns or raises")

    def _note(self, whose: str, task: str) -> None:
        """Count a created Task at once, before its watch event arrives."""
        self._under_way.setdefault(whose, set()).add(task)

    def _task_changed(self, kind: Kind, update: Update[Any]) -> None:
        task: Task | None = update.new
        whose = _spawner_of(task) if task is not None and not task.over() else ""
        before = _spawner_of(update.old) if update.old is not None else ""
        if whose:
            self._note(whose, update.key.name)
        if before and before != whose:
            # It is over or gone, or its spawner was deleted and orphaned it.
            self._leave(before, update.key.name)

    def _leave(self, whose: str, task: str) -> None:
        names = self._under_way.get(whose, set())
        names.discard(task)
        if not names:
            self._under_way.pop(whose, None)


def _spawner_of(task: Task) -> str:
    """Return the `_identity` of the spawner that owns a Task, in the Task's own namespace; empty: none does."""
    for owner in task.metadata.owner_references:
        if owner.controller and owner.kind == TaskSpawner.api.name:
            return f"{task.metadata.namespace}/{owner.uid}"
    return ""


def _identity(spawner: TaskSpawner) -> str:
    return f"{spawner.metadata.namespace}/{spawner.metadata.uid}"
