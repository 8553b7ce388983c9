"""Putting a backup in the place of a store's file, while no process has it open."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from rota.store import sql
from rota.store.errors import StoreError
from rota.store.file import Hold, beside, check, open_file, reading, rows, sync_directory, sync_file

# More revisions than are ever handed out between two backups. A client of the lost history may hold any of them, and
# must find them gone, not meaning something else.
RESTORE_JUMP = 1_000_000_000


def restore(backup: str | os.PathLike[str], path: str | os.PathLike[str]) -> int:
    """Replaces the store at `path` by a backup. Returns the revision that it continues from.

    The objects are those of the backup. The revision jumps ahead of all that either of the two has handed out, and
    older watches are `Gone`. Until the last step, a rename, the store at `path` has its old content.
    """
    source, target = Path(backup), Path(path)
    if not source.exists():
        raise StoreError(f"{source} does not exist; name the file that a backup was written to")
    hold = Hold(target)
    try:
        fresh = beside(target, ".restoring")
        fresh.unlink(missing_ok=True)
        _remove_logs(fresh)
        revision = _prepare(source, fresh, _last_revision(target)) + RESTORE_JUMP
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
    """Copies and verifies a backup, and makes its history end at the jump. Returns the last revision of both files."""
    with reading(source), closing(sql.connect_reader(source)) as connection:
        check(connection, source, len(sql.MIGRATIONS))
    shutil.copyfile(source, fresh)
    with reading(source), closing(open_file(fresh)) as connection:
        for _ in rows(connection, source):
            pass
        last = max(reached, sql.last_revision(connection))
        sql.compact(connection, sql.compacted(connection), last + RESTORE_JUMP)
    sync_file(fresh)
    return last


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
