"""What all stores share, which is everything but durability.

A write goes through three states. *Accepted*: checked against the newest state, given its revision, and laid over the
objects for later writes to be checked against. *Durable*: the kind of store says so, in the order of acceptance.
*Published*: seen by get, list and watch. Publishing never awaits, so whatever is published together is seen together.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from threading import get_ident
from typing import Any, NamedTuple

from msgspec import Struct

from rota.store.cooling import Cooling
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

TOLD_AT_ONCE_MAX = 256
"""Events that listeners are told of at once. Before more, whoever watches has its turn."""
PENDING_WRITES_MAX = 20_000
PENDING_BYTES_MAX = 64 * 1024 * 1024
SCAN_PAGE_ENTRIES = 1_000
CLOSED = "the store was closed"

# `Store.list` hides the builtin from annotations in its class.
Row = tuple[Event, Entry, Bucket]
Rows = list[Row]
Committed = asyncio.Future[list[Entry]]
Listener = Callable[[list[Event]], None]


class Group(Struct, gc=False, eq=False):
    """The writes of one `commit`, on their way to the disk and back."""

    rows: Rows
    size: int
    future: Committed | None
    """None: the writer waits for the revision instead, with `durable`."""


class News(NamedTuple):
    """Events that are published, and of which nobody but watches has been told."""

    events: list[Event]
    groups: Sequence[Group]
    """The groups of which these are the last."""


class Store(ABC):
    """The contract is in the package's docstring."""

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
        self._newest: dict[str, Event] = {}  # by key, what was accepted last and is not published
        self._pending: deque[Group] = deque()
        self._pending_writes = 0
        self._pending_bytes = 0
        self._turn: list[Group] = []  # accepted in this turn of the loop
        self._waiters: list[tuple[int, int, asyncio.Future[Any], Exception | None]] = []
        self._waiters_made = 0
        self._room: list[asyncio.Future[None]] = []
        self._listeners: list[Listener] = []
        self._untold: deque[News] = deque()
        self._is_telling = False
        self._told = 0
        """The revision up to which they are told."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        # Why no write is taken any more; then why nothing happens at all any more, and whether that was in good order.
        self._refusing = ""
        self._stopped = ""
        self.failing = ""
        """Why the disk takes no writes at present; empty: it does, as far as is known."""
        self.tight = ""
        """Why nothing new is taken at present, so that what is there can be changed and deleted; empty: it is."""
        self._closed = False

    # What a kind of store adds.

    @abstractmethod
    def _hand_over(self, groups: list[Group]) -> None:
        """Makes groups durable, then has `_publish` called with them, in order."""

    @abstractmethod
    async def read_log(self, prefix: str, after: int, upto: int) -> tuple[list[Event], int]:
        """Events in (after, upto], from further back than memory goes, and the revision up to which they are all.

        Raises `Gone` when the log does not go back that far either.
        """

    @abstractmethod
    async def compact(self, revision: int) -> None:
        """Forgets the history before a revision. Returns when that is done."""

    @abstractmethod
    async def close(self) -> None:
        """Makes durable what was accepted, ends the watches and lets go of the file. Reads from memory still work."""

    # Reading.

    def get(self, key: str) -> Entry | None:
        """The published state of a key."""
        entry = self._objects.live.get(key)
        return None if entry is None else unpacked(entry)

    def __contains__(self, key: str) -> bool:
        """Whether a key is there, as `get` would find it."""
        return key in self._objects.live

    def shared(self, key: str) -> str:
        """The same key, as the store has it: who keeps many of them has each text in memory once."""
        entry = self._objects.live.get(key)
        return key if entry is None else entry.key

    def head(self, key: str) -> Entry | None:
        """The newest state of a key, accepted writes included: what a writer decides on. A crash may still undo it."""
        before = self._before(key)
        return Entry(key, before.value, before.rev) if isinstance(before, Event) else before

    @property
    def accepted(self) -> int:
        """The revision of the newest accepted write, which `durable` can wait for."""
        return self._assigned

    def count(self, prefix: str) -> int:
        return self._objects.count(prefix)

    def list(self, prefix: str, *, after: str = "", limit: int = 0, revision: int = 0, bytes_max: int = 0) -> Page:
        """The entries under a prefix in the order of their keys.

        Only those after the key `after`; at most `limit` of them, all when it is 0; as of `revision`, now when it is 0.
        With `bytes_max` no more than have so many bytes together, but one at least.
        """
        if revision in (0, self.revision):
            return self._objects.page(prefix, after, limit, self.revision, bytes_max)
        self._check_kept(revision)
        return self._objects.past_page(prefix, after, limit, revision, bytes_max)

    def scan(self, prefix: str) -> Iterator[Entry]:
        """All entries under a prefix, as `list`, but not all in memory at once. Nothing may be published meanwhile."""
        after, more = "", True
        while more:
            page = self.list(prefix, after=after, limit=SCAN_PAGE_ENTRIES)
            yield from page.entries
            more = page.more
            after = page.entries[-1].key if more else ""

    def watch(self, prefix: str, since: int) -> Watch:
        """The events under a prefix with a revision above `since`."""
        bucket = self._objects.under(prefix)
        self._check_kept(since)
        return Watch(self, bucket, prefix, since)

    def _check_kept(self, revision: int) -> None:
        if revision > self.revision:
            raise FutureRevision(revision, self.revision)
        if revision < self.compacted:
            raise Gone(revision, self.compacted)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Have every event told, whoever wrote it, before its writer hears of it. Returns how to end that.

        For bookkeeping that must miss nothing: it must be quick and not raise. What is read here may be newer than what
        was told last; `tell` tells the rest.
        """
        self.tell()
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # Writing.

    def commit(self, writes: Sequence[Write]) -> Committed:
        """Writes all or nothing. The future resolves to the new entries once they are durable and visible.

        It fails with `Conflict`, `StoreBusy`, `StoreFull` or `StoreStopped`. What a `value` callable raises is raised
        from here, and nothing is accepted. Cancelling the future does not take the write back.
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
        """Take one write without a future of its own: it is durable and visible when `when_durable` of it resolves.

        Raises at once what `commit` fails with. Ask for `when_durable` in the same turn of the loop, once for any
        number of writes: a revision that was not made durable is given again.
        """
        return self.accept_together((write,))[0]

    def accept_together(self, writes: Sequence[Write]) -> Sequence[Entry]:
        """Take several writes as `accept` takes one: all or none of them."""
        if (refused := self._refusal(writes)) is not None:
            raise refused
        if (key := self._conflicting(writes)) is not None:
            raise Conflict(key, self.head(key))
        return [entry for _, entry, _ in self._accept(writes, None)]

    def _refusal(self, writes: Sequence[Write]) -> StoreError | None:
        """Return why nothing can be written now, whatever it is."""
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

    def _before(self, key: str) -> Entry | Event | None:
        """The newest state of a key, accepted writes included."""
        newest = self._known(key)
        return newest.entry() if isinstance(newest, Packed) else newest

    def _known(self, key: str) -> Entry | Packed | Event | None:
        event = self._newest.get(key)
        if event is None:
            return self._objects.live.get(key)
        return None if event.deleted else event

    def _conflicting(self, writes: Sequence[Write]) -> str | None:
        """The first key whose newest state is not what its write expects."""
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
        """Answers with a conflict, once a crash can no longer undo what it conflicts with."""
        conflict = Conflict(key, self.head(key))
        event = self._newest.get(key)
        if event is None:
            future.set_exception(conflict)
        else:
            self._wait(event.rev, future, conflict)

    def _accept(self, writes: Sequence[Write], future: Committed | None) -> Rows:
        first = rev = self._assigned
        own: dict[str, Event] = {}
        rows: Rows = []
        size = 0
        for write in writes:
            rev += 1
            key = write.key
            before = self._before(key)
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
        if not self._turn:
            # After this turn of the loop, so that all who write in it share one commit.
            self.loop().call_soon(self._flush)
        self._turn.append(group)
        return rows

    def _flush(self) -> None:
        groups, self._turn = self._turn, []
        if groups and not self._stopped:
            self._hand_over(groups)

    async def durable(self, rev: int) -> None:
        """Returns when everything up to a revision is durable and visible."""
        if rev > self._known_revision:
            await self.when_durable(rev)

    @property
    def _known_revision(self) -> int:
        """The revision up to which everything is visible, and listeners are told."""
        return self._told if self._untold else self.revision

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
            self._wait(rev, done, None)
        return done

    async def room(self) -> None:
        """Returns when `commit` would not answer `StoreBusy`."""
        while self.is_full and not self._stopped:
            freed: asyncio.Future[None] = self.loop().create_future()
            self._room.append(freed)
            await freed

    @property
    def is_full(self) -> bool:
        """Whether as much waits for the disk as may."""
        return self._pending_writes >= PENDING_WRITES_MAX or self._pending_bytes >= PENDING_BYTES_MAX

    def _wait(self, rev: int, future: asyncio.Future[Any], error: Exception | None) -> None:
        """Resolves a future, to None or to an error, when a revision is published."""
        self._waiters_made += 1
        heappush(self._waiters, (rev, self._waiters_made, future, error))

    # Becoming visible.

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
        if not self._untold:
            self._told = self.revision
        self.revision = groups[-1].rows[-1][0].rev
        # Watchers first: whatever listeners set off, and when a writer hears that its write is done, whoever watches is
        # already on its way.
        is_watched = False
        for bucket in touched:
            if bucket.armed:
                is_watched = True
                rouse(bucket)
            bucket.fresh = -1
            if self._objects.trim(bucket) and self._loop is not None:
                self._cooling.soon(self._loop)
        events = [row[0] for group in groups for row in group.rows]
        if self._loop is None or (not self._untold and (len(events) <= TOLD_AT_ONCE_MAX or not is_watched)):
            self._untold.append(News(events, groups))
            self.tell()
            return
        # To tell of many takes long: those who watch have their turn before that, and others in between.
        last = (len(events) - 1) // TOLD_AT_ONCE_MAX
        for part in range(last + 1):
            some = events[part * TOLD_AT_ONCE_MAX : (part + 1) * TOLD_AT_ONCE_MAX]
            self._untold.append(News(some, groups if part == last else ()))
        if not self._is_telling:
            self._is_telling = True
            # What they are sent goes out at the end of the turn of the loop in which they are roused.
            self._loop.call_soon(self._loop.call_soon, self._tell_some)

    def tell(self) -> None:
        """Tell listeners, and then writers, of all that is published."""
        while self._untold:
            self._tell_next()

    def _tell_some(self) -> None:
        assert self._loop is not None
        if self._untold:
            self._tell_next()
        self._is_telling = bool(self._untold)
        if self._is_telling:
            self._loop.call_soon(self._tell_some)

    def _tell_next(self) -> None:
        news = self._untold.popleft()
        for listener in self._listeners:
            listener(news.events)
        self._told = news.events[-1].rev
        for group in news.groups:
            if group.future is not None and not group.future.done():
                group.future.set_result([row[1] for row in group.rows])
        while self._waiters and self._waiters[0][0] <= self._told:
            _, _, future, error = heappop(self._waiters)
            _resolve(future, error)
        if self._room:
            self._release_room()

    def _release_room(self) -> None:
        for freed in self._room:
            _resolve(freed, None)
        self._room.clear()

    # What cannot be made durable.

    def _stall(self, reason: str) -> None:
        """What was accepted and is not durable fails, and so does every write until `failing` is empty again."""
        self.failing = reason
        self._give_up(StoreFull(reason))

    def _give_up(self, error: StoreError) -> None:
        """Forget what was accepted and is not published, as if it had never been asked for."""
        self.tell()
        self._newest.clear()
        for group in self._pending:
            if group.future is not None and not group.future.done():
                group.future.set_exception(error)
        self._pending.clear()
        self._turn = []
        self._pending_writes = self._pending_bytes = 0
        self._assigned = self.revision
        for _, _, future, _ in self._waiters:
            _resolve(future, error)
        self._waiters.clear()
        self._release_room()

    # The end.

    def _end(self, reason: str, closed: bool) -> None:
        """Nothing happens from here on. What was accepted and is not durable fails; what is published can be read."""
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
        """How a watch that has seen everything ends; None while the store runs."""
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


def _resolve(future: asyncio.Future[Any], error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
