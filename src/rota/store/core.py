"""The store without its durability, which subclasses add.

A write goes through three states. *Accepted*: checked against the newest state, given its revision, and visible to the
checks of later writes. *Durable*: reported by the subclass, in the order of acceptance.
*Published*: visible to get, list and watch. Publishing never awaits, so a commit becomes visible as a whole.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from threading import get_ident

from rota.store.cooling import Cooling
from rota.store.delivery import Committed, Delivery, Group, Listener, Row
from rota.store.errors import (
    Conflict,
    FutureRevision,
    Gone,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreStopped,
    WatchClosed,
)
from rota.store.model import Entry, Event, Page, Write
from rota.store.objects import Objects
from rota.store.packing import Packed, unpacked
from rota.store.ring import RING_BYTES_MAX, RING_EVENTS_MAX, RINGS_BYTES_MAX, Bucket, growth, weight
from rota.store.watch import Watch, rouse

PENDING_WRITES_MAX = 20_000
PENDING_BYTES_MAX = 64 * 1024 * 1024
SCAN_PAGE_ENTRIES = 1_000
CLOSED = "the store was closed"

# `Store.list` hides the builtin from annotations in its class.
Rows = list[Row]


class Store(ABC):
    """A store of versioned bytes. The contract is in the package's docstring."""

    def __init__(
        self,
        *,
        ring_events_max: int = RING_EVENTS_MAX,
        ring_bytes_max: int = RING_BYTES_MAX,
        rings_bytes_max: int = RINGS_BYTES_MAX,
    ) -> None:
        self.revision = 0
        self.compacted = 0
        self._objects = Objects(ring_events_max, ring_bytes_max, rings_bytes_max)
        self._cooling = Cooling(self._objects)
        self._assigned = 0
        self._newest: dict[str, Event] = {}  # by key, the last write that is accepted and not published
        self._pending: deque[Group] = deque()
        self._pending_writes = 0
        self._pending_bytes = 0
        self._batch: list[Group] = []  # accepted in this iteration of the loop
        self._delivery = Delivery()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        # The reasons why writes are refused for good, and why the store has stopped; empty while neither is so.
        self._refusing = ""
        self._stopped = ""
        self.failing = ""
        """The reason why the disk takes no writes at present; empty while it does."""
        self.tight = ""
        """The reason why new objects are refused at present, to leave space for other writes; empty if they are not."""
        self._closed = False

    # Implemented by subclasses.

    @abstractmethod
    def _hand_over(self, groups: list[Group]) -> None:
        """Make groups durable, then call `_publish` with them, in order."""

    @abstractmethod
    async def read_log(self, prefix: str, after: int, upto: int) -> tuple[list[Event], int]:
        """Return events in (after, upto] that are no longer in memory, and the revision up to which they are complete.

        Raises `Gone` if the log does not go back that far either.
        """

    @abstractmethod
    async def compact(self, revision: int) -> None:
        """Remove the history before a revision."""

    @abstractmethod
    async def close(self) -> None:
        """Make accepted writes durable, end the watches and release the file. Reads from memory still work."""

    # Reading.

    def get(self, key: str) -> Entry | None:
        """Return the published state of a key; None if it does not exist."""
        entry = self._objects.live.get(key)
        return None if entry is None else unpacked(entry)

    def __contains__(self, key: str) -> bool:
        """Report whether a key exists, in the published state."""
        return key in self._objects.live

    def shared(self, key: str) -> str:
        """Return the store's own string for a key, so that users who keep many keys share the memory."""
        entry = self._objects.live.get(key)
        return key if entry is None else entry.key

    def head(self, key: str) -> Entry | None:
        """Return the newest state of a key, accepted writes included.

        Writers decide on it; a crash may still undo it.
        """
        before = self._current(key)
        return Entry(key, before.value, before.rev) if isinstance(before, Event) else before

    @property
    def accepted(self) -> int:
        """Return the revision of the newest accepted write, which `durable` can wait for."""
        return self._assigned

    def count(self, prefix: str) -> int:
        return self._objects.count(prefix)

    def list(self, prefix: str, *, after: str = "", limit: int = 0, revision: int = 0, bytes_max: int = 0) -> Page:
        """Return the entries under a prefix, in the order of their keys.

        Only those after the key `after`; at most `limit`, all if it is 0; as of `revision`, now if it is 0.
        With `bytes_max`, as many as have at most so many bytes together, but at least one.
        """
        if revision in (0, self.revision):
            return self._objects.page(prefix, after, limit, self.revision, bytes_max)
        self._check_kept(revision)
        return self._objects.past_page(prefix, after, limit, revision, bytes_max)

    def scan(self, prefix: str) -> Iterator[Entry]:
        """Yield all entries under a prefix, not all in memory at once. Nothing may be published meanwhile."""
        after, more = "", True
        while more:
            page = self.list(prefix, after=after, limit=SCAN_PAGE_ENTRIES)
            yield from page.entries
            more = page.more
            after = page.entries[-1].key if more else ""

    def watch(self, prefix: str, since: int) -> Watch:
        """Watch the events under a prefix with a revision above `since`."""
        bucket = self._objects.under(prefix)
        self._check_kept(since)
        return Watch(self, bucket, prefix, since)

    def _check_kept(self, revision: int) -> None:
        if revision > self.revision:
            raise FutureRevision(revision, self.revision)
        if revision < self.compacted:
            raise Gone(revision, self.compacted)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every event before its writer's commit resolves. Returns the function that ends it.

        For bookkeeping that must miss nothing: it must be quick and must not raise. Reads may return newer states
        than the delivered events; `deliver` delivers the rest.
        """
        self.deliver()
        listeners = self._delivery.listeners
        listeners.append(listener)
        return lambda: listeners.remove(listener)

    # Writing.

    def commit(self, writes: Sequence[Write]) -> Committed:
        """Write all or nothing. The future resolves to the new entries once they are durable and visible.

        It fails with `Conflict`, `StoreBusy`, `StoreFull` or `StoreStopped`. An exception of a `value` callable is
        raised from here, and nothing is accepted. Cancelling the future does not undo the write.
        """
        future: Committed = (self._loop or self.loop()).create_future()
        if (refused := self._refusal(writes)) is not None:
            future.set_exception(refused)
        elif not writes:
            future.set_result([])
        elif (key := self._conflicting(writes)) is not None:
            self._refuse(key, future)
        else:
            self._accept(writes, future)
        return future

    def accept(self, write: Write) -> Entry:
        """Accept one write without a future of its own: `when_durable` returns one.

        Raises at once what `commit` fails with. Call `when_durable` in the same iteration of the loop, once for any
        number of writes: revisions that do not become durable are assigned again.
        """
        return self.accept_together((write,))[0]

    def accept_together(self, writes: Sequence[Write]) -> Sequence[Entry]:
        """Accept several writes, all or none, as `accept` does with one."""
        if (refused := self._refusal(writes)) is not None:
            raise refused
        if (key := self._conflicting(writes)) is not None:
            raise Conflict(key, self.head(key))
        return [entry for _, entry, _ in self._accept(writes, None)]

    def _refusal(self, writes: Sequence[Write]) -> StoreError | None:
        """Return the error of any write at present; None if writes are taken."""
        if self._loop is None:
            self.loop()
        assert get_ident() == self._thread, "a store is used from the thread of its loop alone"
        if self._refusing:
            return StoreStopped(self._refusing)
        if self.failing:
            return StoreFull(self.failing)
        if self.tight and any(not write.delete and self._known(write.key) is None for write in writes):
            return StoreFull(self.tight)
        if self.is_full:
            return StoreBusy(f"{self._pending_writes} writes wait for the disk; await room() and try again")
        return None

    def _current(self, key: str) -> Entry | Event | None:
        """Return the newest state of a key, accepted writes included."""
        newest = self._known(key)
        return newest.entry() if isinstance(newest, Packed) else newest

    def _known(self, key: str) -> Entry | Packed | Event | None:
        event = self._newest.get(key)
        if event is None:
            return self._objects.live.get(key)
        return None if event.deleted else event

    def _conflicting(self, writes: Sequence[Write]) -> str | None:
        """Return the first key whose newest state is not the expected one; None if there is none."""
        rev = self._assigned
        left: dict[str, int] = {}  # where earlier writes of this same call leave a key
        for write in writes:
            rev += 1
            key = write.key
            if key in left:
                actual = left[key]
            else:
                before = self._known(key)
                actual = 0 if before is None else before.rev
            if write.expect is not None and write.expect != actual:
                return key
            if write.delete and not actual:
                return key
            left[key] = 0 if write.delete else rev
        return None

    def _refuse(self, key: str, future: Committed) -> None:
        """Fail a future with a conflict, once the conflicting write is durable."""
        conflict = Conflict(key, self.head(key))
        event = self._newest.get(key)
        if event is None:
            future.set_exception(conflict)
        else:
            self._delivery.wait(event.rev, future, conflict)

    def _accept(self, writes: Sequence[Write], future: Committed | None) -> Rows:
        first = rev = self._assigned
        own: dict[str, Event] = {}
        rows: Rows = []
        size = 0
        for write in writes:
            rev += 1
            key = write.key
            before = self._current(key)
            if key in own:
                before = None if own[key].deleted else own[key]
            value = write.value(rev)
            size += len(value)
            if before is not None:
                event = Event(rev, key, value, write.delete, before.value, before.rev)
            elif key.count("/") < 2:
                raise ValueError(f"{key!r} is not '<bucket>/<namespace>/<name>'")
            else:
                event = Event(rev, key, value, write.delete, None, 0)
            own[key] = event
            rows.append((event, Entry(key, value, rev), self._objects.bucket(key)))
        if self._assigned != first:
            raise RuntimeError("the value callable of a write must not write")
        self._assigned = rev
        self._newest.update(own)
        self._pending_writes += len(rows)
        self._pending_bytes += size
        group = Group(rows, size, future)
        self._pending.append(group)
        if not self._batch:
            # After this iteration of the loop, so that all its writes share one commit.
            self.loop().call_soon(self._flush)
        self._batch.append(group)
        return rows

    def _flush(self) -> None:
        groups, self._batch = self._batch, []
        if groups and not self._stopped:
            self._hand_over(groups)

    async def durable(self, rev: int) -> None:
        """Wait until everything up to a revision is durable and visible."""
        if rev > self._known_revision:
            await self.when_durable(rev)

    @property
    def _known_revision(self) -> int:
        """Return the revision up to which everything is visible and delivered to listeners."""
        return self._delivery.reached(self.revision)

    def when_durable(self, rev: int) -> asyncio.Future[None]:
        """Return a future that resolves when everything up to a revision is durable and visible."""
        done: asyncio.Future[None] = self.loop().create_future()
        if rev <= self._known_revision:
            done.set_result(None)
        elif self._stopped:
            done.set_exception(StoreStopped(self._stopped))
        elif rev > self._assigned:
            done.set_exception(FutureRevision(rev, self._assigned))
        else:
            self._delivery.wait(rev, done, None)
        return done

    async def room(self) -> None:
        """Wait until `commit` does not fail with `StoreBusy`."""
        while self.is_full and not self._stopped:
            freed: asyncio.Future[None] = self.loop().create_future()
            self._delivery.wait_for_room(freed)
            await freed

    @property
    def is_full(self) -> bool:
        """Report whether the bound on pending writes is reached."""
        return self._pending_writes >= PENDING_WRITES_MAX or self._pending_bytes >= PENDING_BYTES_MAX

    # Publishing.

    def _publish(self, groups: Sequence[Group]) -> None:
        live, newest = self._objects.live, self._newest
        touched: list[Bucket] = []
        for group in groups:
            published = self._pending.popleft()
            assert published is group, "groups are published in the order of their acceptance"
            for event, entry, bucket in group.rows:
                key = event.key
                if newest[key] is event:
                    del newest[key]
                if event.deleted:
                    del live[key]
                    bucket.index.remove(key)
                else:
                    live[key] = entry
                    if event.prev is None:
                        bucket.index.add(key)
                ring = bucket.ring
                if bucket.fresh < 0:
                    bucket.fresh = ring.end()
                    touched.append(bucket)
                ring.events.append(event)
                ring.bytes += weight(event)
                bucket.bytes += growth(event)
            self._pending_writes -= len(group.rows)
            self._pending_bytes -= group.size
        before, self.revision = self.revision, groups[-1].rows[-1][0].rev
        # Watches first: they are scheduled before the effects of listeners and before the writers.
        is_watched = False
        for bucket in touched:
            if bucket.armed:
                is_watched = True
                rouse(bucket)
            bucket.fresh = -1
            if self._objects.trim(bucket) and self._loop is not None:
                self._cooling.soon(self._loop)
        self._delivery.add(groups, before, self._loop, is_watched=is_watched)

    def deliver(self) -> None:
        """Deliver all published events to listeners, and then resolve the futures of their writers."""
        self._delivery.deliver()

    # Failures of the disk.

    def _stall(self, reason: str) -> None:
        """Fail the writes that are not durable, and every further one until `failing` is empty again."""
        self.failing = reason
        self._give_up(StoreFull(reason))

    def _give_up(self, error: StoreError) -> None:
        """Fail and forget the writes that are accepted and not published."""
        self.deliver()
        self._newest.clear()
        for group in self._pending:
            group.fail(error)
        self._pending.clear()
        self._batch = []
        self._pending_writes = self._pending_bytes = 0
        self._assigned = self.revision
        self._delivery.fail(error)

    # Stopping.

    def _end(self, reason: str, closed: bool) -> None:
        """Stop the store. Writes that are not durable fail; published state can still be read."""
        if self._stopped:
            return
        self._refusing = self._stopped = reason
        self._closed = closed
        self._cooling.stop()
        self._give_up(StoreStopped(reason))
        for bucket in self._objects.buckets.values():
            for watches in bucket.armed.values():
                for watch in watches:
                    watch.wake()

    def ended(self) -> StoreError | None:
        """Return the error with which watches end; None while the store runs."""
        if not self._stopped:
            return None
        return WatchClosed(self._stopped) if self._closed else StoreStopped(self._stopped)

    # The loop.

    def loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._bind(loop)
        return loop

    def _bind(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is not None:
            raise RuntimeError("a store belongs to the event loop that first used it")
        self._loop = loop
        self._thread = get_ident()
