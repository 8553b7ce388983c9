"""Operations that are written each by itself, in one go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from rota.api import ConfigMap, Namespace, Task
from rota.client import Client, LocalBackend
from rota.client.backend import Written
from rota.registry import Answer, ApiError, DeleteOptions, Operation, Registry, WriteOptions, pacing
from rota.registry.amendment import Amendment
from rota.store import Event, MemoryStore, StoreStopped
from tests.registry.test_durability import HeldStore, held_registry, turns

KIND = ConfigMap.api
Object = dict[str, Any]


@pytest.fixture
async def registry() -> AsyncIterator[Registry]:
    made = Registry(MemoryStore())
    await made.start()
    yield made
    await made.stop()


def creation(name: str, *, dry_run: bool = False) -> Operation:
    return Operation("create", KIND, "default", body={"metadata": {"name": name}}, options=WriteOptions("m", dry_run))


def patch(name: str, **data: str) -> Operation:
    return Operation("patch", KIND, "default", name, {"data": data})


def codes(answers: Written) -> list[int]:
    return [answer.code if isinstance(answer, ApiError) else 200 for answer in answers]


def names(registry: Registry) -> list[str]:
    return [entry.key.rpartition("/")[2] for entry in registry.store.list(f"{KIND.bucket}/").entries]


async def test_one_that_is_refused_leaves_the_others_alone(registry: Registry) -> None:
    operations = [creation("a"), creation("a"), patch("none", x="1"), creation("b")]
    assert codes(await registry.write_each(operations)) == [200, 409, 404, 200]
    assert names(registry) == ["a", "b"]


async def test_each_is_decided_on_what_those_before_it_have_written(registry: Registry) -> None:
    inside = Operation("create", KIND, "new", body={"metadata": {"name": "x"}})
    namespace = Operation("create", Namespace.api, "", body={"metadata": {"name": "new"}})
    operations = [inside, namespace, inside, creation("a"), patch("a", x="1"), patch("a", y="2")]
    operations += [Operation("delete", KIND, "default", "a"), creation("a")]
    answers = await registry.write_each(operations)
    assert codes(answers) == [404, *[200] * 7]
    assert isinstance(answers[5], Answer) and b'"data":{"x":"1","y":"2"}' in answers[5].value
    assert isinstance(answers[6], Answer) and answers[6].gone
    assert b'"data"' not in registry.get(KIND, "default", "a").value


async def test_all_of_one_slice_of_time_are_published_together(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacing, "OWN_SLICE_SECONDS", 60.0)
    told: list[list[Event]] = []
    pacing.never_slice(asyncio.get_running_loop())
    registry.store.subscribe(told.append)
    await registry.write_each([creation(f"n{i}") for i in range(100)])
    assert [len(events) for events in told] == [100]


async def test_what_goes_in_is_not_changed(registry: Registry) -> None:
    body: Object = {"metadata": {"name": "a"}}
    await registry.write_each([Operation("create", KIND, "default", body=body)])
    assert body == {"metadata": {"name": "a"}}


async def test_a_dry_run_among_others_writes_nothing(registry: Registry) -> None:
    deletion = Operation("delete", KIND, "default", "a", delete=DeleteOptions(dry_run=True))
    answers = await registry.write_each([creation("a"), creation("b", dry_run=True), deletion])
    assert codes(answers) == [200, 200, 200]
    assert names(registry) == ["a"]


async def test_the_deletion_of_many_is_no_part_of_it(registry: Registry) -> None:
    assert codes(await registry.write_each([Operation("delete_collection", KIND, "default"), creation("a")])) == [
        400,
        200,
    ]


async def test_an_error_in_the_place_of_an_operation_is_its_answer(registry: Registry) -> None:
    refused = ApiError(403, "Forbidden", "not yours")
    answers = await registry.write_each([refused, creation("a")])
    assert answers[0] is refused and names(registry) == ["a"]


async def test_an_operation_is_taken_when_those_before_it_are_accepted(registry: Registry) -> None:
    seen = []

    def operations() -> Any:
        for name in "abc":
            seen.append(registry.store.head(KIND.key("default", "a")) is not None)
            yield creation(name)

    await registry.write_each(operations())
    assert seen == [False, True, True]


async def test_what_has_no_room_in_the_answer_is_refused(registry: Registry) -> None:
    answers = await registry.write_each([creation("a"), creation("b")], bytes_max=1)
    assert codes(answers) == [200, 413] and names(registry) == ["a"]


async def task(registry: Registry) -> Object:
    spec = {"command": ["true"], "workerPoolRef": {"name": "p"}}
    frame = {"apiVersion": Task.api.api_version, "kind": "Task", "metadata": {"name": "t"}, "spec": spec}
    made: Object = msgspec.json.decode((await registry.create(Task.api, "default", frame)).value)
    return made


@pytest.mark.parametrize("each", [False, True], ids=["write", "write_each"])
async def test_an_amendment_is_an_operation_as_any_other(registry: Registry, each: bool) -> None:
    uid = (await task(registry))["metadata"]["uid"]
    amendment = Operation("amend", Task.api, "default", "t", Amendment(uid, status={"phase": "Queued"}))
    operations = [amendment, creation("a")]
    answers = await (registry.write_each(operations) if each else registry.write(operations))
    assert codes(list(answers)) == [200, 200]
    assert b'"phase":"Queued"' in registry.get(Task.api, "default", "t").value


async def test_an_amendment_of_another_object_of_its_name_is_refused_alone(registry: Registry) -> None:
    await task(registry)
    other = Operation("amend", Task.api, "default", "t", Amendment("other", status={"phase": "Queued"}))
    assert codes(await registry.write_each([other, creation("a")])) == [409, 200]


async def test_what_was_prepared_and_has_changed_since_is_refused_alone(registry: Registry) -> None:
    backend = LocalBackend(registry)
    await registry.write_each([creation("a"), creation("b")])
    prepared = Client(backend).prepare([patch("a", x="1"), patch("b", x="1")], 1_800_000_000.0)
    await registry.write([patch("a", x="0")])
    assert codes(await backend.write(prepared, atomic=False)) == [409, 200]


async def test_a_client_writes_each_under_its_own_name(registry: Registry) -> None:
    client = Client.local(registry, manager="us")
    (answer,) = await client.write_each(
        [Operation("create", KIND, "default", body={"metadata": {"name": "a"}, "data": {"k": "v"}})]
    )
    assert isinstance(answer, Answer) and b'"manager":"us"' in answer.value


# Time, room and disks.


async def test_a_long_one_lets_others_go_on(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "OWN_SLICE_SECONDS", -1.0)
    writing = asyncio.create_task(registry.write_each([creation(f"n{i}") for i in range(50)]))
    await turns()
    assert not writing.done() and 0 < len(names(registry)) < 50
    assert codes(await writing) == [200] * 50


async def test_answers_wait_until_the_writes_are_durable() -> None:
    store, registry = await held_registry()
    writing = asyncio.create_task(registry.write_each([creation("a"), creation("a")]))
    await turns()
    assert not writing.done()
    store.release()
    assert codes(await writing) == [200, 409]
    await registry.stop()


async def test_what_the_disk_does_not_take_was_not_written_nor_refused() -> None:
    store, registry = await held_registry()
    writing = asyncio.create_task(registry.write_each([creation("a"), creation("a")]))
    await turns()
    store._stall("the disk is full")
    assert codes(await writing) == [503, 503]
    assert names(registry) == []
    await registry.stop()


async def test_a_disk_that_takes_nothing_new_still_takes_changes(registry: Registry) -> None:
    await registry.write([creation("a")])
    registry.store.tight = "little is left"
    assert codes(await registry.write_each([patch("a", x="1"), creation("b")])) == [200, 503]


async def test_more_than_may_wait_for_the_disk_waits_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.store.core.PENDING_WRITES_MAX", 3)
    store, registry = await held_registry()
    writing = asyncio.create_task(registry.write_each([creation(f"n{i}") for i in range(10)]))
    await turns()
    assert isinstance(store, HeldStore) and len(store.held or ()) == 3
    store.release()
    assert codes(await writing) == [200] * 10
    await registry.stop()


async def test_a_store_that_has_ended_answers_each_with_that(registry: Registry) -> None:
    await registry.store.close()
    with pytest.raises(StoreStopped):
        await registry.store.when_durable(registry.store.accepted + 1)
    assert codes(await registry.write_each([creation("a"), creation("b")])) == [503, 503]


async def test_joined_operations_are_written_together_or_not_at_all(registry: Registry) -> None:
    def joined(operation: Operation) -> Operation:
        return msgspec.structs.replace(operation, joined=True)

    operations = [
        *(creation("a"), joined(creation("b"))),
        *(creation("c"), joined(creation("a"))),
        *(patch("none", x="1"), joined(creation("d"))),
        creation("e"),
    ]
    answers = await LocalBackend(registry).write(operations, atomic=False)
    assert codes(answers) == [200, 200, 409, 409, 404, 404, 200]
    assert names(registry) == ["a", "b", "e"]


async def test_joined_operations_and_others_are_written_in_order(registry: Registry) -> None:
    await LocalBackend(registry).write([creation("a")], atomic=False)
    before = registry.store.revision
    together = [patch("a", x="1"), msgspec.structs.replace(creation("b"), joined=True), creation("c")]
    answers = await LocalBackend(registry).write(together, atomic=False)
    assert [one.revision for one in answers if isinstance(one, Answer)] == [before + 1, before + 2, before + 3]
