"""The namespace of the control plane's own objects, which only admins can access."""

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
"""Prefix of the namespace of a cell's own objects, before the cell's name."""
LEASE_NAME = "rota-controllers"
FORMER_NAMESPACE = "default"
"""Namespace of the controllers' lease in earlier releases."""
LEASE_SECONDS_MAX = 60
"""Bound on the duration of a moved lease, which anybody with a token for its former namespace may have written."""

DECODED_MAX = 1024
"""Namespaces whose uid is remembered without reading them again: it is asked for with each request."""

_WRITE = WriteOptions(manager="rota")


def cell_uid(store: Store, namespace: str) -> str:
    """Return the uid of the Cell of a namespace; empty if there is none."""
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
    """Return the uid of a stored object without decoding the rest, which another release may have written."""
    return str(msgspec.json.decode(value)["metadata"]["uid"])


async def establish(registry: Registry) -> None:
    """Create the system namespace, and move the lease of an earlier release there.

    The lease is moved only when the namespace is created: a later lease of that name is somebody else's.
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
        if not error.is_overtaken:
            raise
