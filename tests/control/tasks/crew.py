"""Runners in memory, which do what a test says, for controllers of tasks."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from rota.control.holds.desk import Desk
from rota.control.instance import Instances
from rota.control.pool import Pools
from rota.control.task import Tasks
from rota.control.tasks.assigner import Assigner
from rota.control.tasks.jobs import job
from rota.runtime.interface import Subject
from rota.runtime.runner.jobs import Job, Outcome, Reason
from rota.runtime.runner.messages import Acknowledge, Assign, Cancel, Configure, Report, ToRunner
from rota.runtime.runners import Runners
from tests.control.running.fake import FakeRuntime
from tests.engine_loop.loops import World


class Crew(Runners):
    """All runners. Each has a memory of its own, as its journal would be, which goes with its instance."""

    def __init__(self, world: World, runtime: FakeRuntime) -> None:
        super().__init__(world.clock.now)
        self.world = world
        self.runtime = runtime
        self.jobs: dict[str, Job] = {}
        """What runs, by the name of the instance."""
        self.begun: list[str] = []
        """Every attempt that was begun, in order."""
        self.pending: dict[str, Outcome] = {}
        self.is_away = False
        self._connected: dict[Subject, str] = {}
        runtime.listen(self._ran)

    def controllers(self) -> tuple[Any, ...]:
        """New ones, as after a restart of the server."""

        def make(objects: Any, task: Any, instance: Any, id_: str) -> Job:
            return job(objects, task, instance, id_, "")

        desk = Desk()
        assigner = Assigner(desk, self, make)
        return Pools(self.runtime, desk), Instances(self.runtime, self, desk), Tasks(assigner, self.runtime)

    def stream(self, subject: Subject) -> Any:
        return self._connected.get(subject)

    def _ran(self, subject: Subject) -> None:
        run = self.runtime.runs(subject).get("worker")
        if run is None or run.exit is not None:
            self._connected.pop(subject, None)
            self._reports.pop(subject, None)
            lost = self.jobs.pop(subject.name, None)
            if run is None:
                self.pending.pop(subject.name, None)
            elif lost is not None:
                self.pending[subject.name] = Outcome(lost.id, "WorkerLost", 1.0, 2.0)
        elif self._connected.get(subject) != run.id:
            self._connected[subject] = run.id
            held = self.pending.get(subject.name)
            self._say(subject, Report(run.number, "Waiting", holder=held.id if held else "", has_task=bool(held)))

    def _say(self, subject: Subject, report: Report) -> None:
        self._reports[subject] = report
        asyncio.get_running_loop().call_soon(self._tell, subject)
        pending = self.pending.get(subject.name)
        if pending is not None:
            asyncio.get_running_loop().call_soon(self._told, subject, pending)

    def _told(self, subject: Subject, outcome: Outcome) -> None:
        for heard in tuple(self._outcome_listeners):
            heard(subject, outcome)

    def reconnect(self) -> None:
        """The server is a new one: all runners come back to it."""
        for subject, report in list(self._reports.items()):
            self._say(subject, report)

    def send(self, subject: Subject, message: ToRunner) -> bool:
        report = self._reports.get(subject)
        if report is None or self.is_away:
            return False
        name = subject.name
        match message:
            case Configure():
                phase = "Held" if report.holder else "Idle"
                self._say(subject, msgspec.structs.replace(report, phase=phase, configured=message.digest))
            case Assign() if name in self.pending:
                self._say(subject, report)
            case Assign() if name not in self.jobs:
                assert message.job.id not in self.begun, "an attempt is begun twice"
                self.begun.append(message.job.id)
                self.jobs[name] = message.job
                held = msgspec.structs.replace(report, phase="Held", holder=message.job.id, has_task=True)
                self._say(subject, held)
            case Cancel() if name in self.jobs and self.jobs[name].id == message.id:
                self.finish(name, "Cancelled")
            case Acknowledge() if name in self.pending and self.pending[name].id == message.id:
                del self.pending[name]
                self._say(subject, msgspec.structs.replace(report, phase="Idle", holder="", has_task=False))
            case _:
                pass
        return True

    def finish(self, name: str, reason: Reason = "Succeeded", **more: Any) -> None:
        """What runs on an instance ends."""
        done = self.jobs.pop(name)
        now = self.world.clock.time()
        self.pending[name] = Outcome(done.id, reason, now - 1, now, **more)
        subject = next(one for one in self._reports if one.name == name)
        self._told(subject, self.pending[name])

    def running(self) -> dict[str, str]:
        """The command of what runs, by instance."""
        return {name: " ".join(one.argv) for name, one in self.jobs.items()}
