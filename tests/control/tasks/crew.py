"""Runners in memory, which do what a test says, for controllers of tasks."""

from __future__ import annotations

from functools import partial
from typing import Any

from rota.control.holds.executor import Executor
from rota.control.instance import Instances
from rota.control.making.local import LocalMaker
from rota.control.pool import Pools
from rota.control.task import Tasks
from rota.control.tasks.attempts import Attempts
from rota.control.tasks.jobs import job
from rota.runtime.archive import keep_result
from rota.runtime.interface import Subject
from rota.runtime.runner.jobs import Job, Reason
from rota.runtime.runner.messages import ToRunner
from rota.testing.runners import MemoryRunners
from tests.control.running.fake import FakeRuntime
from tests.engine_loop.loops import World


class Crew(MemoryRunners):
    """All runners, by the names of their instances."""

    runtime: FakeRuntime

    def __init__(self, world: World, runtime: FakeRuntime) -> None:
        super().__init__(world.clock, runtime, self._begins)
        self.world = world
        self.begun: list[str] = []
        """Every attempt that was begun, in order."""
        self.is_away = False

    def controllers(self) -> tuple[Any, ...]:
        """New ones, as after a restart of the server."""

        def make(objects: Any, task: Any, instance: Any, id_: str) -> Job:
            return job(objects, task, instance, id_, "")

        executor = Executor()
        attempts = Attempts(executor, self, make, partial(keep_result, self.runtime.archive), linger_seconds=0.0)
        return (
            Pools(self.runtime, executor),
            Instances(LocalMaker(self.runtime, self), executor),
            Tasks(attempts, self.runtime),
        )

    def _begins(self, subject: Subject, begun: Job) -> None:
        assert begun.id not in self.begun, "an attempt is begun twice"
        self.begun.append(begun.id)

    def send(self, subject: Subject, message: ToRunner) -> bool:
        return not self.is_away and super().send(subject, message)

    def finish(self, name: str, reason: Reason = "Succeeded", **more: Any) -> None:
        """End the attempt on an instance."""
        self.conclude(next(one for one in self._reports if one.name == name), reason, **more)

    def running(self) -> dict[str, str]:
        """The command of what runs, by instance."""
        return {subject.name: " ".join(one.argv) for subject, one in self.jobs.items()}
