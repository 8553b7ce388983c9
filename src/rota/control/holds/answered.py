"""A backend that repeats a write until its result is known, also when the connection is cut or the server restarts.

A write whose answer was lost may have been carried out. It is sent again until the server answers. Each write has a
precondition that holds only once, so that a copy has no second effect. If a copy is refused, the objects are read: if
they are as the write leaves them, an earlier copy was carried out; otherwise the caller gets the refusal.

The binder cannot do without it. A binding that was not written is lost to the binder: the request waits again, and is
given another instance, on which it would run a second time.

Never: repeats the creation of an object, which its creator finds by its name.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from rota.api import Kind
from rota.api.decoding import decoded
from rota.client import Backend
from rota.client.backend import Wrapped, Written
from rota.client.failures import NotConnected
from rota.engine.clock import Clock, sleep
from rota.registry import Answer, ApiError, Operation

log = logging.getLogger(__name__)

AGAIN_SECONDS = 0.02
"""Pause before the third copy of a write. The second is sent at once; the pause doubles for later ones."""
AGAIN_SECONDS_MAX = 1.0
OUT_OF_ORDER = frozenset((429, 500, 502, 503, 504))
"""Status codes that do not show whether an earlier copy of a write was carried out."""


class Doubt:
    """Tracks if an earlier copy of a write may have been carried out, and the wait before the next copy."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seconds = 0.0
        self.is_there = False

    async def pause(self, error: OSError | ApiError) -> None:
        log.warning("what became of a write of a hold is not known, and it is sent again: %s", error)
        self.is_there = self.is_there or not isinstance(error, NotConnected)
        if self._seconds:
            await sleep(self._clock, self._seconds)
        self._seconds = min(2 * self._seconds, AGAIN_SECONDS_MAX) or AGAIN_SECONDS

    def remains(self, error: ApiError) -> bool:
        return self.is_there and error.code in OUT_OF_ORDER


class Answered(Wrapped):
    """A backend that repeats reads and writes until they are answered or refused."""

    def __init__(self, backend: Backend, clock: Clock) -> None:
        super().__init__(backend)
        self._clock = clock

    async def get(self, kind: Kind, namespace: str, name: str, *, subresource: str = "") -> Answer:
        doubt = Doubt(self._clock)
        while True:
            try:
                return await self._backend.get(kind, namespace, name, subresource=subresource)
            except OSError as cut:
                await doubt.pause(cut)

    async def write(self, operations: Sequence[Operation], *, atomic: bool = True) -> Written:
        if any(one.verb == "create" for one in operations):
            return await self._backend.write(operations, atomic=atomic)
        return await self._write(operations, atomic, Doubt(self._clock))

    async def _write(self, operations: Sequence[Operation], atomic: bool, doubt: Doubt) -> Written:
        while True:
            try:
                written = await self._backend.write(operations, atomic=atomic)
            except OSError as cut:
                await doubt.pause(cut)
            except ApiError as refused:
                if doubt.remains(refused):
                    await doubt.pause(refused)
                elif doubt.is_there and (found := await self._as_written(operations, doubt)) is not None:
                    return found
                else:
                    raise
            else:
                return [
                    await self._resolved(one, answer, doubt)
                    if isinstance(answer, ApiError) and doubt.is_there
                    else answer
                    for one, answer in zip(operations, written, strict=True)
                ]

    async def _resolved(self, operation: Operation, refused: ApiError, doubt: Doubt) -> Answer | ApiError:
        """Return the result of a write whose repetition was refused."""
        if doubt.remains(refused):
            try:
                return (await self._write((operation,), True, doubt))[0]
            except ApiError as error:
                return error
        found = await self._as_written((operation,), doubt)
        return found[0] if found is not None else refused

    async def _as_written(self, operations: Sequence[Operation], doubt: Doubt) -> Sequence[Answer] | None:
        """Read the objects of a write, and return them if they are as the write leaves them, or None if not."""
        while True:
            try:
                found = [await self.get(one.kind, one.namespace, one.name) for one in operations]
                break
            except ApiError as error:
                if not doubt.remains(error):
                    return None  # One of them is gone.
                await doubt.pause(error)
        written = all(_is_left_by(one, answer.value) for one, answer in zip(operations, found, strict=True))
        return found if written else None


def _is_left_by(operation: Operation, value: bytes) -> bool:
    """Report whether an object is as an operation leaves it."""
    if operation.verb == "update" and operation.subresource == "status":
        known: Any = decoded(operation.kind, value)
        meant = operation.body
        return (
            bool(known.metadata.uid == meant["metadata"]["uid"])
            and msgspec.to_builtins(known.status) == meant["status"]
        )
    if operation.verb == "patch" and operation.patch_type == "json":
        body = msgspec.json.decode(value)
        return all(_is_applied(step, body) for step in operation.body)
    return False


def _is_applied(step: dict[str, Any], body: Any) -> bool:
    """Report whether an object is as a step of a JSON patch leaves it."""
    path = step["path"]
    for name in path.split("/")[1:]:
        body = body.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(body, dict) else None
    if path == "/spec/assignment" and step["op"] == "add":
        return isinstance(body, dict) and body.get("id") == step["value"]["id"]
    if step["op"] == "test":
        return path != "/metadata/uid" or bool(body == step["value"])
    return bool(body == step.get("value"))
