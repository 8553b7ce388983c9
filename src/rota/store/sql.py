"""All SQL statements, as functions on a connection.

There is one append-only table, whose row id is the revision. `prev` is the revision of the superseded row, 0 for a
creation: so compaction finds superseded rows by reading a range of revisions, and neither an index nor a pointer
is needed. Above `compacted` no revision is missing. Up to it, only the rows that were current then are left.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from zlib import crc32

from rota.store.model import Event

APPLICATION_ID = 0x526F7461  # "Rota"
AUTOCHECKPOINT_PAGES = 1000
# The write-ahead log is cut back to this once a checkpoint has emptied it.
WAL_BYTES_KEPT = 16 * 1024 * 1024
# Every statement releases and reacquires the interpreter lock. So rows are inserted by the hundred, in few enough
# different statements that each stays prepared.
INSERT_ROWS = (256, 64, 16, 4, 1)

Row = tuple[int, str, int, int, int, bytes]
Migration = Callable[[sqlite3.Connection], None]


def connect(path: Path) -> sqlite3.Connection:
    """Open a connection for writing, with explicit transactions. It may be used in another thread."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    # Deleted content is overwritten, as it may be a Secret. Not all builds of SQLite do so by default.
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute(f"PRAGMA wal_autocheckpoint = {AUTOCHECKPOINT_PAGES}")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")
    return connection


def connect_reader(path: Path) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode=ro"
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)


# The format of the file.


def _log_and_meta(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE log (rev INTEGER PRIMARY KEY, key TEXT NOT NULL, prev INTEGER NOT NULL,"
        " deleted INTEGER NOT NULL, crc INTEGER NOT NULL, value BLOB NOT NULL)"
    )
    connection.execute("CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID")
    connection.execute("INSERT INTO meta VALUES ('compacted', 0)")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


# Entry n takes a file from format n to n + 1. Entries are only ever added.
MIGRATIONS: tuple[Migration, ...] = (_log_and_meta,)


def version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection, migrations: Sequence[Migration]) -> None:
    """Migrate the file to the newest format, each step in one transaction."""
    for number in range(version(connection), len(migrations)):
        connection.execute("BEGIN IMMEDIATE")
        migrations[number](connection)
        connection.execute(f"PRAGMA user_version = {number + 1}")
        connection.execute("COMMIT")


def is_ours(connection: sqlite3.Connection) -> bool:
    """Report whether the file is a store, or still empty. Other SQLite files belong to something else."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return bool(application == APPLICATION_ID or tables == 0)


def damage(connection: sqlite3.Connection) -> str:
    """Return the damage that SQLite finds in the pages of the file; empty if none."""
    (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    return "" if found == "ok" else str(found)


# Writing.


def checksum(event: Event) -> int:
    """Return the checksum of all columns of a row."""
    head = b"%d %d %d %b" % (event.rev, event.prev_rev, event.deleted, event.key.encode())
    return crc32(event.value, crc32(head))


def append(connection: sqlite3.Connection, events: Sequence[Event]) -> None:
    """Add rows in one transaction. When it returns they are on the disk."""
    size = len(events)
    if size in INSERT_ROWS:
        _insert(connection, events)  # a single statement is a transaction by itself
        return
    connection.execute("BEGIN IMMEDIATE")
    start = 0
    for rows in INSERT_ROWS:
        while size - start >= rows:
            _insert(connection, events[start : start + rows])
            start += rows
    connection.execute("COMMIT")


def _insert(connection: sqlite3.Connection, events: Sequence[Event]) -> None:
    values: list[int | str | bytes] = []
    for event in events:
        values += (event.rev, event.key, event.prev_rev, event.deleted, checksum(event), event.value)
    connection.execute(_INSERTS[len(events)], values)


_INSERTS = {rows: "INSERT INTO log VALUES " + ", ".join(["(?, ?, ?, ?, ?, ?)"] * rows) for rows in INSERT_ROWS}


def compact(connection: sqlite3.Connection, after: int, upto: int) -> None:
    """Compact from one revision to another: remove the rows superseded in between, and tombstones."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(
        "DELETE FROM log WHERE rev IN (SELECT prev FROM log WHERE rev > ? AND rev <= ? AND prev > 0)", (after, upto)
    )
    connection.execute("DELETE FROM log WHERE rev > ? AND rev <= ? AND deleted", (after, upto))
    set_compacted(connection, upto)
    connection.execute("COMMIT")


def set_compacted(connection: sqlite3.Connection, revision: int) -> None:
    connection.execute("UPDATE meta SET value = ? WHERE name = 'compacted'", (revision,))


def copy(connection: sqlite3.Connection, path: Path) -> None:
    """Write a copy of the file to a new one, without free pages."""
    connection.execute("VACUUM INTO ?", (str(path),))


def forget_history(path: Path) -> None:
    """Remove the history from a copy, which nobody watches.

    So a backup has no Secrets that were deleted or changed before it was made.
    """
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = MEMORY")
        connection.execute("PRAGMA secure_delete = ON")
        compact(connection, compacted(connection), last_revision(connection))


def is_of_the_disk(error: BaseException) -> bool:
    """Report whether an error is a full disk or a device error, which may pass."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and (code & 0xFF) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)


def free_bytes(connection: sqlite3.Connection) -> int:
    """Return the free space inside the file, which stays available when the disk is full."""
    (pages,), (size,) = (connection.execute(f"PRAGMA {name}").fetchone() for name in ("freelist_count", "page_size"))
    return int(pages) * int(size)


def make_free(connection: sqlite3.Connection, size: int) -> None:
    """Grow the file until it has some free space inside."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO meta VALUES ('room', zeroblob(?))", (size,))
    # Deleted content is overwritten (`secure_delete`): so the space is allocated, and no hole.
    connection.execute("DELETE FROM meta WHERE name = 'room'")
    connection.execute("COMMIT")


def roll_back(connection: sqlite3.Connection) -> None:
    """Roll back the transaction, if SQLite has not done so by itself."""
    if connection.in_transaction:
        with contextlib.suppress(sqlite3.OperationalError):
            connection.execute("ROLLBACK")


def try_to_write(connection: sqlite3.Connection) -> None:
    """Commit a write without effect, which goes to the disk like any other."""
    connection.execute("UPDATE meta SET value = value WHERE name = 'compacted'")


# Reading.


def compacted(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT value FROM meta WHERE name = 'compacted'").fetchone()[0])


def last_revision(connection: sqlite3.Connection) -> int:
    (newest,) = connection.execute("SELECT coalesce(max(rev), 0) FROM log").fetchone()
    return max(int(newest), compacted(connection))


def rows(connection: sqlite3.Connection) -> Iterator[Row]:
    """Yield the whole log, in order."""
    yield from connection.execute("SELECT rev, key, prev, deleted, crc, value FROM log ORDER BY rev")


def superseded(connection: sqlite3.Connection, after: int) -> set[int]:
    """Return the revisions superseded by rows above a revision."""
    return {prev for (prev,) in connection.execute("SELECT prev FROM log WHERE rev > ? AND prev > 0", (after,))}


def sealed_with(connection: sqlite3.Connection) -> int:
    """Return the id of the key that Secrets are encrypted with; 0 if they are not."""
    found = connection.execute("SELECT value FROM meta WHERE name = 'sealed'").fetchone()
    return 0 if found is None else int(found[0])


def note_sealed(connection: sqlite3.Connection, key: int) -> None:
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('sealed', ?)", (key,))


def stored(connection: sqlite3.Connection, prefix: str) -> Iterator[tuple[Event, int]]:
    """Yield all rows under a prefix in their stored form, each with its checksum."""
    found = connection.execute(
        "SELECT rev, key, value, deleted, prev, crc FROM log WHERE key >= ? AND key < ?",
        (prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)),
    )
    for rev, key, value, deleted, prev, crc in found:
        yield Event(rev, key, value, bool(deleted), None, prev), crc


def replace_value(connection: sqlite3.Connection, event: Event) -> None:
    """Replace the stored value of a row."""
    connection.execute("UPDATE log SET value = ?, crc = ? WHERE rev = ?", (event.value, checksum(event), event.rev))


def events(connection: sqlite3.Connection, low: str, high: str, after: int, upto: int) -> Iterator[tuple[Event, int]]:
    """Yield the events with a key in [low, high) and a revision in (after, upto], each with its checksum."""
    found = connection.execute(
        "SELECT log.rev, log.key, log.value, log.deleted, before.value, log.prev, log.crc"
        " FROM log LEFT JOIN log AS before ON before.rev = log.prev"
        " WHERE log.rev > ? AND log.rev <= ? AND log.key >= ? AND log.key < ? ORDER BY log.rev",
        (after, upto, low, high),
    )
    for rev, key, value, deleted, prev, prev_rev, crc in found:
        yield Event(rev, key, value, bool(deleted), prev, prev_rev), crc


def begin_read(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN")


def end_read(connection: sqlite3.Connection) -> None:
    connection.execute("COMMIT")
