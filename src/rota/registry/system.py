"""The namespace of the control plane's own objects. Nobody but admins reaches it, whatever else they may reach."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from rota.api import Cell, Lease, Namespace
from rota.registry.errors import ApiError
from rota.registry.options import DeleteOptions, WriteOptions

if TYPE_CHECKING:
    from rota.registry.registry import Registry
    from rota.store import Store

SYSTEM_NAMESPACE = "rota-system"
CELL_NAMESPACE_PREFIX = "rota-cell-"
"""Before the name of a cell: the namespace of what is bound to it."""
LEASE_NAME = "rota-controllers"
FORMER_NAMESPACE = "default"
"""Where the lease of the controllers was in earlier releases."""
LEASE_SECONDS_MAX = 60
"""Of a lease that is moved: anybody with a token for its former namespace may have written it."""

DECODED_MAX = 1024
"""Namespaces whose uid is remembered without reading them again: it is asked for with each request."""

_WRITE = WriteOptions(manager="rota")


def cell_uid(store: Store, namespace: str) -> str:
    """Return the uid of the Cell whose namespace this is; empty: there is none."""
    entry = store.get(Cell.api.key("", namespace.removeprefix(CELL_NAMESPACE_PREFIX)))
    return stored_uid(entry.value) if entry is not None else ""


def namespace_uid(store: Store, namespace: str) -> str:
    """Return the uid of a Namespace; empty: there is none."""
    entry = store.get(Namespace.api.key("", namespace))
    return _uid(entry.value) if entry is not None else ""


@lru_cache(DECODED_MAX)
def _uid(value: bytes) -> str:
    return stored_uid(value)


def stored_uid(value: bytes) -> str:
    """Return the uid of an object as it is stored, whatever release has written the rest of it."""
    return str(msgspec.json.decode(value)["metadata"]["uid"])


async def establish(registry: Registry) -> None:
    """Make the namespace, and move there what an earlier release had elsewhere.

    It is moved once, when the namespace is made: what is made there later is somebody's own.
    """
    if registry.store.head(Namespace.api.key("", SYSTEM_NAMESPACE)) is not None:
        return
    await registry.ensure_namespace(SYSTEM_NAMESPACE)
    entry = registry.store.get(Lease.api.key(FORMER_NAMESPACE, LEASE_NAME))
    if entry is None:
        return
    former: dict[str, Any] = msgspec.json.decode(entry.value)
    spec = former.get("spec") or {}
    if (spec.get("leaseDurationSeconds") or 0) > LEASE_SECONDS_MAX:
        spec["leaseDurationSeconds"] = LEASE_SECONDS_MAX
    moved = {"apiVersion": Lease.api.api_version, "kind": "Lease", "metadata": {"name": LEASE_NAME}, "spec": spec}
    await registry.create(Lease.api, SYSTEM_NAMESPACE, moved, _WRITE)
    try:
        await registry.delete(
            Lease.api, FORMER_NAMESPACE, LEASE_NAME, DeleteOptions("Background", former["metadata"]["uid"])
        )
    except ApiError as error:
        if error.code not in (404, 409):
            raise
