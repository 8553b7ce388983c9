"""The delivery of published events: to listeners, and then to the writers that wait for them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

from msgspec import Struct

from rota.store.errors import StoreError
from rota.store.model import Entry, Event
from rota.store.ring import Bucket

DELIVERED_AT_ONCE_MAX = 256
"""Bound on the events that are delivered to listeners at once. Watches run before the next ones are delivered."""

Row = tuple[Event, Entry, Bucket]
Committed = asyncio.Future[list[Entry]]
Listener = Callable[[list[Event]], None]


class Group(Struct, gc=False, eq=False):
    """The writes of one `commit`, until they are published."""

    rows: list[Row]
    size: int
    future: Committed | None
    """The future of the writer; None if the writer waits with `when_durable`."""

    def fail(self, error: StoreError) -> None:
        if self.future is not None and not self.future.done():
            self.future.set_exception(error)


class Publication(NamedTuple):
    """Published events that are not delivered to listeners yet."""

    events: list[Event]
    groups: Sequence[Group]
    """The groups that end with these events."""


class Delivery:
    """The listeners of a store, the events that they do not have yet, and the futures of writers."""

    __slots__ = ("_delivered", "_is_scheduled", "_room", "_undelivered", "_waiters", "_waiters_made", "listeners")

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self._undelivered: deque[Publication] = deque()
        self._is_scheduled = False
        self._delivered = 0
        """The revision up to which events are delivered to listeners."""
        self._waiters: list[tuple[int, int, asyncio.Future[Any], Exception | None]] = []
        self._waiters_made = 0
        self._room: list[asyncio.Future[None]] = []

    def reached(self, revision: int) -> int:
        """Return the revision up to which everything is delivered, given the published one."""
        return self._delivered if self._undelivered else revision

    def wait(self, revision: int, future: asyncio.Future[Any], error: Exception | None) -> None:
        """Resolve a future, to None or to an error, when a revision is delivered."""
        self._waiters_made += 1
        heappush(self._waiters, (revision, self._waiters_made, future, error))

    def wait_for_room(self, future: asyncio.Future[None]) -> None:
        """Resolve a future when pending writes have been published, or have failed."""
        self._room.append(future)

    def add(
        self,
        groups: Sequence[Group],
        before: int,
        loop: asyncio.AbstractEventLoop | None,
        *,
        is_watched: bool,
    ) -> None:
        """Deliver published groups: at once, or in parts if watches wait for many events.

        `before` is the revision before them.
        """
        if not self._undelivered:
            self._delivered = before
        events = [row[0] for group in groups for row in group.rows]
        if loop is None or (not self._undelivered and (len(events) <= DELIVERED_AT_ONCE_MAX or not is_watched)):
            self._undelivered.append(Publication(events, groups))
            self.deliver()
            return
        # Delivering many events takes long: watches run before it, and other work in between.
        last = (len(events) - 1) // DELIVERED_AT_ONCE_MAX
        for part in range(last + 1):
            some = events[part * DELIVERED_AT_ONCE_MAX : (part + 1) * DELIVERED_AT_ONCE_MAX]
            self._undelivered.append(Publication(some, groups if part == last else ()))
        if not self._is_scheduled:
            self._is_scheduled = True
            # Watches send at the end of the iteration of the loop in which they are woken.
            loop.call_soon(loop.call_soon, self._deliver_some, loop)

    def deliver(self) -> None:
        """Deliver everything."""
        while self._undelivered:
            self._deliver_next()

    def _deliver_some(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._undelivered:
            self._deliver_next()
        self._is_scheduled = bool(self._undelivered)
        if self._is_scheduled:
            loop.call_soon(self._deliver_some, loop)

    def _deliver_next(self) -> None:
        publication = self._undelivered.popleft()
        for listener in self.listeners:
            listener(publication.events)
        self._delivered = publication.events[-1].rev
        for group in publication.groups:
            if group.future is not None and not group.future.done():
                group.future.set_result([row[1] for row in group.rows])
        while self._waiters and self._waiters[0][0] <= self._delivered:
            _, _, future, error = heappop(self._waiters)
            _resolve(future, error)
        if self._room:
            self._release_room()

    def fail(self, error: StoreError) -> None:
        """Fail the futures that wait for revisions, and release those that wait for room."""
        for _, _, future, _ in self._waiters:
            _resolve(future, error)
        self._waiters.clear()
        self._release_room()

    def _release_room(self) -> None:
        for future in self._room:
            _resolve(future, None)
        self._room.clear()


def _resolve(future: asyncio.Future[Any], error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
