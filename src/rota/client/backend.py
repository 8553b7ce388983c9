"""The interface of backends: objects as JSON, with three verbs to read and one to write. `Client` adds the types."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from rota.api import Kind
from rota.registry import Answer, ApiError, Listing, ListOptions, Operation, WatchEvent, WatchOptions

if TYPE_CHECKING:
    from rota.registry import Registry

Object = dict[str, Any]

# `Backend.list` hides the builtin from annotations in its class.
Batches = AsyncIterator[list[WatchEvent]]
Written = Sequence[Answer | ApiError]
"""The answer to each operation, in order. An operation that was not written atomically may have an error in its
place."""


class Backend(Protocol):
    """Reads and writes objects as JSON. Errors are `ApiError`. Objects that are passed in are never changed."""

    atomic: bool
    """True if several operations can be written in one commit."""

    @property
    def registry(self) -> Registry | None:
        """The registry that is written to, if it is in this process; else None."""
        ...

    async def get(self, kind: Kind, namespace: str, name: str, *, subresource: str = "") -> Answer: ...

    async def list(self, kind: Kind, namespace: str, options: ListOptions) -> Listing: ...

    def watch(self, kind: Kind, namespace: str, options: WatchOptions) -> Batches: ...

    async def write(self, operations: Sequence[Operation], *, atomic: bool = True) -> Written:
        """Write operations of any verb: create, update, patch, apply and delete, of an object or of its status.

        Atomic: one operation, or several in one commit, all or none, where the backend can. An error is raised.

        Not atomic: one by one, in order, in as few commits as possible. An error is returned in the place of the
        answer.
        """
        ...

    async def close(self) -> None: ...


class Wrapped:
    """A backend that passes everything on to another: the base of backends that observe what is passed."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @property
    def atomic(self) -> bool:
        return self._backend.atomic

    @atomic.setter
    def atomic(self, atomic: bool) -> None:
        self._backend.atomic = atomic

    @property
    def registry(self) -> Registry | None:
        return self._backend.registry

    async def get(self, kind: Kind, namespace: str, name: str, *, subresource: str = "") -> Answer:
        return await self._backend.get(kind, namespace, name, subresource=subresource)

    async def list(self, kind: Kind, namespace: str, options: ListOptions) -> Listing:
        return await self._backend.list(kind, namespace, options)

    def watch(self, kind: Kind, namespace: str, options: WatchOptions) -> Batches:
        return self._backend.watch(kind, namespace, options)

    async def write(self, operations: Sequence[Operation], *, atomic: bool = True) -> Written:
        return await self._backend.write(operations, atomic=atomic)

    async def close(self) -> None:
        await self._backend.close()
