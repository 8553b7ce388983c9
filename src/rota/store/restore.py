"""The restore of a backup in place of a store's file, while no process has it open."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from rota.store import sql
from rota.store.errors import StoreError
from rota.store.file import (
    FileLock,
    beside,
    check,
    create_private,
    loading,
    open_file,
    reading,
    rows,
    sync_directory,
    sync_file,
)

# The jump if the clock cannot be used. A client of the lost history may hold any revision of it, and must
# find it gone, instead of with another meaning.
RESTORE_JUMP = 1_000_000_000


def restore(backup: str | os.PathLike[str], path: str | os.PathLike[str]) -> int:
    """Replace the store at `path` by a backup. Return the revision that it continues from.

    The objects are those of the backup. The revision jumps ahead of all that either of the two has assigned, and
    older watches are `Gone`. Until the last step, a rename, the store at `path` has its old content.
    """
    source, target = Path(backup), Path(path).resolve()
    if not source.exists():
        raise StoreError(f"{source} does not exist; name the file that a backup was written to")
    lock = FileLock(target)
    try:
        fresh = beside(target, ".restoring")
        fresh.unlink(missing_ok=True)
        _remove_logs(fresh)
        revision = _prepare(source, fresh, _last_revision(target))
        # The write-ahead log of the old file must not be taken for the new one's. Nothing is lost with it: reading the
        # last revision of a sound file has folded it in.
        _remove_logs(target)
        sync_directory(target.parent)
        fresh.rename(target)
        sync_directory(target.parent)
        return revision
    finally:
        lock.release()


def _prepare(source: Path, fresh: Path, reached: int) -> int:
    """Copy and verify a backup, and compact its history up to the jump. Return the revision of the jump."""
    with reading(source), closing(sql.connect_reader(source)) as connection:
        check(connection, source, len(sql.MIGRATIONS))
    create_private(fresh)
    shutil.copyfile(source, fresh)
    with loading(source), closing(open_file(fresh)) as connection:
        for _ in rows(connection, source):
            pass
        last = max(reached, sql.last_revision(connection))
        # The clock in microseconds is ahead of every revision ever assigned, also by a file that is gone or too
        # damaged to be read: nobody writes a million objects a second. Unless the clock itself is wrong.
        clock = time.time_ns() // 1000
        revision = clock if clock > last else last + RESTORE_JUMP
        sql.compact(connection, sql.compacted(connection), revision)
    sync_file(fresh)
    return revision


def _last_revision(path: Path) -> int:
    """Return the last revision of the file to be replaced; 0 if it cannot be read."""
    if not path.exists():
        return 0
    try:
        with closing(sqlite3.connect(path)) as connection:
            return sql.last_revision(connection)
    except sqlite3.Error:
        return 0


def _remove_logs(path: Path) -> None:
    for suffix in ("-wal", "-shm"):
        beside(path, suffix).unlink(missing_ok=True)
