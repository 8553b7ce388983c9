"""The backend in the same process: straight on the registry, no sockets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from rota.api import Kind
from rota.api.structure import INPUT_DEPTH_MAX, too_deep
from rota.client.backend import Batches, Object, Operation, PatchType
from rota.registry import (
    Answer,
    DeleteOptions,
    Listing,
    ListOptions,
    Registry,
    WatchOptions,
    WriteOptions,
)
from rota.registry.deciding import Decider, Decision, encoded
from rota.registry.errors import bad_request

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def _own(value: Any) -> Any:
    """A copy that the registry may keep. Through JSON, so that what goes in is what would have come over the wire."""
    try:
        text = _encode(value)
        own = _decode(text)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise bad_request(f"this cannot be sent as JSON: {error}") from None
    if text.count(b"{") + text.count(b"[") > INPUT_DEPTH_MAX and too_deep(own, INPUT_DEPTH_MAX):
        raise bad_request(f"this is nested more than {INPUT_DEPTH_MAX} levels deep")
    return own


class LocalBackend:
    """A registry as a backend. The registry is the caller's to start and stop."""

    atomic = True
    in_process = True

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def get(self, kind: Kind, namespace: str, name: str, *, subresource: str = "") -> Answer:
        if subresource == "scale":
            return self._registry.get_scale(kind, namespace, name)
        return self._registry.get(kind, namespace, name)

    async def list(self, kind: Kind, namespace: str, options: ListOptions) -> Listing:
        return await self._registry.list(kind, namespace, options)

    def watch(self, kind: Kind, namespace: str, options: WatchOptions) -> Batches:
        return self._registry.watch(kind, namespace, options)

    async def create(self, kind: Kind, namespace: str, obj: Object, options: WriteOptions) -> Answer:
        return await self._registry.create(kind, namespace, _own(obj), options)

    async def update(
        self, kind: Kind, namespace: str, name: str, obj: Object, options: WriteOptions, *, subresource: str = ""
    ) -> Answer:
        return await self._registry.update(kind, namespace, name, _own(obj), options, subresource=subresource)

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
        return await self._registry.patch(
            kind, namespace, name, _own(patch), options, type_=type_, subresource=subresource
        )

    async def apply(
        self, kind: Kind, namespace: str, name: str, config: Object, options: WriteOptions, *, subresource: str = ""
    ) -> Answer:
        return await self._registry.apply(kind, namespace, name, _own(config), options, subresource=subresource)

    async def delete(self, kind: Kind, namespace: str, name: str, options: DeleteOptions) -> Answer:
        return await self._registry.delete(kind, namespace, name, options)

    async def delete_collection(
        self, kind: Kind, namespace: str, options: DeleteOptions, select: ListOptions
    ) -> Listing:
        return await self._registry.delete_collection(kind, namespace, options, select)

    async def batch(self, operations: Sequence[Operation]) -> Sequence[Answer]:
        dry_runs = {o.delete.dry_run if o.verb == "delete" else o.options.dry_run for o in operations}
        if len(dry_runs) > 1:
            raise bad_request("a batch is a dry run as a whole, or not at all")
        decide = [self._decision(operation, self._registry.decide) for operation in operations]
        return await self._registry.batch(decide, dry_run=True in dry_runs)

    def prepare(self, operations: Sequence[Operation], at: float) -> Sequence[Operation]:
        decide = self._registry.decide_at(at)
        return [
            Operation("decided", o.kind, o.namespace, o.name, encoded(self._decision(o, decide)()), o.options)
            for o in operations
        ]

    @staticmethod
    def _decision(o: Operation, decide: Decider) -> Callable[[], Decision]:
        where = (o.kind, o.namespace)
        if o.verb == "decided":
            return lambda: cast(Decision, o.body)
        if o.verb == "amend":
            return lambda: decide.amend(*where, o.name, o.body, o.options)
        # A copy for each call: what is decided on is the registry's own.
        if o.verb == "create":
            return lambda: decide.create(*where, _own(o.body), o.options)
        if o.verb == "update":
            return lambda: decide.update(*where, o.name, _own(o.body), o.options, subresource=o.subresource)
        if o.verb == "apply":
            return lambda: decide.apply(*where, o.name, _own(o.body), o.options, subresource=o.subresource)
        if o.verb == "delete":
            return lambda: decide.delete(*where, o.name, o.delete)
        return lambda: decide.patch(
            *where, o.name, _own(o.body), o.options, type_=o.patch_type, subresource=o.subresource
        )

    async def close(self) -> None:
        """Nothing of its own to close."""
