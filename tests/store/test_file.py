"""The file: reopening, who may have it, and what is refused."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from rota.store import SqliteStore, StoreCorrupt, StoreHeld, StoreVersion, sql
from rota.store.file import open_file
from tests.store.acts import create, delete, fill, put

A = "tasks/x/a"


async def make(path: Path) -> None:
    store = SqliteStore(path)
    await fill(store, "tasks/x/", 50)
    await put(store, "tasks/x/000007", "seven")
    await delete(store, "tasks/x/000008")
    await store.close()


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement)


async def test_a_reopened_store_is_as_it_was(path: Path) -> None:
    await make(path)
    store = SqliteStore(path)
    assert (store.revision, store.compacted, store.count("tasks/")) == (52, 0, 49)
    assert store.list("tasks/", limit=8).entries[-1].value == b"seven"
    assert store.get("tasks/x/000008") is None
    assert (await create(store, A)).rev == 53
    await store.close()


async def test_a_reopened_store_has_its_recent_history_in_memory(path: Path) -> None:
    await make(path)
    store = SqliteStore(path)
    assert [event.rev for event in await store.watch("tasks/", 49).next()] == [50, 51, 52]
    assert store.list("tasks/", revision=50).entries[7].value == b"7"
    await store.close()


async def test_a_store_that_was_only_opened_can_be_closed(path: Path) -> None:
    await SqliteStore(path).close()
    await SqliteStore(path).close()


async def test_a_held_file_is_refused_with_its_holder(path: Path) -> None:
    store = SqliteStore(path)
    with pytest.raises(StoreHeld, match=f"process {os.getpid()}; stop that process"):
        SqliteStore(path)
    await store.close()
    await SqliteStore(path).close()


async def test_a_file_held_by_another_process_is_refused_until_that_dies(path: Path) -> None:
    program = (
        "import sys; from rota.store import SqliteStore; s = SqliteStore(sys.argv[1]); print(1, flush=True); input()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "1\n"
        with pytest.raises(StoreHeld, match=f"process {holder.pid}"):
            SqliteStore(path)
        holder.kill()
    await SqliteStore(path).close()


async def test_a_file_that_is_not_sqlite_is_refused(path: Path) -> None:
    path.write_bytes(b"something else entirely" * 1000)
    with pytest.raises(StoreCorrupt, match=r"store\.db .*restore a backup"):
        SqliteStore(path)
    assert path.read_bytes().startswith(b"something else")


async def test_the_database_of_another_program_is_refused_and_left_alone(path: Path) -> None:
    change(path, "CREATE TABLE theirs (x)")
    before = path.read_bytes()
    with pytest.raises(StoreCorrupt, match="something else"):
        SqliteStore(path)
    assert path.read_bytes() == before


async def test_a_refused_file_is_not_held(path: Path) -> None:
    path.write_bytes(b"something else entirely" * 1000)
    for _ in range(2):
        with pytest.raises(StoreCorrupt):
            SqliteStore(path)


async def test_a_damaged_page_is_found(path: Path) -> None:
    await make(path)
    content = bytearray(path.read_bytes())
    content[4096:8192] = os.urandom(4096)
    path.write_bytes(content)
    with pytest.raises(StoreCorrupt):
        SqliteStore(path)


async def test_a_flipped_bit_in_a_value_is_found(path: Path) -> None:
    await make(path)
    content = path.read_bytes()
    assert content.count(b"seven") == 1
    path.write_bytes(content.replace(b"seven", b"sewen"))
    with pytest.raises(StoreCorrupt, match="checksum of revision 51"):
        SqliteStore(path)


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("DELETE FROM log WHERE rev = 30", "revision 30 is missing"),
        ("UPDATE log SET prev = 3 WHERE rev = 51", "checksum of revision 51"),
        ("UPDATE meta SET value = 51", "should have been compacted"),
        ("UPDATE log SET deleted = 1 WHERE rev = 8", "checksum of revision 8"),
    ],
)
async def test_a_log_that_contradicts_itself_is_found(path: Path, statement: str, found: str) -> None:
    await make(path)
    change(path, statement)
    with pytest.raises(StoreCorrupt, match=found):
        SqliteStore(path)


async def test_a_file_of_an_older_format_is_upgraded_step_by_step(path: Path) -> None:
    def add_notes(connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE notes (text TEXT)")

    def add_first_note(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO notes VALUES ('hello')")

    await make(path)
    with closing(open_file(path, [*sql.MIGRATIONS, add_notes, add_first_note])) as connection:
        assert sql.version(connection) == len(sql.MIGRATIONS) + 2
        assert connection.execute("SELECT text FROM notes").fetchall() == [("hello",)]
        assert sql.last_revision(connection) == 52


async def test_a_failed_upgrade_leaves_the_file_as_it_was(path: Path) -> None:
    def fail(connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE notes (text TEXT)")
        raise LookupError("out of ideas")

    await make(path)
    with pytest.raises(LookupError):
        open_file(path, [*sql.MIGRATIONS, fail])
    store = SqliteStore(path)
    assert store.revision == 52
    await store.close()


async def test_an_empty_sqlite_file_becomes_a_store(path: Path) -> None:
    change(path, "PRAGMA user_version = 0")
    await make(path)


async def test_a_file_of_a_newer_format_is_refused(path: Path) -> None:
    await make(path)
    newer = len(sql.MIGRATIONS) + 1
    change(path, f"PRAGMA user_version = {newer}")
    with pytest.raises(StoreVersion, match=f"format {newer}.*upgrade Rota"):
        SqliteStore(path)


async def test_a_file_is_held_under_every_name_that_it_has(path: Path, tmp_path: Path) -> None:
    store = SqliteStore(path)
    link = tmp_path / "link.db"
    link.symlink_to(path)
    with pytest.raises(StoreHeld):
        SqliteStore(link)
    await store.close()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE log SET deleted = 1 WHERE rev = (SELECT max(rev) FROM log)",
        "UPDATE log SET prev = 0 WHERE rev = (SELECT max(rev) FROM log)",
        "UPDATE log SET key = 7",
        "UPDATE log SET value = 'text'",
        "UPDATE log SET key = 'no-bucket', crc = 0",
        "DELETE FROM meta",
        "DROP TABLE log",
    ],
)
async def test_damage_to_any_part_of_a_row_is_found(path: Path, damage: str) -> None:
    store = SqliteStore(path)
    await put(store, "tasks/x/a")
    await put(store, "tasks/x/a")
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(damage)
        connection.commit()
    with pytest.raises(StoreCorrupt):
        SqliteStore(path)


async def test_commits_wait_for_the_disk(path: Path) -> None:
    store = SqliteStore(path)
    (synchronous,) = store._connection.execute("PRAGMA synchronous").fetchone()
    (journal,) = store._connection.execute("PRAGMA journal_mode").fetchone()
    assert (synchronous, journal) == (2, "wal"), "FULL: the log is synced at every commit"
    await store.close()
