"""What happens to an instance at once: one holder's time ends, another's begins. In one commit where there is such.

Where there is not, one write follows the other, and each is true whatever becomes of the next: an end is written down
before the instance is another's, and it is a holder's before it is written down that the holder has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from rota.api import Instance, Object
from rota.api.instance import Assignment
from rota.client import Client, Operation, status_body, to_dict
from rota.registry import WriteOptions
from rota.registry.amending import Amendment
from rota.runtime.interface import Subject


class Turn(NamedTuple):
    """One instance's change of hands."""

    subject: Subject
    before: str | None
    """The assignment that it has; None: it has none."""
    after: Assignment | None
    ends: Object | None = None
    """Who had it, with the status that it has then."""
    begins: Object | None = None
    """Who gets it, with the status that it has then."""
    is_new: bool = False
    """Who gets it is not written down yet: it is made by this."""
    marks: Sequence[dict[str, Any]] = ()
    """What else changes of the instance, as operations of a JSON patch."""


class Turned(NamedTuple):
    """What was written."""

    instance: Instance
    ended: Any
    begun: Any


async def write(client: Client, turn: Turn) -> Turned:
    """Raises `ApiError`: with 404, 409 or 422 when something is not as it was thought to be."""
    if client.atomic:
        return await _write_at_once(client, turn)
    ended = await client.update_status(turn.ends) if turn.ends is not None else None
    name, namespace = turn.subject.name, turn.subject.namespace
    kind: Any = Instance
    instance: Instance = await client.patch(kind, name, _patch(turn), namespace=namespace, type="json")
    return Turned(instance, ended, None)


async def _write_at_once(client: Client, turn: Turn) -> Turned:
    quick = client.in_process
    operations = [_amendment(turn) if quick and not turn.marks else _patching(turn)]
    if turn.ends is not None:
        operations.append(_status(turn.ends, quick=quick))
    if turn.begins is not None:
        operations.append(creation(turn.begins) if turn.is_new else _status(turn.begins, quick=quick))
    instance, *others = await client.batch(operations, typed=True)
    ended = others.pop(0) if turn.ends is not None else None
    return Turned(instance, ended, others.pop(0) if turn.begins is not None else None)


def _status(obj: Object, *, quick: bool) -> Operation:
    meta = obj.metadata
    if quick:
        status = msgspec.to_builtins(getattr(obj, "status", None))
        change = Amendment(meta.uid, meta.resource_version, status=status)
        return Operation("amend", obj.api, meta.namespace, meta.name, change)
    return Operation("update", obj.api, meta.namespace, meta.name, status_body(obj), subresource="status")


def _patching(turn: Turn) -> Operation:
    subject = turn.subject
    return Operation("patch", Instance.api, subject.namespace, subject.name, _patch(turn), patch_type="json")


def _amendment(turn: Turn) -> Operation:
    subject, after = turn.subject, turn.after
    spec = {"assignment": msgspec.to_builtins(after) if after is not None else None}

    def test(metadata: Mapping[str, msgspec.Raw], spec: Mapping[str, msgspec.Raw]) -> bool:
        # One that is asked to go is given to nobody, even if that is not known here yet.
        return _held_by(spec) == turn.before and (turn.before is not None or "deletionTimestamp" not in metadata)

    change = Amendment(subject.uid, spec=spec, test=test)
    return Operation("amend", Instance.api, subject.namespace, subject.name, change)


class _Held(msgspec.Struct):
    id: str


_held = msgspec.json.Decoder(_Held | None).decode


def _held_by(spec: Mapping[str, msgspec.Raw]) -> str | None:
    found = _held(spec["assignment"]) if "assignment" in spec else None
    return found.id if found is not None else None


def creation(obj: Object) -> Operation:
    """Make an object with the uid and the status that it has here. Only in this process."""
    meta = obj.metadata
    body = to_dict(msgspec.structs.replace(obj, metadata=msgspec.structs.replace(meta, uid="")))
    return Operation("create", obj.api, meta.namespace, "", body, WriteOptions(uid=meta.uid, with_status=True))


def _patch(turn: Turn) -> list[dict[str, Any]]:
    """Only if it is the same instance, and has what it is thought to have. No version: a status is no matter."""
    operations: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": turn.subject.uid}]
    if turn.before is None:
        operations.append({"op": "test", "path": "/spec/assignment", "value": None})
        # One that is asked to go is given to nobody, even if that is not known here yet.
        operations.append({"op": "test", "path": "/metadata/deletionTimestamp", "value": None})
    else:
        operations.append({"op": "test", "path": "/spec/assignment/id", "value": turn.before})
    if turn.after is not None:
        operations.append({"op": "add", "path": "/spec/assignment", "value": msgspec.to_builtins(turn.after)})
    elif turn.before is not None:
        operations.append({"op": "remove", "path": "/spec/assignment"})
    return [*operations, *turn.marks]
