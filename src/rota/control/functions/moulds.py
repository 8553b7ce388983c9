"""Templates of stored Tasks ("moulds") for successful calls, whose Tasks differ in a few texts only.

A mould is the stored form of one such Task, with places for the name, the uid, the times, the payload and the result.
No rule of Tasks depends on these, and a call cannot reach a bound of their fields. Field ownership lists each field of
a result, so that results with other fields have another mould.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from rota.api import Task
from rota.client import Client, Operation
from rota.control.holds.handover import creation
from rota.registry import metadata
from rota.registry.moulds import NOW, REVISION, Cast, Mould

MOULDS_MAX = 256
OPEN_BYTES_MAX = 8 * 1024
"""Bytes of payload and result together. A larger Task is created without a mould, since it may be too large."""
FIELDS_MAX = 64
"""Fields of a result, nested ones included."""
MARK_BYTES = 16
MARK_YEAR = 1971
"""The year of the times in the Task of which a mould is made."""
MARK_MOMENT = 95_617_584_000
"""A mould is made with a creation time just after this one, in the year 5000, so that no other time looks the same."""
MARK_REVISION = 8_000_000_000_000_000_000

_encode = msgspec.json.Encoder().encode
Fields = tuple[tuple[str, Any], ...]


class _Shape(NamedTuple):
    """The key of a mould: the fixed parts of its Task. Other fixed parts follow from these."""

    owner: str
    namespace: str
    instance: str | None
    exit_code: int | None
    has_result: bool
    fields: Fields | None


class Moulds:
    """The moulds of one client, whose registry is in the same process."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._moulds: dict[_Shape, Mould | None] = {}

    def creation(self, task: Task) -> Operation:
        """Return the operation that creates the Task of a call, from a mould if possible. Both have the same effect."""
        status, call, meta = task.status, task.spec.function, task.metadata
        assert status is not None
        assert call is not None
        if status.phase != "Succeeded" or status.message is not None:
            return creation(task)
        try:
            payload, result = _encode(call.payload), _encode(status.result)
            fields = _fields_of(status.result, [FIELDS_MAX])
        except (ValueError, OverflowError, RecursionError):
            return creation(task)
        if len(payload) + len(result) > OPEN_BYTES_MAX:
            return creation(task)
        owner = meta.owner_references[0]
        has_result = status.result is not None
        shape = _Shape(owner.uid, meta.namespace, status.instance_name, status.exit_code, has_result, fields)
        if shape not in self._moulds:
            if len(self._moulds) >= MOULDS_MAX:
                self._moulds.clear()
            self._moulds[shape] = self._made(task)
        mould = self._moulds[shape]
        if mould is None:
            return creation(task)
        texts = {
            b"name": meta.name.encode(),
            b"uid": meta.uid.encode(),
            b"payload": payload,
            b"result": result,
            b"start": _encode(status.start_time),
            b"end": _encode(status.completion_time),
        }
        return Operation("cast", Task.api, meta.namespace, meta.name, Cast(mould, texts))

    def _made(self, task: Task) -> Mould | None:
        """Make the mould of a Task's shape; None: a text that would be replaced occurs elsewhere in the Task, too."""
        meta, status, call = task.metadata, task.status, task.spec.function
        assert status is not None
        assert call is not None
        name, uid = f"m-{_mark()}", metadata.new_uid()
        start, end = _marked_time(), _marked_time()
        payload = {_mark(): _mark()}
        result = None if status.result is None else _marked(status.result)
        attempts = [msgspec.structs.replace(one, start=start, end=end) for one in status.attempts]
        marked = msgspec.structs.replace(
            task,
            metadata=msgspec.structs.replace(meta, name=name, uid=uid),
            spec=msgspec.structs.replace(task.spec, function=msgspec.structs.replace(call, payload=payload)),
            status=msgspec.structs.replace(
                status, attempts=attempts, start_time=start, completion_time=end, result=result
            ),
        )
        moment = MARK_MOMENT + int.from_bytes(metadata.random_bytes(4))
        (prepared,) = self._client.prepare([creation(marked)], moment)
        now = datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ").encode()
        marks: dict[bytes, tuple[bytes, int]] = {
            b"name": (name.encode(), 1),
            b"uid": (uid.encode(), 1),
            NOW: (now, 2),  # in the creation time, and in the time of the fields' ownership
            REVISION: (b"%d" % MARK_REVISION, 1),
            b"start": (_encode(start), 1 + len(attempts)),
            b"end": (_encode(end), 1 + len(attempts)),
            b"payload": (_encode(payload), 1),
        }
        if result is not None:
            marks[b"result"] = (_encode(result), 1)
        try:
            return Mould(prepared.body.encoded(MARK_REVISION), marks)
        except ValueError:
            return None


def _fields_of(value: Any, left: list[int]) -> Fields | None:
    """Return the names of a value's fields, nested; None: it is not an object. Raises ValueError: too many fields."""
    if not isinstance(value, dict):
        return None
    left[0] -= len(value)
    if left[0] < 0:
        raise ValueError(f"more than {FIELDS_MAX} fields")
    return tuple([(name, _fields_of(inner, left)) for name, inner in value.items()])


def _marked(value: Any) -> Any:
    """Return a value with the same fields and unique texts."""
    if isinstance(value, dict) and value:
        return {name: _marked(inner) for name, inner in value.items()}
    return _mark() if not isinstance(value, dict) else value


def _mark() -> str:
    return metadata.random_bytes(MARK_BYTES).hex()


def _marked_time() -> datetime:
    random = int.from_bytes(metadata.random_bytes(4))
    return datetime(MARK_YEAR, 1, 1, random % 24, random % 60, random % 59, 1 + random % 999_998, UTC)
