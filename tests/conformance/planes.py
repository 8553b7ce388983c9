"""The planes that the suite runs on: each serves the API, and says what it cannot do.

A further plane is one more entry of `PLANES`. It may outlive a test and be shared by many: every test has a namespace
of its own, and names cluster-wide objects after it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Literal, Protocol

from rota.client import Backend, LocalBackend
from rota.registry import Registry
from rota.store import MemoryStore, SqliteStore, Store

Ability = Literal["atomic batch", "garbage collection", "namespace lifecycle", "compaction on demand"]
"""What a plane may lack. `garbage collection` and `namespace lifecycle` are done by controllers, which may not run."""


class Plane(Protocol):
    """One control plane under test."""

    backend: Backend
    lacks: frozenset[Ability]

    async def forget_history(self) -> None:
        """Keep no state older than the newest; only where there is compaction on demand."""


class LocalPlane:
    """A registry in this process."""

    lacks: frozenset[Ability] = frozenset()

    def __init__(self, store: Store) -> None:
        self._store = store
        self.registry = Registry(store)
        self.backend: Backend = LocalBackend(self.registry)

    async def forget_history(self) -> None:
        await self._store.compact(self._store.revision)


@asynccontextmanager
async def _local(store: Store) -> AsyncIterator[Plane]:
    plane = LocalPlane(store)
    await plane.registry.start()
    try:
        yield plane
    finally:
        await plane.registry.stop()
        await store.close()


def memory(_: Path) -> AbstractAsyncContextManager[Plane]:
    return _local(MemoryStore())


def sqlite(directory: Path) -> AbstractAsyncContextManager[Plane]:
    return _local(SqliteStore(directory / "store.db"))


OpenPlane = Callable[[Path], AbstractAsyncContextManager[Plane]]
"""Makes or joins a plane; the directory is the test's own."""

PLANES: dict[str, OpenPlane] = {"memory": memory, "sqlite": sqlite}
