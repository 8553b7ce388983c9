"""The runners of workers, in memory: each is there as soon as its instance runs, and does what its owner says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from rota.control.workers import CONTAINER
from rota.engine import Clock
from rota.runtime.interface import Subject
from rota.runtime.runner.jobs import Job, Outcome, Reason
from rota.runtime.runner.messages import Acknowledge, Assign, Cancel, Configure, Report, ToRunner
from rota.runtime.runners import Runners
from rota.testing.runtime import MemoryRuntime


class MemoryRunners(Runners):
    """All runners. Each has a memory of its own, as its journal would be, which goes with its instance.

    A job that has begun ends when it is concluded, is cancelled, or its instance is gone.
    """

    def __init__(self, clock: Clock, runtime: MemoryRuntime) -> None:
        super().__init__(clock.now)
        self.clock = clock
        self.runtime = runtime
        self.jobs: dict[Subject, Job] = {}
        """What runs."""
        self.pending: dict[Subject, Outcome] = {}
        """How jobs ended, until that is acknowledged."""
        self._since: dict[Subject, float] = {}
        self._connected: dict[Subject, str] = {}
        self.on_begin: Callable[[Subject, Job], None] = lambda subject, job: None
        """Told of a job that begins."""
        self.on_end: Callable[[Job], None] = lambda job: None
        """Told of one that is over, however that came."""
        runtime.listen(self._ran)

    def stream(self, subject: Subject) -> Any:
        return self._connected.get(subject)

    def outcomes(self, subject: Subject) -> list[Outcome]:
        return [self.pending[subject]] if subject in self.pending else []

    def _ran(self, subject: Subject) -> None:
        run = self.runtime.runs(subject).get(CONTAINER)
        if run is None or run.exit is not None:
            self._connected.pop(subject, None)
            self._reports.pop(subject, None)
            lost = self.jobs.pop(subject, None)
            if lost is not None:
                self.on_end(lost)
            if run is None:
                self.pending.pop(subject, None)
            elif lost is not None:
                began = self._since.pop(subject)
                self.pending[subject] = Outcome(lost.id, "WorkerLost", began, self.clock.time())
        elif self._connected.get(subject) != run.id:
            self._connected[subject] = run.id
            held = self.pending.get(subject)
            self._say(subject, Report(run.number, "Waiting", holder=held.id if held else "", has_task=bool(held)))

    def reconnect(self) -> None:
        """The server is a new one: all runners come back to it."""
        for subject, report in list(self._reports.items()):
            self._say(subject, report)

    def _say(self, subject: Subject, report: Report) -> None:
        """A runner says how it is, and how its last job ended if that is not known to be known."""
        self._reports[subject] = report
        asyncio.get_running_loop().call_soon(self._tell, subject)
        pending = self.pending.get(subject)
        if pending is not None:
            asyncio.get_running_loop().call_soon(self._told, subject, pending)

    def _told(self, subject: Subject, outcome: Outcome) -> None:
        for heard in tuple(self._outcome_listeners):
            heard(subject, outcome)

    def send(self, subject: Subject, message: ToRunner) -> bool:
        report = self._reports.get(subject)
        if report is None:
            return False
        match message:
            case Configure():
                phase = "Held" if report.holder else "Idle"
                self._say(subject, msgspec.structs.replace(report, phase=phase, configured=message.digest))
            case Assign() if subject in self.pending:
                self._say(subject, report)
            case Assign() if subject not in self.jobs:
                self.jobs[subject] = message.job
                self._since[subject] = self.clock.time()
                held = msgspec.structs.replace(report, phase="Held", holder=message.job.id, has_task=True)
                self._say(subject, held)
                self.on_begin(subject, message.job)
            case Cancel() if subject in self.jobs and self.jobs[subject].id == message.id:
                self.conclude(subject, "Cancelled")
            case Acknowledge() if subject in self.pending and self.pending[subject].id == message.id:
                del self.pending[subject]
                self._say(subject, msgspec.structs.replace(report, phase="Idle", holder="", has_task=False))
            case _:
                pass
        return True

    def conclude(self, subject: Subject, reason: Reason = "Succeeded", **more: Any) -> None:
        """What runs on an instance ends."""
        done = self.jobs.pop(subject)
        self.pending[subject] = Outcome(done.id, reason, self._since.pop(subject), self.clock.time(), **more)
        self.on_end(done)
        self._told(subject, self.pending[subject])
