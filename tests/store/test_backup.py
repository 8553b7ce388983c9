"""Copies of a store: taken while it is written to, and put back."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest

from rota.store import (
    RESTORE_JUMP,
    Entry,
    Gone,
    SqliteStore,
    StoreCorrupt,
    StoreError,
    StoreHeld,
    Write,
    restore,
)
from tests.store.acts import create, delete, fill, put, value

A = "tasks/x/a"


async def test_a_backup_under_writes_is_a_consistent_moment(path: Path, tmp_path: Path) -> None:
    store = SqliteStore(path)
    await store.commit([Write(f"tasks/x/{number}", 0, value("0")) for number in range(2)])
    backups = [asyncio.create_task(store.backup(tmp_path / f"backup{number}.db")) for number in range(3)]
    writes = 0
    while not all(backup.done() for backup in backups):
        writes += 1
        await store.commit([Write(f"tasks/x/{number}", None, value(str(writes))) for number in range(2)])
    await asyncio.gather(*backups)
    await store.close()
    for number in range(3):
        copy = SqliteStore(tmp_path / f"backup{number}.db")
        first, second = copy.list("tasks/").entries
        assert first.value == second.value
        assert copy.revision == second.rev == first.rev + 1
        await copy.close()


async def test_a_backup_never_overwrites(path: Path, tmp_path: Path) -> None:
    store = SqliteStore(path)
    await store.backup(tmp_path / "backup.db")
    with pytest.raises(StoreError, match="exists already"):
        await store.backup(tmp_path / "backup.db")
    with pytest.raises(StoreError, match="exists already"):
        await store.backup(path)
    await store.close()


async def test_a_restored_store_has_the_backups_objects_and_jumps_ahead_of_every_revision(
    path: Path, tmp_path: Path
) -> None:
    store = SqliteStore(path)
    await create(store, A, "kept")
    await create(store, "tasks/x/b")
    await delete(store, "tasks/x/b")
    await store.backup(tmp_path / "backup.db")
    for _ in range(10):
        await put(store, A, "lost")
    await store.close()

    restored = restore(tmp_path / "backup.db", path)
    assert restored > 13
    store = SqliteStore(path)
    assert store.list("tasks/").entries == [Entry(A, b"kept", 1)]
    assert store.revision == store.compacted == restored
    with pytest.raises(Gone):
        store.watch("tasks/", 13)
    assert (await put(store, A)).rev == restored + 1
    await store.close()
    assert restore(tmp_path / "backup.db", path) > restored + 1


async def test_a_restore_jumps_ahead_also_when_the_old_file_cannot_say_how_far_it_was(
    path: Path, tmp_path: Path
) -> None:
    store = SqliteStore(path)
    await create(store, A)
    await store.backup(tmp_path / "backup.db")
    await store.close()
    restore(tmp_path / "backup.db", path)
    store = SqliteStore(path)
    handed_out = (await put(store, A)).rev
    await store.close()
    path.write_bytes(b"not a database at all" + path.read_bytes()[21:])
    restore(tmp_path / "backup.db", path)
    store = SqliteStore(path)
    with pytest.raises(Gone):
        store.watch("tasks/", handed_out)
    await store.close()


async def test_a_restore_jumps_ahead_also_when_the_clock_is_wrong(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(path)
    await create(store, A)
    await store.backup(tmp_path / "backup.db")
    await store.close()
    monkeypatch.setattr("time.time_ns", lambda: 0)
    assert restore(tmp_path / "backup.db", path) == 1 + RESTORE_JUMP


async def test_files_are_for_their_user_only(path: Path, tmp_path: Path) -> None:
    store = SqliteStore(path)
    await create(store, A)
    await store.backup(tmp_path / "backup.db")
    files = [path, path.with_name(path.name + "-wal"), tmp_path / "backup.db"]
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600] * 3
    await store.close()
    restore(tmp_path / "backup.db", path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_restored_store_can_be_compacted_and_reopened(path: Path, tmp_path: Path) -> None:
    store = SqliteStore(path)
    await fill(store, "tasks/x/", 20)
    await put(store, "tasks/x/000003", "three")
    await store.backup(tmp_path / "backup.db")
    await store.close()
    restore(tmp_path / "backup.db", path)
    store = SqliteStore(path)
    await put(store, "tasks/x/000003", "again")
    await store.compact(store.revision)
    await store.close()
    store = SqliteStore(path)
    assert store.count("tasks/") == 20
    await store.close()


async def test_a_restore_into_nothing_makes_a_store(path: Path, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "first.db")
    await create(store, A)
    await store.backup(tmp_path / "backup.db")
    await store.close()
    assert restore(tmp_path / "backup.db", path) > 1
    store = SqliteStore(path)
    assert store.get(A) is not None
    await store.close()


@pytest.mark.parametrize("remains", [b"", b"garbage" * 1000])
async def test_a_restore_does_not_take_up_the_write_ahead_log_of_a_lost_or_damaged_store(
    path: Path, tmp_path: Path, remains: bytes
) -> None:
    store = SqliteStore(path)
    await create(store, A, "of the backup")
    await store.backup(tmp_path / "backup.db")
    await store.close()
    store = SqliteStore(path)
    await put(store, A, "of the log")
    log = tmp_path / "store.db-wal"
    left_behind = log.read_bytes()
    await store.close()
    path.unlink()
    if remains:
        path.write_bytes(remains)
    log.write_bytes(left_behind)
    restore(tmp_path / "backup.db", path)
    store = SqliteStore(path)
    assert store.get(A) == Entry(A, b"of the backup", 1)
    await store.close()


async def test_a_held_store_is_not_restored(path: Path, tmp_path: Path) -> None:
    store = SqliteStore(path)
    await store.backup(tmp_path / "backup.db")
    with pytest.raises(StoreHeld):
        restore(tmp_path / "backup.db", path)
    await store.close()


async def test_a_damaged_backup_is_refused_and_the_store_is_as_it_was(path: Path, tmp_path: Path) -> None:
    store = SqliteStore(path)
    await create(store, A, "precious")
    await store.backup(tmp_path / "backup.db")
    await store.close()
    backup = tmp_path / "backup.db"
    backup.write_bytes(backup.read_bytes().replace(b"precious", b"precioux"))
    with pytest.raises(StoreCorrupt, match=r"backup\.db .*checksum"):
        restore(backup, path)
    store = SqliteStore(path)
    assert store.get(A) == Entry(A, b"precious", 1)
    await store.close()


async def test_a_missing_backup_is_said_to_be_missing(path: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        restore(tmp_path / "nothing.db", path)
