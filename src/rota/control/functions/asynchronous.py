"""Asynchronous calls: each is a Task from the start, which then runs as any other.

Anybody who may call a function may create such Tasks. So their number and their total size have a bound for each
function: the oldest one is deleted if it is over, and otherwise the new call is refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, cast

import msgspec

from rota.api import Function, ObjectMeta, Task
from rota.api.task import FunctionCall, Retry, TaskSpec
from rota.client import Client, Key
from rota.control.functions.call_tasks import CALL_LABEL
from rota.control.functions.recording import (
    KEPT_SECONDS,
    UNGUESSABLE_BYTES,
    labels_of,
    new_identity,
    owned_by,
)
from rota.control.functions.served import NotCalled
from rota.control.writing import unless_overtaken
from rota.engine.objects import Objects, get

ASYNCHRONOUS = "asynchronous"
"""The value of CALL_LABEL of an asynchronous call."""
EVENT_BYTES_MAX = 256 * 1024
KEPT_MAX = 1000
KEPT_BYTES_MAX = 64 * 1024 * 1024
"""Limits for the asynchronous calls of one function, over or not: their number, and the bytes of their events."""


class KeptCall(NamedTuple):
    name: str
    size: int


class AsynchronousCalls:
    """Creates the Tasks of asynchronous calls, and deletes the oldest."""

    def __init__(self, client: Client, objects: Objects) -> None:
        self._client = client
        self._objects = objects
        self._kept: dict[Key, deque[KeptCall]] = {}

    def begin(self) -> Callable[[], None]:
        self._kept.clear()
        found = []
        for task in cast("list[Task]", self._objects.list(Task.api, "")):
            call, created = task.spec.function, task.metadata.creation_timestamp
            if call is not None and task.metadata.labels.get(CALL_LABEL) == ASYNCHRONOUS and created is not None:
                kept = KeptCall(task.metadata.name, len(msgspec.json.encode(call.payload)))
                found.append((created, kept, Key(task.metadata.namespace, call.name)))
        for _, kept, key in sorted(found):
            self._kept.setdefault(key, deque()).append(kept)
        return self._kept.clear

    def forget(self, key: Key) -> None:
        """Forget a deleted function. Its Tasks are deleted with it."""
        self._kept.pop(key, None)

    async def make(self, function: Function, event: bytes, *, is_repeatable: bool) -> str:
        """Create the Task of a call, and return its name. If not `is_repeatable`, the call begins at most once.

        Raises `NotCalled` and `ApiError`.
        """
        meta = function.metadata
        key = Key(meta.namespace, meta.name)
        kept = self._kept.setdefault(key, deque())
        while kept and (len(kept) >= KEPT_MAX or sum(one.size for one in kept) + len(event) > KEPT_BYTES_MAX):
            await self._remove_oldest(key, kept)
        mine = KeptCall(new_identity(meta.name, UNGUESSABLE_BYTES).name, len(event))
        # Before the write: concurrent calls must not exceed the bound.
        kept.append(mine)
        task = Task(
            metadata=ObjectMeta(
                name=mine.name,
                namespace=meta.namespace,
                labels=labels_of(meta.name, ASYNCHRONOUS),
                owner_references=owned_by(function),
            ),
            spec=TaskSpec(
                function=FunctionCall(name=meta.name, payload=msgspec.json.decode(event)),
                retry=None if is_repeatable else Retry(reasons=[]),
                ttl_seconds_after_finished=int(KEPT_SECONDS),
            ),
        )
        try:
            await self._client.create(task)
        except BaseException:
            kept.remove(mine)
            raise
        return mine.name

    async def _remove_oldest(self, key: Key, kept: deque[KeptCall]) -> None:
        oldest = get(self._objects, Task, kept[0].name, key.namespace)
        if oldest is not None and not oldest.over():
            raise NotCalled("TooMany", "too many asynchronous calls of this function wait or run")
        gone = kept.popleft()
        if oldest is not None:
            await unless_overtaken(
                self._client.delete(Task, gone.name, namespace=key.namespace, uid=oldest.metadata.uid)
            )
