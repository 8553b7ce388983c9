"""Calls that are answered later: each is a Task before it is made, and then runs as any other.

Whoever may call a function may make such Tasks, and that may be anybody. So a function has a bound on how many there
are of it, and on how large they are together: the oldest that are over go, and if they are not over, no more come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import msgspec

from rota.api import Function, ObjectMeta, Task
from rota.api.task import FunctionCall, Retry, TaskSpec
from rota.client import Client, Key
from rota.control.functions.line import NotCalled
from rota.control.functions.recorded import CALL_LABEL
from rota.control.functions.recording import (
    KEPT_SECONDS,
    UNGUESSABLE_BYTES,
    labels_of,
    new_identity,
    owned_by,
)
from rota.engine.objects import Objects, get
from rota.registry import ApiError

ASYNCHRONOUS = "asynchronous"
"""The value that the label of such a call has."""
EVENT_BYTES_MAX = 256 * 1024
KEPT_MAX = 1000
KEPT_BYTES_MAX = 64 * 1024 * 1024
"""Of one function: how many there are, over or not, and their events together."""


class Kept(NamedTuple):
    name: str
    size: int


class Later:
    """Makes them."""

    def __init__(self, client: Client, objects: Objects) -> None:
        self._client = client
        self._objects = objects
        self._kept: dict[Key, deque[Kept]] = {}

    def begin(self) -> Callable[[], None]:
        self._kept.clear()
        found = []
        for task in cast("list[Task]", self._objects.list(Task.api, "")):
            call, created = task.spec.function, task.metadata.creation_timestamp
            if call is not None and task.metadata.labels.get(CALL_LABEL) == ASYNCHRONOUS and created is not None:
                kept = Kept(task.metadata.name, len(msgspec.json.encode(call.payload)))
                found.append((created, kept, Key(task.metadata.namespace, call.name)))
        for _, kept, key in sorted(found):
            self._kept.setdefault(key, deque()).append(kept)
        return self._kept.clear

    def forget(self, key: Key) -> None:
        """There is no such function any more: its calls go with it."""
        self._kept.pop(key, None)

    async def make(self, function: Function, event: bytes, *, is_repeatable: bool) -> str:
        """A Task for a call; its name. Unless it is repeatable it is begun once at most.

        Raises `NotCalled` and `ApiError`.
        """
        meta = function.metadata
        key = Key(meta.namespace, meta.name)
        kept = self._kept.setdefault(key, deque())
        while kept and (len(kept) >= KEPT_MAX or sum(one.size for one in kept) + len(event) > KEPT_BYTES_MAX):
            await self._remove_oldest(key, kept)
        mine = Kept(new_identity(meta.name, UNGUESSABLE_BYTES).name, len(event))
        # Before it is made: others that come meanwhile must not take its place.
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

    async def _remove_oldest(self, key: Key, kept: deque[Kept]) -> None:
        oldest = get(self._objects, Task, kept[0].name, key.namespace)
        if oldest is not None and not oldest.over():
            raise NotCalled("TooMany", "too many calls of it have not been made yet")
        gone = kept.popleft()
        kind: Any = Task
        if oldest is not None:
            try:
                await self._client.delete(kind, gone.name, namespace=key.namespace, uid=oldest.metadata.uid)
            except ApiError as error:
                if error.code not in (404, 409):
                    raise
