"""Writing: compare-and-swap, atomicity, revisions. For both kinds of store."""

from __future__ import annotations

import asyncio

import pytest

from rota.store import Conflict, Entry, FutureRevision, Store, StoreBusy, StoreStopped, Write, core
from tests.store.acts import create, delete, put, value

A = "tasks/default/a"
B = "tasks/default/b"


async def test_a_created_object_can_be_read(store: Store) -> None:
    assert await create(store, A, "hello") == Entry(A, b"hello", 1)
    assert store.get(A) == store.head(A) == Entry(A, b"hello", 1)
    assert store.revision == 1


async def test_what_was_never_written_is_not_there(store: Store) -> None:
    assert store.get(A) is None
    assert store.head(A) is None


async def test_a_cluster_scoped_key_has_an_empty_namespace(store: Store) -> None:
    await create(store, "locations//paris")
    assert [entry.key for entry in store.list("locations//").entries] == ["locations//paris"]


async def test_the_value_is_made_with_the_revision_it_gets(store: Store) -> None:
    await create(store, B)
    (entry,) = await store.commit([Write(A, 0, lambda rev: f"at {rev}".encode())])
    assert entry == Entry(A, b"at 2", 2)


async def test_a_create_conflicts_with_what_exists(store: Store) -> None:
    await create(store, A, "first")
    with pytest.raises(Conflict) as conflict:
        await create(store, A, "second")
    assert conflict.value.key == A
    assert conflict.value.actual == Entry(A, b"first", 1)
    assert store.revision == 1


async def test_an_update_needs_exactly_the_revision_it_expects(store: Store) -> None:
    await create(store, A)
    (updated,) = await store.commit([Write(A, 1, value("second"))])
    with pytest.raises(Conflict):
        await store.commit([Write(A, 1, value("third"))])
    assert store.get(A) == updated == Entry(A, b"second", 2)


async def test_an_update_of_what_is_not_there_conflicts(store: Store) -> None:
    with pytest.raises(Conflict) as conflict:
        await store.commit([Write(A, 7, value("x"))])
    assert conflict.value.actual is None


async def test_a_write_without_expectation_creates_or_replaces(store: Store) -> None:
    await put(store, A, "one")
    assert await put(store, A, "two") == Entry(A, b"two", 2)


async def test_a_delete_removes_and_returns_the_final_state(store: Store) -> None:
    await create(store, A)
    assert await delete(store, A, "last words") == Entry(A, b"last words", 2)
    assert store.get(A) is None
    assert store.count("tasks/") == 0


async def test_a_delete_of_what_is_not_there_conflicts(store: Store) -> None:
    with pytest.raises(Conflict):
        await delete(store, A)


async def test_a_deleted_key_can_be_created_again(store: Store) -> None:
    await create(store, A)
    await delete(store, A)
    assert await create(store, A, "again") == Entry(A, b"again", 3)


async def test_writes_of_one_commit_get_consecutive_revisions_and_are_seen_together(store: Store) -> None:
    future = store.commit([Write(A, 0, value("a")), Write(B, 0, value("b"))])
    assert store.get(A) is None
    assert await future == [Entry(A, b"a", 1), Entry(B, b"b", 2)]
    assert store.revision == 2


async def test_one_wrong_expectation_refuses_the_whole_commit(store: Store) -> None:
    await create(store, B)
    with pytest.raises(Conflict) as conflict:
        await store.commit([Write(A, 0, value("a")), Write(B, 0, value("b"))])
    assert conflict.value.key == B
    assert store.head(A) is None
    assert (await create(store, A)).rev == 2


async def test_one_commit_may_write_a_key_several_times_in_order(store: Store) -> None:
    entries = await store.commit(
        [
            Write(A, 0, value("1")),
            Write(A, None, value("2")),
            Write(A, 2, value("3"), delete=True),
            Write(A, 0, value("4")),
        ]
    )
    assert [entry.rev for entry in entries] == [1, 2, 3, 4]
    assert store.get(A) == Entry(A, b"4", 4)


async def test_an_empty_commit_changes_nothing(store: Store) -> None:
    assert await store.commit([]) == []
    assert store.revision == 0


async def test_a_value_that_cannot_be_made_refuses_the_commit_and_takes_no_revision(store: Store) -> None:
    def fail(rev: int) -> bytes:
        raise LookupError("no value")

    with pytest.raises(LookupError):
        await store.commit([Write(A, 0, value("a")), Write(B, 0, fail)])
    assert store.head(A) is None
    assert (await create(store, B)).rev == 1


async def test_a_value_callable_that_writes_is_an_error(store: Store) -> None:
    def write_more(rev: int) -> bytes:
        store.commit([Write(B, None, value("nested"))])
        return b""

    with pytest.raises(RuntimeError, match="must not write"):
        store.commit([Write(A, 0, write_more)])
    assert store.head(A) is None


@pytest.mark.parametrize("key", ["tasks", "tasks/a"])
async def test_a_key_without_bucket_namespace_and_name_is_an_error(store: Store, key: str) -> None:
    with pytest.raises(ValueError, match="namespace"):
        store.commit([Write(key, 0, value("x"))])


async def test_a_writer_decides_on_writes_that_are_still_on_their_way(store: Store) -> None:
    first = store.commit([Write(A, 0, value("one"))])
    assert store.get(A) is None
    assert store.head(A) == Entry(A, b"one", 1)
    second = store.commit([Write(A, 1, value("two"))])
    third = store.commit([Write(A, 2, value("three"), delete=True)])
    assert store.head(A) is None
    assert [await first, await second, await third] == [
        [Entry(A, b"one", 1)],
        [Entry(A, b"two", 2)],
        [Entry(A, b"three", 3)],
    ]


async def test_a_conflict_with_a_write_on_its_way_is_answered_after_that_write(store: Store) -> None:
    first = store.commit([Write(A, 0, value("one"))])
    second = store.commit([Write(A, 0, value("two"))])
    assert not second.done()
    with pytest.raises(Conflict) as conflict:
        await second
    assert first.done()
    assert conflict.value.actual == Entry(A, b"one", 1)


async def test_many_writers_of_one_key_each_win_once(store: Store) -> None:
    await create(store, A, "0")

    async def add_one() -> None:
        while True:
            head = store.head(A)
            assert head is not None
            try:
                await store.commit([Write(A, head.rev, value(str(int(head.value) + 1)))])
                return
            except Conflict:
                continue

    await asyncio.gather(*(add_one() for _ in range(50)))
    entry = store.get(A)
    assert entry is not None
    assert entry.value == b"50"


async def test_durable_returns_when_a_revision_is_visible(store: Store) -> None:
    store.commit([Write(A, 0, value("a"))])
    await store.durable(1)
    assert store.get(A) is not None
    await store.durable(1)


async def test_durable_refuses_a_revision_that_was_never_given(store: Store) -> None:
    with pytest.raises(FutureRevision):
        await store.durable(1)


async def test_a_cancelled_writer_does_not_take_its_write_back(store: Store) -> None:
    future = store.commit([Write(A, 0, value("a"))])
    future.cancel()
    await create(store, B)
    assert store.get(A) is not None


async def test_a_store_with_too_much_on_its_way_says_so_and_room_waits(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "PENDING_WRITES_MAX", 2)
    accepted = store.commit([Write(A, 0, value("a")), Write(B, 0, value("b"))])
    with pytest.raises(StoreBusy, match="room"):
        await store.commit([Write(A, None, value("c"))])
    assert accepted.done() is False
    await store.room()
    assert accepted.done()
    await put(store, A)


async def test_a_closed_store_takes_no_writes_and_can_still_be_read(store: Store) -> None:
    accepted = store.commit([Write(A, 0, value("a"))])
    await store.close()
    assert (await accepted)[0].rev == 1
    with pytest.raises(StoreStopped, match="closed"):
        await put(store, A)
    assert store.get(A) == Entry(A, b"a", 1)
    await store.close()


# Without a future for each.


async def test_writes_that_are_accepted_one_by_one_are_durable_together(store: Store) -> None:
    accepted = [store.accept(Write(key, 0, value("new"))) for key in (A, B)]
    assert [store.get(A), store.head(A)] == [None, Entry(A, b"new", 1)]
    await store.when_durable(store.accepted)
    assert [store.get(A), store.get(B)] == accepted == [Entry(A, b"new", 1), Entry(B, b"new", 2)]


async def test_a_write_that_is_not_accepted_leaves_those_before_it(store: Store) -> None:
    store.accept(Write(A, 0, value("first")))
    with pytest.raises(Conflict):
        store.accept(Write(A, 0, value("second")))
    await store.when_durable(store.accepted)
    assert store.get(A) == Entry(A, b"first", 1)


async def test_what_is_durable_already_is_not_waited_for(store: Store) -> None:
    await create(store, A)
    assert store.when_durable(store.revision).done()
