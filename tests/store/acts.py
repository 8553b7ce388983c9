"""The operations of tests on a store, in one word each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rota.store import Entry, Event, Store, Watch, Write

TURNS = 20


def value(text: str) -> Callable[[int], bytes]:
    return lambda rev: text.encode()


async def create(store: Store, key: str, text: str = "new") -> Entry:
    (entry,) = await store.commit([Write(key, 0, value(text))])
    return entry


async def put(store: Store, key: str, text: str = "put") -> Entry:
    (entry,) = await store.commit([Write(key, None, value(text))])
    return entry


async def delete(store: Store, key: str, text: str = "final") -> Entry:
    (entry,) = await store.commit([Write(key, None, value(text), delete=True)])
    return entry


async def fill(store: Store, prefix: str, count: int) -> None:
    await store.commit([Write(f"{prefix}{number:06}", 0, value(str(number))) for number in range(count)])


async def read(watch: Watch, count: int) -> list[Event]:
    """Exactly that many events, however they are cut into batches."""
    events: list[Event] = []
    while len(events) < count:
        events += await watch.next()
    assert len(events) == count
    return events


async def settle() -> None:
    """Lets everything that is ready to run do so. It waits for no time to pass."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


def told(events: list[Event]) -> list[tuple[int, str, bytes, bool, bytes | None, int]]:
    return [(event.rev, event.key, event.value, event.deleted, event.prev, event.prev_rev) for event in events]
