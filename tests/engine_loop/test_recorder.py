"""Events: said once, counted, combined, capped; and how long they are kept."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.api import ConfigMap, Event, Namespace, ObjectMeta
from rota.api.core import EventSeries, ObjectReference
from rota.client import Client, ConnectionFailed, LocalBackend
from rota.client.backend import Written
from rota.engine import VirtualClock
from rota.engine import recorder as bounds
from rota.engine.recorder import COMBINED, Recorder, event_name
from rota.engine.retention import EVENT_KEEP_SECONDS, EVENTS_PER_NAMESPACE_MAX, expired, overdue
from rota.registry import ApiError, Operation, Registry
from rota.store import MemoryStore

START = 1_700_000_000.0
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def thing(name: str = "thing", namespace: str = "default", uid: str = "u1") -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace, uid=uid, resource_version="7"))


class Backend(LocalBackend):
    """A registry behind a connection that fails as it is told to."""

    def __init__(self, registry: Registry) -> None:
        super().__init__(registry)
        self.failures: list[Exception] = []
        self.writes = 0
        self.before_patch: Callable[[], Awaitable[object]] | None = None
        self.hangs = False
        self.busy = asyncio.Event()

    async def write(self, operations: Sequence[Operation], *, atomic: bool = True) -> Written:
        self.writes += 1
        self.busy.set()
        if self.hangs:
            await asyncio.Event().wait()
        if self.failures:
            raise self.failures.pop(0)
        if operations[0].verb == "patch" and self.before_patch is not None:
            meanwhile, self.before_patch = self.before_patch, None
            await meanwhile()
        return await super().write(operations, atomic=atomic)


class JumpingClock(VirtualClock):
    """Time that jumps to when somebody waits for it."""

    def call_at(self, when: float, callback: Callable[[], None]) -> Any:
        timer = super().call_at(when, callback)
        asyncio.get_running_loop().call_soon(self.advance_to, when)
        return timer


class World:
    """A registry, and a recorder whose task runs when the test wants it to."""

    def __init__(self, registry: Registry, clock: VirtualClock) -> None:
        self.clock = clock
        self.registry = registry
        self.backend = Backend(registry)
        self.client = Client(self.backend)
        self.recorder = self.another()

    def another(self) -> Recorder:
        return Recorder(self.client, component="tester", instance="host-1", clock=self.clock)

    async def written(self, recorder: Recorder | None = None) -> None:
        """Everything that was recorded is written, or is dropped."""
        task = await running(recorder or self.recorder)
        await end(task)

    async def events(self, namespace: str = "default") -> list[Event]:
        return (await self.client.list(Event, namespace=namespace)).items

    async def event(self) -> Event:
        (event,) = await self.events()
        return event


async def running(recorder: Recorder) -> asyncio.Task[None]:
    task = asyncio.create_task(recorder.run())
    # A task that is cancelled before its first step does nothing at all.
    await asyncio.sleep(0)
    return task


async def end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()


@asynccontextmanager
async def world_on(clock: VirtualClock) -> AsyncIterator[World]:
    registry = Registry(MemoryStore(), clock=clock.time)
    await registry.start()
    yield World(registry, clock)
    await registry.stop()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with world_on(VirtualClock(START)) as world:
        yield world


@pytest.fixture
async def jumping() -> AsyncIterator[World]:
    async with world_on(JumpingClock(START)) as world:
        yield world


# Saying something.


async def test_an_event_says_what_happened_to_what_and_who_says_so(world: World) -> None:
    world.recorder.record(thing(), "Warning", "Broken", "it broke")
    await world.written()
    event = await world.event()
    assert event.involved_object == ObjectReference(
        api_version="v1", kind="ConfigMap", namespace="default", name="thing", uid="u1", resource_version="7"
    )
    assert (event.type, event.reason, event.message, event.count) == ("Warning", "Broken", "it broke", 1)
    assert event.source is not None
    assert (event.source.component, event.reporting_component, event.reporting_instance) == (
        "tester",
        "tester",
        "host-1",
    )
    assert event.first_timestamp == event.last_timestamp == datetime.fromtimestamp(START, UTC)


async def test_recording_alone_writes_nothing(world: World) -> None:
    world.recorder.record(thing(), "Normal", "Made", "it was made")
    assert await world.events() == []


async def test_what_is_recorded_while_it_runs_is_written(world: World) -> None:
    task = await running(world.recorder)
    world.recorder.record(thing(), "Normal", "Made", "it was made")
    await world.backend.busy.wait()
    await end(task)
    assert (await world.event()).reason == "Made"


async def test_an_event_about_a_cluster_object_is_in_the_default_namespace(world: World) -> None:
    world.recorder.record(Namespace(metadata=ObjectMeta(name="prod", uid="u2")), "Normal", "Made", "it was made")
    await world.written()
    event = await world.event()
    assert event.metadata.namespace == "default"
    assert (event.involved_object.kind, event.involved_object.namespace) == ("Namespace", None)


async def test_a_long_message_is_cut(world: World) -> None:
    world.recorder.record(thing(), "Normal", "R" * 500, "m" * 5000)
    await world.written()
    event = await world.event()
    assert event.message == "m" * 1024
    assert event.reason == "R" * 128


async def test_half_a_character_does_not_stop_it(world: World) -> None:
    world.recorder.record(thing(), "Normal", "Odd", "half \ud83d of it")
    await world.written()
    assert (await world.event()).message == "half ? of it"


async def test_an_object_that_was_never_stored_can_be_told_of(world: World) -> None:
    world.recorder.record(thing(uid=""), "Normal", "Made", "it was made")
    world.recorder.record(thing("other", uid=""), "Normal", "Made", "it was made")
    await world.written()
    assert sorted(event.involved_object.name or "" for event in await world.events()) == ["other", "thing"]


# The same again.


async def test_the_same_again_is_the_one_event_with_a_higher_count(world: World) -> None:
    world.recorder.record(thing(), "Warning", "Broken", "it broke")
    await world.written()
    world.clock.advance(60)
    world.recorder.record(thing(), "Warning", "Broken", "it broke")
    await world.written()
    event = await world.event()
    assert event.count == 2
    assert event.first_timestamp == datetime.fromtimestamp(START, UTC)
    assert event.last_timestamp == datetime.fromtimestamp(START + 60, UTC)


@pytest.mark.parametrize(
    "other",
    [
        (thing(uid="u2"), "Warning", "Broken", "it broke"),
        (thing(), "Normal", "Broken", "it broke"),
        (thing(), "Warning", "Bent", "it broke"),
        (thing(), "Warning", "Broken", "it broke again"),
    ],
    ids=["uid", "type", "reason", "message"],
)
async def test_what_differs_is_another_event(world: World, other: Any) -> None:
    world.recorder.record(thing(), "Warning", "Broken", "it broke")
    world.recorder.record(*other)
    await world.written()
    assert [event.count for event in await world.events()] == [1, 1]


async def test_repeats_that_wait_are_one_write(world: World) -> None:
    for _ in range(100):
        world.recorder.record(thing(), "Warning", "Broken", "it broke")
        world.clock.advance(1)
    await world.written()
    assert world.backend.writes == 1
    event = await world.event()
    assert event.count == 100
    assert event.first_timestamp == datetime.fromtimestamp(START, UTC)
    assert event.last_timestamp == datetime.fromtimestamp(START + 99, UTC)


async def test_a_repeat_after_a_restart_finds_the_event(world: World) -> None:
    for _ in range(3):
        recorder = world.another()
        recorder.record(thing(), "Warning", "Broken", "it broke")
        await world.written(recorder)
    assert (await world.event()).count == 3


async def test_two_processes_count_together(world: World) -> None:
    one, two = world.another(), world.another()
    for _ in range(4):
        for recorder in (one, two):
            recorder.record(thing(), "Warning", "Broken", "it broke")
            await world.written(recorder)
    assert (await world.event()).count == 8


async def test_a_count_that_another_process_raises_meanwhile_is_not_lost(world: World) -> None:
    one, two = world.another(), world.another()
    one.record(thing(), "Warning", "Broken", "it broke")
    await world.written(one)
    two.record(thing(), "Warning", "Broken", "it broke")
    world.backend.before_patch = lambda: world.written(two)
    one.record(thing(), "Warning", "Broken", "it broke")
    await world.written(one)
    assert (await world.event()).count == 3


async def test_a_deleted_event_is_made_anew(world: World) -> None:
    world.recorder.record(thing(), "Warning", "Broken", "it broke")
    await world.written()
    await world.client.delete(Event, (await world.event()).metadata.name)
    world.clock.advance(60)
    world.recorder.record(thing(), "Warning", "Broken", "it broke")
    await world.written()
    event = await world.event()
    assert event.count == 1
    assert event.first_timestamp == datetime.fromtimestamp(START + 60, UTC)


# Many similar ones.


async def test_many_messages_of_one_reason_become_one_combined_event(world: World) -> None:
    for number in range(15):
        world.recorder.record(thing(), "Warning", "Broken", f"part {number} broke")
    await world.written()
    messages = {event.message: event.count for event in await world.events()}
    own = {f"part {number} broke": 1 for number in range(10)}
    assert messages == {**own, f"{COMBINED}part 14 broke": 5}


async def test_one_of_the_messages_that_have_an_event_still_counts_there(world: World) -> None:
    for number in [*range(12), 3]:
        world.recorder.record(thing(), "Warning", "Broken", f"part {number} broke")
    await world.written()
    counts = {event.message: event.count for event in await world.events()}
    assert counts["part 3 broke"] == 2


async def test_the_combined_event_says_the_latest_and_is_found_after_a_restart(world: World) -> None:
    for start in (0, 100):
        recorder = world.another()
        for number in range(start, start + 11):
            recorder.record(thing(), "Warning", "Broken", f"part {number} broke")
        await world.written(recorder)
    (combined,) = [event for event in await world.events() if (event.message or "").startswith(COMBINED)]
    assert (combined.message, combined.count) == (f"{COMBINED}part 110 broke", 2)


async def test_messages_that_come_slowly_are_not_combined(world: World) -> None:
    for number in range(15):
        world.recorder.record(thing(), "Warning", "Broken", f"part {number} broke")
        world.clock.advance(61)
    await world.written()
    assert len(await world.events()) == 15


async def test_other_reasons_and_objects_are_not_combined_with_them(world: World) -> None:
    for number in range(10):
        world.recorder.record(thing(), "Warning", "Broken", f"part {number} broke")
    world.recorder.record(thing(), "Warning", "Bent", "part 10 bent")
    world.recorder.record(thing("b", uid="u2"), "Warning", "Broken", "part 10 broke")
    await world.written()
    assert not [event for event in await world.events() if (event.message or "").startswith(COMBINED)]


# Noise.


async def test_a_noisy_object_has_a_burst_and_then_one_now_and_then(world: World) -> None:
    for number in range(30):
        world.recorder.record(thing(), "Normal", f"Reason{number}", "happened")
    await world.written()
    assert len(await world.events()) == 25
    assert world.recorder.dropped == 5
    world.clock.advance(299)
    world.recorder.record(thing(), "Normal", "TooSoon", "happened")
    world.clock.advance(1)
    world.recorder.record(thing(), "Normal", "InTime", "happened")
    await world.written()
    reasons = {event.reason for event in await world.events()}
    assert "InTime" in reasons and "TooSoon" not in reasons
    assert world.recorder.dropped == 6


async def test_another_object_does_not_suffer_from_the_noise(world: World) -> None:
    for number in range(30):
        world.recorder.record(thing(), "Normal", f"Reason{number}", "happened")
    world.recorder.record(thing("quiet", uid="u2"), "Normal", "Made", "it was made")
    await world.written()
    assert "Made" in {event.reason for event in await world.events()}


async def test_repeats_that_were_held_back_are_counted_with_the_next_write(world: World) -> None:
    for _ in range(30):
        world.recorder.record(thing(), "Normal", "Again", "happened")
        await world.written()
    assert (await world.event()).count == 25
    assert world.recorder.dropped == 5
    world.clock.advance(300)
    world.recorder.record(thing(), "Normal", "Again", "happened")
    await world.written()
    assert (await world.event()).count == 31
    assert world.recorder.dropped == 5


# Bounds.


async def test_a_full_queue_drops_the_oldest(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "QUEUE_MAX", 3)
    for number in range(5):
        world.recorder.record(thing(f"thing-{number}", uid=f"u{number}"), "Normal", "Made", "it was made")
    await world.written()
    assert {event.involved_object.name for event in await world.events()} == {"thing-2", "thing-3", "thing-4"}
    assert world.recorder.dropped == 2


async def test_what_was_dropped_can_be_said_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "QUEUE_MAX", 1)
    for number in (1, 2, 1):
        world.recorder.record(thing(f"thing-{number}", uid=f"u{number}"), "Normal", "Made", "it was made")
    await world.written()
    event = await world.event()
    assert (event.involved_object.name, event.count) == ("thing-1", 1)
    assert world.recorder.dropped == 2


async def test_what_is_remembered_is_bounded_and_what_was_forgotten_is_found(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "REMEMBERED_MAX", 4)
    for number in [*range(10), 0]:
        world.recorder.record(thing(f"thing-{number}", uid=f"u{number}"), "Normal", "Made", "it was made")
        await world.written()
    recorder = world.recorder
    assert [len(recorder._events), len(recorder._similar), len(recorder._allowances)] == [4, 4, 4]
    counts = {event.involved_object.name: event.count for event in await world.events()}
    assert counts == {"thing-0": 2} | {f"thing-{number}": 1 for number in range(1, 10)}


async def test_what_goes_on_being_noisy_is_not_forgotten(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "REMEMBERED_MAX", 4)
    for number in range(30):
        world.recorder.record(thing(), "Normal", f"Reason{number}", "happened")
        world.recorder.record(thing(f"thing-{number}", uid=f"other-{number}"), "Normal", "Made", "it was made")
    await world.written()
    assert world.recorder.dropped == 5


# Names.


def test_a_name_is_the_same_for_the_same() -> None:
    name = event_name("thing", "u1", "Normal", "Made", "it was made")
    assert name == event_name("thing", "u1", "Normal", "Made", "it was made")
    assert re.fullmatch(r"thing\.[0-9a-f]{16}", name)


@given(st.text() | st.from_regex(SUBDOMAIN, fullmatch=True) | st.text("aZ.-0:", min_size=230, max_size=260))
def test_a_name_is_always_valid(about: str) -> None:
    name = event_name(about, "u1", "Normal", "Made", "it was made")
    assert len(name) <= 253
    assert SUBDOMAIN.fullmatch(name)


# A server that does not take them.


async def test_a_failure_that_passes_is_tried_again(jumping: World) -> None:
    jumping.backend.failures = [ConnectionFailed("no answer"), ApiError(503, "ServiceUnavailable", "later")]
    task = await running(jumping.recorder)
    changes = jumping.client.watch(Event)
    jumping.recorder.record(thing(), "Normal", "Made", "it was made")
    change = await anext(changes)
    assert change.object is not None and change.object.count == 1
    assert jumping.backend.writes == 3
    assert jumping.clock.now() == 1 + 2
    await end(task)
    assert jumping.recorder.dropped == 0


async def test_an_event_that_others_keep_changing_is_tried_again_later(jumping: World) -> None:
    changed = bounds.CONTENTION_MAX + 1
    jumping.backend.failures = [ApiError(409, "Conflict", "changed meanwhile") for _ in range(changed)]
    task = await running(jumping.recorder)
    changes = jumping.client.watch(Event)
    jumping.recorder.record(thing(), "Normal", "Made", "it was made")
    await anext(changes)
    assert jumping.backend.writes == changed + 1
    assert jumping.clock.now() == 1
    await end(task)


async def test_a_failure_that_lasts_is_dropped_after_a_few_tries(jumping: World) -> None:
    jumping.backend.failures = [ConnectionFailed("no answer") for _ in range(5)]
    task = await running(jumping.recorder)
    jumping.recorder.record(thing(), "Normal", "Lost", "it was lost")
    jumping.recorder.record(thing(), "Normal", "Lost", "it was lost")
    jumping.recorder.record(thing(), "Normal", "Kept", "it was kept")
    changes = jumping.client.watch(Event)
    change = await anext(changes)
    assert change.object is not None and change.object.reason == "Kept"
    await end(task)
    assert jumping.recorder.dropped == 2


@pytest.mark.parametrize(
    "failure",
    [ApiError(403, "Forbidden", "no"), ApiError(422, "Invalid", "no"), ApiError(401, "Unauthorized", "no")],
    ids=["403", "422", "401"],
)
async def test_a_refusal_is_final(world: World, failure: ApiError) -> None:
    world.backend.failures = [failure]
    task = await running(world.recorder)
    world.recorder.record(thing(), "Normal", "Refused", "it was refused")
    world.recorder.record(thing(), "Normal", "Kept", "it was kept")
    changes = world.client.watch(Event)
    change = await anext(changes)
    assert change.object is not None and change.object.reason == "Kept"
    await end(task)
    assert (world.backend.writes, world.recorder.dropped) == (2, 1)


async def test_what_nobody_thought_of_does_not_stop_it_and_is_logged(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.backend.failures = [RuntimeError("never seen before")]
    world.recorder.record(thing(), "Normal", "Odd", "it was odd")
    world.recorder.record(thing(), "Normal", "Kept", "it was kept")
    await world.written()
    assert (await world.event()).reason == "Kept"
    assert world.recorder.dropped == 1
    assert "never seen before" in caplog.text


async def test_a_namespace_that_is_gone_takes_no_events(world: World) -> None:
    world.recorder.record(thing(namespace="gone"), "Normal", "Made", "it was made")
    await world.written()
    assert (world.backend.writes, world.recorder.dropped) == (1, 1)


async def test_a_namespace_that_is_going_takes_no_events(world: World) -> None:
    held = ConfigMap(metadata=ObjectMeta(name="held", namespace="going", finalizers=["rota.dev/held"]))
    await world.client.create(Namespace(metadata=ObjectMeta(name="going")))
    await world.client.create(held)
    await world.client.delete(Namespace, "going")
    world.backend.writes = 0
    world.recorder.record(thing(namespace="going"), "Normal", "Made", "it was made")
    await world.written()
    assert (world.backend.writes, world.recorder.dropped) == (1, 1)


# The end.


async def test_what_is_left_is_written_at_the_end(world: World) -> None:
    task = await running(world.recorder)
    for number in range(20):
        world.recorder.record(thing(f"thing-{number}", uid=f"u{number}"), "Normal", "Made", "it was made")
    await end(task)
    assert len(await world.events()) == 20


async def test_a_write_that_is_under_way_at_the_end_happens_once(world: World) -> None:
    task = await running(world.recorder)
    world.recorder.record(thing(), "Normal", "Made", "it was made")
    await world.backend.busy.wait()
    await end(task)
    assert (await world.event()).count == 1
    assert world.backend.writes == 1


async def test_the_end_does_not_wait_for_a_second_try(world: World) -> None:
    world.backend.failures = [ConnectionFailed("no answer"), ConnectionFailed("no answer")]
    task = await running(world.recorder)
    world.recorder.record(thing(), "Normal", "Lost", "it was lost")
    await world.backend.busy.wait()
    await end(task)
    assert world.clock.now() == 0
    assert world.recorder.dropped == 1


async def test_the_end_comes_also_when_the_server_does_not_answer(jumping: World) -> None:
    jumping.backend.hangs = True
    task = await running(jumping.recorder)
    jumping.recorder.record(thing(), "Normal", "Lost", "it was lost")
    jumping.recorder.record(thing(), "Normal", "LostToo", "it was lost")
    await jumping.backend.busy.wait()
    await end(task)
    assert jumping.clock.now() == bounds.FLUSH_SECONDS
    assert jumping.recorder.dropped == 2


async def test_it_can_be_run_again(world: World) -> None:
    for reason in ("First", "Second"):
        world.recorder.record(thing(), "Normal", reason, "happened")
        await world.written()
    assert {event.reason for event in await world.events()} == {"First", "Second"}


# How long they are kept.


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def kept(name: str, created: float, **more: Any) -> Event:
    return Event(metadata=ObjectMeta(name=name, namespace="default", creation_timestamp=at(created)), **more)


def names(events: list[Event]) -> list[str]:
    return [event.metadata.name for event in events]


def test_an_event_goes_an_hour_after_it_was_last_seen() -> None:
    event = kept("a", START, last_timestamp=at(START + 100))
    assert overdue([event], START + 100 + EVENT_KEEP_SECONDS - 10) == ([], 10)
    assert overdue([event], START + 100 + EVENT_KEEP_SECONDS) == ([event], None)


@pytest.mark.parametrize(
    "event",
    [
        kept("a", START),
        kept("a", START - 9999, last_timestamp=at(START)),
        kept("a", START - 9999, event_time=at(START)),
        kept("a", START - 9999, event_time=at(START - 99), series=EventSeries(count=2, last_observed_time=at(START))),
    ],
    ids=["creationTimestamp", "lastTimestamp", "eventTime", "series"],
)
def test_the_latest_of_its_times_counts(event: Event) -> None:
    assert not expired(event, START + EVENT_KEEP_SECONDS - 1)
    assert expired(event, START + EVENT_KEEP_SECONDS)


def test_a_time_far_ahead_does_not_keep_an_event_for_ever() -> None:
    event = kept("a", START, last_timestamp=at(START + 10**9))
    assert expired(event, START + EVENT_KEEP_SECONDS)


def test_a_clock_that_is_a_little_ahead_does_no_harm() -> None:
    event = kept("a", START - 9999, last_timestamp=at(START + 5))
    assert overdue([event], START) == ([], EVENT_KEEP_SECONDS + 5)


def test_beyond_the_cap_the_oldest_go() -> None:
    events = [kept(f"e{number:04}", START + number) for number in range(EVENTS_PER_NAMESPACE_MAX + 3)]
    gone, again = overdue(events[::-1], START + 2000)
    assert names(gone) == ["e0000", "e0001", "e0002"]
    assert again == 3 + EVENT_KEEP_SECONDS - 2000


def test_old_ones_count_towards_the_cap_before_they_go() -> None:
    old = [kept(f"old{number}", START - 9999 + number) for number in range(5)]
    new = [kept(f"new{number:04}", START + number / 1000) for number in range(EVENTS_PER_NAMESPACE_MAX)]
    gone, _ = overdue([*new, *old], START + 10)
    assert names(gone) == names(old)


def test_without_events_there_is_nothing_to_look_for() -> None:
    assert overdue([], START) == ([], None)


def test_an_event_that_is_going_already_is_left_alone() -> None:
    event = kept("a", START - 9999)
    event.metadata.deletion_timestamp = at(START)
    assert overdue([event], START) == ([], None)


@given(st.lists(st.tuples(st.integers(0, 8000), st.none() | st.integers(0, 8000)), max_size=30), st.integers(0, 8000))
def test_when_it_looks_again_there_is_something_to_do_and_not_before(
    times: list[tuple[int, int | None]], now: int
) -> None:
    events = [
        kept(f"e{number}", START + made, last_timestamp=None if last is None else at(START + last))
        for number, (made, last) in enumerate(times)
        if made <= now and (last or 0) <= now
    ]
    gone, again = overdue(events, START + now)
    left = [event for event in events if event not in gone]
    assert (again is None) == (not left)
    if again is not None:
        assert not any(expired(event, START + now + again - 1e-3) for event in left)
        assert overdue(left, START + now + again)[0]
