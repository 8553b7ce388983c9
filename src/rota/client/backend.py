"""What a backend must do: read, watch and write JSON. `Client` adds the types, once for all backends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

from rota.api import Kind
from rota.registry import Answer, ApiError, Listing, ListOptions, Operation, WatchEvent, WatchOptions

Object = dict[str, Any]

# `Backend.list` hides the builtin from annotations in its class.
Batches = AsyncIterator[list[WatchEvent]]
Each = list[Answer | ApiError]


class Backend(Protocol):
    """Objects as JSON. Refusals are `ApiError`. Objects that go in are never changed."""

    atomic: bool
    """Whether `write` takes several operations: in one commit."""

    @property
    def in_process(self) -> bool:
        """Whether it is the registry of this process that is written to."""
        ...

    async def get(self, kind: Kind, namespace: str, name: str, *, subresource: str = "") -> Answer: ...

    async def list(self, kind: Kind, namespace: str, options: ListOptions) -> Listing: ...

    def watch(self, kind: Kind, namespace: str, options: WatchOptions) -> Batches: ...

    async def write(self, operations: Sequence[Operation]) -> Sequence[Answer]:
        """Write one operation; or several in one atomic commit, all or none, where the backend is atomic."""
        ...

    async def write_each(self, operations: Sequence[Operation]) -> Each:
        """Write each operation by itself, in order, and return what came of it; in as few commits as possible."""
        ...

    def prepare(self, operations: Sequence[Operation], at: float) -> Sequence[Operation]: ...

    async def close(self) -> None: ...


class Wrapped:
    """A backend around another, which it passes everything on to: the base of those that look at what is passed."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @property
    def atomic(self) -> bool:
        return self._backend.atomic

    @atomic.setter
    def atomic(self, atomic: bool) -> None:
        self._backend.atomic = atomic

    @property
    def in_process(self) -> bool:
        return self._backend.in_process

    async def get(self, kind: Kind, namespace: str, name: str, *, subresource: str = "") -> Answer:
        return await self._backend.get(kind, namespace, name, subresource=subresource)

    async def list(self, kind: Kind, namespace: str, options: ListOptions) -> Listing:
        return await self._backend.list(kind, namespace, options)

    def watch(self, kind: Kind, namespace: str, options: WatchOptions) -> Batches:
        return self._backend.watch(kind, namespace, options)

    async def write(self, operations: Sequence[Operation]) -> Sequence[Answer]:
        return await self._backend.write(operations)

    async def write_each(self, operations: Sequence[Operation]) -> Each:
        return await self._backend.write_each(operations)

    def prepare(self, operations: Sequence[Operation], at: float) -> Sequence[Operation]:
        return self._backend.prepare(operations, at)

    async def close(self) -> None:
        await self._backend.close()
