"""The published objects, as bytes in memory: get, count and list read from here and never from the disk.

Objects that have not been written for a while are packed, and unpacked when they are read.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import merge
from operator import attrgetter
from typing import cast

from rota.store.errors import Gone
from rota.store.model import Entry, Page
from rota.store.packing import Packed, unpacked
from rota.store.ring import Bucket, Ring

_bytes_of = attrgetter("bytes")


class Objects:
    __slots__ = ("_ring_bytes_max", "_ring_events_max", "_rings_bytes_max", "buckets", "live", "origin")

    def __init__(self, ring_events_max: int, ring_bytes_max: int, rings_bytes_max: int) -> None:
        self.live: dict[str, Entry | Packed] = {}
        self.buckets: dict[str, Bucket] = {}
        # The history up to this revision is in no ring, not even of a bucket that has yet to appear.
        self.origin = 0
        self._ring_events_max = ring_events_max
        self._ring_bytes_max = ring_bytes_max
        self._rings_bytes_max = rings_bytes_max

    def bucket(self, key: str) -> Bucket:
        """Return the bucket of a key or prefix."""
        name = key[: key.index("/")]
        bucket = self.buckets.get(name)
        if bucket is None:
            bucket = self.buckets[name] = Bucket(Ring(self.origin, self._ring_events_max, self._ring_bytes_max))
        return bucket

    def trim(self, bucket: Bucket) -> bool:
        """Trim the history to its bounds after a bucket got events. Return whether events were dropped."""
        is_dropped = bucket.ring.trim()
        rings = [one.ring for one in self.buckets.values()]
        while sum(ring.bytes for ring in rings) > self._rings_bytes_max:
            # From the largest ring: its share is the largest, and what is left still reaches back.
            max(rings, key=_bytes_of).drop_share()
            is_dropped = True
        return is_dropped

    def under(self, prefix: str) -> Bucket:
        if not prefix.endswith("/") or prefix.count("/") > 2:
            raise ValueError(f"{prefix!r} is neither '<bucket>/' nor '<bucket>/<namespace>/'")
        return self.bucket(prefix)

    def count(self, prefix: str) -> int:
        index = self.under(prefix).index
        return index.size if prefix.count("/") == 1 else index.count(prefix, after_prefix(prefix))

    def page(self, prefix: str, after: str, limit: int, revision: int, bytes_max: int = 0) -> Page:
        """Return a page of the current state, which is at `revision`."""
        bucket = self.under(prefix)
        index = bucket.index
        low, high = _range(prefix, after)
        keys = index.keys(low, high, limit)
        live = self.live
        if bytes_max:
            entries = _bounded((unpacked(live[key]) for key in keys), bytes_max)
            remaining = index.count(low, high) - len(entries)
            return Page(entries, revision, remaining > 0, remaining)
        kept = [live[key] for key in keys]
        # Mostly nothing is packed, and then no entry needs to be checked.
        entries = [unpacked(one) for one in kept] if bucket.packer.used else cast("list[Entry]", kept)
        remaining = index.count(low, high) - len(keys) if limit and len(keys) == limit else 0
        return Page(entries, revision, remaining > 0, remaining)

    def past_page(self, prefix: str, after: str, limit: int, revision: int, bytes_max: int = 0) -> Page:
        """Return a page of the state at an earlier revision: the current one, with later changes undone."""
        bucket = self.under(prefix)
        if revision < bucket.ring.floor:
            raise Gone(revision, bucket.ring.floor)
        low, high = _range(prefix, after)
        past = bucket.ring.undo(revision, low, high)
        live = self.live
        since_deleted = sorted(key for key, entry in past.items() if entry is not None and key not in live)
        since_created = sum(entry is None and key in live for key, entry in past.items())
        total = bucket.index.count(low, high) + len(since_deleted) - since_created
        entries: list[Entry] = []
        size = 0
        for key in merge(bucket.index.iterate(low, high), since_deleted):
            entry = past[key] if key in past else unpacked(live[key])
            if entry is not None:
                entries.append(entry)
                size += len(entry.value)
                if len(entries) == limit or 0 < bytes_max <= size:
                    break
        remaining = total - len(entries)
        return Page(entries, revision, remaining > 0, remaining)


def _bounded(entries: Iterable[Entry], bytes_max: int) -> list[Entry]:
    """Return the first entries, until they have `bytes_max` bytes."""
    taken: list[Entry] = []
    size = 0
    for entry in entries:
        taken.append(entry)
        size += len(entry.value)
        if size >= bytes_max:
            break
    return taken


def after_prefix(prefix: str) -> str:
    """Return the first string after all that start with a prefix: "0" is the successor of "/"."""
    return prefix[:-1] + "0"


def _range(prefix: str, after: str) -> tuple[str, str]:
    high = after_prefix(prefix)
    return (min(max(prefix, after + "\0"), high) if after else prefix), high
