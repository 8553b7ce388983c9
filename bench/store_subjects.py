"""The subjects of `bench.store`, one for each column. Add a subject here to measure another layer above the store."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from rota.api import Task
from rota.registry import Registry, WriteOptions
from rota.store import Event, SqliteStore, Watch, Write, sql
from rota.store.file import open_file

# About the size of an object of a common kind.
PAYLOAD = b'{"metadata":{"labels":{"app":"bench"}},"spec":{"text":"' + b"x" * 1000 + b'"}}'
PREFIX = "things.bench/"


def payload(rev: int) -> bytes:
    """Return content that differs for each revision, as real objects do: equal bytes could share memory."""
    return PAYLOAD + str(rev).encode()


class Subject(ABC):
    """A place for durable objects. Lists and watches are measured only if `reads` is true."""

    name: str
    reads = False

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"{self.name}.db"

    @abstractmethod
    async def create(self, key: str) -> None:
        """Create an object. Returns when it is durable."""

    @abstractmethod
    async def update(self, key: str) -> None:
        """Replace the newest state of an object by compare-and-swap. Returns when that is durable."""

    @abstractmethod
    async def close(self) -> None: ...

    def list(self, limit: int) -> int:
        """List objects. Returns their number."""
        raise NotImplementedError

    def watch(self) -> Watch:
        """Return a watch from the present revision."""
        raise NotImplementedError


class Bare(Subject):
    """The limit: the same table and the same group commit, without checks, memory or events."""

    name = "bare SQLite"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._connection = open_file(self.path)
        self._rev = sql.last_revision(self._connection)
        self._loop = asyncio.get_running_loop()
        self._turn: list[tuple[Event, asyncio.Future[None]]] = []
        self._inbox: SimpleQueue[list[tuple[Event, asyncio.Future[None]]] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    async def create(self, key: str) -> None:
        self._rev += 1
        written = self._loop.create_future()
        if not self._turn:
            self._loop.call_soon(self._flush)
        self._turn.append((Event(self._rev, key, payload(self._rev), False, None, 0), written))
        await written

    update = create

    def _flush(self) -> None:
        self._inbox.put(self._turn)
        self._turn = []

    def _run(self) -> None:
        while (taken := self._inbox.get()) is not None:
            try:
                while more := self._inbox.get_nowait():
                    taken = taken + more
            except Empty:
                pass
            sql.append(self._connection, [event for event, _ in taken])
            self._loop.call_soon_threadsafe(self._written, taken)

    def _written(self, taken: list[tuple[Event, asyncio.Future[None]]]) -> None:
        for _, written in taken:
            written.set_result(None)

    async def close(self) -> None:
        self._inbox.put(None)
        await asyncio.to_thread(self._thread.join)
        self._connection.close()


class Stored(Subject):
    name = "store"
    reads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.store = SqliteStore(self.path)

    async def create(self, key: str) -> None:
        await self.store.commit([Write(key, 0, payload)])

    async def update(self, key: str) -> None:
        head = self.store.head(key)
        assert head is not None
        await self.store.commit([Write(key, head.rev, payload)])

    async def close(self) -> None:
        await self.store.close()

    def list(self, limit: int) -> int:
        return len(self.store.list(PREFIX, limit=limit).entries)

    def watch(self) -> Watch:
        return self.store.watch(PREFIX, self.store.revision)


class Registered(Subject):
    """The registry with all its work: defaults, bounds, rules, field ownership, garbage collection.

    A client sends about 1 KiB; the stored object also has its identity, defaults and field owners.
    """

    name = "registry"
    reads = True
    options = WriteOptions(manager="bench")

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.store = SqliteStore(self.path)
        self.registry = Registry(self.store)
        self._opened = asyncio.ensure_future(self._open())

    async def _open(self) -> None:
        await self.registry.start()
        for namespace in ("new", "old"):
            await self.registry.ensure_namespace(namespace)

    async def create(self, key: str) -> None:
        if not self._opened.done():
            await self._opened
        _, namespace, name = key.split("/")
        await self.registry.create(Task.api, namespace, task(name), self.options)

    async def update(self, key: str) -> None:
        _, namespace, name = key.split("/")
        head = self.store.head(Task.api.key(namespace, name))
        assert head is not None
        status = {"metadata": {"resourceVersion": str(head.rev)}, "status": {"message": str(head.rev)}}
        await self.registry.patch(Task.api, namespace, name, status, self.options, subresource="status")

    async def close(self) -> None:
        await self.registry.stop()
        await self.store.close()

    def list(self, limit: int) -> int:
        return len(self.store.list(f"{Task.api.bucket}/", limit=limit).entries)

    def watch(self) -> Watch:
        return self.store.watch(f"{Task.api.bucket}/", self.store.revision)


def task(name: str) -> dict[str, Any]:
    """A task of about 1 KiB, as a client sends it."""
    return {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "Task",
        "metadata": {
            "name": name,
            "labels": {"app": "bench", "team": "infra", "tier": "gold"},
            "annotations": {"example.com/note": "an object of about one KiB"},
        },
        "spec": {
            "command": ["/bin/sh", "-c", "echo hello world && exit 0"],
            "stdin": "x" * 540,
            "workerPoolRef": {"name": "pool"},
            "priority": 5,
            "holder": "someone",
            "branch": "main",
            "timeoutSeconds": 60,
            "ttlSecondsAfterFinished": 3600,
            "affinity": {"key": "abc"},
            "retry": {"limit": 3, "reasons": ["Failed"]},
        },
    }


SUBJECTS: tuple[type[Subject], ...] = (Bare, Stored, Registered)
key_of = partial("{}{}/{:07}".format, PREFIX)
