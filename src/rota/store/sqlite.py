"""The store on disk: the core, a writer thread, and a reader thread for watches that resume from old revisions."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

from rota.store import sql
from rota.store.compaction import KEEP_SECONDS, SUPERSEDED_ROWS_MAX, Policy
from rota.store.core import CLOSED, Store
from rota.store.delivery import Group
from rota.store.errors import Gone, StoreCorrupt, StoreError, StoreStopped
from rota.store.file import (
    FileLock,
    beside,
    create_private,
    loading,
    open_file,
    reading,
    rows,
    sync_directory,
    sync_file,
)
from rota.store.model import Entry, Event
from rota.store.objects import after_prefix
from rota.store.packing import unpacked
from rota.store.ring import RING_BYTES_MAX, RING_EVENTS_MAX, RINGS_BYTES_MAX, weight
from rota.store.sealing import Sealer, prepare
from rota.store.writer import Append, Batch, CompactTo, Probe, Stop, Writer

PROBE_SECONDS = 1.0
"""Seconds between probes of a disk that takes no writes."""
TIGHT = (
    "{}: the disk takes no writes of anything new: the space that is left is for changing and deleting what is there. "
    "Free some space: all writes are taken again as soon as there is some"
)
LOADED_REVISIONS = 1024
"""Bound on the revisions of history in memory after a start."""
LOG_PAGE_EVENTS_MAX = 1000
LOG_PAGE_BYTES_MAX = 4 * 1024 * 1024
# Bound on the revisions that one page reads, matching or not.
LOG_PAGE_REVISIONS = 8192


class SqliteStore(Store):
    """A store in an SQLite file. Opens it at once, or raises `StoreHeld`, `StoreCorrupt` or `StoreVersion`.

    `append` writes a commit; tests inject failures there.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        keep_seconds: float = KEEP_SECONDS,
        superseded_rows_max: int = SUPERSEDED_ROWS_MAX,
        ring_events_max: int = RING_EVENTS_MAX,
        ring_bytes_max: int = RING_BYTES_MAX,
        rings_bytes_max: int = RINGS_BYTES_MAX,
        clock: Callable[[], float] = time.monotonic,
        append: Append = sql.append,
        relieve: Callable[[], bool] = lambda: False,
        sealer: Sealer | None = None,
    ) -> None:
        """`relieve`: free some disk space; called in the writer thread when the disk is full.

        `sealer`: the encryption of Secrets. Raises `WrongKey` if the file has another key.
        """
        self._sealer = sealer
        super().__init__(
            ring_events_max=ring_events_max, ring_bytes_max=ring_bytes_max, rings_bytes_max=rings_bytes_max
        )
        # The real path, so that every path of the file leads to the same lock.
        self.path = Path(path).resolve()
        self._lock = FileLock(self.path)
        policy = Policy(keep_seconds, superseded_rows_max, clock)
        try:
            connection = open_file(self.path)
            try:
                with reading(self.path):
                    prepare(connection, self.path, sealer)
                with loading(self.path):
                    self._load(connection, policy)
            except BaseException:
                connection.close()
                raise
        except BaseException:
            self._lock.release()
            raise
        self._reader: sqlite3.Connection | None = None
        self._reader_thread = ThreadPoolExecutor(1, "rota-store-reader")
        self._compactions: list[tuple[int, asyncio.Future[None]]] = []
        self._writer_ended: asyncio.Future[None] | None = None
        self._epoch = 0
        self._connection = connection
        self._writer = Writer(
            connection,
            self.path,
            policy,
            append if sealer is None else partial(_append_sealed, append, sealer),
            compacted=self.compacted,
            published=self._publish,
            moved=self._compaction_moved,
            stalled=self._writer_stalled,
            resumed=self._writer_resumed,
            tight=self._writer_tight,
            ended=self._writer_gone,
            relieve=relieve,
        )

    def _load(self, connection: sqlite3.Connection, policy: Policy) -> None:
        """Load the objects into memory, and the newest history into the rings.

        Watches read older history from the log.
        """
        self.compacted = sql.compacted(connection)
        recent = self._objects.origin = max(self.compacted, sql.last_revision(connection) - LOADED_REVISIONS)
        # Superseded values are not kept, not even for a moment, unless an event has them: they may be many.
        superseded = sql.superseded(connection, self.compacted)
        in_events = sql.superseded(connection, recent)
        live = self._objects.live
        rev = 0
        for rev, key, prev, deleted, _, stored in rows(connection, self.path):
            value = stored if self._sealer is None else self._sealer.open(key, rev, stored)
            bucket = self._objects.bucket(key)
            before = live.get(key)
            if rev > recent:
                then = unpacked(before).value if before is not None else None
                event = Event(rev, key, value, bool(deleted), then, prev)
                bucket.ring.events.append(event)
                bucket.ring.bytes += weight(event)
                self._objects.trim(bucket)
            if deleted:
                del live[key]
                bucket.index.remove(key)
            elif before is None:
                bucket.index.add(key)
            if rev in superseded:
                live[key] = Entry(key, value if rev in in_events else b"", rev)
            elif not deleted:
                bucket.bytes += len(value)
                entry = Entry(key, value, rev)
                live[key] = bucket.packer.pack(entry) if bucket.packs() else entry
            if rev > self.compacted:
                policy.note(rev, (before is not None) + deleted)
        self._cooling.at_once()
        self.revision = self._assigned = max(rev, self.compacted)

    def _bind(self, loop: asyncio.AbstractEventLoop) -> None:
        super()._bind(loop)
        self._writer_ended = loop.create_future()
        self._writer.start(loop)

    def _hand_over(self, groups: list[Group]) -> None:
        self._writer.send(Batch(groups, self._epoch))

    def _writer_stalled(self, failure: BaseException) -> None:
        if not self.failing:
            self._epoch += 1
        what = f"{self.path}: the disk takes no writes ({failure}); what was acknowledged is safe."
        self._stall(f"{what} Free some space: writes are taken again as soon as there is some")
        if not self._refusing:
            self.loop().call_later(PROBE_SECONDS, self._writer.send, Probe())

    def _writer_resumed(self) -> None:
        self.failing = ""

    def _writer_tight(self, is_tight: bool) -> None:
        was_tight, self.tight = self.tight, TIGHT.format(self.path) if is_tight else ""
        # Without writes, free space would not be noticed: probe.
        if is_tight and not was_tight:
            self._probe_again()

    def _probe_again(self) -> None:
        if self.tight and not self._refusing:
            self._writer.send(Probe())
            self.loop().call_later(PROBE_SECONDS, self._probe_again)

    def _writer_gone(self, failure: BaseException | None) -> None:
        if failure is not None:
            what = f"{self.path}: a commit failed ({failure}) and the store has stopped; what was acknowledged is safe."
            is_disk = isinstance(failure, OSError | sqlite3.OperationalError)
            then = "Free some space or replace the disk, then start again" if is_disk else "Start again"
            self._end(f"{what} {then}", closed=False)
        for _, future in self._compactions:
            if not future.done():
                future.set_exception(StoreStopped(self._stopped or CLOSED))
        assert self._writer_ended is not None
        if not self._writer_ended.done():
            self._writer_ended.set_result(None)

    # Compaction.

    async def compact(self, revision: int) -> None:
        if revision <= self.compacted:
            return
        self._check_kept(revision)
        done: asyncio.Future[None] = self.loop().create_future()
        if ended := self.ended():
            raise ended
        self._compactions.append((revision, done))
        self._writer.send(CompactTo(revision))
        await done

    def _compaction_moved(self, revision: int) -> None:
        self.compacted = revision
        for target, future in self._compactions:
            if target <= revision and not future.done():
                future.set_result(None)
        self._compactions = [waiting for waiting in self._compactions if waiting[0] > revision]

    # The log.

    async def read_log(self, prefix: str, after: int, upto: int) -> tuple[list[Event], int]:
        if ended := self.ended():
            raise ended
        page = await self.loop().run_in_executor(self._reader_thread, self._read_page, prefix, after, upto)
        if page is None:
            raise Gone(after, self.compacted)
        return page

    def _read_page(self, prefix: str, after: int, upto: int) -> tuple[list[Event], int] | None:
        """Read one page in one transaction; None if it is compacted. Runs in the reader thread."""
        if self._reader is None:
            self._reader = sql.connect_reader(self.path)
        connection = self._reader
        upto = min(upto, after + LOG_PAGE_REVISIONS)
        page: list[Event] = []
        size = 0
        with reading(self.path):
            sql.begin_read(connection)
            try:
                if sql.compacted(connection) > after:
                    return None
                for event, crc in sql.events(connection, prefix, after_prefix(prefix), after, upto):
                    if sql.checksum(event) != crc:
                        raise StoreCorrupt(self.path, f"the checksum of revision {event.rev} ({event.key}) is wrong")
                    if self._sealer is not None:
                        event.value = self._sealer.open(event.key, event.rev, event.value)
                        if event.prev is not None:
                            event.prev = self._sealer.open(event.key, event.prev_rev, event.prev)
                    page.append(event)
                    size += weight(event)
                    if len(page) == LOG_PAGE_EVENTS_MAX or size > LOG_PAGE_BYTES_MAX:
                        return page, event.rev
                return page, upto
            finally:
                sql.end_read(connection)

    # Backup and close.

    async def backup(self, path: str | os.PathLike[str]) -> None:
        """Write a consistent copy to a new file, while the store is in use."""
        await asyncio.to_thread(self._copy, Path(path))

    def _copy(self, path: Path) -> None:
        if path.exists():
            raise StoreError(f"{path} exists already; name another file for the backup")
        partial = beside(path, ".partial")
        partial.unlink(missing_ok=True)
        create_private(partial)
        try:
            with closing(sql.connect_reader(self.path)) as connection:
                sql.copy(connection, partial)
            sql.forget_history(partial)
            sync_file(partial)
            partial.rename(path)
        except (sqlite3.Error, OSError) as error:
            partial.unlink(missing_ok=True)
            raise StoreError(f"{path}: the backup failed ({error}); free some space, or name another place") from error
        sync_directory(path.parent)

    async def close(self) -> None:
        if self._refusing == CLOSED:
            return
        self._refusing = CLOSED
        if self._writer_ended is None:
            self._connection.close()
        else:
            self._flush()
            self._writer.send(Stop())
            await self._writer_ended
        self._end(CLOSED, closed=True)
        self._reader_thread.shutdown()
        if self._reader is not None:
            self._reader.close()
        self._lock.release()


def _append_sealed(append: Append, sealer: Sealer, connection: sqlite3.Connection, events: Sequence[Event]) -> None:
    append(connection, [sealer.sealed(event) for event in events])
