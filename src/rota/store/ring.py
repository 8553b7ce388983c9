"""The recent events of one bucket, and the bucket itself.

An event keeps its number in the ring for ever: `events[n - base]` is event n while it is there. So a watcher's cursor
is one number, appending costs nothing per watcher, and a cursor below `base` has fallen off.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING

from rota.store.index import KeyIndex
from rota.store.model import Entry, Event
from rota.store.packing import BUCKET_BYTES_MIN, Packer

if TYPE_CHECKING:
    from rota.store.watch import Watch

RING_EVENTS_MAX = 16_384
RING_BYTES_MAX = 32 * 1024 * 1024
RINGS_BYTES_MAX = 64 * 1024 * 1024
"""Bound on the rings of all buckets together: each kind has a bucket, and in time all rings would be full."""
# A full ring drops this share of itself at once, so that dropping is one memory move per thousands of events.
DROP_SHARE = 8

_revision_of = attrgetter("rev")


def weight(event: Event) -> int:
    """Return an upper bound on the memory of an event, whose previous state is mostly shared with the event before."""
    return len(event.value) + (len(event.prev) if event.prev is not None else 0)


def growth(event: Event) -> int:
    """Return the growth of a bucket by an event."""
    return (0 if event.deleted else len(event.value)) - (len(event.prev) if event.prev is not None else 0)


class Ring:
    __slots__ = ("_bytes_max", "_events_max", "base", "bytes", "events", "floor")

    def __init__(self, floor: int, events_max: int, bytes_max: int) -> None:
        self.events: list[Event] = []
        self.base = 0
        self.bytes = 0
        # Every event of the bucket above this revision is here.
        self.floor = floor
        self._events_max = events_max
        self._bytes_max = bytes_max

    def end(self) -> int:
        """Return the number of the next event."""
        return self.base + len(self.events)

    def trim(self) -> bool:
        """Drop old events beyond the bounds.

        Called once after any number of appends. Return whether any were dropped.
        """
        drop = 0
        if len(self.events) > self._events_max:
            drop = len(self.events) - self._events_max + self._events_max // DROP_SHARE
        if self.bytes > self._bytes_max:
            target = self._bytes_max - self._bytes_max // DROP_SHARE
            kept = self.bytes - sum(map(weight, self.events[:drop]))
            while kept > target and drop < len(self.events) - 1:
                kept -= weight(self.events[drop])
                drop += 1
        self.drop(drop)
        return drop > 0

    def drop(self, count: int) -> None:
        if count:
            self.bytes -= sum(map(weight, self.events[:count]))
            self.floor = self.events[count - 1].rev
            self.base += count
            del self.events[:count]

    def drop_share(self) -> None:
        """Drop the oldest events to free space, at least one."""
        self.drop(max(1, len(self.events) // DROP_SHARE))

    def forget(self, revision: int) -> None:
        """Drop the events up to a revision."""
        self.drop(bisect_right(self.events, revision, key=_revision_of))
        self.floor = max(self.floor, revision)

    def seek(self, revision: int) -> int:
        """Return the number of the first event above a revision; -1 if it may be dropped already."""
        if revision < self.floor:
            return -1
        return self.base + bisect_right(self.events, revision, key=_revision_of)

    def undo(self, revision: int, low: str, high: str) -> dict[str, Entry | None]:
        """Return the states at a revision of the keys in [low, high) that have changed since; None for missing ones."""
        start = self.seek(revision) - self.base
        assert start >= 0
        past: dict[str, Entry | None] = {}
        for event in self.events[start:]:
            key = event.key
            if low <= key < high and key not in past:
                past[key] = None if event.prev is None else Entry(key, event.prev, event.prev_rev)
        return past


class Bucket:
    """The state of one bucket, except its entries: keys, events, and armed watches."""

    __slots__ = ("armed", "bytes", "fresh", "index", "packer", "ring")

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self.index = KeyIndex()
        self.packer = Packer()
        # Size of all its values, unpacked.
        self.bytes = 0
        # By prefix, the watches without unread events. An insertion-ordered set.
        self.armed: dict[str, dict[Watch, None]] = {}
        # The number of the first event of the current publication; -1 if it has none here.
        self.fresh = -1

    def packs(self) -> bool:
        """Report whether its cold objects are packed."""
        return self.bytes > BUCKET_BYTES_MIN
