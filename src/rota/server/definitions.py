"""The CustomResourceDefinitions of Rota's own kinds, as objects: k9s and other clients read a kind's columns and scale
there. They are made at the start of the server and do not change."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import msgspec

from rota.api import Namespace
from rota.api.crd import crds
from rota.api.served import DEFINITION
from rota.registry import Registry
from rota.store import MemoryStore, Store, Write

NAMESPACE = uuid.UUID("6a1a7c5e-1b0c-5c39-9d5e-7f1f0f8f5d11")
"""The UUID namespace of the uids. They are derived from names, so a definition has the same uid on every server."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def definitions(store: Store) -> Registry:
    """Return a registry for the definitions only. `establish` fills it.

    Its versions continue those of `store`, so that a client that watched an earlier server, perhaps of another release,
    has to list again.
    """
    return Registry(MemoryStore(revision=store.revision))


async def establish(registry: Registry, store: Store) -> None:
    """Write the definitions to their registry. They are as old as the objects in `store`."""
    first = store.get(Namespace.api.key("", "default"))
    assert first is not None, "a registry that was started has the namespace default"
    created = _decode(first.value)["metadata"]["creationTimestamp"]
    await registry.store.commit([_write(definition) for definition in _established(created)])


def _established(created: str) -> Iterator[dict[str, Any]]:
    for crd in crds():
        spec = crd["spec"]
        meta = {
            "name": crd["metadata"]["name"],
            "uid": str(uuid.uuid5(NAMESPACE, crd["metadata"]["name"])),
            "generation": 1,
            "creationTimestamp": created,
        }
        status = {
            "acceptedNames": spec["names"],
            "conditions": [
                _condition("NamesAccepted", "NoConflicts", "no conflicts found", created),
                _condition("Established", "InitialNamesAccepted", "the initial names have been accepted", created),
            ],
            "storedVersions": [version["name"] for version in spec["versions"] if version["storage"]],
        }
        yield {**crd, "metadata": meta, "spec": {**spec, "conversion": {"strategy": "None"}}, "status": status}


def _condition(type_: str, reason: str, message: str, time: str) -> dict[str, str]:
    return {"type": type_, "status": "True", "reason": reason, "message": message, "lastTransitionTime": time}


def _write(definition: dict[str, Any]) -> Write:
    def value(revision: int) -> bytes:
        definition["metadata"]["resourceVersion"] = str(revision)
        return _encode(definition)

    return Write(DEFINITION.key("", definition["metadata"]["name"]), 0, value)
