"""Watching: complete, in order, once, from any revision. For both kinds of store."""

from __future__ import annotations

import asyncio

import pytest

from rota.store import Event, FutureRevision, Gone, Store, WatchClosed, Write, watch
from rota.store.delivery import DELIVERED_AT_ONCE_MAX
from tests.store.acts import create, delete, fill, put, read, settle, told, value
from tests.store.conftest import OpenStore

A = "tasks/x/a"
B = "tasks/y/b"


async def test_a_watch_tells_creations_updates_and_deletions_with_the_state_before(store: Store) -> None:
    watching = store.watch("tasks/", 0)
    await create(store, A, "one")
    await put(store, A, "two")
    await delete(store, A, "three")
    await create(store, A, "four")
    assert told(await read(watching, 4)) == [
        (1, A, b"one", False, None, 0),
        (2, A, b"two", False, b"one", 1),
        (3, A, b"three", True, b"two", 2),
        (4, A, b"four", False, None, 0),
    ]


async def test_several_writes_of_one_key_in_one_commit_are_several_events(store: Store) -> None:
    watching = store.watch("tasks/", 0)
    await store.commit([Write(A, 0, value("1")), Write(A, None, value("2")), Write(A, None, value("3"), delete=True)])
    assert [(event.rev, event.prev, event.prev_rev) for event in await watching.next()] == [
        (1, None, 0),
        (2, b"1", 1),
        (3, b"2", 2),
    ]


async def test_a_waiting_watch_is_told_before_the_writer_hears_of_its_write(store: Store) -> None:
    order: list[str] = []

    async def look() -> None:
        await store.watch("tasks/", 0).next()
        order.append("watcher")

    looking = asyncio.create_task(look())
    await settle()
    await create(store, A)
    order.append("writer")
    await looking
    assert order == ["watcher", "writer"]


@pytest.mark.parametrize("since", range(7))
async def test_a_watch_resumes_from_any_revision(store: Store, since: int) -> None:
    await fill(store, "tasks/x/", 6)
    watching = store.watch("tasks/", since)
    await create(store, B)
    assert [event.rev for event in await read(watching, 7 - since)] == list(range(since + 1, 8))


async def test_a_watch_has_its_own_prefix_only(store: Store) -> None:
    watching = store.watch("tasks/x/", 0)
    for key in ("tasks/x-y/1", "tasks/x/1", "tasks/y/1", "other/x/1", "tasks//1", "tasks/x/2"):
        await create(store, key)
    assert [event.key for event in await read(watching, 2)] == ["tasks/x/1", "tasks/x/2"]


async def test_a_watch_is_not_moved_by_writes_that_do_not_concern_it_but_its_position_is(store: Store) -> None:
    watching = store.watch("tasks/x/", 0)
    await create(store, A)
    assert watching.position == 0
    await watching.next()
    assert watching.position == 1
    await create(store, B)
    await create(store, "other/x/1")
    assert watching.position == 3
    await put(store, A)
    assert watching.position == 3
    await watching.next()
    assert watching.position == 4


async def test_a_watch_from_now_on_is_a_bookmark_before_it_is_first_read(store: Store) -> None:
    await create(store, A)
    watching = store.watch("tasks/x/", 1)
    await create(store, B)
    assert watching.position == 2


async def test_an_idle_watch_of_a_quiet_namespace_survives_any_amount_of_other_traffic(open_store: OpenStore) -> None:
    store = open_store(16)
    watching = store.watch("tasks/x/", 0)
    await create(store, A)
    await watching.next()
    await fill(store, "tasks/y/", 100)
    await put(store, A)
    assert [event.rev for event in await watching.next()] == [102]


async def test_a_waiting_watch_of_a_quiet_namespace_is_left_asleep(store: Store) -> None:
    waiting = asyncio.create_task(store.watch("tasks/x/", 0).next())
    await settle()
    await fill(store, "tasks/y/", 10)
    await settle()
    assert not waiting.done()
    await create(store, A)
    assert [event.rev for event in await waiting] == [11]


async def test_a_cancelled_next_loses_nothing(store: Store) -> None:
    watching = store.watch("tasks/", 0)
    for rev in range(1, 4):
        waiting = asyncio.create_task(watching.next())
        await settle()
        # Cancelled in the very turn in which the event arrives.
        future = store.commit([Write(f"tasks/x/{rev}", 0, value("x"))])
        future.add_done_callback(lambda _, waiting=waiting: waiting.cancel())  # type: ignore[misc]
        await future
        await settle()
        if not waiting.cancelled():
            assert [event.rev for event in waiting.result()] == [rev]
        else:
            assert [event.rev for event in await watching.next()] == [rev]


async def test_a_next_cancelled_while_it_waits_can_be_called_again(store: Store) -> None:
    watching = store.watch("tasks/", 0)
    waiting = asyncio.create_task(watching.next())
    await settle()
    waiting.cancel()
    await settle()
    await create(store, A)
    assert [event.rev for event in await watching.next()] == [1]


async def test_batches_are_bounded_and_lose_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "WATCH_BATCH_EVENTS_MAX", 4)
    whole, part = store.watch("tasks/", 0), store.watch("tasks/x/", 0)
    await fill(store, "tasks/x/", 10)
    for watching in (whole, part):
        sizes = [len(await watching.next()) for _ in range(3)]
        assert sizes == [4, 4, 2]
        assert watching.position == 10


async def test_the_position_of_a_watch_in_the_middle_is_the_last_event_it_gave(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "WATCH_BATCH_EVENTS_MAX", 4)
    await fill(store, "tasks/x/", 10)
    watching = store.watch("tasks/", 0)
    await watching.next()
    assert watching.position == 4


async def test_all_watchers_share_one_event_and_its_cache(store: Store) -> None:
    watches = [store.watch("tasks/", 0) for _ in range(3)]
    await create(store, A)
    events = [(await watching.next())[0] for watching in watches]
    events[0].cache = "decoded"
    assert [event.cache for event in events] == ["decoded"] * 3


async def test_a_thousand_watchers_all_see_everything_in_order(store: Store) -> None:
    watches = [store.watch("tasks/" if number % 2 else f"tasks/{number}/", 0) for number in range(1000)]
    readers = [asyncio.create_task(read(watching, 3 if number % 2 else 0)) for number, watching in enumerate(watches)]
    for _ in range(3):
        await put(store, A)
    for number, reader in enumerate(readers):
        assert [event.rev for event in await reader] == ([1, 2, 3] if number % 2 else [])


async def test_a_watch_from_the_future_is_refused(store: Store) -> None:
    with pytest.raises(FutureRevision):
        store.watch("tasks/", 1)


async def test_a_watch_from_before_the_compaction_is_gone(store: Store) -> None:
    await fill(store, "tasks/x/", 4)
    await store.compact(3)
    with pytest.raises(Gone):
        store.watch("tasks/", 2)
    assert [event.rev for event in await store.watch("tasks/", 3).next()] == [4]


async def test_compaction_never_goes_back_nor_ahead(store: Store) -> None:
    await fill(store, "tasks/x/", 4)
    await store.compact(3)
    await store.compact(2)
    assert store.compacted == 3
    with pytest.raises(FutureRevision):
        await store.compact(5)


async def test_a_closed_watch_ends_its_reader_and_tells_nothing_more(store: Store) -> None:
    watching = store.watch("tasks/", 0)
    waiting = asyncio.create_task(watching.next())
    await settle()
    watching.close()
    with pytest.raises(WatchClosed):
        await waiting
    await create(store, A)
    with pytest.raises(WatchClosed):
        await watching.next()
    assert watching.position == 0


async def test_a_closed_store_ends_its_watches_after_what_they_have_not_seen(store: Store) -> None:
    with store.watch("tasks/", 0) as reading, store.watch("tasks/", 0) as waiting:
        seen = asyncio.create_task(read(waiting, 2))
        await fill(store, "tasks/x/", 2)
        await store.close()
        assert [event.rev async for batch in reading for event in batch] == [1, 2]
        await seen
        with pytest.raises(WatchClosed):
            await waiting.next()


async def test_a_waiting_watch_has_a_large_commit_before_listeners_and_its_writer(store: Store) -> None:
    count = 3 * DELIVERED_AT_ONCE_MAX + 1
    order: list[str] = []
    heard: list[int] = []

    def listener(events: list[Event]) -> None:
        order.append("listener")
        heard.extend(event.rev for event in events)

    async def look() -> None:
        await store.watch("tasks/", 0).next()
        order.append("watcher")

    store.subscribe(listener)
    looking = asyncio.create_task(look())
    await settle()
    await store.commit([Write(f"tasks/x/{i}", 0, value("v")) for i in range(count)])
    order.append("writer")
    await looking
    assert order == ["watcher", *4 * ["listener"], "writer"] and heard == [*range(1, count + 1)]


async def test_whoever_listens_from_now_on_is_told_of_nothing_that_can_be_read(store: Store) -> None:
    count = 2 * DELIVERED_AT_ONCE_MAX
    first: list[int] = []
    late: list[int] = []
    counted: list[int] = []

    async def listen_as_soon_as_it_can_be_read() -> None:
        await store.watch("tasks/", 0).next()
        assert store.revision == count and first == []
        store.subscribe(lambda events: late.extend(event.rev for event in events))
        counted.append(len(first))

    store.subscribe(lambda events: first.extend(event.rev for event in events))
    listening = asyncio.create_task(listen_as_soon_as_it_can_be_read())
    await settle()
    await store.commit([Write(f"tasks/x/{i}", 0, value("v")) for i in range(count)])
    await listening
    assert counted == [count] and late == []
    await create(store, A)
    assert late == [count + 1]


async def test_what_listeners_were_not_told_is_not_said_to_be_durable(store: Store) -> None:
    count = 2 * DELIVERED_AT_ONCE_MAX
    told_revisions: list[int] = []

    async def ask() -> None:
        await store.watch("tasks/", 0).next()
        assert store.revision == count
        await store.durable(count)
        assert told_revisions[-1] == count

    store.subscribe(lambda events: told_revisions.extend(event.rev for event in events))
    asking = asyncio.create_task(ask())
    await settle()
    await store.commit([Write(f"tasks/x/{i}", 0, value("v")) for i in range(count)])
    await asking


async def test_listeners_are_told_of_all_that_is_published_when_a_store_is_closed(store: Store) -> None:
    count = 3 * DELIVERED_AT_ONCE_MAX
    heard: list[int] = []
    store.subscribe(lambda events: heard.extend(event.rev for event in events))
    waiting = asyncio.create_task(store.watch("tasks/", 0).next())
    await settle()
    writing = asyncio.ensure_future(store.commit([Write(f"tasks/x/{i}", 0, value("v")) for i in range(count)]))
    await waiting
    await store.close()
    assert len(heard) == count and len(await writing) == count
