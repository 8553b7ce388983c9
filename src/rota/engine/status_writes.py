"""Writes of a status by a controller."""

from __future__ import annotations

import msgspec

from rota.api import Object
from rota.client import Client, Operation, status_body
from rota.registry.amendment import Amendment


def status_write(client: Client, obj: Object) -> Operation:
    """Return the operation that writes the status of an object; it is refused if the object has changed since."""
    meta = obj.metadata
    if client.in_process:
        status = msgspec.to_builtins(getattr(obj, "status", None))
        change = Amendment(meta.uid, meta.resource_version, status=status)
        return Operation("amend", obj.api, meta.namespace, meta.name, change)
    return Operation("update", obj.api, meta.namespace, meta.name, status_body(obj), subresource="status")
