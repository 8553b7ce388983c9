"""The order of arrival of tasks, or of claims, in the queues of pools."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Protocol

from rota.api import ObjectMeta
from rota.client import Key
from rota.control.holds.named import ByName

ARRIVALS_PER_SECOND = 1_000_000
"""Arrivals differ by at least a microsecond, which is as much as is stored of them."""


class Queued(Protocol):
    """The status of an object that waits, or has waited, for an instance."""

    @property
    def arrival(self) -> datetime | None: ...


class Queueing(Protocol):
    """An object that waits for an instance."""

    @property
    def metadata(self) -> ObjectMeta: ...

    @property
    def status(self) -> Queued | None: ...


class Arrivals(ByName[float]):
    """The times of arrival that are not stored yet, by uid. No two are the same, since stored ones decide the order."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__()
        self._now = now
        self._last = 0

    def restore(self, stored: Iterable[Queueing], new: Iterable[Queueing]) -> None:
        """Have new arrivals come after all stored ones, whatever clock those are from. `new` objects arrive first."""
        for obj in stored:
            if obj.status is not None and obj.status.arrival is not None:
                self._last = max(self._last, _ticks(obj.status.arrival.timestamp()))
        for obj in sorted(new, key=_created):
            self.when(obj)

    def next(self) -> float:
        """Return the time of a new arrival."""
        self._last = max(_ticks(self._now()), self._last + 1)
        return self._last / ARRIVALS_PER_SECOND

    def when(self, obj: Queueing) -> float:
        """Return the arrival of an object: the stored one, else the time at which the object was first reconciled."""
        if obj.status is not None and obj.status.arrival is not None:
            return obj.status.arrival.timestamp()
        meta = obj.metadata
        known = self.get(meta.uid)
        if known is None:
            known = self.next()
            self.put(meta.uid, Key(meta.namespace, meta.name), known)
        return known


def _created(obj: Queueing) -> tuple[float, int]:
    """Return the sort key of new objects: the second of their creation, then their revision."""
    meta = obj.metadata
    created = meta.creation_timestamp.timestamp() if meta.creation_timestamp is not None else 0.0
    return created, int(meta.resource_version) if meta.resource_version.isdecimal() else 0


def _ticks(seconds: float) -> int:
    return round(seconds * ARRIVALS_PER_SECOND)
