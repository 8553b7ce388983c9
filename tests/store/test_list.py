"""Reading many: order, paging, namespaces, and listings of the past. For both kinds of store."""

from __future__ import annotations

import pytest

from rota.store import FutureRevision, Gone, Page, Store, Write
from tests.store.acts import create, delete, fill, put, value
from tests.store.conftest import OpenStore


def keys(page: Page) -> list[str]:
    return [entry.key for entry in page.entries]


async def test_a_listing_is_in_the_order_of_the_keys(store: Store) -> None:
    for name in ("b", "c", "a"):
        await create(store, f"tasks/x/{name}")
    page = store.list("tasks/")
    assert keys(page) == ["tasks/x/a", "tasks/x/b", "tasks/x/c"]
    assert (page.revision, page.more, page.remaining) == (3, False, 0)


async def test_a_listing_has_its_own_bucket_and_namespace_only(store: Store) -> None:
    for key in ("tasks/a/1", "tasks/a-b/1", "tasks/b/1", "tasks//1", "task/a/1", "tasks0/a/1"):
        await create(store, key)
    assert keys(store.list("tasks/")) == ["tasks//1", "tasks/a-b/1", "tasks/a/1", "tasks/b/1"]
    assert keys(store.list("tasks/a/")) == ["tasks/a/1"]
    assert keys(store.list("tasks//")) == ["tasks//1"]
    assert [store.count(prefix) for prefix in ("tasks/", "tasks/a/", "task/", "none/")] == [4, 1, 1, 0]


@pytest.mark.parametrize("prefix", ["tasks", "tasks/a", "tasks/a/b/"])
async def test_a_prefix_that_is_neither_bucket_nor_namespace_is_an_error(store: Store, prefix: str) -> None:
    with pytest.raises(ValueError, match="neither"):
        store.list(prefix)
    with pytest.raises(ValueError, match="neither"):
        store.watch(prefix, 0)


async def test_pages_cover_everything_once_and_say_what_remains(store: Store) -> None:
    await fill(store, "tasks/x/", 25)
    await fill(store, "tasks/y/", 5)
    seen: list[str] = []
    remaining: list[int] = []
    page = store.list("tasks/x/", limit=10)
    while True:
        seen += keys(page)
        remaining.append(page.remaining)
        if not page.more:
            break
        page = store.list("tasks/x/", limit=10, after=seen[-1])
    assert seen == [f"tasks/x/{number:06}" for number in range(25)]
    assert remaining == [15, 5, 0]


async def test_a_page_that_ends_exactly_at_the_end_has_no_more(store: Store) -> None:
    await fill(store, "tasks/x/", 10)
    assert not store.list("tasks/x/", limit=10).more


async def test_a_page_may_start_after_a_key_that_is_gone(store: Store) -> None:
    await fill(store, "tasks/x/", 3)
    await delete(store, "tasks/x/000001")
    assert keys(store.list("tasks/", after="tasks/x/000001")) == ["tasks/x/000002"]


async def test_a_page_after_a_key_beyond_the_prefix_is_empty(store: Store) -> None:
    await fill(store, "tasks/x/", 3)
    page = store.list("tasks/x/", after="tasks/y/1", limit=2)
    assert (keys(page), page.more, page.remaining) == ([], False, 0)


async def test_pages_at_the_first_ones_revision_are_one_snapshot(store: Store) -> None:
    await fill(store, "tasks/x/", 6)
    first = store.list("tasks/", limit=2)
    await delete(store, "tasks/x/000003")
    await put(store, "tasks/x/000004", "changed")
    await put(store, "tasks/x/000004", "changed again")
    await create(store, "tasks/x/0000025")
    await create(store, "tasks/x/passing")
    await delete(store, "tasks/x/passing")
    rest = store.list("tasks/", after="tasks/x/000001", limit=3, revision=first.revision)
    assert [(entry.key, entry.value, entry.rev) for entry in rest.entries] == [
        ("tasks/x/000002", b"2", 3),
        ("tasks/x/000003", b"3", 4),
        ("tasks/x/000004", b"4", 5),
    ]
    assert (rest.revision, rest.more, rest.remaining) == (first.revision, True, 1)


async def test_a_listing_at_the_current_revision_is_the_current_listing(store: Store) -> None:
    await fill(store, "tasks/x/", 3)
    assert store.list("tasks/", revision=3) == store.list("tasks/")


async def test_a_listing_of_the_future_is_refused(store: Store) -> None:
    with pytest.raises(FutureRevision):
        store.list("tasks/", revision=1)


async def test_a_listing_from_before_what_memory_keeps_is_gone(open_store: OpenStore) -> None:
    store = open_store(8)
    await create(store, "tasks/x/a")
    for _ in range(20):
        await put(store, "tasks/x/a")
    with pytest.raises(Gone):
        store.list("tasks/", revision=1)
    assert keys(store.list("tasks/", revision=20)) == ["tasks/x/a"]


async def test_a_listing_from_before_the_compaction_is_gone(store: Store) -> None:
    await fill(store, "tasks/x/", 4)
    await store.compact(3)
    with pytest.raises(Gone) as gone:
        store.list("tasks/", revision=2)
    assert gone.value.compacted == 3
    assert len(store.list("tasks/", revision=3).entries) == 3


async def test_writes_on_their_way_are_in_no_listing(store: Store) -> None:
    future = store.commit([Write("tasks/x/a", 0, value("a"))])
    assert keys(store.list("tasks/")) == []
    await future
    assert keys(store.list("tasks/")) == ["tasks/x/a"]
