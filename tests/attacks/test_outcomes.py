"""To hold the server up, or a pool, by what a task says of its own end."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from rota.api import Task
from rota.client import Client, LocalBackend
from rota.control.functions.recording import Recorder, new_identity
from rota.control.functions.served import CallOutcome
from rota.control.tasks.lifecycle import RESULT_BYTES_MAX, result_of
from rota.registry import ApiError
from rota.testing.archive import MemoryArchive
from tests.control.conftest import world
from tests.control.running.fake import FakeRuntime
from tests.control.tasks.crew import Crew
from tests.control.tasks.test_tasks import a_task, held, phases, status, up
from tests.engine_loop.loops import World

__all__ = ["world"]

DEEP = "[" * 500 + "]" * 500


@pytest.fixture(params=["at once", "one by one"])
async def crew(world: World, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Crew:
    monkeypatch.setattr(LocalBackend, "atomic", request.param == "at once")
    return Crew(world, FakeRuntime(world.clock))


class Refusing:
    """Counts the writes of statuses, and refuses some."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, code: int, reason: str) -> None:
        self.count = 0
        self.is_on = True
        write_each = Client.write_each

        async def refused(client: Client, operations: Any) -> Any:
            if not self.is_on:
                return await write_each(client, operations)
            self.count += 1
            return [ApiError(code, reason, "it cannot be written") for _ in operations]

        monkeypatch.setattr(Client, "write_each", refused)


async def test_to_keep_the_server_busy_by_a_result_that_cannot_be_stored(world: World, crew: Crew) -> None:
    await up(world, crew)
    await a_task(world, "a")
    crew.finish("p-0", exit_code=0, result=DEEP)
    await world.rest()
    found = await status(world, "a")
    assert (found.phase, found.result) == ("Succeeded", DEEP)
    assert crew.pending == {} and await held(world) == {}


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_a_result_is_stored_as_text_where_it_is_nested_too_deep(opening: str) -> None:
    closing = {"[": "]", '{"a":': "}"}[opening]
    for levels in (1, 60, 63, 64, 65, 600, RESULT_BYTES_MAX // 6):
        text = opening * levels + "1" + closing * levels
        found = result_of(text)
        assert found == (text if levels >= 64 else json.loads(text))


async def test_to_have_an_end_written_for_ever_that_is_refused_for_what_it_says(world: World, crew: Crew) -> None:
    """Whatever it is that cannot be stored: the end is, without it."""
    await up(world, crew)
    await a_task(world, "a")
    crew.finish("p-0", exit_code=0, outputs={"k": "v" * 100_000})
    await world.rest()
    found = await status(world, "a")
    assert (found.phase, found.exit_code, found.outputs) == ("Failed", 0, {})
    assert "cannot be stored" in found.message and "outputs" in found.message
    assert crew.pending == {} and await held(world) == {}


async def test_to_keep_the_server_busy_by_an_end_that_is_always_refused(
    world: World, crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    await up(world, crew)
    await a_task(world, "a")
    refusing = Refusing(monkeypatch, 422, "Invalid")
    crew.finish("p-0")
    await world.pass_time(10, step=0.5)
    assert 2 < refusing.count < 20
    refusing.is_on = False
    await world.pass_time(2, step=0.5)
    assert await phases(world) == {"a": "Failed"} and crew.pending == {}


async def test_to_be_run_again_by_ending_while_nothing_can_be_written(
    world: World, crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker stays given to tasks until their ends are written: the next server asks its runner for them."""
    await up(world, crew, reset="Keep")
    await a_task(world, "a")
    refusing = Refusing(monkeypatch, 503, "ServiceUnavailable")
    crew.finish("p-0", exit_code=0)
    await world.pass_time(3, step=0.5)
    assert await held(world) == {"p-0": "a"}
    await world.stop()
    refusing.is_on = False
    await world.serve(*crew.controllers())
    await world.rest()
    found = await status(world, "a")
    assert (found.phase, found.losses, len(crew.begun)) == ("Succeeded", 0, 1)
    assert crew.pending == {} and await held(world) == {}


async def test_to_leave_a_worker_that_nobody_gets_by_an_end_that_was_given_up(world: World, crew: Crew) -> None:
    """The runner has an outcome, and its task counts as lost: both are told at the same moment."""
    await up(world, crew, reset="Keep")
    await a_task(world, "a")
    await world.stop()
    crew.finish("p-0", exit_code=0)
    # Somebody has taken the worker from its tasks.
    patch = [{"op": "remove", "path": "/spec/assignment"}]
    await world.patch("Instance", "p-0", patch, type="json")
    await world.serve(*crew.controllers())
    await world.pass_time(2, step=0.25)
    assert crew.pending == {}
    assert crew.running() == {"p-0": "run a"}, "it is tried again"
    crew.finish("p-0", exit_code=0)
    await world.rest()
    assert await phases(world) == {"a": "Succeeded"}


async def test_to_keep_the_server_busy_by_a_task_that_is_given_too_much(world: World, crew: Crew) -> None:
    """Each try to write it down encodes all of it, and is refused."""
    await up(world, crew)
    names = [f"d{number}" for number in range(6)]
    for name in names:
        await a_task(world, name)
        crew.finish("p-0", outputs={f"k{number}": "v" * 4000 for number in range(40)})
        await world.rest()
    await a_task(world, "joins", dependsOn=names)
    await a_task(world, "joins-some", dependsOn=names[:3])
    found = await status(world, "joins")
    assert (found.phase, found.reason, found.dependencies) == ("Failed", "TooMuchOutput", [])
    assert "960" in found.message and str(512 * 1024) in found.message
    assert crew.running() == {"p-0": "run joins-some"}


async def test_to_have_tasks_of_others_never_end_by_filling_the_disk_for_a_moment(world: World, crew: Crew) -> None:
    """A large result is put beside its task."""
    await up(world, crew)
    await a_task(world, "a")
    crew.runtime.archive.space_bytes = 0
    crew.finish("p-0", result=json.dumps("x" * 10_000))
    await world.pass_time(5, step=0.5)
    assert await phases(world) == {"a": "Running"}
    crew.runtime.archive.space_bytes = None
    await world.pass_time(2, step=0.5)
    assert await phases(world) == {"a": "Succeeded"}
    assert crew.pending == {} and await held(world) == {}


@pytest.mark.parametrize("result", [b'"' + b"x" * 10_000 + b'"', DEEP.encode()], ids=["large", "deep"])
async def test_to_have_calls_fail_or_leave_no_trace_by_what_they_return(world: World, result: bytes) -> None:
    """The outcome of a call does not depend on whether its result can be stored, and a deep result can be."""
    await world.create("Function", "f", {"entrypoint": "m:f", "source": {"inline": "x"}})
    function = await world.get("Function", "f")

    full = MemoryArchive()
    full.space_bytes = 0
    await world.prepare()
    recorder = Recorder(world.client, world.objects, full, world.clock)
    ended = CallOutcome("Succeeded", 1.0, 2.0, "f-0", msgspec.Raw(result))
    await recorder.record(function, new_identity("f"), {}, ended)
    written = [one.status.result for one in (await world.client.list(Task)).items if one.status]
    assert written == ([DEEP] if result == DEEP.encode() else [])
