"""Decisions: writes that are decided and not committed yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from rota.api import Kind
from rota.registry import errors
from rota.registry.admission import OBJECT_BYTES_MAX, Object
from rota.store import Write

_encode = msgspec.json.Encoder().encode
_NO_REVISION = 9_000_000_000_000_000_000
"""A revision that no write gets."""


@dataclass(slots=True)
class Change:
    """A decided write: the old and the new state of an object."""

    kind: Kind
    key: str
    expect: int
    old: Object | None
    new: Object
    gone: bool = False
    warnings: tuple[str, ...] = ()

    def write(self) -> Write:
        return Write(self.key, self.expect, self._encoded, self.gone)

    def _encoded(self, revision: int) -> bytes:
        version = str(revision)
        self.new["metadata"]["resourceVersion"] = version
        if self.gone and self.old is not None:
            # The event of a deletion has the last state of the object, at the version of the deletion.
            return _encode({**self.old, "metadata": {**self.old["metadata"], "resourceVersion": version}})
        value = _encode(self.new)
        if len(value) > OBJECT_BYTES_MAX:
            raise errors.too_large(self.kind, self.new["metadata"]["name"], len(value), OBJECT_BYTES_MAX)
        return value


@dataclass(slots=True)
class Amended:
    """A decided write that is encoded once its revision is known."""

    kind: Kind
    key: str
    name: str
    expect: int
    encoded: Callable[[int], bytes]

    def write(self) -> Write:
        return Write(self.key, self.expect, self.encoded)


class Unchanged(msgspec.Struct):
    """A decision that changes nothing: the current object."""

    key: str
    value: bytes
    revision: int
    warnings: tuple[str, ...] = ()


Decision = Change | Amended | Unchanged


def encoded(decision: Decision) -> Decision:
    """Return a decision with its bytes encoded already, except for the version, so that little work is left to
    commit it."""
    if isinstance(decision, Unchanged) or (isinstance(decision, Change) and decision.gone):
        return decision
    name = decision.name if isinstance(decision, Amended) else decision.new["metadata"]["name"]
    mark = b'"resourceVersion":"%d"' % _NO_REVISION
    head, found, tail = decision.write().value(_NO_REVISION).partition(mark)
    if not found or mark in tail:
        return decision
    return Amended(
        decision.kind,
        decision.key,
        name,
        decision.expect,
        lambda revision: b'%b"resourceVersion":"%d"%b' % (head, revision, tail),
    )
