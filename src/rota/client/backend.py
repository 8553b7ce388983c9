"""What a backend must do: the verbs on JSON. `Client` adds the types, once for all backends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal, Protocol

import msgspec

from rota.api import Kind
from rota.registry import Answer, DeleteOptions, Listing, ListOptions, WatchEvent, WatchOptions, WriteOptions

Object = dict[str, Any]
PatchType = Literal["merge", "json", "strategic"]

# `Backend.list` hides the builtin from annotations in its class.
Batches = AsyncIterator[list[WatchEvent]]


class Operation(msgspec.Struct, frozen=True):
    """One write of an atomic batch."""

    verb: Literal["create", "update", "patch", "apply", "delete", "amend", "decided"]
    """The last two only in this process: the body is an `Amendment`, or what `prepare` has decided."""
    kind: Kind
    namespace: str
    name: str = ""
    body: Any = None
    options: WriteOptions = WriteOptions()
    delete: DeleteOptions = DeleteOptions()
    subresource: str = ""
    patch_type: PatchType = "merge"


class Backend(Protocol):
    """The verbs, on objects as JSON. Refusals are `ApiError`. Objects that go in are never changed."""

    atomic: bool
    """Whether `batch` exists: several writes in one commit."""

    @property
    def in_process(self) -> bool:
        """Whether it is the registry of this process that is written to."""
        ...

    async def get(self, kind: Kind, namespace: str, name: str, *, subresource: str = "") -> Answer: ...

    async def list(self, kind: Kind, namespace: str, options: ListOptions) -> Listing: ...

    def watch(self, kind: Kind, namespace: str, options: WatchOptions) -> Batches: ...

    async def create(self, kind: Kind, namespace: str, obj: Object, options: WriteOptions) -> Answer: ...

    async def update(
        self, kind: Kind, namespace: str, name: str, obj: Object, options: WriteOptions, *, subresource: str = ""
    ) -> Answer: ...

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
    ) -> Answer: ...

    async def apply(
        self, kind: Kind, namespace: str, name: str, config: Object, options: WriteOptions, *, subresource: str = ""
    ) -> Answer: ...

    async def delete(self, kind: Kind, namespace: str, name: str, options: DeleteOptions) -> Answer: ...

    async def delete_collection(
        self, kind: Kind, namespace: str, options: DeleteOptions, select: ListOptions
    ) -> Listing: ...

    async def batch(self, operations: Sequence[Operation]) -> Sequence[Answer]: ...

    def prepare(self, operations: Sequence[Operation], at: float) -> Sequence[Operation]: ...

    async def close(self) -> None: ...
