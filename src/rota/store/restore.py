"""Putting a backup in the place of a store's file, while no process has it open."""

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
    Hold,
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

# How far to jump where the clock is of no use. A client of the lost history may hold any revision that it had, and must
# find it gone, not meaning something else.
RESTORE_JUMP = 1_000_000_000


def restore(backup: str | os.PathLike[str], path: str | os.PathLike[str]) -> int:
    """Replaces the store at `path` by a backup. Returns the revision that it continues from.

    The objects are those of the backup. The revision jumps ahead of all that either of the two has handed out, and
    older watches are `Gone`. Until the last step, a rename, the store at `path` has its old content.
    """
    source, target = Path(backup), Path(path).resolve()
    if not source.exists():
        raise StoreError(f"{source} does not exist; name the file that a backup was written to")
    hold = Hold(target)
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
        hold.release()


def _prepare(source: Path, fresh: Path, reached: int) -> int:
    """Copies and verifies a backup, and makes its history end at the jump. Returns the revision that it jumps to."""
    with reading(source), closing(sql.connect_reader(source)) as connection:
        check(connection, source, len(sql.MIGRATIONS))
    create_private(fresh)
    shutil.copyfile(source, fresh)
    with loading(source), closing(open_file(fresh)) as connection:
        for _ in rows(connection, source):
            pass
        last = max(reached, sql.last_revision(connection))
        # The clock in microseconds is ahead of everything that was ever handed out, also by a file that is gone or too
        # damaged to say how far it was: nobody writes a million objects a second. Unless the clock itself is wrong.
        clock = time.time_ns() // 1000
        revision = clock if clock > last else last + RESTORE_JUMP
        sql.compact(connection, sql.compacted(connection), revision)
    sync_file(fresh)
    return revision


def _last_revision(path: Path) -> int:
    """What the file that is about to be replaced has reached, 0 when it cannot say."""
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
