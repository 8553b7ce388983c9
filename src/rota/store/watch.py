"""A watch: one cursor into the events of a prefix.

A watch has no queue. It is either *armed*, which means that it has no unread events, or it has the number in the
ring of its first unread event. A publication disarms the armed watches that it concerns, each once,
however many events it has. A slow watch falls behind in the ring, then reads the log, then is `Gone`; it
delays nobody else.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING

from rota.store.errors import WatchClosed
from rota.store.model import Event
from rota.store.ring import Bucket

if TYPE_CHECKING:
    from rota.store.core import Store

WATCH_BATCH_EVENTS_MAX = 1000
WATCH_BATCH_BYTES_MAX = 1024 * 1024
"""Bounds on one batch, except that it has at least one event. A slow reader holds no more memory than that."""


class Watch:
    """A watch, made by `Store.watch`. One reader at a time; close it when done, or use it in a `with`."""

    __slots__ = ("_armed", "_bucket", "_closed", "_cursor", "_position", "_prefix", "_store", "_waiter", "_whole")

    def __init__(self, store: Store, bucket: Bucket, prefix: str, since: int) -> None:
        self._store = store
        self._bucket = bucket
        self._prefix = prefix
        self._whole = prefix.count("/") == 1
        self._position = since
        self._cursor = bucket.ring.seek(since)
        self._armed = False
        self._closed = False
        self._waiter: asyncio.Future[None] | None = None
        if self._cursor == bucket.ring.end():
            self._arm()

    @property
    def position(self) -> int:
        """Return the revision up to which every matching event has been returned.

        It also advances while nothing matches.
        """
        return self._store.revision if self._armed else self._position

    async def next(self) -> list[Event]:
        """Wait for the next events, at least one, and return them in order. Cancelling the wait loses nothing.

        Raises `Gone` if the next events are compacted, `WatchClosed` if the watch or its store was closed, and
        `StoreStopped` if the store failed; the latter two only after everything that was published before.
        """
        assert self._waiter is None, "one reader at a time"
        while True:
            if self._closed:
                raise WatchClosed("the watch was closed")
            if not self._armed:
                batch = self._advance() if self._cursor >= self._bucket.ring.base else await self._read_back()
                if batch:
                    return batch
            elif ended := self._store.ended():
                raise ended
            else:
                self._waiter = self._store.loop().create_future()
                try:
                    await self._waiter
                finally:
                    self._waiter = None

    def close(self) -> None:
        """End the watch. A reader that waits in `next` gets `WatchClosed`."""
        if self._armed:
            watches = self._bucket.armed[self._prefix]
            del watches[self]
            if not watches:
                del self._bucket.armed[self._prefix]
            self._armed = False
        self._position = self.position
        self._closed = True
        self.wake()

    def rouse(self, cursor: int, event: Event) -> None:
        """Disarm the watch: `event`, at `cursor` in the ring, is its first unread one."""
        self._armed = False
        self._cursor = cursor
        self._position = event.rev - 1
        self.wake()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _arm(self) -> None:
        self._bucket.armed.setdefault(self._prefix, {})[self] = None
        self._armed = True

    def _advance(self) -> list[Event]:
        """Take a batch from the ring. Nothing awaits between moving the cursor and returning, so nothing gets lost."""
        ring = self._bucket.ring
        start = self._cursor - ring.base
        if self._whole:
            batch = ring.events[start : start + WATCH_BATCH_EVENTS_MAX]
            if len(batch) > 1:
                batch = _bounded(batch)
            stop = start + len(batch)
        else:
            batch = []
            stop, size = start, 0
            for event in ring.events[start:] if start else ring.events:
                stop += 1
                if event.key.startswith(self._prefix):
                    batch.append(event)
                    size += len(event.value)
                    if len(batch) == WATCH_BATCH_EVENTS_MAX or size > WATCH_BATCH_BYTES_MAX:
                        break
        if stop == len(ring.events):
            self._arm()
        else:
            self._cursor = ring.base + stop
            self._position = ring.events[stop - 1].rev
        return batch

    async def _read_back(self) -> list[Event]:
        """Take a page from the log, up to the start of the ring. `reached` may be past the last matching event."""
        ring = self._bucket.ring
        batch, reached = await self._store.read_log(self._prefix, self._position, ring.floor)
        self._position = reached
        self._cursor = ring.seek(reached)
        return batch

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> list[Event]:
        try:
            return await self.next()
        except WatchClosed:
            raise StopAsyncIteration from None

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _bounded(batch: list[Event]) -> list[Event]:
    size = 0
    for count, event in enumerate(batch, 1):
        size += len(event.value)
        if size > WATCH_BATCH_BYTES_MAX:
            return batch[:count]
    return batch


def rouse(bucket: Bucket) -> None:
    """Disarm the watches that match events of a bucket from `fresh` on."""
    ring, armed = bucket.ring, bucket.armed
    prefix = ""
    for number, event in enumerate(ring.events[bucket.fresh - ring.base :], bucket.fresh):
        key = event.key
        if prefix and key.startswith(prefix):
            continue  # The watches of this namespace were disarmed by an earlier event.
        namespace = key.index("/") + 1
        prefix = key[: key.index("/", namespace) + 1]
        for one in (key[:namespace], prefix):
            for watch in armed.pop(one, ()):
                watch.rouse(number, event)
        if not armed:
            return
