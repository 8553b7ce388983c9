"""A store that forgets everything when it goes: for plans, tests, and whatever needs the semantics without the disk."""

from __future__ import annotations

from rota.store.core import CLOSED, Group, Store
from rota.store.errors import Gone
from rota.store.model import Event


class MemoryStore(Store):
    """Writes become visible one turn of the loop after they were accepted, as they would after a very fast commit."""

    def __init__(self, *, revision: int = 0, **bounds: int) -> None:
        """`revision`: where revisions begin; what was before is gone."""
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
