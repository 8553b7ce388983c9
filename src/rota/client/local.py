"""The backend in the same process: a registry, without sockets."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rota.api import Kind
from rota.client.backend import Batches, Written
from rota.registry import Answer, ApiError, Listing, ListOptions, Operation, Registry, WatchOptions
from rota.registry.decider import decided
from rota.registry.decisions import encoded
from rota.registry.errors import not_atomic, not_served


class LocalBackend:
    """A registry as a backend. The caller starts and stops the registry."""

    atomic = True

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    @property
    def registry(self) -> Registry | None:
        return self._registry

    async def get(self, kind: Kind, namespace: str, name: str, *, subresource: str = "") -> Answer:
        _check_served(kind)
        if subresource == "scale":
            return self._registry.get_scale(kind, namespace, name)
        return self._registry.get(kind, namespace, name)

    async def list(self, kind: Kind, namespace: str, options: ListOptions) -> Listing:
        _check_served(kind)
        return await self._registry.list(kind, namespace, options)

    def watch(self, kind: Kind, namespace: str, options: WatchOptions) -> Batches:
        _check_served(kind)
        return self._registry.watch(kind, namespace, options)

    async def write(self, operations: Sequence[Operation], *, atomic: bool = True) -> Written:
        if not atomic:
            return await self._registry.write_each(_groups(operations))
        if len(operations) > 1 and not self.atomic:
            raise not_atomic()
        for operation in operations:
            _check_served(operation.kind)
        return await self._registry.write(operations)

    async def close(self) -> None:
        """Do nothing: the caller owns the registry."""


def prepared(registry: Registry, operations: Sequence[Operation], at: float) -> Sequence[Operation]:
    """Validate operations as of a later time. The result can be written quickly then."""
    decide = registry.decide_at(at)
    return [
        msgspec.structs.replace(o, verb="decided", body=encoded(decided(decide, o)), subresource="") for o in operations
    ]


def _groups(operations: Sequence[Operation]) -> list[tuple[Operation | ApiError, ...]]:
    """Return operations with those that are joined to them."""
    groups: list[tuple[Operation | ApiError, ...]] = []
    for one in operations:
        checked = one if one.kind.served else not_served()
        if one.joined and groups:
            groups[-1] = (*groups[-1], checked)
        else:
            groups.append((checked,))
    return groups


def _check_served(kind: Kind) -> None:
    if not kind.served:
        raise not_served()
