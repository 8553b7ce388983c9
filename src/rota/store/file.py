"""The file of a store: its lock, its integrity checks, and its rows."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rota.store import sql
from rota.store.errors import StoreCorrupt, StoreHeld, StoreVersion
from rota.store.model import Event
from rota.store.sql import MIGRATIONS, Migration

# SQLite's result codes for wrong content, as opposed to a failing disk or missing permissions. SQLITE_ERROR is the code
# for a missing table or column.
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}
_CODE_MASK = 0xFF


class FileLock:
    """The lock on a store's file: on a lock file beside it, which the system releases when the process dies.

    The lock file is never removed: a waiting process would then lock a file that no other one opens.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(beside(path, ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            written = os.pread(self._descriptor, 32, 0).strip()
            os.close(self._descriptor)
            raise StoreHeld(path, int(written) if written.isdigit() else 0) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        os.close(self._descriptor)


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def open_file(path: Path, migrations: Sequence[Migration] = MIGRATIONS) -> sqlite3.Connection:
    """Open or create a store's file, check it, and migrate it to the newest format."""
    created = create_private(path)
    log = beside(path, "-wal")
    if not created and not path.stat().st_size and log.exists() and log.stat().st_size:
        # SQLite would drop the content of the log and begin anew.
        raise StoreCorrupt(path, f"it is empty, and {log.name} is not")
    with reading(path):
        connection = sqlite3.connect(path)
        try:
            check(connection, path, len(migrations))
        finally:
            connection.close()
        connection = sql.connect(path)
        try:
            sql.migrate(connection, migrations)
        except BaseException:
            connection.close()
            raise
    if created:
        sync_directory(path.parent)
    return connection


def check(connection: sqlite3.Connection, path: Path, newest: int) -> None:
    """Raise `StoreCorrupt` or `StoreVersion` unless the file is a sound store of a known format."""
    if found := sql.damage(connection):
        raise StoreCorrupt(path, found)
    if not sql.is_ours(connection):
        raise StoreCorrupt(path, "it is the database of something else")
    if (version := sql.version(connection)) > newest:
        raise StoreVersion(path, version, newest)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn SQLite's errors about a damaged file into `StoreCorrupt`. Other errors pass."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if (error.sqlite_errorcode & _CODE_MASK) in _DAMAGE:
            raise StoreCorrupt(path, str(error)) from error
        raise


@contextmanager
def loading(path: Path) -> Iterator[None]:
    """Do as `reading`, and turn errors about malformed columns and keys into `StoreCorrupt` too."""
    with reading(path):
        try:
            yield
        except (TypeError, ValueError, AttributeError, LookupError) as error:
            raise StoreCorrupt(path, f"it has content of another form ({error})") from error


def rows(connection: sqlite3.Connection, path: Path) -> Iterator[sql.Row]:
    """Yield every row of the log, verified: its checksum, its revision, and the row that it supersedes."""
    compacted = sql.compacted(connection)
    newest: dict[str, int] = {}
    expected = compacted + 1
    for row in sql.rows(connection):
        rev, key, prev, deleted, crc, value = row
        if sql.checksum(Event(rev, key, value, bool(deleted), None, prev)) != crc:
            raise StoreCorrupt(path, f"the checksum of revision {rev} ({key}) is wrong")
        if rev <= compacted:
            if key in newest or deleted:
                raise StoreCorrupt(path, f"revision {rev} ({key}) should have been compacted")
        elif rev != expected:
            raise StoreCorrupt(path, f"revision {expected} is missing")
        elif newest.get(key, 0) != prev or (deleted and not prev):
            raise StoreCorrupt(path, f"revision {rev} ({key}) supersedes {prev}, which is not what was there")
        else:
            expected += 1
        if deleted:
            newest.pop(key, None)
        else:
            newest[key] = rev
        yield row


def create_private(path: Path) -> bool:
    """Create an empty file with mode 600, since it gets Secrets. Returns False if it exists.

    SQLite creates the files beside it with the same mode.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    return True


def sync_directory(path: Path) -> None:
    """Flush a directory, so that its changed names survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
