"""The fence around a backend: only the leader writes.

A write that is under way when leadership ends is not stopped. Its own precondition makes it fail if the next leader has
changed the object.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rota.client import Backend
from rota.client.backend import Wrapped, Written
from rota.registry import Operation


class Deposed(Exception):  # noqa: N818
    """A write by a process that is not the leader. Nothing was sent."""


class Fenced(Wrapped):
    """A backend that always reads, and writes only while `held` returns True. Dry runs are allowed."""

    def __init__(self, backend: Backend, held: Callable[[], bool], holder: Callable[[], str]) -> None:
        super().__init__(backend)
        self._held = held
        self._holder = holder

    async def write(self, operations: Sequence[Operation], *, atomic: bool = True) -> Written:
        if not self._held() and not all(o.dry_run for o in operations):
            leader = self._holder() or "nobody"
            raise Deposed(f"only the leader may write, and this process does not lead now; last seen leading: {leader}")
        return await self._backend.write(operations, atomic=atomic)
