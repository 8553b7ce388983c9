"""When history goes, and that nothing else goes with it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rota.store import Gone, SqliteStore, Write, writer
from rota.store.compaction import CHECKPOINTS, Policy
from tests.store.acts import create, delete, fill, put, read, told, value

A = "tasks/x/a"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def revisions(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as connection:
        return [rev for (rev,) in connection.execute("SELECT rev FROM log ORDER BY rev")]


def test_history_is_kept_for_its_time() -> None:
    clock = Clock()
    policy = Policy(300, 100, clock)
    policy.note(10, 1)
    clock.now += 200
    policy.note(20, 1)
    assert policy.target() == 0
    clock.now += 100
    assert policy.target() == 10
    policy.compacted(10)
    assert policy.target() == 0
    clock.now += 200
    assert policy.target() == 20


def test_too_many_superseded_rows_go_down_to_half() -> None:
    policy = Policy(300, 100, Clock())
    for revision in range(1, 101):
        policy.note(revision, 1)
        assert policy.target() == 0
    policy.note(101, 1)
    target = policy.target()
    assert 45 <= target <= 51
    policy.compacted(target)
    assert policy.target() == 0


def test_creations_alone_are_never_too_many() -> None:
    policy = Policy(300, 100, Clock())
    for revision in range(1, 1000):
        policy.note(revision, 0)
    assert policy.target() == 0


def test_the_policy_remembers_a_bounded_number_of_moments() -> None:
    clock = Clock()
    policy = Policy(300, 1000, clock)
    for revision in range(1, 100_000):
        clock.now += 0.01
        policy.note(revision, 1)
        policy.compacted(policy.target())
    assert len(policy._checkpoints) <= 3 * CHECKPOINTS


async def test_compaction_removes_what_was_superseded_and_the_tombstones_and_nothing_else(path: Path) -> None:
    store = SqliteStore(path)
    await create(store, A)  # 1, superseded by 2
    await put(store, A)  # 2, alive at 5
    await create(store, "tasks/x/b")  # 3, deleted by 4
    await delete(store, "tasks/x/b")  # 4, a tombstone
    await create(store, "tasks/x/c")  # 5, alive
    await put(store, A)  # 6, newer than the compaction
    await store.compact(5)
    assert revisions(path) == [2, 5, 6]
    assert told(await store.watch("tasks/", 5).next()) == [(6, A, b"put", False, b"put", 2)]
    await store.close()
    store = SqliteStore(path)
    assert store.compacted == 5
    assert told(await store.watch("tasks/", 5).next()) == [(6, A, b"put", False, b"put", 2)]
    assert [entry.rev for entry in store.list("tasks/").entries] == [6, 5]
    await store.close()


async def test_compaction_in_many_small_steps_is_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "COMPACT_STEP_REVISIONS", 3)
    store = SqliteStore(path)
    for _ in range(5):
        await store.commit([Write(A, None, value("x")), Write("tasks/x/b", None, value("y"))])
        await delete(store, "tasks/x/b")
    await store.compact(14)
    assert (store.compacted, revisions(path)) == (14, [13, 14, 15])
    await store.close()


async def test_compacting_an_idle_log_or_emptying_it_never_makes_revisions_go_back(path: Path) -> None:
    store = SqliteStore(path)
    await create(store, A)
    await delete(store, A)
    await store.compact(2)
    await store.close()
    assert revisions(path) == []
    store = SqliteStore(path)
    assert (store.revision, store.compacted) == (2, 2)
    assert (await create(store, A)).rev == 3
    await store.close()


async def test_history_goes_by_age_with_the_next_write(path: Path) -> None:
    clock = Clock()
    store = SqliteStore(path, keep_seconds=60, clock=clock)
    for _ in range(11):
        clock.now += 10
        await put(store, A)
    await put(store, A)  # the step of compaction after the write before is done once this is
    assert store.compacted == 5
    await store.close()


async def test_what_was_compacted_by_hand_no_longer_counts_as_superseded(path: Path) -> None:
    store = SqliteStore(path, superseded_rows_max=200)
    for _ in range(150):
        await put(store, A)
    await store.compact(150)
    for _ in range(150):
        await put(store, A)
    assert store.compacted == 150
    await store.close()


async def test_the_file_stays_bounded_under_endless_updates(path: Path) -> None:
    store = SqliteStore(path, superseded_rows_max=200)
    await create(store, A)
    for _ in range(100):
        await store.commit([Write(A, None, lambda rev: b"x" * 1000) for _ in range(50)])
    await store.close()
    assert len(revisions(path)) < 1000
    assert path.stat().st_size < 2_000_000


async def test_a_watch_that_the_compaction_passed_is_gone_and_others_are_not(path: Path) -> None:
    store = SqliteStore(path, ring_events_max=8)
    await fill(store, "tasks/x/", 40)
    behind, ahead = store.watch("tasks/", 5), store.watch("tasks/", 20)
    await store.compact(20)
    with pytest.raises(Gone):
        await behind.next()
    assert [event.rev for event in await read(ahead, 20)] == list(range(21, 41))
    await store.close()
