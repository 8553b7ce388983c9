from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from rota.store import MemoryStore, SqliteStore, Store

# Makes a store of the kind under test, with rings of so many events.
OpenStore = Callable[[int], Store]


@pytest.fixture(params=["memory", "sqlite"])
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenStore]:
    opened: list[Store] = []

    def open_one(ring_events_max: int) -> Store:
        if request.param == "memory":
            store: Store = MemoryStore(ring_events_max=ring_events_max)
        else:
            store = SqliteStore(tmp_path / f"{len(opened)}.db", ring_events_max=ring_events_max)
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        await store.close()


@pytest.fixture
async def store(open_store: OpenStore) -> Store:
    return open_store(1000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"
