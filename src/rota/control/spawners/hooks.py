"""Deliveries of webhooks: each is answered when what comes of it is durable, and none is dropped without a word."""

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
from rota.control.spawners.making import Maker, grown, room_of, task_of
from rota.control.spawners.signature import is_signed, keys_of
from rota.control.spawners.statuses import invalid_task, said
from rota.control.spawners.webhook import FORM, BadBody, Ignored, item_of
from rota.control.values import secret
from rota.engine.clock import Clock
from rota.engine.fence import Deposed
from rota.engine.objects import Objects, get
from rota.registry import ApiError

TRIES_MAX = 5
"""Of a delivery whose spawner is changed by others meanwhile."""
SOON_SECONDS = 1
LIMIT_SECONDS = 30
"""After how long there may be room, when as many Tasks are under way as may be."""
LATER_SECONDS = 3600
"""After how long to try again what takes a person to change."""
UNSIGNED = "no such webhook, or the request is not signed with its secret"
"""The same for both: who cannot sign is not told what there is."""

JSON_TYPE = "application/json"


class Made(NamedTuple):
    """There is a Task of it now."""

    task: str


class Known(NamedTuple):
    """It was delivered before: there is a Task of it, or was."""

    task: str


class Refused(NamedTuple):
    """Nothing came of it, and the sender should know."""

    reason: str
    message: str
    retry_seconds: int = 0
    """After which it may be otherwise; 0: trying again does not help."""


Answer = Made | Known | Ignored | Refused


class Hooks:
    """Takes deliveries, while this process is the one that may."""

    def __init__(self, client: Client, objects: Objects, maker: Maker, clock: Clock) -> None:
        self._client = client
        self._objects = objects
        self._maker = maker
        self._clock = clock
        self._locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()
        self.serves = False

    async def deliver(self, namespace: str, name: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Take a delivery. Names of headers are in lower case."""
        if not self.serves:
            return Refused("NotServed", "the controllers do not run in this server at the moment", SOON_SECONDS)
        spawner, source = self._find(namespace, name)
        if not self.is_signed(namespace, name, headers, body) or spawner is None or source is None:
            return Refused("Unsigned", UNSIGNED)
        try:
            item = item_of(source, headers, body)
        except BadBody as error:
            return Refused("BadBody", f"{error}{_hint(headers)}")
        if isinstance(item, Ignored):
            return item
        key = Key(namespace, name)
        lock = self._locks.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                return await self._take(key, spawner, item)
        except Deposed:
            return Refused("NotServed", "another server leads by now", SOON_SECONDS)

    def is_signed(self, namespace: str, name: str, headers: Mapping[str, str], body: bytes) -> bool:
        """Whether there is such a webhook, and the request is signed with its secret."""
        _, source = self._find(namespace, name)
        keys = keys_of(secret(self._objects, namespace, source.secret_ref.name)) if source is not None else []
        return is_signed(headers, body, keys)

    def _find(self, namespace: str, name: str) -> tuple[TaskSpawner | None, WebhookSource | None]:
        spawner = get(self._objects, TaskSpawner, name, namespace)
        if spawner is None or spawner.metadata.deletion_timestamp is not None:
            return None, None
        return spawner, spawner.spec.source.webhook

    async def _take(self, key: Key, spawner: TaskSpawner, item: Item) -> Answer:
        kind: Any = TaskSpawner
        for _ in range(TRIES_MAX):
            try:
                # Others may have had the lock meanwhile.
                spawner = await self._client.get(kind, key.name, namespace=key.namespace)
                return await self._make(spawner, item)
            except ApiError as error:
                if error.code == 404:
                    return Refused("Unsigned", UNSIGNED)
                if error.reason != "Conflict":
                    raise
        return Refused("Busy", "the spawner is being changed by others; try again", SOON_SECONDS)

    async def _make(self, spawner: TaskSpawner, item: Item) -> Answer:
        task = task_name(spawner.metadata.name, item)
        if self._maker.is_made(spawner)(task):
            return Known(task)
        if spawner.spec.suspend:
            return Refused("Suspended", "the spawner is suspended; deliver again when it is not", LATER_SECONDS)
        active = len(self._maker.active(spawner))
        room = room_of(spawner, active)
        if room.left == 0:
            return Refused("AtLimit", f"at the limit: {room.limit}", LATER_SECONDS if room.is_final else LIMIT_SECONDS)
        try:
            body = task_of(self._objects, spawner, item)
            await self._maker.make(spawner, [body], lambda fresh: self._made(fresh, task, active + 1))
        except TemplateError as error:
            return await self._tell(spawner, Problem("TemplateError", str(error)))
        except ApiError as error:
            if error.reason == "AlreadyExists":
                return Known(task)
            if error.code in (400, 413, 422):
                return await self._tell(spawner, invalid_task(error))
            if error.code in (403, 429, 503):
                return Refused("NotServed", error.message, SOON_SECONDS)
            raise
        return Made(task)

    def _made(self, spawner: TaskSpawner, task: str, active: int) -> Any:
        status = grown(spawner, [task])
        status = msgspec.structs.replace(status, active=active, discovered=status.created)
        return said(spawner, status, None, self._clock.time())

    async def _tell(self, spawner: TaskSpawner, problem: Problem) -> Refused:
        """Write down what is wrong, once; the controller sees that and tells people."""
        before = status_of(spawner)
        status = said(spawner, before, problem, self._clock.time())
        if status != before:
            await self._client.update_status(msgspec.structs.replace(spawner, status=status))
        return Refused(problem.reason, problem.message)


def _hint(headers: Mapping[str, str]) -> str:
    """What a sender whose body is not understood may have left out."""
    if headers.get("content-type", "").strip():
        return ""
    return f"; the request has no Content-Type: send JSON as {JSON_TYPE}, or a form as {FORM}"
