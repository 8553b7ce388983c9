"""The Tasks that calls are written down as: what they are made of, and how few writes they take."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from rota.api import Function, Task
from rota.client import Client, LocalBackend
from rota.client.backend import Wrapped, Written
from rota.control.functions import moulds as moulds_module
from rota.control.functions import recording
from rota.control.functions.moulds import Moulds
from rota.control.functions.recording import Identity, Recorder
from rota.control.functions.served import CallOutcome
from rota.control.holds.handover import creation
from rota.engine.clock import RealClock
from rota.engine.objects import StoreObjects
from rota.registry import Operation, Registry, WriteOptions
from rota.registry.errors import ApiError
from rota.registry.moulds import Mould
from rota.store import MemoryStore
from rota.testing.archive import MemoryArchive

FUNCTION: dict[str, Any] = {
    "apiVersion": "rota.dev/v1alpha1",
    "kind": "Function",
    "metadata": {"name": "hello", "uid": "00000000-0000-4000-8000-000000000001", "namespace": "default"},
    "spec": {"entrypoint": "app:handler", "source": {"inline": "x"}},
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
CALLS = st.tuples(
    st.text(max_size=300),
    JSON,
    st.floats(0, 4e9),
    st.floats(0, 1e5),
    st.sampled_from(["", "hello-0"]),
    st.sampled_from([None, 0, 3]),
)
Made = tuple[str, Any, float, float, str, int | None]


def function() -> Function:
    return Function.decode(msgspec.json.encode(FUNCTION))


def task_of(number: int, made: Made) -> Task:
    """The Task of a call, as the recorder makes it."""
    path, result, began, took, instance, exit_code = made
    text = msgspec.json.encode(result).decode()
    ended = CallOutcome("Succeeded", began, began + took, instance, Raw(text.encode()), exit_code=exit_code)
    identity = Identity(f"hello-{number:010x}", f"00000000-0000-4000-9000-{number:012x}")
    return recording.task_of(function(), identity, {"method": "GET", "path": path}, ended, text)


async def registry_at(now: float) -> Registry:
    made = Registry(MemoryStore(), clock=lambda: now)
    await made.start()
    uid = FUNCTION["metadata"]["uid"]
    body = msgspec.json.decode(msgspec.json.encode({**FUNCTION, "metadata": {"name": "hello"}}))
    await made.create(Function.api, "default", body, WriteOptions(uid=uid))
    return made


@given(st.lists(CALLS, min_size=1, max_size=4), st.integers(0, 4_000_000_000))
def test_a_call_that_is_made_from_a_mould_is_what_it_would_be_without(calls: list[Made], now: int) -> None:
    async def check() -> None:
        plain, cast_ = await registry_at(now), await registry_at(now)
        clients = [Client.local(each, manager="rota") for each in (plain, cast_)]
        moulds = Moulds(clients[1])
        for number, made in enumerate(calls):
            task = task_of(number, made)
            (before,) = await clients[0].write_each([creation(task)])
            (after,) = await clients[1].write_each([moulds.creation(task)])
            if isinstance(before, ApiError):
                assert isinstance(after, ApiError) and after.code == before.code
            else:
                assert not isinstance(after, ApiError) and after.value == before.value
        for each in (plain, cast_):
            await each.stop()

    asyncio.run(check())


class Noted(Wrapped):
    """Notes what is written in one go."""

    def __init__(self, registry: Registry) -> None:
        super().__init__(LocalBackend(registry))
        self.writes: list[Sequence[Operation]] = []

    async def write(self, operations: Sequence[Operation], *, atomic: bool = True) -> Written:
        if not atomic:
            self.writes.append(operations)
        return await self._backend.write(operations, atomic=atomic)


@pytest.fixture
async def registry() -> AsyncIterator[Registry]:
    made = await registry_at(1_000.0)
    yield made
    await made.stop()


@pytest.fixture
def noted(registry: Registry) -> Noted:
    return Noted(registry)


@pytest.fixture
def recorder(noted: Noted, registry: Registry) -> Recorder:
    return Recorder(Client(noted, manager="rota"), StoreObjects(registry), MemoryArchive(), RealClock())


async def record(recorder: Recorder, number: int, result: str = "1", **more: Any) -> None:
    identity = Identity(f"hello-{number:010x}", f"00000000-0000-4000-9000-{number:012x}")
    ended = CallOutcome("Succeeded", 1.0, 2.0, "hello-0", Raw(result.encode()))._replace(**more)
    await recorder.record(function(), identity, {"method": "GET", "path": "/"}, ended)


def tasks(registry: Registry) -> list[Task]:
    return [Task.decode(entry.value) for entry in registry.store.list(f"{Task.api.bucket}/").entries]


async def test_calls_that_end_together_are_written_together(
    recorder: Recorder, noted: Noted, registry: Registry
) -> None:
    await asyncio.gather(*(record(recorder, number) for number in range(5)))
    assert [len(each) for each in noted.writes] == [5]
    assert [each.verb for each in noted.writes[0]] == ["cast"] * 5
    assert len(tasks(registry)) == 5


async def test_a_single_call_waits_for_no_other(recorder: Recorder, noted: Noted, registry: Registry) -> None:
    await record(recorder, 1)
    await record(recorder, 2)
    assert [len(each) for each in noted.writes] == [1, 1]


async def test_a_call_that_failed_is_decided_by_itself(recorder: Recorder, noted: Noted, registry: Registry) -> None:
    await record(recorder, 1, reason="Failed", message="it broke")
    assert [each.verb for each in noted.writes[0]] == ["create"]
    (task,) = tasks(registry)
    assert task.status is not None and (task.status.phase, task.status.message) == ("Failed", "it broke")


async def test_a_call_that_is_there_already_leaves_those_beside_it_alone(
    recorder: Recorder, registry: Registry
) -> None:
    await record(recorder, 1, "1")
    await asyncio.gather(record(recorder, 1, "2"), record(recorder, 2, "2"))
    assert [task.status.result for task in tasks(registry) if task.status is not None] == [1, 2]


async def test_a_call_of_a_namespace_that_is_gone_is_not_written_down(noted: Noted, registry: Registry) -> None:
    client = Client(noted, manager="rota")
    moulds = Moulds(client)
    operation = moulds.creation(task_of(1, ("/", 1, 1.0, 1.0, "", None)))
    elsewhere = msgspec.structs.replace(operation, namespace="gone")
    (found,) = await client.write_each([elsewhere])
    assert isinstance(found, ApiError) and found.code == 404


async def test_a_call_whose_writer_is_cancelled_leaves_those_beside_it_alone(
    recorder: Recorder, registry: Registry
) -> None:
    first, second = (asyncio.create_task(record(recorder, number)) for number in (1, 2))
    await asyncio.sleep(0)
    first.cancel()
    await second
    await asyncio.gather(first, return_exceptions=True)
    assert "hello-0000000002" in [task.metadata.name for task in tasks(registry)]


async def test_what_is_large_or_has_many_fields_gets_no_mould(noted: Noted) -> None:
    moulds = Moulds(Client(noted, manager="rota"))
    many = {str(number): number for number in range(moulds_module.FIELDS_MAX + 1)}
    long = "x" * moulds_module.OPEN_BYTES_MAX
    for path, result in (("/", many), (long, 1)):
        assert moulds.creation(task_of(1, (path, result, 1.0, 1.0, "", None))).verb == "create"


def test_a_mould_whose_marks_cannot_be_told_apart_is_none() -> None:
    with pytest.raises(ValueError, match="2 times"):
        Mould(b'{"a":"x","b":"x"}', {b"a": (b"x", 1)})
    made = Mould(b'{"a":"x","b":"100%"}', {b"a": (b'"x"', 1)})
    assert made.cast({b"a": b"1"}) == b'{"a":1,"b":"100%"}'
