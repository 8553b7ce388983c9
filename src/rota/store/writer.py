"""The writer thread: writes that were accepted while the last commit ran go into the next one. There is no timer.

It owns the connection. It schedules one callback per commit on the loop; besides the inbox nothing else crosses the
threads. When the disk is full or fails, pending writes fail, and nothing is written until a write without effect
succeeds. After any other error the state of the disk is unknown: the thread reports it and
stops.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

from msgspec import Struct

from rota.room import keep_room
from rota.store import sql
from rota.store.compaction import Policy
from rota.store.delivery import Group
from rota.store.file import beside
from rota.store.model import Event

COMMIT_ROWS_MAX = 2048
COMMIT_BYTES_MAX = 8 * 1024 * 1024
COMPACT_STEP_REVISIONS = 512
LOG_ROOM_BYTES = 8 * 1024 * 1024
"""Disk space reserved for the write-ahead log, so that commits find space on a full disk."""
ROOM_BYTES = 4 * 1024 * 1024
"""Free space kept inside the file for checkpoints of the log. It is refilled when half of it is used."""
ROOM_SECONDS = 10.0
RELIEF_STEP_REVISIONS = 64
"""Revisions compacted in one step while the disk is full: as many as fit into the log."""

Append = Callable[[sqlite3.Connection, Sequence[Event]], None]


class Stop:
    """A message: commit everything received before, then end."""


class CompactTo:
    """A message: compact up to a revision, in steps, between commits."""

    def __init__(self, revision: int) -> None:
        self.revision = revision


class Batch(Struct):
    """A message: groups to commit. They fail if a commit fails before they are taken."""

    groups: list[Group]
    epoch: int
    """The number of failures known when the groups were accepted."""


class Probe:
    """A message: check whether the disk takes writes again."""


Message = Batch | CompactTo | Probe | Stop


class Writer:
    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path,
        policy: Policy,
        append: Append,
        *,
        compacted: int,
        published: Callable[[list[Group]], None],
        moved: Callable[[int], None],
        stalled: Callable[[BaseException], None],
        resumed: Callable[[], None],
        tight: Callable[[bool], None],
        ended: Callable[[BaseException | None], None],
        relieve: Callable[[], bool],
    ) -> None:
        """`relieve`: free some disk space. Called in the thread before a failed commit is retried.

        It returns whether there is more space now.
        """
        self._connection = connection
        self._policy = policy
        self._append = append
        self._compacted = compacted
        self._target = compacted
        self._published = published
        self._moved = moved
        self._stalled = stalled
        self._resumed = resumed
        self._tight = tight
        self._ended = ended
        self._relieve = relieve
        self._epoch = 0
        self._log_path = beside(path, "-wal")
        self._room_due = float("-inf")
        self._is_stalled = self._is_tight = self._has_room = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._inbox: SimpleQueue[Message] = SimpleQueue()
        self._waiting: list[Group] = []  # taken from the inbox, too many for one commit
        self._stopping = False
        # A process that ends without closing its store loses nothing: it is a crash, which the file survives.
        self._thread = Thread(target=self._run, name="rota-store-writer", daemon=True)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread.start()

    def send(self, message: Message) -> None:
        self._inbox.put(message)

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            while not (self._stopping and not self._waiting):
                self._step()
        except BaseException as error:
            failure = error
        try:
            # Also rolls back an open transaction. After a failure this may fail too, which adds no information.
            self._connection.close()
        except sqlite3.Error as error:
            failure = failure or error
        self._notify(self._ended, failure)

    def _step(self) -> None:
        """Do one commit, one step of compaction, or both."""
        groups = self._take()
        try:
            if groups:
                events = [row[0] for group in groups for row in group.rows]
                self._commit(events)
                self._policy.note(events[-1].rev, sum((event.prev is not None) + event.deleted for event in events))
                self._target = max(self._target, self._policy.target())
                self._notify(self._published, groups)
                self._keep_room()
                self._save_space()
            if self._target > self._compacted and not self._stopping and not self._is_stalled:
                self._compact()
        except sqlite3.Error as error:
            if not sql.is_of_the_disk(error):
                raise
            self._stall(error)

    def _commit(self, events: Sequence[Event]) -> None:
        """Commit events. If it returns, all are on the disk; if it raises a disk error, none is."""
        try:
            self._append(self._connection, events)
        except sqlite3.Error as error:
            sql.roll_back(self._connection)
            if not sql.is_of_the_disk(error):
                raise
            if self._is_there(events):
                return
            if not self._relieve():
                raise
            try:
                self._append(self._connection, events)
            except sqlite3.Error:
                sql.roll_back(self._connection)
                raise

    def _save_space(self) -> None:
        """While the disk is full, compact the history before the file must grow, and then refuse new objects.

        The space of the history stays inside the file, where other programs cannot take it. Not after a failed commit:
        then the log is full, which compaction needs too, and cannot be checkpointed into a file that must grow.
        """
        is_tight = False
        if self._is_short() and sql.free_bytes(self._connection) < ROOM_BYTES // 2:
            last = sql.last_revision(self._connection)
            while self._compacted < last:
                self._compact_to(min(last, self._compacted + RELIEF_STEP_REVISIONS))
            is_tight = self._has_room and sql.free_bytes(self._connection) < ROOM_BYTES // 4
        if is_tight or self._is_tight:
            self._is_tight = is_tight
            self._notify(self._tight, is_tight)

    def _is_short(self) -> bool:
        try:
            found = os.statvfs(self._log_path.parent)
        except OSError:
            return False
        return found.f_bavail * found.f_frsize < ROOM_BYTES + LOG_ROOM_BYTES

    def _keep_room(self) -> None:
        """Refill the reserved space now and then: SQLite may have recreated the log, and the file fills up."""
        now = time.monotonic()
        if now < self._room_due:
            return
        is_first, self._room_due = self._room_due < 0, now + ROOM_SECONDS
        # SQLite does not lock this file: another descriptor of it does no harm.
        keep_room(self._log_path, LOG_ROOM_BYTES)
        # Not during the start; nor when it is too late and would fill the log.
        if is_first or sql.free_bytes(self._connection) >= ROOM_BYTES // 2 or self._is_short():
            return
        try:
            sql.make_free(self._connection, ROOM_BYTES)
            self._has_room = True
        except sqlite3.Error as error:
            sql.roll_back(self._connection)
            if not sql.is_of_the_disk(error):
                raise

    def _is_there(self, events: Sequence[Event]) -> bool:
        """Report whether a commit that raised an error was made nevertheless."""
        last = sql.last_revision(self._connection)
        assert last in (events[-1].rev, events[0].rev - 1), "a commit is there whole, or not at all"
        return last == events[-1].rev

    def _compact(self) -> None:
        self._compact_to(min(self._target, self._compacted + COMPACT_STEP_REVISIONS))

    def _compact_to(self, upto: int) -> None:
        try:
            sql.compact(self._connection, self._compacted, upto)
        except sqlite3.Error:
            sql.roll_back(self._connection)
            raise
        self._compacted = upto
        self._policy.compacted(upto)
        self._notify(self._moved, upto)

    def _stall(self, error: sqlite3.Error) -> None:
        self._waiting.clear()
        self._epoch += 1
        self._is_stalled = True
        self._notify(self._stalled, error)

    def _probe(self) -> None:
        try:
            sql.try_to_write(self._connection)
        except sqlite3.Error as error:
            sql.roll_back(self._connection)
            if not sql.is_of_the_disk(error):
                raise
            self._relieve()
            self._notify(self._stalled, error)
        else:
            self._is_stalled = False
            self._notify(self._resumed)
            try:
                self._save_space()
            except sqlite3.Error as error:
                if not sql.is_of_the_disk(error):
                    raise
                self._stall(error)

    def _take(self) -> list[Group]:
        """Return the groups of the next commit. Waits for some unless there is other work."""
        idle = not self._waiting and (self._is_stalled or self._target <= self._compacted)
        try:
            self._receive(self._inbox.get(block=idle))
            while True:
                self._receive(self._inbox.get_nowait())
        except Empty:
            pass
        rows = size = count = 0
        for group in self._waiting:
            rows += len(group.rows)
            size += group.size
            if count and (rows > COMMIT_ROWS_MAX or size > COMMIT_BYTES_MAX):
                break
            count += 1
        taken = self._waiting[:count]
        del self._waiting[:count]
        return taken

    def _receive(self, message: Message) -> None:
        if isinstance(message, Batch):
            # Groups accepted on top of a failed commit fail with it.
            self._waiting += message.groups if message.epoch == self._epoch else ()
        elif isinstance(message, Probe):
            self._probe()
        elif isinstance(message, CompactTo):
            self._target = max(self._target, message.revision)
        else:
            self._stopping = True

    def _notify(self, callback: Callable[..., None], *arguments: object) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            # The loop was closed without closing the store.
            self._stopping = True
