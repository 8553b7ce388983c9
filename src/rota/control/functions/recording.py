"""The record of synchronous calls: each is a Task, created when the call is over.

With the registry in this process that is one write; otherwise it is two (`call_tasks`). A large result is stored before
the write, so that whoever reads the Task can get it.

The last calls of each function are kept, for KEPT_SECONDS. A call whose record fails has the same answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec
from msgspec import Raw

from rota.api import Function, ObjectMeta, OwnerReference, Task
from rota.api.task import Attempt, FunctionCall, TaskSpec, TaskStatus
from rota.client import Client, Key, Operation
from rota.control.functions.call_tasks import CALL_LABEL, KEPT_AS, WAITED_FOR, as_created, ended_status, label_of
from rota.control.functions.moulds import Moulds
from rota.control.functions.served import CallOutcome
from rota.control.functions.writes import CallWrites
from rota.control.tasks.lifecycle import is_large, result_of, time_of
from rota.engine.clock import Clock, sleep
from rota.engine.fence import Deposed
from rota.engine.objects import Objects
from rota.registry import metadata
from rota.registry.errors import ApiError
from rota.registry.options import DeleteOptions
from rota.runtime.archive import Archive, keep_result

log = logging.getLogger(__name__)

KEPT_MAX = 1000
"""Calls of one function that are kept."""
KEPT_SECONDS = 3600.0
DELETED_AT_ONCE = 100
SWEEP_SECONDS = 60.0
NAME_LENGTH_MAX = 40
NAME_BYTES = 5
UNGUESSABLE_BYTES = 8
"""Random bytes in the name of a call, if whoever knows the name gets the answer."""
RESULT_BYTES_MAX = 64 * 1024
"""A larger result is only in the answer of the call; the Task has its digest."""
MESSAGE_CHARACTERS_MAX = 2000
TRIES_MAX = 3
AGAIN = frozenset((429, 500, 502, 503, 504))
AGAIN_SECONDS = 0.1
"""Pause before a write is sent again that failed with one of the codes AGAIN; it is sent at most TRIES_MAX times."""


class Identity(NamedTuple):
    """The name and uid of a call's Task, chosen before the call."""

    name: str
    uid: str


def new_identity(function: str, name_bytes: int = NAME_BYTES) -> Identity:
    nonce = metadata.random_bytes(name_bytes).hex()
    return Identity(f"{function[:NAME_LENGTH_MAX].rstrip('-.')}-{nonce}", metadata.new_uid())


def labels_of(function: str, call: str) -> dict[str, str]:
    return {**label_of(function), CALL_LABEL: call}


def owned_by(function: Function) -> list[OwnerReference]:
    """Return the owner reference by which calls are deleted with their function."""
    meta = function.metadata
    return [OwnerReference(api_version=function.api.api_version, kind=function.api.name, name=meta.name, uid=meta.uid)]


def task_of(function: Function, identity: Identity, about: Mapping[str, Any], ended: CallOutcome, result: str) -> Task:
    """Return the Task of a call, which is over."""
    meta = function.metadata
    return Task(
        metadata=ObjectMeta(
            name=identity.name,
            namespace=meta.namespace,
            uid=identity.uid,
            labels=labels_of(meta.name, WAITED_FOR),
            owner_references=owned_by(function),
        ),
        spec=TaskSpec(function=FunctionCall(name=meta.name, payload=dict(about))),
        status=_status(ended, result),
    )


class Recorder:
    """Creates the Tasks of calls, and deletes the oldest."""

    def __init__(
        self,
        client: Client,
        objects: Objects,
        archive: Archive,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._client = client
        self._objects = objects
        self._archive = archive
        self._kept: dict[Key, deque[tuple[float, str]]] = {}
        self._has_kept = asyncio.Event()
        """Set while there are calls that will expire."""
        self._deleting: set[asyncio.Task[None]] = set()
        self._moulds = Moulds(client)
        self._writes = CallWrites(client)

    def begin(self) -> Callable[[], None]:
        self._kept.clear()
        found = []
        for task in cast("list[Task]", self._objects.list(Task.api, "")):
            call, status = task.spec.function, task.status or ended_status(task)
            if call is not None and task.metadata.labels.get(CALL_LABEL) == WAITED_FOR and status is not None:
                ended = status.completion_time.timestamp() if status.completion_time is not None else 0.0
                found.append((ended, task.metadata.name, Key(task.metadata.namespace, call.name)))
        for ended, name, key in sorted(found):
            self._kept.setdefault(key, deque()).append((ended, name))
        if self._kept:
            self._has_kept.set()
        sweeping = asyncio.create_task(self._sweep(), name="kept calls")

        def end() -> None:
            sweeping.cancel()
            for task in self._deleting:
                task.cancel()

        return end

    async def record(
        self, function: Function, identity: Identity, about: Mapping[str, Any], ended: CallOutcome
    ) -> None:
        """Record a call, and return when that is done or has failed. A failure is logged."""
        meta = function.metadata
        result = bytes(ended.result).decode() if bytes(ended.result) else ""
        task = task_of(function, identity, about, ended, result)
        try:
            if is_large(result) and len(result) <= RESULT_BYTES_MAX:
                await keep_result(self._archive, identity.name, identity.uid, meta.namespace, result)
            await self._write(task)
        except (ApiError, Deposed, RecursionError, OSError) as error:
            log.warning("a call of %s/%s is not recorded: %s", meta.namespace, meta.name, error)
            return
        self._keep(Key(meta.namespace, meta.name), ended.ended, identity.name)

    async def _write(self, task: Task) -> None:
        """Create the Task of a call. A repeated write has the same name, and so no second effect."""
        if self._client.in_process:
            await self._writes.write(self._moulds.creation(task))
            return
        for left in reversed(range(TRIES_MAX)):
            try:
                await self._client.create(as_created(task))
                return
            except (ApiError, OSError) as error:
                if isinstance(error, ApiError) and error.reason == "AlreadyExists" and await self._is_there(task):
                    return
                if not left or (isinstance(error, ApiError) and error.code not in AGAIN):
                    raise
            await sleep(self._clock, AGAIN_SECONDS)

    async def _is_there(self, task: Task) -> bool:
        """Report whether an earlier try, whose answer was lost, has created the Task of this call."""
        found: Task = await self._client.get(Task, task.metadata.name, namespace=task.metadata.namespace)
        return found.metadata.annotations.get(KEPT_AS) == task.metadata.uid

    def _keep(self, key: Key, ended: float, name: str) -> None:
        kept = self._kept.setdefault(key, deque())
        kept.append((ended, name))
        self._has_kept.set()
        if len(kept) >= KEPT_MAX + DELETED_AT_ONCE:
            self._delete(key.namespace, [kept.popleft()[1] for _ in range(DELETED_AT_ONCE)])

    def forget(self, key: Key) -> None:
        """Forget a deleted function. Its Tasks are deleted with it."""
        self._kept.pop(key, None)

    async def _sweep(self) -> None:
        while True:
            await self._has_kept.wait()
            await sleep(self._clock, SWEEP_SECONDS)
            self.expire(self._clock.time())
            if not self._kept:
                self._has_kept.clear()

    def expire(self, now: float) -> None:
        """Delete the calls that have been kept for KEPT_SECONDS."""
        for key, kept in list(self._kept.items()):
            old = []
            while kept and kept[0][0] < now - KEPT_SECONDS:
                old.append(kept.popleft()[1])
            if not kept:
                del self._kept[key]
            for at in range(0, len(old), DELETED_AT_ONCE):
                self._delete(key.namespace, old[at : at + DELETED_AT_ONCE])

    def _delete(self, namespace: str, names: Sequence[str]) -> None:
        task = asyncio.create_task(self._deleted(namespace, names), name="old calls")
        self._deleting.add(task)
        task.add_done_callback(self._deleting.discard)

    async def _deleted(self, namespace: str, names: Sequence[str]) -> None:
        operations = [Operation("delete", Task.api, namespace, name, delete=DeleteOptions()) for name in names]
        try:
            answers = await self._client.write_each(operations)
        except Deposed:
            return  # The process that leads now deletes them.
        except (ApiError, OSError) as error:
            log.warning("%d calls in %s are not deleted: %s", len(names), namespace, error)
            return
        for name, answer in zip(names, answers, strict=True):
            # One of them may be gone already.
            if isinstance(answer, ApiError) and answer.code != 404:
                log.warning("the call %s/%s is not deleted: %s", namespace, name, answer)


def _status(ended: CallOutcome, result: str) -> TaskStatus:
    began, over = time_of(ended.started), time_of(ended.ended)
    is_good = ended.reason == "Succeeded"
    attempt = Attempt(instance=ended.instance, start=began, end=over, exit_code=ended.exit_code, reason=ended.reason)
    return TaskStatus(
        phase="Succeeded" if is_good else "Failed",
        reason=None if is_good else ended.reason,
        message=ended.message[:MESSAGE_CHARACTERS_MAX] or None,
        instance_name=ended.instance or None,
        attempts=[attempt] if ended.instance else [],
        tries=int(bool(ended.instance)),
        losses=int(ended.reason == "WorkerLost"),
        start_time=began,
        completion_time=over,
        exit_code=ended.exit_code,
        result=result_of(result),
    )


def decoded(result: Raw) -> Any:
    """Decode the result of a call; None: it returned nothing."""
    return msgspec.json.decode(result) if bytes(result) else None
