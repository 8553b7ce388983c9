"""One leader at a time, hand-over in seconds, and no write by one that leads no longer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rota import ApiError, Client
from rota.api import ConfigMap, Kind, Lease, ObjectMeta
from rota.api.core import LeaseSpec
from rota.client import HttpBackend, LocalBackend, Operation
from rota.client.backend import Batches, Written
from rota.client.credentials import Credential, Fixed
from rota.client.target import Tls, at_url
from rota.engine import VirtualClock
from rota.engine.fence import Deposed, Fenced
from rota.engine.leadership import LEASE_SECONDS, MARGIN_SECONDS, RENEW_SECONDS, RETRY_SECONDS, Leadership
from rota.registry import Answer, DeleteOptions, ListOptions, Registry, WatchOptions, WriteOptions
from rota.registry.options import Verb
from rota.store import MemoryStore
from tests.kubernetes import server as kubernetes

NAME = "rota-controllers"
SETTLE_TURNS = 60
"""Turns of the loop in which everything that needs no time has happened."""
STEP_SECONDS = 0.1
HAND_OVER_SECONDS_MAX = 10.0


class Line(LocalBackend):
    """A process's way to the server, which a test can break."""

    def __init__(self, registry: Registry) -> None:
        super().__init__(registry)
        self.failure: Exception | None = None
        """The error of every request."""
        self.watch_failure: Exception | None = None
        self.loses_answers = False
        """Requests are carried out, and nobody hears of it."""
        self.answers = asyncio.Event()
        """Set when answers may arrive."""
        self.answers.set()
        self.hangs = False
        self.requests: list[str] = []

    async def _sent(self, verb: str) -> None:
        self.requests.append(verb)
        if self.failure is not None:
            raise self.failure
        if self.hangs:
            await asyncio.get_running_loop().create_future()

    async def get(self, kind: Kind, namespace: str, name: str, *, subresource: str = "") -> Answer:
        await self._sent("get")
        return await super().get(kind, namespace, name, subresource=subresource)

    async def write(self, operations: Sequence[Operation], *, atomic: bool = True) -> Written:
        await self._sent(operations[0].verb)
        answers = await super().write(operations, atomic=atomic)
        if self.loses_answers:
            raise OSError("the connection was lost")
        await self.answers.wait()
        return answers

    def watch(self, kind: Kind, namespace: str, options: WatchOptions) -> Batches:
        return self._watch(kind, namespace, options)

    async def _watch(self, kind: Kind, namespace: str, options: WatchOptions) -> Batches:
        self.requests.append("watch")
        if self.failure or self.watch_failure:
            raise self.failure or self.watch_failure or OSError()
        async for batch in super().watch(kind, namespace, options):
            yield batch


class Candidate:
    """One process."""

    def __init__(self, registry: Registry, clock: VirtualClock, identity: str) -> None:
        self.line = Line(registry)
        self.leadership = Leadership(Client(self.line), identity, clock=clock)
        self.starts = 0
        self.leads = False
        self.before_end: asyncio.Event | None = None
        """The event for which its work waits when it is cancelled."""
        self.failing: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def held(self) -> bool:
        return self.leadership.held

    @property
    def task(self) -> asyncio.Task[None]:
        if self._task is None:
            self._task = asyncio.create_task(self.leadership.run(self._lead))
        return self._task

    async def _lead(self) -> None:
        assert not self.leads
        self.leads, self.failing = True, asyncio.get_running_loop().create_future()
        self.starts += 1
        try:
            await self.failing
        finally:
            try:
                if self.before_end is not None:
                    await self.before_end.wait()
            finally:
                self.leads = False

    async def stop(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task


class World:
    """A server, its time, and the processes."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.clock = VirtualClock(1_800_000_000.0)
        self.client = Client.local(registry)
        self.candidates: list[Candidate] = []

    def start(self, identity: str, clock: VirtualClock | None = None) -> Candidate:
        candidate = Candidate(self.registry, clock or self.clock, identity)
        self.candidates.append(candidate)
        assert not candidate.task.done()
        return candidate

    async def leader(self, identity: str = "a") -> Candidate:
        candidate = self.start(identity)
        await self.settle()
        assert candidate.held and candidate.leads
        return candidate

    async def settle(self) -> None:
        for _ in range(SETTLE_TURNS):
            await asyncio.sleep(0)
        assert sum(candidate.held for candidate in self.candidates) <= 1

    async def passes(self, seconds: float) -> None:
        await self.settle()
        end = self.clock.now() + seconds
        while self.clock.now() < end:
            self.clock.advance(min(STEP_SECONDS, end - self.clock.now()))
            await self.settle()

    async def seconds_until(self, condition: Callable[[], bool]) -> float:
        start = self.clock.now()
        await self.settle()
        while not condition():
            assert self.clock.now() - start < HAND_OVER_SECONDS_MAX, "it does not happen"
            await self.passes(STEP_SECONDS)
        return self.clock.now() - start

    async def lease(self) -> Lease:
        return await self.client.get(Lease, NAME)

    async def record(self) -> LeaseSpec:
        spec = (await self.lease()).spec
        assert spec is not None
        return spec


@asynccontextmanager
async def a_world() -> AsyncIterator[World]:
    store = MemoryStore()
    registry = Registry(store)
    await registry.start()
    world = World(registry)
    yield world
    for candidate in world.candidates:
        candidate.line.failure = OSError("this test is over")
        candidate.task.cancel()
    await asyncio.gather(*(candidate.task for candidate in world.candidates), return_exceptions=True)
    await registry.stop()
    await store.close()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with a_world() as world:
        yield world


# Getting it.


async def test_the_first_one_makes_the_lease_and_leads(world: World) -> None:
    a = await world.leader()
    record = await world.record()
    assert a.leadership.holder == record.holder_identity == "a"
    assert record.lease_duration_seconds == LEASE_SECONDS and record.lease_transitions == 0
    assert record.acquire_time == record.renew_time == datetime.fromtimestamp(world.clock.time(), UTC)


async def test_of_several_exactly_one_leads_and_goes_on_leading(world: World) -> None:
    candidates = [world.start(identity) for identity in "abc"]
    await world.passes(3 * LEASE_SECONDS)
    (leader,) = [candidate for candidate in candidates if candidate.held]
    assert leader.starts == 1 and sum(candidate.starts for candidate in candidates) == 1
    assert {candidate.leadership.holder for candidate in candidates} == {leader.leadership.identity}
    assert (await world.record()).lease_transitions == 0


async def test_a_released_lease_is_taken_at_once(world: World) -> None:
    a = await world.leader()
    b = world.start("b")
    await world.passes(RENEW_SECONDS)
    await a.stop()
    assert not a.leads and not a.held
    await world.settle()
    assert b.held and b.leads
    assert (await world.record()).lease_transitions == 1


async def test_a_released_lease_is_taken_within_a_second_without_a_watch(world: World) -> None:
    a = await world.leader()
    b = world.start("b")
    b.line.watch_failure = ApiError(403, "Forbidden", "you may not watch")
    await world.passes(RENEW_SECONDS)
    await a.stop()
    assert await world.seconds_until(lambda: b.held) <= RETRY_SECONDS + STEP_SECONDS


async def test_the_lease_of_a_dead_leader_is_taken_when_it_has_expired(world: World) -> None:
    a = await world.leader()
    b = world.start("b")
    await world.passes(RENEW_SECONDS + STEP_SECONDS)
    a.line.failure = OSError("no route")
    seconds = await world.seconds_until(lambda: b.held)
    assert LEASE_SECONDS - 2 * STEP_SECONDS <= seconds <= LEASE_SECONDS + STEP_SECONDS
    assert not a.leads and b.leads
    record = await world.record()
    assert record.holder_identity == "b" and record.lease_transitions == 1
    assert record.acquire_time == record.renew_time


async def test_a_process_that_comes_back_under_its_name_leads_at_once(world: World) -> None:
    a = await world.leader()
    acquired = (await world.record()).acquire_time
    world.candidates.remove(a)
    a.line.failure = OSError("killed")
    again = await world.leader("a")
    assert again.held
    record = await world.record()
    assert record.lease_transitions == 0 and record.acquire_time == acquired
    await a.stop()


@pytest.mark.parametrize("years", [-50, 50])
async def test_the_wall_clock_of_another_writer_changes_nothing(world: World, years: int) -> None:
    there = datetime.fromtimestamp(world.clock.time(), UTC).replace(year=2027 + years)
    theirs = LeaseSpec(
        holder_identity="x",
        lease_duration_seconds=4,
        acquire_time=there,
        renew_time=there,
        lease_transitions=3,
    )
    await world.client.create(Lease(metadata=ObjectMeta(name=NAME), spec=theirs))
    a = world.start("a")
    # As long as the record says, since it was seen; whatever the time in it.
    assert 4 <= await world.seconds_until(lambda: a.held) <= 4 + 2 * STEP_SECONDS
    assert (await world.record()).lease_transitions == 4


async def test_a_record_that_goes_on_changing_is_never_taken(world: World) -> None:
    moment = datetime(2020, 1, 1, tzinfo=UTC)
    theirs = LeaseSpec(holder_identity="x", lease_duration_seconds=2, renew_time=moment)
    lease = await world.client.create(Lease(metadata=ObjectMeta(name=NAME), spec=theirs))
    a = world.start("a")
    for second in range(1, 20):
        await world.passes(1.0)
        theirs = msgspec.structs.replace(theirs, renew_time=moment.replace(second=second))
        lease = await world.client.update(msgspec.structs.replace(lease, spec=theirs))
    assert a.starts == 0


async def test_a_lease_without_holder_or_duration_can_be_had(world: World) -> None:
    await world.client.create(Lease(metadata=ObjectMeta(name=NAME, labels={"kept": "yes"})))
    await world.leader()
    assert (await world.lease()).metadata.labels == {"kept": "yes"}
    assert (await world.record()).lease_duration_seconds == LEASE_SECONDS


async def test_a_candidate_outlasts_a_server_that_is_away(world: World) -> None:
    a = world.start("a")
    a.line.failure = OSError("no route")
    await world.passes(60.0)
    a.line.failure = ApiError(503, "ServiceUnavailable", "starting")
    await world.passes(60.0)
    assert not a.held
    a.line.failure = None
    assert await world.seconds_until(lambda: a.held) <= RETRY_SECONDS + STEP_SECONDS


async def test_what_will_not_pass_ends_the_campaign(world: World) -> None:
    a = world.start("a")
    a.line.failure = ApiError(403, "Forbidden", "you may not")
    with pytest.raises(ApiError, match="you may not"):
        await a.task


async def test_a_lease_that_was_taken_unknowingly_is_released_too(world: World) -> None:
    a = world.start("a")
    a.line.loses_answers = True
    await world.settle()
    assert (await world.record()).holder_identity == "a" and not a.held
    a.line.loses_answers = False
    await a.stop()
    assert (await world.record()).holder_identity == ""


async def test_a_follower_who_watches_does_not_ask(world: World) -> None:
    await world.leader()
    b = world.start("b")
    await world.settle()
    b.line.requests.clear()
    await world.passes(60.0)
    assert b.line.requests == []


# Keeping it.


async def test_renewals_are_seen_though_the_wall_clock_stands_still(world: World) -> None:
    class Stuck(VirtualClock):
        def now(self) -> float:
            return world.clock.now()

        def time(self) -> float:
            return 1_800_000_000.0

        def call_at(self, when: float, callback: Callable[[], None]) -> Any:
            return world.clock.call_at(when, callback)

    a, b = world.start("a", Stuck()), world.start("b")
    await world.passes(3 * LEASE_SECONDS)
    assert a.held and a.starts == 1 and b.starts == 0


async def test_a_leader_who_was_stopped_knows_it_before_it_does_anything(world: World) -> None:
    a = await world.leader()
    b = world.start("b")
    await world.passes(RENEW_SECONDS)
    fenced = Client(Fenced(LocalBackend(world.registry), lambda: a.held, lambda: a.leadership.holder))
    await fenced.create(ConfigMap(metadata=ObjectMeta(name="before")))
    world.clock.advance(LEASE_SECONDS - MARGIN_SECONDS)
    assert a.leads and not a.held
    with pytest.raises(Deposed, match="does not lead now; last seen leading: a"):
        await fenced.create(ConfigMap(metadata=ObjectMeta(name="after")))
    assert [one.metadata.name for one in (await world.client.list(ConfigMap)).items] == ["before"]
    await world.settle()
    assert [a.held, b.held].count(True) <= 1


async def test_a_lapse_ends_the_work_also_when_nobody_has_used_it(world: World) -> None:
    a = await world.leader()
    world.clock.advance(LEASE_SECONDS)
    assert a.leads and not a.held
    await world.settle()
    assert a.held and a.leads and a.starts == 2


async def test_a_term_counts_from_before_the_lease_was_asked_for(world: World) -> None:
    a = world.start("a")
    a.line.answers.clear()
    await world.passes(3.0)
    assert not a.held
    a.line.answers.set()
    await world.settle()
    assert a.held
    world.clock.advance(LEASE_SECONDS - MARGIN_SECONDS - 3.0)
    assert not a.held


async def test_an_answer_that_comes_after_the_term_renews_nothing(world: World) -> None:
    a = await world.leader()
    a.line.answers.clear()
    await world.passes(RENEW_SECONDS)
    a.line.answers.set()
    world.clock.advance(LEASE_SECONDS - MARGIN_SECONDS - RENEW_SECONDS)
    assert a.leads and not a.held
    await world.settle()
    assert a.starts == 2


@pytest.mark.parametrize(
    "failure",
    [OSError("cut"), ApiError(500, "InternalError", "no"), ApiError(429, "TooManyRequests", "no")],
    ids=["cut", "500", "429"],
)
async def test_trouble_that_passes_in_time_costs_nothing(world: World, failure: Exception) -> None:
    a = await world.leader()
    a.line.failure = failure
    await world.passes(LEASE_SECONDS - MARGIN_SECONDS - RETRY_SECONDS - STEP_SECONDS)
    a.line.failure = None
    await world.passes(LEASE_SECONDS)
    assert a.held and a.starts == 1


async def test_a_renewal_that_hangs_leaves_time_for_another(world: World) -> None:
    a = await world.leader()
    a.line.hangs = True
    await world.passes(RENEW_SECONDS + STEP_SECONDS)
    a.line.hangs = False
    await world.passes(LEASE_SECONDS)
    assert a.held and a.starts == 1


async def test_lost_renewals_end_the_work_and_its_end_is_awaited(world: World) -> None:
    a = await world.leader()
    a.before_end = asyncio.Event()
    a.line.failure = OSError("no route")
    await world.passes(LEASE_SECONDS - MARGIN_SECONDS - STEP_SECONDS)
    assert a.held
    await world.passes(STEP_SECONDS)
    assert not a.held and a.leads
    a.line.failure = None
    await world.passes(2 * LEASE_SECONDS)
    assert not a.held and a.starts == 1
    a.before_end.set()
    await world.seconds_until(lambda: a.held)
    assert a.starts == 2


async def test_answers_that_are_lost_are_no_loss_of_the_lease(world: World) -> None:
    a = await world.leader()
    b = world.start("b")
    a.line.loses_answers = True
    await world.passes(RENEW_SECONDS + STEP_SECONDS)
    a.line.loses_answers = False
    await world.passes(LEASE_SECONDS)
    assert a.held and a.starts == 1 and b.starts == 0


async def test_a_change_of_the_labels_meanwhile_is_kept_and_no_loss(world: World) -> None:
    a = await world.leader()
    await world.client.patch(Lease, NAME, {"metadata": {"labels": {"team": "blue"}}})
    await world.passes(RENEW_SECONDS)
    assert a.held and a.starts == 1
    assert (await world.lease()).metadata.labels == {"team": "blue"}
    assert (await world.record()).renew_time == datetime.fromtimestamp(world.clock.time(), UTC)


async def test_a_leader_who_finds_another_in_its_place_stops_at_once(world: World) -> None:
    a = await world.leader()
    await world.client.patch(Lease, NAME, {"spec": {"holderIdentity": "usurper"}})
    await world.passes(RENEW_SECONDS)
    assert not a.held and not a.leads and a.leadership.holder == "usurper"


async def test_a_deleted_lease_is_made_again_by_its_holder(world: World) -> None:
    a = await world.leader()
    b = world.start("b")
    await world.passes(STEP_SECONDS)
    await world.client.delete(Lease, NAME)
    await world.passes(2 * LEASE_SECONDS)
    assert a.held and a.starts == 1 and b.starts == 0
    assert (await world.record()).holder_identity == "a"


async def test_a_deleted_lease_of_a_dead_leader_is_taken_in_the_end(world: World) -> None:
    a = await world.leader()
    b = world.start("b")
    await world.passes(RENEW_SECONDS)
    a.line.failure = OSError("dead")
    await world.client.delete(Lease, NAME)
    assert await world.seconds_until(lambda: b.held) >= LEASE_SECONDS - STEP_SECONDS
    assert (await world.record()).lease_transitions == 1


async def test_what_will_not_pass_ends_the_work_and_is_raised(world: World) -> None:
    a = await world.leader()
    a.line.failure = ApiError(403, "Forbidden", "no longer")
    await world.passes(RENEW_SECONDS)
    with pytest.raises(ApiError, match="no longer"):
        await a.task
    assert not a.leads and not a.held


# The end.


async def test_work_that_fails_releases_the_lease_and_raises(world: World) -> None:
    a = await world.leader()
    assert a.failing is not None
    a.failing.set_exception(ValueError("a mistake"))
    with pytest.raises(ValueError, match="a mistake"):
        await a.task
    assert not a.held and (await world.record()).holder_identity == ""


async def test_work_that_ends_releases_the_lease(world: World) -> None:
    a = await world.leader()
    assert a.failing is not None
    a.failing.set_result(None)
    await a.task
    assert not a.held and (await world.record()).holder_identity == ""


async def test_work_that_fails_because_it_was_deposed_is_no_failure(world: World) -> None:
    a = await world.leader()
    world.clock.advance(LEASE_SECONDS)
    assert a.failing is not None
    a.failing.set_exception(Deposed("not you"))
    await world.settle()
    assert a.held and a.starts == 2


async def test_a_cancelled_leader_ends_its_work_before_it_releases(world: World) -> None:
    a = await world.leader()
    a.before_end = asyncio.Event()
    a.task.cancel()
    await world.settle()
    # It may still write what it has to.
    assert a.leads and a.held and (await world.record()).holder_identity == "a"
    a.before_end.set()
    with pytest.raises(asyncio.CancelledError):
        await a.task
    assert not a.leads and not a.held and (await world.record()).holder_identity == ""


async def test_a_second_cancellation_hurries_the_work_and_still_waits_for_it(world: World) -> None:
    a = await world.leader()
    a.before_end = asyncio.Event()
    a.task.cancel()
    await world.settle()
    a.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await a.task
    assert not a.leads and (await world.record()).holder_identity == ""


async def test_a_release_is_repeated_when_somebody_else_was_faster(world: World) -> None:
    a = await world.leader()
    await world.client.patch(Lease, NAME, {"metadata": {"labels": {"team": "blue"}}})
    await a.stop()
    assert (await world.record()).holder_identity == ""


async def test_a_release_that_gets_no_answer_is_bounded_in_time(world: World) -> None:
    a = await world.leader()
    a.line.hangs = True
    a.task.cancel()
    assert await world.seconds_until(a.task.done) <= 3.0
    assert a.task.cancelled() and not a.held


async def test_a_release_does_not_touch_the_lease_of_another(world: World) -> None:
    a = await world.leader()
    await world.client.patch(Lease, NAME, {"spec": {"holderIdentity": "b"}})
    await a.stop()
    assert (await world.record()).holder_identity == "b"


# The fence.


@pytest.fixture
def fence(world: World) -> tuple[Fenced, list[bool]]:
    held = [True]
    return Fenced(LocalBackend(world.registry), lambda: held[0], lambda: "somebody"), held


WHERE, MAP = (ConfigMap.api, "default"), {"metadata": {"name": "m"}}
APPLIED = {"apiVersion": "v1", "kind": "ConfigMap", **MAP}
BODIES: dict[Verb, Any] = {
    "create": {"metadata": {"name": "n"}},
    "update": MAP,
    "patch": {"data": {"a": "b"}},
    "apply": APPLIED,
    "delete": None,
    "delete_collection": None,
}


def writing(verb: Verb, *, dry_run: bool = False) -> list[Operation]:
    name = "" if verb in ("create", "delete_collection") else "m"
    return [Operation(verb, *WHERE, name, BODIES[verb], WriteOptions("t", dry_run), DeleteOptions(dry_run=dry_run))]


@pytest.mark.parametrize("verb", BODIES)
async def test_who_does_not_lead_does_not_write(fence: tuple[Fenced, list[bool]], verb: Verb) -> None:
    fenced, held = fence
    (made,) = await fenced.write([Operation("create", *WHERE, body=MAP)])
    assert isinstance(made, Answer)
    held[0] = False
    for atomic in True, False:
        with pytest.raises(Deposed, match="somebody"):
            await fenced.write(writing(verb), atomic=atomic)
    await fenced.write(writing(verb, dry_run=True))
    assert (await fenced.get(*WHERE, "m")).value == made.value
    assert len((await fenced.list(*WHERE, ListOptions())).items) == 1
    held[0] = True
    await fenced.write(writing(verb))


async def test_who_does_not_lead_still_watches(fence: tuple[Fenced, list[bool]]) -> None:
    fenced, held = fence
    await fenced.write([Operation("create", *WHERE, body=MAP)])
    held[0] = False
    batches: Any = fenced.watch(*WHERE, WatchOptions())
    assert [event.type for event in await anext(batches)] == ["ADDED"]
    await batches.aclose()
    assert fenced.atomic
    await fenced.close()


# On the wire.


async def test_times_have_six_digits_on_the_wire_and_come_back_as_they_were(world: World) -> None:
    await world.leader()
    raw = await world.client.get(Lease.api, NAME)
    assert raw["spec"]["renewTime"] == "2027-01-15T08:00:00.000000Z"
    assert Lease.decode(msgspec.json.encode(raw)).spec == await world.record()


async def test_leaders_follow_each_other_on_a_kubernetes_server(tmp_path: Path) -> None:
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    if not assets:
        pytest.skip("KUBEBUILDER_ASSETS is not set to a folder with etcd and kube-apiserver")
    with kubernetes.running(Path(assets), tmp_path) as server:
        target = at_url(
            f"https://127.0.0.1:{server.port}",
            tls=Tls(server.certificate.read_text()),
            credentials=Fixed(Credential(token=server.token)),
        )
        backend = HttpBackend(target)
        try:
            async with asyncio.timeout(60):
                await _follow_each_other(Client(backend))
        finally:
            await backend.close()


async def _follow_each_other(client: Client) -> None:
    leaderships = {
        identity: Leadership(client, identity, lease_seconds=3.0, renew_seconds=0.3, retry_seconds=0.3)
        for identity in "abc"
    }
    led: asyncio.Queue[str] = asyncio.Queue()

    def lead(identity: str) -> Callable[[], Any]:
        async def leads() -> None:
            assert [leadership.held for leadership in leaderships.values()].count(True) == 1
            await led.put(identity)
            await asyncio.get_running_loop().create_future()

        return leads

    tasks = {identity: asyncio.create_task(each.run(lead(identity))) for identity, each in leaderships.items()}
    leaders = [await led.get()]
    raw = await client.get(Lease.api, NAME)
    assert raw["spec"]["holderIdentity"] == leaders[0] and len(raw["spec"]["renewTime"]) == 27

    await client.delete(Lease, NAME)
    changes: Any = client.watch(Lease, fields=f"metadata.name={NAME}")
    again = await anext(changes)
    await changes.aclose()
    assert again.object.spec.holder_identity == leaders[0] and leaderships[leaders[0]].held

    loop = asyncio.get_running_loop()
    for _ in range(2):
        tasks[leaders[-1]].cancel()
        began = loop.time()
        leaders.append(await led.get())
        assert loop.time() - began < 2.0
    assert sorted(leaders) == ["a", "b", "c"]
    record = (await client.get(Lease, NAME)).spec
    assert record is not None and record.lease_transitions == 2
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)
    record = (await client.get(Lease, NAME)).spec
    assert record is not None and not record.holder_identity
