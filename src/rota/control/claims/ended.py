"""Ended claims. A bounded number is kept for a while, for callers that ask again."""

from __future__ import annotations

from collections import OrderedDict

from rota.api import Claim
from rota.client import Key
from rota.engine import Done

KEPT_SECONDS = 600.0
"""Seconds for which an ended claim is kept."""
KEPT_MAX = 5_000
"""The most ended claims of one namespace that are kept. Beyond that, the oldest are deleted earlier."""
REMOVED_TOGETHER = 100
FULL = KEPT_MAX + REMOVED_TOGETHER


class Ended:
    """Ended claims by namespace, the oldest first."""

    def __init__(self) -> None:
        self._of: dict[str, OrderedDict[str, str]] = {}

    def is_due(self, claim: Claim, now: float) -> bool:
        """Report whether a claim has been kept long enough."""
        return self._left(claim, now) <= 0

    def is_full(self, namespace: str) -> bool:
        return len(self._of.get(namespace, ())) >= FULL

    def keep(self, claim: Claim, now: float) -> Done:
        self._of.setdefault(claim.metadata.namespace, OrderedDict())[claim.metadata.name] = claim.metadata.uid
        return Done(again_after=self._left(claim, now))

    def surplus(self, namespace: str) -> list[tuple[Key, str]]:
        """Return the oldest ended claims of a namespace beyond the limit, once they are enough to be worth a write."""
        if not self.is_full(namespace):
            return []
        oldest = [self._of[namespace].popitem(last=False) for _ in range(REMOVED_TOGETHER)]
        return [(Key(namespace, name), uid) for name, uid in oldest]

    def forget(self, key: Key) -> None:
        known = self._of.get(key.namespace)
        if known is not None:
            known.pop(key.name, None)
            if not known:
                del self._of[key.namespace]

    @staticmethod
    def _left(claim: Claim, now: float) -> float:
        ended = claim.status.end_time if claim.status is not None else None
        return ended.timestamp() + KEPT_SECONDS - now if ended is not None else KEPT_SECONDS
