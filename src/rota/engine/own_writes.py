"""Read your own writes: a backend that puts the results of its writes into the caches that its user reads.

A controller that does not see its own write would repeat it, or decide the next step by the old state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from rota.api import Kind
from rota.client import Backend, Key
from rota.client.backend import Wrapped, Written
from rota.registry import Answer, Operation


class WriteCache(Protocol):
    """The caches that show writes."""

    def show(self, kind: Kind, value: bytes) -> None:
        """Put an object into the cache, as JSON."""
        ...

    def show_gone(self, kind: Kind, key: Key, uid: str) -> None:
        """Remove an object from the cache."""
        ...


class OwnWrites(Wrapped):
    """A backend that puts the results of its writes into caches. Dry runs are left out."""

    def __init__(self, backend: Backend, shown: WriteCache) -> None:
        super().__init__(backend)
        self._shown = shown

    async def get(self, kind: Kind, namespace: str, name: str, *, subresource: str = "") -> Answer:
        answer = await self._backend.get(kind, namespace, name, subresource=subresource)
        self._show(kind, namespace, name, subresource, answer)
        return answer

    async def write(self, operations: Sequence[Operation], *, atomic: bool = True) -> Written:
        answers = await self._backend.write(operations, atomic=atomic)
        for o, answer in zip(operations, answers, strict=True):
            if isinstance(answer, Answer) and o.verb != "delete_collection" and not o.dry_run:
                self._show(o.kind, o.namespace, o.name, o.subresource, answer)
        return answers

    def _show(self, kind: Kind, namespace: str, name: str, subresource: str, answer: Answer) -> None:
        if subresource not in ("", "status"):
            return
        if answer.gone:
            self._shown.show_gone(kind, Key(namespace if kind.namespaced else "", name), _uid(answer.value))
        else:
            self._shown.show(kind, answer.value)


class _Meta(msgspec.Struct):
    uid: str = ""


class _Gone(msgspec.Struct):
    """The answer to a delete: the last state of the object, or a Status."""

    metadata: _Meta = msgspec.field(default_factory=_Meta)
    details: _Meta | None = None


_decode = msgspec.json.Decoder(_Gone).decode


def _uid(value: bytes) -> str:
    found = _decode(value)
    return found.details.uid if found.details is not None else found.metadata.uid
