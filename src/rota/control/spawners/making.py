"""Making Tasks: one for each item, with the record of it in the same commit where the server can do that.

Whoever makes one has read its spawner, and is refused when that has changed since. So two processes that both take
themselves for the leader, or two deliveries at once, do not make more than the spawner allows.
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
from rota.control.spawners.items import Item, label_of, tail_of, task_name
from rota.control.spawners.record import DELIVERIES_MAX, remembered
from rota.engine.objects import Objects
from rota.registry import ApiError

log = logging.getLogger(__name__)

SPAWNER_LABEL = "rota.dev/spawner"
ITEM_ANNOTATION = "rota.dev/item"
ITEM_LENGTH_MAX = 253
STATUS_TRIES_MAX = 5
"""Of writing down what was made, where others change the spawner meanwhile."""

Body = dict[str, Any]
Say = Callable[[TaskSpawner], TaskSpawnerStatus]
"""The status of a spawner as it was last read, with what was made in it."""


class Room(NamedTuple):
    """How many more Tasks a spawner may make now, and what it is that keeps it from making more."""

    left: int | None
    """None: as many as there are items."""
    limit: str = ""
    is_final: bool = False
    """Whether that stays so until somebody changes the spawner."""


def room_of(spawner: TaskSpawner, active: int) -> Room:
    spec, created = spawner.spec, status_of(spawner).created
    if spec.max_total is not None and created >= spec.max_total:
        return Room(0, f"maxTotal: {created} of {spec.max_total} tasks were made", is_final=True)
    rooms = []
    if spec.max_total is not None:
        rooms.append(spec.max_total - created)
    if spec.max_concurrency is not None:
        rooms.append(max(0, spec.max_concurrency - active))
    if not rooms:
        return Room(None)
    return Room(min(rooms), f"maxConcurrency: {active} of {spec.max_concurrency} tasks are under way")


def task_of(objects: Objects, spawner: TaskSpawner, item: Item) -> Body:
    """The Task of an item. Raises TemplateError."""
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


def grown(spawner: TaskSpawner, tasks: Sequence[str], listed: frozenset[str] = frozenset()) -> TaskSpawnerStatus:
    """The status of a spawner that has made these Tasks."""
    status: TaskSpawnerStatus = status_of(spawner)
    record = frozenset(status.items)
    new = [tail for tail in map(tail_of, tasks) if tail not in record]
    items = remembered(status.items, new, listed, record_max(spawner))
    return msgspec.structs.replace(status, created=status.created + len(new), items=items)


def record_max(spawner: TaskSpawner) -> int:
    return ITEMS_MAX if spawner.spec.source.github is not None else DELIVERIES_MAX


def adopted(spawner: TaskSpawner, active: Collection[str]) -> TaskSpawnerStatus:
    """The status of a spawner, with Tasks in it that were made and not written down: it ended in between.

    Once the record has been full this cannot be told: what is not in it may have been forgotten.
    """
    status: TaskSpawnerStatus = status_of(spawner)
    if len(status.items) >= record_max(spawner):
        return status
    record = frozenset(status.items)
    missing = sorted(task for task in active if tail_of(task) not in record)
    return grown(spawner, missing) if missing else status


class Maker:
    """Makes Tasks for spawners, and knows which of them are not over."""

    def __init__(self, client: Client, objects: Objects) -> None:
        self._client = client
        self._objects = objects
        self._under_way: dict[str, set[str]] = {}

    def begin(self) -> Callable[[], None]:
        """Know what there is from here on. Returns the end."""
        end_listening = self._objects.listen((Task.api,), self._hear)

        def end() -> None:
            end_listening()
            self._under_way.clear()

        return end

    @property
    def atomic(self) -> bool:
        """Whether several Tasks can be made at once, and be written down with that."""
        return self._client.atomic

    def active(self, spawner: TaskSpawner) -> Collection[str]:
        """The Tasks of a spawner that are not over."""
        return self._under_way.get(_identity(spawner), frozenset())

    def is_made(self, spawner: TaskSpawner) -> Callable[[str], bool]:
        """Tells whether there is, or was, a Task of a name."""
        namespace, record = spawner.metadata.namespace, frozenset(status_of(spawner).items)
        return lambda task: tail_of(task) in record or self._objects.find(Task.api, namespace, task) is not None

    async def make(self, spawner: TaskSpawner, tasks: Sequence[Body], say: Say) -> TaskSpawner:
        """Make Tasks: only one where that is not atomic. Raises ApiError, and then none was made.

        It is a Conflict if the spawner has changed. Where it is not atomic, that is overcome: there is a Task by then.
        """
        if self.atomic:
            made = await self._at_once(spawner, tasks, say)
            if made is not None:
                return made
        (task,) = tasks
        await self._client.create(task)
        self._note(_identity(spawner), task["metadata"]["name"])
        return await self._say(spawner, say)

    async def _at_once(self, spawner: TaskSpawner, tasks: Sequence[Body], say: Say) -> TaskSpawner | None:
        meta = spawner.metadata
        status = status_body(msgspec.structs.replace(spawner, status=say(spawner)))
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

    async def _say(self, spawner: TaskSpawner, say: Say) -> TaskSpawner:
        kind: Any = TaskSpawner
        for left in reversed(range(STATUS_TRIES_MAX)):
            try:
                return await self._client.update_status(msgspec.structs.replace(spawner, status=say(spawner)))
            except ApiError as error:
                if error.reason != "Conflict" or not left:
                    raise
            spawner = await self._client.get(kind, spawner.metadata.name, namespace=spawner.metadata.namespace)
        raise AssertionError("the last try returns or raises")

    def _note(self, whose: str, task: str) -> None:
        """What was made counts at once, also where the news of it takes a while."""
        self._under_way.setdefault(whose, set()).add(task)

    def _hear(self, kind: Kind, update: Update[Any]) -> None:
        task: Task | None = update.new
        whose = _spawner_of(task) if task is not None and not task.over() else ""
        before = _spawner_of(update.old) if update.old is not None else ""
        if whose:
            self._note(whose, update.key.name)
        if before and before != whose:
            # It is over, gone, or was let go of by a spawner that was deleted without it.
            self._leave(before, update.key.name)

    def _leave(self, whose: str, task: str) -> None:
        names = self._under_way.get(whose, set())
        names.discard(task)
        if not names:
            self._under_way.pop(whose, None)


def _spawner_of(task: Task) -> str:
    """The spawner that made a Task, as `_identity` has it; empty if none did. It is one of the Task's own namespace."""
    for owner in task.metadata.owner_references:
        if owner.controller and owner.kind == TaskSpawner.api.name:
            return f"{task.metadata.namespace}/{owner.uid}"
    return ""


def _identity(spawner: TaskSpawner) -> str:
    return f"{spawner.metadata.namespace}/{spawner.metadata.uid}"
