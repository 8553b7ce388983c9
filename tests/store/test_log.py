"""Watches that resume from further back than memory goes, and the hand-over from the log to memory."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rota.store import SqliteStore, Store, Write, sqlite
from tests.store.acts import create, delete, fill, put, read, settle, told, value

A = "tasks/x/a"


async def writing(store: Store, count: int) -> None:
    for number in range(count):
        await put(store, f"tasks/{'xy'[number % 2]}/{number % 7}", str(number))


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "LOG_PAGE_EVENTS_MAX", 7)
    monkeypatch.setattr(sqlite, "LOG_PAGE_REVISIONS", 20)


async def test_events_from_the_log_are_those_from_memory(path: Path) -> None:
    store = SqliteStore(path, ring_events_max=4)
    remembered = store.watch("tasks/", 0)
    live: list[tuple[int, str, bytes, bool, bytes | None, int]] = []
    for number in range(60):
        key = f"tasks/x/{number % 5}"
        if store.get(key) and number % 3 == 0:
            await delete(store, key, f"final {number}")
        else:
            await put(store, key, str(number))
        live += told(await remembered.next())
    assert told(await read(store.watch("tasks/", 0), 60)) == live
    assert told(await read(store.watch("tasks/", 31), 29)) == live[31:]
    await store.close()


async def test_the_log_is_filtered_by_prefix(path: Path) -> None:
    store = SqliteStore(path, ring_events_max=4)
    await fill(store, "tasks/x/", 50)
    await create(store, "tasks/y/1")
    await fill(store, "other/y/", 50)
    await create(store, "tasks/y/2")
    await fill(store, "tasks/x-y/", 50)
    assert [event.rev for event in await read(store.watch("tasks/y/", 0), 2)] == [51, 102]
    await store.close()


async def test_no_event_is_missed_or_repeated_where_log_and_memory_meet(path: Path) -> None:
    """A watcher reads its way through the log while memory moves on under it, faster than it reads, then slower."""
    store = SqliteStore(path, ring_events_max=16)
    await writing(store, 200)
    watching = store.watch("tasks/", 0)
    writer = asyncio.create_task(writing(store, 300))
    events = await read(watching, 500)
    await writer
    assert [event.rev for event in events] == list(range(1, 501))
    assert watching.position == store.revision
    await store.close()


async def test_a_namespace_watch_crosses_from_log_to_memory_too(path: Path) -> None:
    store = SqliteStore(path, ring_events_max=16)
    await writing(store, 100)
    watching = store.watch("tasks/y/", 0)
    writer = asyncio.create_task(writing(store, 100))
    events = await read(watching, 100)
    await writer
    assert [event.rev for event in events] == list(range(2, 201, 2))
    await store.close()


async def test_a_slow_watcher_falls_back_to_the_log_and_catches_up(path: Path) -> None:
    store = SqliteStore(path, ring_events_max=16)
    watching = store.watch("tasks/", 0)
    await create(store, A)
    assert [event.rev for event in await watching.next()] == [1]
    await writing(store, 200)
    assert [event.rev for event in await read(watching, 200)] == list(range(2, 202))
    await store.close()


async def test_a_read_of_the_log_that_is_cancelled_loses_nothing(path: Path) -> None:
    store = SqliteStore(path, ring_events_max=4)
    await fill(store, "tasks/x/", 30)
    watching = store.watch("tasks/", 0)
    for _ in range(3):
        reading = asyncio.create_task(watching.next())
        await settle()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        if not reading.cancelled():
            watching = store.watch("tasks/", 0)
    assert [event.rev for event in await read(watching, 30)] == list(range(1, 31))
    await store.close()


async def test_a_watch_after_a_restart_continues_where_it_was(path: Path) -> None:
    store = SqliteStore(path)
    await writing(store, 50)
    watching = store.watch("tasks/", 0)
    seen = await watching.next()
    bookmark = watching.position
    await store.close()
    store = SqliteStore(path, ring_events_max=8)
    watching = store.watch("tasks/", bookmark)
    await writing(store, 50)
    seen += await read(watching, 100 - bookmark)
    assert [event.rev for event in seen] == list(range(1, 101))
    await store.close()


async def test_large_values_make_small_pages(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "LOG_PAGE_BYTES_MAX", 1000)
    store = SqliteStore(path, ring_events_max=1)
    await store.commit([Write(f"tasks/x/{number}", 0, value("x" * 900)) for number in range(6)])
    watching = store.watch("tasks/", 0)
    sizes = [len(await watching.next()) for _ in range(4)]
    assert sizes == [2, 2, 1, 1]  # the last one is still in memory
    await store.close()


async def test_the_history_of_all_buckets_together_is_bounded(path: Path) -> None:
    store = SqliteStore(path, rings_bytes_max=100_000)
    for number in range(60):
        await store.commit([Write(f"{bucket}/x/{number}", 0, value("x" * 1000)) for bucket in ("claims", "tasks")])
    await store.commit([Write("zones/x/1", 0, value("x"))])
    kept = {name: len(bucket.ring.events) for name, bucket in store._objects.buckets.items()}
    assert sum(bucket.ring.bytes for bucket in store._objects.buckets.values()) <= 100_000
    # The share comes from those that have most, and what is left is not much less than what there may be.
    assert kept["zones"] == 1 and 35 < kept["claims"] <= 60 and 35 < kept["tasks"] <= 60
    watching = store.watch("claims/", 0)
    assert [event.key for event in await read(watching, 60)] == [f"claims/x/{number}" for number in range(60)]
    await store.close()
