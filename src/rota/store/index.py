"""The sorted keys of one bucket. Sorting is left to the readers.

A write adds to a set, whatever the size of the bucket. A listing first applies the additions and removals since the
last one: few of them key by key into chunks of bounded size, many by one merge of everything.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import chain

CHUNK_KEYS = 1000
# Applying one key costs about eight times as much as one key in a merge of everything.
REBUILD_SHARE = 8


class KeyIndex:
    __slots__ = ("_added", "_chunks", "_lasts", "_removed", "size")

    def __init__(self) -> None:
        self.size = 0
        self._added: set[str] = set()
        self._removed: set[str] = set()
        self._chunks: list[list[str]] = []
        # At or above the last key of the chunk and below the first of the next. Removals do not change it.
        self._lasts: list[str] = []

    def add(self, key: str) -> None:
        self.size += 1
        if key in self._removed:
            self._removed.remove(key)
        else:
            self._added.add(key)

    def remove(self, key: str) -> None:
        self.size -= 1
        if key in self._added:
            self._added.remove(key)
        else:
            self._removed.add(key)

    def count(self, low: str, high: str) -> int:
        """Return the number of keys in [low, high)."""
        self._apply_changes()
        return self._rank(high) - self._rank(low)

    def keys(self, low: str, high: str, limit: int) -> list[str]:
        """Return the first `limit` keys of [low, high), all if it is 0."""
        self._apply_changes()
        found: list[str] = []
        for at in range(bisect_left(self._lasts, low), len(self._chunks)):
            chunk = self._chunks[at]
            start = bisect_left(chunk, low) if chunk[0] < low else 0
            stop = bisect_left(chunk, high) if chunk[-1] >= high else len(chunk)
            if limit:
                stop = min(stop, start + limit - len(found))
            found += chunk[start:stop]
            if stop < len(chunk):
                break
        return found

    def iterate(self, low: str, high: str) -> Iterator[str]:
        """Yield the keys of [low, high). The index must not change meanwhile."""
        self._apply_changes()
        for at in range(bisect_left(self._lasts, low), len(self._chunks)):
            chunk = self._chunks[at]
            for position in range(bisect_left(chunk, low), len(chunk)):
                if chunk[position] >= high:
                    return
                yield chunk[position]

    def _rank(self, key: str) -> int:
        at = bisect_left(self._lasts, key)
        before = sum(map(len, self._chunks[:at]))
        return before + bisect_left(self._chunks[at], key) if at < len(self._chunks) else before

    def _apply_changes(self) -> None:
        changed = len(self._added) + len(self._removed)
        if not changed:
            return
        if changed > CHUNK_KEYS and changed * REBUILD_SHARE > self.size:
            self._rebuild()
        else:
            for key in self._removed:
                self._drop(key)
            for key in self._added:
                self._insert(key)
        self._added = set()
        self._removed = set()

    def _rebuild(self) -> None:
        removed = self._removed
        keys = [key for key in chain.from_iterable(self._chunks) if key not in removed]
        keys += sorted(self._added)
        keys.sort()
        self._chunks = [keys[start : start + CHUNK_KEYS] for start in range(0, len(keys), CHUNK_KEYS)]
        self._lasts = [chunk[-1] for chunk in self._chunks]

    def _drop(self, key: str) -> None:
        at = bisect_left(self._lasts, key)
        chunk = self._chunks[at]
        position = bisect_left(chunk, key)
        assert chunk[position] == key, key
        del chunk[position]
        if not chunk:
            del self._chunks[at]
            del self._lasts[at]

    def _insert(self, key: str) -> None:
        at = bisect_left(self._lasts, key)
        if at == len(self._chunks):
            if not self._chunks:
                self._chunks.append([key])
                self._lasts.append(key)
                return
            at -= 1
            self._lasts[at] = key
        chunk = self._chunks[at]
        insort(chunk, key)
        if len(chunk) > 2 * CHUNK_KEYS:
            self._chunks.insert(at + 1, chunk[CHUNK_KEYS:])
            del chunk[CHUNK_KEYS:]
            self._lasts.insert(at, chunk[-1])
