"""Objects that were not written for a while take little room, and are read as before."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.store import Entry, SqliteStore, Store, ring
from rota.store.packing import Packed, Packer, unpacked
from tests.store.acts import create, delete, put, read
from tests.store.conftest import OpenStore

RING = 8
KEY = "tasks/x/{:04}"


def text(number: int) -> str:
    """Much the same as that of every other number, and in itself of little order."""
    chance = random.Random(0)
    fields = {chance.randbytes(6).hex(): chance.randbytes(6).hex() for _ in range(40)}
    return msgspec.json.encode({"name": f"n{number}", **fields, "number": number}).decode()


def entries(count: int) -> list[Entry]:
    return [Entry(KEY.format(number), text(number).encode(), number + 1) for number in range(count)]


def noise(chance: random.Random) -> Entry:
    return Entry(KEY.format(0), chance.randbytes(2_000), 1)


def kept_bytes(store: Store) -> int:
    """Return the bytes that the objects themselves take."""
    kept = store._objects.live.values()
    return sum(len(one.packed) if isinstance(one, Packed) else len(one.value) for one in kept)


@pytest.fixture
def packs_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little there is."""
    monkeypatch.setattr(ring, "BUCKET_BYTES_MIN", 0)


async def made(store: Store, count: int) -> None:
    for number in range(count):
        await create(store, KEY.format(number), text(number))


def test_what_is_alike_takes_a_tenth_and_comes_back_whole() -> None:
    packer, some = Packer(), entries(100)
    packed = [packer.pack(one) for one in some]
    assert [unpacked(one) for one in packed] == some
    small = [one for one in packed if isinstance(one, Packed)]
    assert len(small) >= 99
    assert sum(len(one.packed) for one in small[1:]) * 10 < sum(len(one.value) for one in some[1:])


def test_what_does_not_shrink_stays_as_it_is() -> None:
    packer, chance = Packer(), random.Random(1)
    for _ in range(100):
        one = noise(chance)
        assert packer.pack(one) is one


def test_after_a_while_of_others_the_sample_is_one_of_them() -> None:
    packer, chance = Packer(), random.Random(2)
    for _ in range(50):
        packer.pack(noise(chance))
    some = [packer.pack(one) for one in entries(200)]
    last = some[-1]
    assert isinstance(last, Packed) and len(last.packed) * 10 < len(unpacked(last).value)


@given(st.lists(st.binary(max_size=3_000), max_size=20))
def test_whatever_is_packed_comes_back(values: list[bytes]) -> None:
    packer = Packer()
    for number, value in enumerate(values * 3):
        entry = Entry("a/b/c", value, number)
        assert unpacked(packer.pack(entry)) == entry


@pytest.mark.usefixtures("packs_all")
async def test_what_went_cold_is_packed_and_reads_the_same(open_store: OpenStore) -> None:
    store = open_store(RING)
    await made(store, 50)
    before, listed = kept_bytes(store), store.list("tasks/").entries
    store._cooling.at_once()
    assert kept_bytes(store) * 2 < before
    assert store.list("tasks/").entries == [*store.scan("tasks/")] == listed
    assert store.get(KEY.format(0)) == store.head(KEY.format(0)) == listed[0]


@pytest.mark.usefixtures("packs_all")
async def test_what_was_written_lately_is_not_packed(open_store: OpenStore) -> None:
    store = open_store(1_000)
    await made(store, 20)
    before = kept_bytes(store)
    store._cooling.at_once()
    assert kept_bytes(store) == before


async def test_of_what_there_is_little_nothing_is_packed(open_store: OpenStore) -> None:
    store = open_store(RING)
    await made(store, 50)
    before = kept_bytes(store)
    store._cooling.at_once()
    assert kept_bytes(store) == before


async def test_how_much_there_is_is_known_whatever_happens(path: Path) -> None:
    store = SqliteStore(path)
    await made(store, 10)
    await put(store, KEY.format(0), "shorter")
    await delete(store, KEY.format(1))
    await create(store, KEY.format(1), "again")
    assert store._objects.bucket("tasks/").bytes == kept_bytes(store)
    await store.close()
    again = SqliteStore(path)
    assert again._objects.bucket("tasks/").bytes == kept_bytes(again)
    await again.close()


@pytest.mark.usefixtures("packs_all")
async def test_a_write_over_what_is_packed_tells_what_was_there(open_store: OpenStore) -> None:
    store = open_store(RING)
    await made(store, 50)
    store._cooling.at_once()
    with store.watch("tasks/", store.revision) as watch:
        await put(store, KEY.format(0), "new")
        (event,) = await read(watch, 1)
    assert (event.prev, event.prev_rev, event.value) == (text(0).encode(), 1, b"new")
    assert store.get(KEY.format(0)) == Entry(KEY.format(0), b"new", 51)


@pytest.mark.usefixtures("packs_all")
async def test_a_file_is_loaded_packed_and_without_what_was_written_over(path: Path) -> None:
    store = SqliteStore(path)
    await made(store, 50)
    for number in range(50):
        await put(store, KEY.format(number), text(number + 1))
    raw = kept_bytes(store)
    await store.close()
    again = SqliteStore(path)
    try:
        assert [one.value.decode() for one in again.scan("tasks/")] == [text(number + 1) for number in range(50)]
        assert kept_bytes(again) * 5 < raw
    finally:
        await again.close()
