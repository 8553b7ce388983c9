"""Deliveries of webhooks: each is answered, after its effect is durable."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import msgspec

from rota.api import TaskSpawner
from rota.api.spawner import WebhookSource
from rota.api.templates import TemplateError
from rota.client import Client, Key
from rota.control.gate import Problem, status_of
from rota.control.spawners.items import Item, task_name
from rota.control.spawners.making import TaskMaker, capacity_of, task_of, with_tasks
from rota.control.spawners.statuses import invalid_task, with_ready
from rota.control.spawners.webhook import FORM, BadBody, Ignored, is_signed, item_of, keys_of
from rota.control.values import secret
from rota.engine.clock import Clock
from rota.engine.fence import Deposed
from rota.engine.objects import Objects, get
from rota.registry import ApiError

TRIES_MAX = 5
"""Tries of a delivery whose spawner others change meanwhile."""
SOON_SECONDS = 1
LIMIT_SECONDS = 30
"""`Retry-After` while `maxConcurrency` is reached."""
LATER_SECONDS = 3600
"""`Retry-After` of a refusal that lasts until a person acts."""
UNSIGNED = "no such webhook, or the request is not signed with its secret"
"""One message for both causes, so that it does not reveal which webhooks exist."""

JSON_TYPE = "application/json"


class TaskCreated(NamedTuple):
    """The delivery has created a Task."""

    task: str


class AlreadyDelivered(NamedTuple):
    """The item was delivered before: its Task exists, or did."""

    task: str


class DeliveryRefused(NamedTuple):
    """The delivery has no effect, for a reason that the sender must know."""

    reason: str
    message: str
    retry_seconds: int = 0
    """Pause before another try; 0: another try does not help."""


Answer = TaskCreated | AlreadyDelivered | Ignored | DeliveryRefused


class Hooks:
    """Takes deliveries while this process leads."""

    def __init__(self, client: Client, objects: Objects, maker: TaskMaker, clock: Clock) -> None:
        self._client = client
        self._objects = objects
        self._maker = maker
        self._clock = clock
        self._locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()
        self.serves = False

    async def deliver(self, namespace: str, name: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Take a delivery. The names of headers are in lower case."""
        if not self.serves:
            return DeliveryRefused("NotServed", "the controllers do not run in this server at the moment", SOON_SECONDS)
        spawner, source = self._find(namespace, name)
        if not self.is_signed(namespace, name, headers, body) or spawner is None or source is None:
            return DeliveryRefused("Unsigned", UNSIGNED)
        try:
            item = item_of(source, headers, body)
        except BadBody as error:
            return DeliveryRefused("BadBody", f"{error}{_hint(headers)}")
        if isinstance(item, Ignored):
            return item
        key = Key(namespace, name)
        lock = self._locks.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                return await self._take(key, spawner, item)
        except Deposed:
            return DeliveryRefused("NotServed", "another server leads by now", SOON_SECONDS)

    def is_signed(self, namespace: str, name: str, headers: Mapping[str, str], body: bytes) -> bool:
        """Report whether the webhook exists and the request is signed with its secret."""
        _, source = self._find(namespace, name)
        keys = keys_of(secret(self._objects, namespace, source.secret_ref.name)) if source is not None else []
        return is_signed(headers, body, keys)

    def _find(self, namespace: str, name: str) -> tuple[TaskSpawner | None, WebhookSource | None]:
        spawner = get(self._objects, TaskSpawner, name, namespace)
        if spawner is None or spawner.metadata.deletion_timestamp is not None:
            return None, None
        return spawner, spawner.spec.source.webhook

    async def _take(self, key: Key, spawner: TaskSpawner, item: Item) -> Answer:
        for _ in range(TRIES_MAX):
            try:
                # Another delivery may have changed it before this one got the lock.
                spawner = await self._client.get(TaskSpawner, key.name, namespace=key.namespace)
                return await self._make(spawner, item)
            except ApiError as error:
                if error.code == 404:
                    return DeliveryRefused("Unsigned", UNSIGNED)
                if error.reason != "Conflict":
                    raise
        return DeliveryRefused("Busy", "the spawner is being changed by others; try again", SOON_SECONDS)

    async def _make(self, spawner: TaskSpawner, item: Item) -> Answer:
        task = task_name(spawner.metadata.name, item)
        if self._maker.is_made(spawner)(task):
            return AlreadyDelivered(task)
        if spawner.spec.suspend:
            return DeliveryRefused("Suspended", "the spawner is suspended; deliver again when it is not", LATER_SECONDS)
        active = len(self._maker.active(spawner))
        capacity = capacity_of(spawner, active)
        if capacity.left == 0:
            return DeliveryRefused(
                "AtLimit", f"at the limit: {capacity.limit}", LATER_SECONDS if capacity.is_final else LIMIT_SECONDS
            )
        try:
            body = task_of(self._objects, spawner, item)
            await self._maker.make(spawner, [body], lambda fresh: self._made(fresh, task, active + 1))
        except TemplateError as error:
            return await self._record_problem(spawner, Problem("TemplateError", str(error)))
        except ApiError as error:
            if error.reason == "AlreadyExists":
                return AlreadyDelivered(task)
            if error.code in (400, 413, 422):
                return await self._record_problem(spawner, invalid_task(error))
            if error.code in (403, 429, 503):
                return DeliveryRefused("NotServed", error.message, SOON_SECONDS)
            raise
        return TaskCreated(task)

    def _made(self, spawner: TaskSpawner, task: str, active: int) -> Any:
        status = with_tasks(spawner, [task])
        status = msgspec.structs.replace(status, active=active, discovered=status.created)
        return with_ready(spawner, status, None, self._clock.time())

    async def _record_problem(self, spawner: TaskSpawner, problem: Problem) -> DeliveryRefused:
        """Write a problem into the status, once; the controller records the Event."""
        before = status_of(spawner)
        status = with_ready(spawner, before, problem, self._clock.time())
        if status != before:
            await self._client.update_status(msgspec.structs.replace(spawner, status=status))
        return DeliveryRefused(problem.reason, problem.message)


def _hint(headers: Mapping[str, str]) -> str:
    """Return a hint for a sender whose body could not be parsed."""
    if headers.get("content-type", "").strip():
        return ""
    return f"; the request has no Content-Type: send JSON as {JSON_TYPE}, or a form as {FORM}"
