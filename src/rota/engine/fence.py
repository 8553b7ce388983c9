"""A fence around a backend: who does not lead, does not write.

What is on its way when leadership ends is not called back; each write's own precondition sees to that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rota.api import Kind
from rota.client import Backend, Operation
from rota.client.backend import Batches, Object, PatchType
from rota.registry import Answer, DeleteOptions, Listing, ListOptions, WatchOptions, WriteOptions


class Deposed(Exception):  # noqa: N818
    """A write by one that does not lead. Nothing was sent."""


class Fenced:
    """A backend that reads always, and writes while `held` says so. A dry run is no write."""

    def __init__(self, backend: Backend, held: Callable[[], bool], holder: Callable[[], str]) -> None:
        self._backend = backend
        self._held = held
        self._holder = holder

    @property
    def atomic(self) -> bool:
        return self._backend.atomic

    @atomic.setter
    def atomic(self, atomic: bool) -> None:
        self._backend.atomic = atomic

    @property
    def in_process(self) -> bool:
        return self._backend.in_process

    def _check(self, dry_run: bool) -> None:
        if not dry_run and not self._held():
            leader = self._holder() or "nobody"
            raise Deposed(f"only the leader may write, and this process does not lead now; last seen leading: {leader}")

    # Reading.

    async def get(self, kind: Kind, namespace: str, name: str, *, subresource: str = "") -> Answer:
        return await self._backend.get(kind, namespace, name, subresource=subresource)

    async def list(self, kind: Kind, namespace: str, options: ListOptions) -> Listing:
        return await self._backend.list(kind, namespace, options)

    def watch(self, kind: Kind, namespace: str, options: WatchOptions) -> Batches:
        return self._backend.watch(kind, namespace, options)

    # Writing.

    async def create(self, kind: Kind, namespace: str, obj: Object, options: WriteOptions) -> Answer:
        self._check(options.dry_run)
        return await self._backend.create(kind, namespace, obj, options)

    async def update(
        self, kind: Kind, namespace: str, name: str, obj: Object, options: WriteOptions, *, subresource: str = ""
    ) -> Answer:
        self._check(options.dry_run)
        return await self._backend.update(kind, namespace, name, obj, options, subresource=subresource)

    async def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch: Any,
        options: WriteOptions,
        *,
        type_: PatchType = "merge",
        subresource: str = "",
    ) -> Answer:
        self._check(options.dry_run)
        return await self._backend.patch(kind, namespace, name, patch, options, type_=type_, subresource=subresource)

    async def apply(
        self, kind: Kind, namespace: str, name: str, config: Object, options: WriteOptions, *, subresource: str = ""
    ) -> Answer:
        self._check(options.dry_run)
        return await self._backend.apply(kind, namespace, name, config, options, subresource=subresource)

    async def delete(self, kind: Kind, namespace: str, name: str, options: DeleteOptions) -> Answer:
        self._check(options.dry_run)
        return await self._backend.delete(kind, namespace, name, options)

    async def delete_collection(
        self, kind: Kind, namespace: str, options: DeleteOptions, select: ListOptions
    ) -> Listing:
        self._check(options.dry_run)
        return await self._backend.delete_collection(kind, namespace, options, select)

    def prepare(self, operations: Sequence[Operation], at: float) -> Sequence[Operation]:
        return self._backend.prepare(operations, at)

    async def batch(self, operations: Sequence[Operation]) -> Sequence[Answer]:
        self._check(all(o.delete.dry_run if o.verb == "delete" else o.options.dry_run for o in operations))
        return await self._backend.batch(operations)

    async def close(self) -> None:
        await self._backend.close()
