"""The file of a store: who holds it, whether it is sound, and what is in it."""

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

# The result codes with which SQLite says that the content is wrong, as opposed to the disk or the permissions.
# SQLITE_ERROR is what a table or a column that should be there and is not gives.
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}
_CODE_MASK = 0xFF


class Hold:
    """This process's hold on a store's file: a lock on a file beside it, which the system drops when the process dies.

    The lock file is never removed: whoever waits for it would then hold a lock on a file that nobody else sees.
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
    """Opens or creates a store's file, checks it, and brings it to the newest format."""
    created = create_private(path)
    log = beside(path, "-wal")
    if not created and not path.stat().st_size and log.exists() and log.stat().st_size:
        # SQLite would remove what is in the log, and begin anew.
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
    """Raises when the file is not a sound store of a format that this Rota knows."""
    if found := sql.damage(connection):
        raise StoreCorrupt(path, found)
    if not sql.is_ours(connection):
        raise StoreCorrupt(path, "it is the database of something else")
    if (version := sql.version(connection)) > newest:
        raise StoreVersion(path, version, newest)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns what SQLite says about a damaged file into `StoreCorrupt`. Other errors pass."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if (error.sqlite_errorcode & _CODE_MASK) in _DAMAGE:
            raise StoreCorrupt(path, str(error)) from error
        raise


@contextmanager
def loading(path: Path) -> Iterator[None]:
    """`reading`, and a column of another type or a key of another form, which no store writes, is damage too."""
    with reading(path):
        try:
            yield
        except (TypeError, ValueError, AttributeError, LookupError) as error:
            raise StoreCorrupt(path, f"it has content of another form ({error})") from error


def rows(connection: sqlite3.Connection, path: Path) -> Iterator[sql.Row]:
    """Every row of the log, verified: its checksum, that no revision is missing, that it supersedes what was there."""
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
    """Makes an empty file that nobody else may read, since Secrets go in. False when it is there already.

    SQLite gives the files that it adds beside it the same mode.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    return True


def sync_directory(path: Path) -> None:
    """Makes names that were added, removed or changed in a directory survive a power cut."""
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
