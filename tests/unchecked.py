"""Objects as a cluster may hold them: admitted by the schema and the CEL rules alone, without Rota's own checks."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec

from rota.api import KINDS
from rota.api.form import form
from rota.registry import Registry
from rota.store import Write


async def stored(registry: Registry, kind: str, name: str, spec: dict[str, Any], namespace: str = "default") -> None:
    """Put a new object into the store with its defaults, as an API server that cannot make the checks would."""
    entry = KINDS[kind]
    meta: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "uid": str(uuid.uuid4()),
        "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    obj = {"apiVersion": entry.api_version, "kind": kind, "metadata": meta, "spec": msgspec.to_builtins(spec)}
    form(entry).conform(obj)

    def encoded(revision: int) -> bytes:
        return msgspec.json.encode({**obj, "metadata": {**meta, "resourceVersion": str(revision)}})

    await registry.store.room()
    await registry.store.commit([Write(entry.key(namespace, name), 0, encoded)])
