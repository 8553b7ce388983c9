"""A backend whose writes are seen at once where the writer reads, though the watch brings them later.

A controller that does not see what it has done does it again, or decides the next step by what was before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from rota.api import Kind
from rota.client import Backend, Key, Operation
from rota.client.backend import Batches, Object, PatchType
from rota.registry import Answer, DeleteOptions, Listing, ListOptions, WatchOptions, WriteOptions


class Shown(Protocol):
    """The place where writes are to be seen."""

    def show(self, kind: Kind, value: bytes) -> None:
        """Take an object as a write has left it, as JSON."""
        ...

    def show_gone(self, kind: Kind, key: Key, uid: str) -> None:
        """Take note that an object is gone."""
        ...


class OwnWrites:
    """A backend that shows what comes of its writes. A dry run is no write."""

    def __init__(self, backend: Backend, shown: Shown) -> None:
        self._backend = backend
        self._shown = shown

    @property
    def atomic(self) -> bool:
        return self._backend.atomic

    @atomic.setter
    def atomic(self, atomic: bool) -> None:
        self._backend.atomic = atomic

    @property
    def in_process(self) -> bool:
        return self._backend.in_process

    # Reading.

    async def get(self, kind: Kind, namespace: str, name: str, *, subresource: str = "") -> Answer:
        answer = await self._backend.get(kind, namespace, name, subresource=subresource)
        return self._show(kind, namespace, name, answer, subresource)

    async def list(self, kind: Kind, namespace: str, options: ListOptions) -> Listing:
        return await self._backend.list(kind, namespace, options)

    def watch(self, kind: Kind, namespace: str, options: WatchOptions) -> Batches:
        return self._backend.watch(kind, namespace, options)

    # Writing.

    async def create(self, kind: Kind, namespace: str, obj: Object, options: WriteOptions) -> Answer:
        answer = await self._backend.create(kind, namespace, obj, options)
        return answer if options.dry_run else self._show(kind, namespace, "", answer)

    async def update(
        self, kind: Kind, namespace: str, name: str, obj: Object, options: WriteOptions, *, subresource: str = ""
    ) -> Answer:
        answer = await self._backend.update(kind, namespace, name, obj, options, subresource=subresource)
        return answer if options.dry_run else self._show(kind, namespace, name, answer, subresource)

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
        answer = await self._backend.patch(kind, namespace, name, patch, options, type_=type_, subresource=subresource)
        return answer if options.dry_run else self._show(kind, namespace, name, answer, subresource)

    async def apply(
        self, kind: Kind, namespace: str, name: str, config: Object, options: WriteOptions, *, subresource: str = ""
    ) -> Answer:
        answer = await self._backend.apply(kind, namespace, name, config, options, subresource=subresource)
        return answer if options.dry_run else self._show(kind, namespace, name, answer, subresource)

    async def delete(self, kind: Kind, namespace: str, name: str, options: DeleteOptions) -> Answer:
        answer = await self._backend.delete(kind, namespace, name, options)
        return answer if options.dry_run else self._show(kind, namespace, name, answer)

    async def delete_collection(
        self, kind: Kind, namespace: str, options: DeleteOptions, select: ListOptions
    ) -> Listing:
        return await self._backend.delete_collection(kind, namespace, options, select)

    def prepare(self, operations: Sequence[Operation], at: float) -> Sequence[Operation]:
        return self._backend.prepare(operations, at)

    async def batch(self, operations: Sequence[Operation]) -> Sequence[Answer]:
        answers = await self._backend.batch(operations)
        for o, answer in zip(operations, answers, strict=True):
            if not (o.delete.dry_run if o.verb == "delete" else o.options.dry_run):
                self._show(o.kind, o.namespace, o.name, answer, o.subresource)
        return answers

    async def close(self) -> None:
        await self._backend.close()

    def _show(self, kind: Kind, namespace: str, name: str, answer: Answer, subresource: str = "") -> Answer:
        if subresource in ("", "status"):
            if answer.gone:
                self._shown.show_gone(kind, Key(namespace if kind.namespaced else "", name), _uid(answer.value))
            else:
                self._shown.show(kind, answer.value)
        return answer


class _Meta(msgspec.Struct):
    uid: str = ""


class _Gone(msgspec.Struct):
    """The answer to a delete: the object as it was last, or a Status."""

    metadata: _Meta = msgspec.field(default_factory=_Meta)
    details: _Meta | None = None


_decode = msgspec.json.Decoder(_Gone).decode


def _uid(value: bytes) -> str:
    found = _decode(value)
    return found.details.uid if found.details is not None else found.metadata.uid
