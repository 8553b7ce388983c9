"""Hand-overs: one hold of an instance ends, another begins. In one commit where the backend is atomic.

Where it is not, the writes follow each other, and each is true whatever becomes of the next: the end of a hold is
written before the instance is another's, and the instance is a holder's before the holder's status says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from rota.api import Instance, Object
from rota.api.instance import Assignment
from rota.client import Client, Operation, to_dict
from rota.engine.reconciler import status_write
from rota.registry import WriteOptions
from rota.registry.amendment import Amendment
from rota.runtime.interface import Subject


class HandOver(NamedTuple):
    """One write of an instance and of its holders."""

    subject: Subject
    before: str | None
    """The id of the assignment that it has; None: it has none."""
    after: Assignment | None
    ends: Object | None = None
    """The holder whose hold ends, with its new status."""
    begins: Object | None = None
    """The holder whose hold begins, with its new status."""
    is_new: bool = False
    """True: the holder that begins is created by this."""
    marks: Sequence[dict[str, Any]] = ()
    """Other changes of the instance, as operations of a JSON patch."""


class Written(NamedTuple):
    """The objects as they were written."""

    instance: Instance
    ended: Any
    begun: Any


async def write(client: Client, handover: HandOver) -> Written:
    """Write a hand-over. Raises `ApiError`: 404, 409 or 422 when an object is not in the expected state."""
    if client.atomic:
        return await _write_atomically(client, handover)
    ended = await client.update_status(handover.ends) if handover.ends is not None else None
    name, namespace = handover.subject.name, handover.subject.namespace
    kind: Any = Instance
    instance: Instance = await client.patch(kind, name, _patch(handover), namespace=namespace, type="json")
    return Written(instance, ended, None)


async def _write_atomically(client: Client, handover: HandOver) -> Written:
    quick = client.in_process
    operations = [_amendment(handover) if quick and not handover.marks else _patching(handover)]
    if handover.ends is not None:
        operations.append(status_write(client, handover.ends))
    if handover.begins is not None:
        new = handover.is_new
        operations.append(creation(handover.begins) if new else status_write(client, handover.begins))
    instance, *others = await client.batch(operations, typed=True)
    ended = others.pop(0) if handover.ends is not None else None
    return Written(instance, ended, others.pop(0) if handover.begins is not None else None)


def creation(obj: Object) -> Operation:
    """Return the operation that creates an object with its uid and its status. Only in process."""
    meta = obj.metadata
    body = to_dict(msgspec.structs.replace(obj, metadata=msgspec.structs.replace(meta, uid="")))
    return Operation("create", obj.api, meta.namespace, "", body, WriteOptions(uid=meta.uid, with_status=True))


def _patching(handover: HandOver) -> Operation:
    subject = handover.subject
    return Operation("patch", Instance.api, subject.namespace, subject.name, _patch(handover), patch_type="json")


def _amendment(handover: HandOver) -> Operation:
    subject, after = handover.subject, handover.after
    spec = {"assignment": msgspec.to_builtins(after) if after is not None else None}

    def test(metadata: Mapping[str, msgspec.Raw], spec: Mapping[str, msgspec.Raw]) -> bool:
        # An instance that is being deleted is given to nobody, even if that is not known here yet.
        is_free = handover.before is not None or "deletionTimestamp" not in metadata
        return _held_by(spec) == handover.before and is_free

    change = Amendment(subject.uid, spec=spec, test=test)
    return Operation("amend", Instance.api, subject.namespace, subject.name, change)


class _Held(msgspec.Struct):
    id: str


_held = msgspec.json.Decoder(_Held | None).decode


def _held_by(spec: Mapping[str, msgspec.Raw]) -> str | None:
    found = _held(spec["assignment"]) if "assignment" in spec else None
    return found.id if found is not None else None


def _patch(handover: HandOver) -> list[dict[str, Any]]:
    """Return the patch of the instance. Sent without a resourceVersion: status writes must not make it fail."""
    operations: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": handover.subject.uid}]
    if handover.before is None:
        operations.append({"op": "test", "path": "/spec/assignment", "value": None})
        operations.append({"op": "test", "path": "/metadata/deletionTimestamp", "value": None})
    else:
        operations.append({"op": "test", "path": "/spec/assignment/id", "value": handover.before})
    if handover.after is not None:
        operations.append({"op": "add", "path": "/spec/assignment", "value": msgspec.to_builtins(handover.after)})
    elif handover.before is not None:
        operations.append({"op": "remove", "path": "/spec/assignment"})
    return [*operations, *handover.marks]
