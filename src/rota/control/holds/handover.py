"""Hand-overs: the write that ends one hold of an instance and begins another, in one commit if the backend is atomic.

Otherwise the writes follow each other, in an order in which each is true even if the next one fails: the status of the
old holder, then the assignment of the instance, then the status of the new holder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from rota.api import Instance, Object
from rota.api.decoding import decoded
from rota.api.instance import Assignment
from rota.client import Client, Operation, to_dict
from rota.engine.reconciler import status_write
from rota.registry import Answer, ApiError, WriteOptions
from rota.registry.amendment import Amendment
from rota.runtime.interface import Subject


class HandOver(NamedTuple):
    """One write of holders, and of the instance if its assignment changes."""

    subject: Subject | None = None
    """The instance whose assignment changes; None: it stays with the tasks of its pool."""
    before: str | None = None
    """The id of the present assignment; None: there is none. It is the precondition of the write."""
    after: Assignment | None = None
    ends: Object | None = None
    """The holder whose hold ends, with its new status."""
    begins: Object | None = None
    """The holder whose hold begins, with its new status."""
    is_new: bool = False
    """True: the write creates the holder whose hold begins."""
    marks: Sequence[dict[str, Any]] = ()
    """Other changes of the instance, as operations of a JSON patch."""

    @property
    def holders(self) -> list[Object]:
        return [one for one in (self.ends, self.begins) if one is not None]


class Written(NamedTuple):
    """The written objects; None: this one was not written."""

    instance: Instance | None
    ended: Any = None
    begun: Any = None


Result = Written | ApiError


def operations(client: Client, handover: HandOver) -> list[Operation]:
    """Return the operations of a hand-over. The server carries out all or none."""
    found = [_instance_write(client, handover)] if handover.subject is not None else []
    if handover.ends is not None:
        found.append(status_write(client, handover.ends))
    if handover.begins is not None:
        found.append(creation(handover.begins) if handover.is_new else status_write(client, handover.begins))
    return [found[0], *(msgspec.structs.replace(one, joined=True) for one in found[1:])]


def result(made: Sequence[Operation], answers: Sequence[Answer | ApiError], handover: HandOver) -> Result:
    """Return the result of a hand-over by the answers to its operations."""
    objects: list[Any] = []
    for one, answer in zip(made, answers, strict=True):
        if isinstance(answer, ApiError):
            return answer
        objects.append(decoded(one.kind, answer.value))
    instance = objects.pop(0) if handover.subject is not None else None
    ended = objects.pop(0) if handover.ends is not None else None
    return Written(instance, ended, objects.pop(0) if handover.begins is not None else None)


async def write_in_steps(client: Client, handover: HandOver) -> Written:
    """Write a hand-over of an instance in several writes, for a backend that is not atomic.

    The holder whose hold begins is not written: the caller does that next. Raises `ApiError`: 404, 409 or 422 if an
    object is not in the expected state.
    """
    assert handover.subject is not None
    ended = await client.update_status(handover.ends) if handover.ends is not None else None
    subject, patch = handover.subject, _patch(handover)
    instance: Instance = await client.patch(Instance, subject.name, patch, namespace=subject.namespace, type="json")
    return Written(instance, ended)


def creation(obj: Object) -> Operation:
    """Return the creation of an object with uid and status, which only the registry in this process takes."""
    meta = obj.metadata
    body = to_dict(msgspec.structs.replace(obj, metadata=msgspec.structs.replace(meta, uid="")))
    return Operation("create", obj.api, meta.namespace, "", body, WriteOptions(uid=meta.uid, with_status=True))


def _instance_write(client: Client, handover: HandOver) -> Operation:
    if client.in_process and not handover.marks:
        return _amendment(handover)
    subject = handover.subject
    assert subject is not None
    return Operation("patch", Instance.api, subject.namespace, subject.name, _patch(handover), patch_type="json")


def _amendment(handover: HandOver) -> Operation:
    subject, after = handover.subject, handover.after
    assert subject is not None
    spec = {"assignment": msgspec.to_builtins(after) if after is not None else None}

    def test(metadata: Mapping[str, msgspec.Raw], spec: Mapping[str, msgspec.Raw]) -> bool:
        # An instance that is being deleted is not given away, even if its deletion has not been read yet.
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
    assert handover.subject is not None
    steps: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": handover.subject.uid}]
    if handover.before is None:
        steps.append({"op": "test", "path": "/spec/assignment", "value": None})
        steps.append({"op": "test", "path": "/metadata/deletionTimestamp", "value": None})
    else:
        steps.append({"op": "test", "path": "/spec/assignment/id", "value": handover.before})
    if handover.after is not None:
        steps.append({"op": "add", "path": "/spec/assignment", "value": msgspec.to_builtins(handover.after)})
    elif handover.before is not None:
        steps.append({"op": "remove", "path": "/spec/assignment"})
    return [*steps, *handover.marks]
