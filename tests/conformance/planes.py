"""The planes that the suite runs on: each serves the API, and says what it cannot do.

A further plane is one more entry of `PLANES`. One that outlives a test is shared by many: every test has a namespace of
its own, and names cluster-wide objects after it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Literal, Protocol

from rota.client import Backend, HttpBackend, LocalBackend
from rota.registry import Registry
from rota.store import MemoryStore, SqliteStore, Store
from tests.conformance.cluster import Cluster

Ability = Literal[
    "atomic batch",
    "garbage collection",
    "namespace lifecycle",
    "compaction on demand",
    "apply of a custom scale",
    "pods",
    "unknown kinds",
]
"""Features that a plane may lack; of `pods` and `unknown kinds` each lacks one.

`garbage collection` and `namespace lifecycle` are done by controllers, which may not run."""


class Plane(Protocol):
    """One control plane under test."""

    backend: Backend
    lacks: frozenset[Ability]

    async def forget_history(self) -> None:
        """Keep no state older than the newest; only where there is compaction on demand."""


class LocalPlane:
    """A registry in this process."""

    lacks: frozenset[Ability] = frozenset({"pods"})

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


class RemotePlane:
    """A server, over HTTP."""

    def __init__(self, backend: Backend, lacks: frozenset[Ability]) -> None:
        self.backend = backend
        self.lacks = lacks

    async def forget_history(self) -> None:
        raise NotImplementedError("no server does that on demand")


@asynccontextmanager
async def up(kubeconfig: Path) -> AsyncIterator[Plane]:
    """`rota up`, a process of its own, over TLS with the token of its kubeconfig."""
    backend = HttpBackend.connect(kubeconfig=kubeconfig)
    try:
        yield RemotePlane(backend, frozenset({"compaction on demand", "pods"}))
    finally:
        await backend.close()


@asynccontextmanager
async def kubernetes(cluster: Cluster) -> AsyncIterator[Plane]:
    # Kubernetes answers most applies of the scale of a custom resource with 500: it cannot convert between the two.
    lacks: frozenset[Ability] = frozenset(
        {"atomic batch", "compaction on demand", "apply of a custom scale", "unknown kinds"}
    )
    if not cluster.controlled:
        lacks |= {"garbage collection", "namespace lifecycle"}
    backend = HttpBackend.connect(kubeconfig=cluster.kubeconfig)
    try:
        yield RemotePlane(backend, lacks)
    finally:
        await backend.close()


OpenPlane = Callable[[Path], AbstractAsyncContextManager[Plane]]
"""Makes a plane; the directory is the test's own."""

PLANES: dict[str, OpenPlane] = {"memory": memory, "sqlite": sqlite}
UP = "rota up"
KUBERNETES = "kubernetes"
"""A plane that outlives a test and is shared by many; it is there where its programs are."""
