"""An end that a runner tells of is never lost, whoever was not there to hear it: on one stream it is told once."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rota.api import Task
from rota.runtime.interface import Subject
from rota.runtime.runner.messages import Report
from tests.control.running.fake import FakeRuntime
from tests.control.tasks.crew import Crew
from tests.engine_loop.loops import World, world_in
from tests.tasks.errands import Errands
from tests.until import until_async
from tests.workers.running import SUBJECT


class Terse(Crew):
    """Runners that tell of each end once, and whose streams remember it."""

    def _send_report(self, subject: Subject, report: Report) -> None:
        pending = self.pending.pop(subject, None)
        super()._send_report(subject, report)
        if pending is not None:
            self.pending[subject] = pending


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with world_in("store") as made:
        yield made


async def test_an_end_that_is_told_before_its_worker_is_known_is_written_down(world: World) -> None:
    crew = Terse(world, FakeRuntime(world.clock))
    await world.create("WorkerPool", "p", {"worker": {"type": "shell"}, "replicas": 1})
    await world.serve(*crew.controllers())
    for name in ("a", "b"):
        await world.create("Task", name, {"command": [name], "workerPoolRef": {"name": "p"}})
        await world.rest()
    await world.stop()
    crew.finish("p-0")
    await world.serve(*crew.controllers())
    crew.reconnect()
    await world.rest()
    first: Task = await world.get("Task", "a")
    assert first.status is not None and first.status.phase == "Succeeded"
    assert crew.running() == {"p-0": "b"}


async def test_a_stream_remembers_an_end_until_it_is_acknowledged(errands: Errands) -> None:
    runners = errands.site.runners
    await errands.site.up()
    errands.assign("a.0", "true")
    await until_async(lambda: [one.id for one in runners.outcomes(SUBJECT)] == ["a.0"])
    errands.acknowledge("a.0")
    assert runners.outcomes(SUBJECT) == []
    await errands.site.until("Idle", lambda report: not report.holder)


async def test_what_a_stream_remembers_goes_with_it_and_is_told_on_the_next(errands: Errands) -> None:
    runners = errands.site.runners
    await errands.site.up()
    errands.assign("a.0", "true")
    await errands.outcome("a.0")
    await errands.site.kill()
    await until_async(lambda: runners.report(SUBJECT) is None)
    assert runners.outcomes(SUBJECT) == []
    await errands.restart()
    assert (await errands.outcome("a.0", 2)).reason == "Succeeded"
