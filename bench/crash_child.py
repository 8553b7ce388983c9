"""The process that `bench.crash` kills: many writers and a watcher on one store.

It prints `ready`, `ack <revision> <key> <d|-> <checksum of value>` for each acknowledged write, and `saw <revision>`
for each event that the watcher got. Each line is one system call, so a kill cuts only between lines.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sqlite3
from collections.abc import Sequence
from functools import partial
from random import Random
from zlib import crc32

from rota.store import Conflict, Event, SqliteStore, StoreStopped, Write, sql

WRITERS = 64
KEYS = 400
VALUE_BYTES_MAX = 3000
DELETE_SHARE = 0.2
# Low, so that compaction runs often and is killed too; but half of it is more than is written in one life, so that the
# watcher that resumes after it is not overtaken.
SUPERSEDED_ROWS_MAX = 16_000


def write_line(line: str) -> None:
    os.write(1, line.encode() + b"\n")


class FailingDisk:
    """Commit as usual, but fail before or after the commit of this number."""

    def __init__(self, how: str, at: int) -> None:
        self._how = how
        self._left = at

    def __call__(self, connection: sqlite3.Connection, events: Sequence[Event]) -> None:
        self._left -= 1
        if self._how == "before" and self._left == 0:
            raise sqlite3.OperationalError("disk I/O error")
        sql.append(connection, events)
        if self._how == "after" and self._left == 0:
            raise sqlite3.OperationalError("disk I/O error")


def given(content: bytes, rev: int) -> bytes:
    return content


async def write(store: SqliteStore, random: Random) -> None:
    """Create, update and delete random objects, some in commits of several. All writers share the keys."""
    while True:
        keys = random.sample(range(KEYS), random.choice((1, 1, 1, 3)))
        writes = []
        for number in keys:
            key = f"things/{number % 7}/{number}"
            head = store.head(key)
            delete = head is not None and random.random() < DELETE_SHARE
            content = random.randbytes(random.randrange(VALUE_BYTES_MAX))
            writes.append(Write(key, head.rev if head else 0, partial(given, content), delete))
        try:
            entries = await store.commit(writes)
        except Conflict:
            continue
        except StoreStopped:
            return
        for asked, entry in zip(writes, entries, strict=True):
            write_line(f"ack {entry.rev} {entry.key} {'d' if asked.delete else '-'} {crc32(entry.value)}")


async def look(store: SqliteStore, since: int) -> None:
    watch = store.watch("things/", since)
    while True:
        try:
            events = await watch.next()
        except StoreStopped:
            return
        for event in events:
            write_line(f"saw {event.rev}")


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("--since", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--fail", choices=("never", "before", "after"), required=True)
    parser.add_argument("--fail-at", type=int, default=0)
    options = parser.parse_args()
    store = SqliteStore(
        options.path,
        superseded_rows_max=SUPERSEDED_ROWS_MAX,
        append=FailingDisk(options.fail, options.fail_at),
        ring_events_max=256,
    )
    random = Random(options.seed)
    write_line("ready")
    writers = [write(store, Random(random.random())) for _ in range(WRITERS)]
    await asyncio.gather(look(store, options.since), *writers)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main())
