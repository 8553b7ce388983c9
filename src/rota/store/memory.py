"""A store in memory only, for plans and tests."""

from __future__ import annotations

from rota.store.core import CLOSED, Store
from rota.store.delivery import Group
from rota.store.errors import Gone
from rota.store.model import Event


class MemoryStore(Store):
    """A store in memory. Writes become visible one iteration of the loop after they were accepted."""

    def __init__(self, *, revision: int = 0, **bounds: int) -> None:
        """`revision`: the revision to begin at. Earlier ones are `Gone`."""
        super().__init__(**bounds)
        self.revision = self.compacted = self._assigned = self._objects.origin = revision

    def _hand_over(self, groups: list[Group]) -> None:
        self._publish(groups)

    async def read_log(self, prefix: str, after: int, upto: int) -> tuple[list[Event], int]:
        raise Gone(after, upto)

    async def compact(self, revision: int) -> None:
        if revision <= self.compacted:
            return
        self._check_kept(revision)
        self.compacted = self._objects.origin = revision
        for bucket in self._objects.buckets.values():
            bucket.ring.forget(revision)

    async def close(self) -> None:
        self._flush()
        self._end(CLOSED, closed=True)
