"""A commit that fails loses nothing that was acknowledged. A full disk passes; anything else stops the store."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from rota.store import Conflict, Event, SqliteStore, StoreFull, StoreStopped, Write, sql
from tests.store.acts import create, put, settle, value
from tests.until import until_async

A = "tasks/x/a"
B = "tasks/x/b"


class Gate:
    """Writes as usual, after it was opened."""

    def __init__(self) -> None:
        self.opened = threading.Event()

    def __call__(self, connection: sqlite3.Connection, events: Sequence[Event]) -> None:
        assert self.opened.wait(timeout=60)
        sql.append(connection, events)


class Disk:
    """Writes as usual until told to fail: before anything is written, in the middle of it, or after all of it."""

    def __init__(self) -> None:
        self.fails = ""

    def __call__(self, connection: sqlite3.Connection, events: Sequence[Event]) -> None:
        if self.fails == "during":
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO log VALUES (?, 'half/a/row', 0, 0, 0, '')", (events[0].rev,))
        if self.fails in ("before", "during"):
            raise sqlite3.OperationalError("disk I/O error")
        sql.append(connection, events)
        if self.fails == "after":
            raise sqlite3.OperationalError("disk I/O error")


async def test_nothing_is_answered_or_visible_before_it_is_durable(path: Path) -> None:
    gate = Gate()
    store = SqliteStore(path, append=gate)
    watching = asyncio.create_task(store.watch("tasks/", 0).next())
    accepted = store.commit([Write(A, 0, value("a"))])
    conflicting = store.commit([Write(A, 0, value("b"))])
    waiting = asyncio.create_task(store.durable(1))
    await settle()
    assert store.get(A) is None
    assert store.revision == 0
    assert not any(each.done() for each in (watching, accepted, conflicting, waiting))
    gate.opened.set()
    await asyncio.gather(accepted, waiting, watching)
    with pytest.raises(Conflict):
        await conflicting


@pytest.mark.parametrize("fails", ["before", "during", "after"])
async def test_a_failed_commit_stops_everything_and_says_what_to_do(path: Path, fails: str) -> None:
    disk = Disk()
    store = SqliteStore(path, append=disk)
    await create(store, A, "safe")
    watching = asyncio.create_task(store.watch("tasks/", 1).next())
    disk.fails = fails
    pending = store.commit([Write(A, None, value("lost"))])
    conflicting = store.commit([Write(A, 0, value("never"))])
    waiting = asyncio.create_task(store.durable(2))
    for each in (pending, conflicting, waiting, watching):
        with pytest.raises(StoreStopped, match=r"store\.db.*disk I/O error.*start again"):
            await each
    with pytest.raises(StoreStopped, match="disk I/O error"):
        await put(store, B)
    with pytest.raises(StoreStopped):
        await store.durable(2)
    with pytest.raises(StoreStopped):
        await store.compact(1)
    assert store.get(A) == store.head(A)
    assert store.list("tasks/").entries[0].value == b"safe"
    await store.close()

    store = SqliteStore(path)
    entry = store.get(A)
    assert entry is not None
    assert entry.value == (b"lost" if fails == "after" else b"safe")
    assert (await create(store, B)).rev == entry.rev + 1
    await store.close()


async def test_a_watch_hands_out_what_was_published_before_the_failure(path: Path) -> None:
    disk = Disk()
    store = SqliteStore(path, append=disk)
    watching = store.watch("tasks/", 0)
    await create(store, A)
    disk.fails = "before"
    with pytest.raises(StoreStopped):
        await put(store, A)
    assert [event.rev for event in await watching.next()] == [1]
    with pytest.raises(StoreStopped):
        await watching.next()
    await store.close()


async def test_writes_accepted_in_the_turn_of_the_failure_fail_too(path: Path) -> None:
    disk = Disk()
    store = SqliteStore(path, append=disk)
    disk.fails = "before"
    writes = [store.commit([Write(f"tasks/x/{number}", 0, value("x"))]) for number in range(5)]
    await settle()
    writes += [store.commit([Write(f"tasks/y/{number}", 0, value("x"))]) for number in range(5)]
    results = await asyncio.gather(*writes, return_exceptions=True)
    assert all(isinstance(result, StoreStopped) for result in results)
    await store.close()


async def test_a_compaction_that_fails_stops_the_store(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(connection: sqlite3.Connection, after: int, upto: int) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    store = SqliteStore(path)
    await create(store, A)
    monkeypatch.setattr(sql, "compact", fail)
    with pytest.raises(StoreStopped, match="disk is full"):
        await store.compact(1)
    with pytest.raises(StoreStopped):
        await put(store, A)
    await store.close()


FULL_DISK = """
import asyncio, json, resource, signal, sys
from rota.store import SqliteStore, StoreFull, Write

async def main() -> None:
    store = SqliteStore(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
    acknowledged, error = [], ""
    async def write(writer):
        nonlocal error
        number = 0
        while True:
            key = f"tasks/{writer}/{number}"
            try:
                (entry,) = await store.commit([Write(key, 0, lambda rev: b"x" * 1000)])
            except StoreFull as full:
                error = str(full)
                return
            acknowledged.append((key, entry.rev))
            number += 1
    await asyncio.gather(*(write(writer) for writer in range(16)))
    await store.close()
    print(json.dumps([acknowledged, error]))

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
asyncio.run(main())
"""


async def test_a_file_that_may_not_grow_takes_no_writes_and_keeps_what_was_acknowledged(path: Path) -> None:
    child = subprocess.run([sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True, check=True)
    acknowledged, error = json.loads(child.stdout)
    assert "the disk takes no writes" in error
    assert len(acknowledged) > 50
    store = SqliteStore(path)
    for key, rev in acknowledged:
        entry = store.get(key)
        assert entry is not None
        assert entry.rev == rev
    await store.close()


PAGES_MAX = "PRAGMA max_page_count = %d"


class Bounded:
    """A disk that has so many pages for the database, which can become more."""

    def __init__(self, pages: int) -> None:
        self.pages = pages

    def __call__(self, connection: sqlite3.Connection, events: Sequence[Event]) -> None:
        connection.execute(PAGES_MAX % self.pages)
        sql.append(connection, events)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.store.sqlite.PROBE_SECONDS", 0.01)


async def until_it_takes_writes(store: SqliteStore) -> None:
    await until_async(lambda: not store.failing)


@pytest.mark.usefixtures("impatient")
async def test_a_full_database_takes_writes_again_when_there_is_space(path: Path) -> None:
    disk = Bounded(64)
    store = SqliteStore(path, append=disk)
    watching = store.watch("tasks/", 0)
    acknowledged = 0

    async def write() -> None:
        nonlocal acknowledged
        while acknowledged < 1000:
            await store.commit([Write(f"tasks/x/{acknowledged}", 0, lambda rev: b"x" * 1000)])
            acknowledged += 1

    with pytest.raises(StoreFull, match=r"store\.db.*full.*Free some space"):
        await write()
    assert store.count("tasks/") == store.revision == store.accepted == acknowledged > 50
    disk.pages = 10_000
    await until_it_takes_writes(store)
    assert (await create(store, "tasks/y/later")).rev == acknowledged + 1
    seen: list[int] = []
    while len(seen) <= acknowledged:
        seen += [event.rev for event in await watching.next()]
    assert seen == [*range(1, acknowledged + 2)]
    await store.close()
    store = SqliteStore(path)
    assert store.count("tasks/") == acknowledged + 1
    await store.close()


@pytest.mark.usefixtures("impatient")
async def test_what_was_accepted_on_top_of_a_write_that_failed_fails_with_it(path: Path) -> None:
    gate = Gate()
    full = [True]

    def append(connection: sqlite3.Connection, events: Sequence[Event]) -> None:
        gate(connection, [])
        connection.execute(PAGES_MAX % (1 if full else 10_000))
        sql.append(connection, events)

    store = SqliteStore(path, append=append)
    first = store.commit([Write(A, 0, lambda rev: b"x" * 100_000)])
    await settle()
    # On their way to the writer, or not even that, when the first one fails.
    second = store.commit([Write(A, 1, value("b"))])
    conflicting = store.commit([Write(A, 0, value("c"))])
    waiting = asyncio.create_task(store.durable(2))
    await settle()
    gate.opened.set()
    for each in (first, second, conflicting, waiting):
        with pytest.raises(StoreFull):
            await each
    assert store.head(A) is None
    full.clear()
    await until_it_takes_writes(store)
    assert (await create(store, A)).rev == 1
    await store.close()
    store = SqliteStore(path)
    assert store.revision == 1
    await store.close()


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_commit_that_failed_by_the_disk_and_is_there_all_the_same_is_answered_as_such(
    path: Path, when: str
) -> None:
    failing = [True]

    def append(connection: sqlite3.Connection, events: Sequence[Event]) -> None:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR
        if failing and when == "before":
            failing.clear()
            raise error
        sql.append(connection, events)
        if failing:
            failing.clear()
            raise error

    # What is kept for the store is enough for this one.
    store = SqliteStore(path, append=append, relieve=lambda: True)
    assert (await create(store, A, "kept")).rev == 1
    assert not store.failing
    await store.close()
    store = SqliteStore(path)
    entry = store.get(A)
    assert entry is not None and entry.value == b"kept"
    await store.close()


@pytest.mark.usefixtures("impatient")
async def test_a_compaction_that_finds_the_disk_full_is_made_later(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compact, tried = sql.compact, []

    def fail_once(connection: sqlite3.Connection, after: int, upto: int) -> None:
        tried.append(upto)
        if len(tried) == 1:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        compact(connection, after, upto)

    store = SqliteStore(path)
    await create(store, A)
    await put(store, A)
    monkeypatch.setattr(sql, "compact", fail_once)
    await store.compact(2)
    assert (tried, store.compacted, store.failing) == ([2, 2], 2, "")
    await put(store, A)
    await store.close()
