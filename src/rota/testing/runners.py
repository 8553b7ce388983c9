"""The runners of workers, in memory: each connects as soon as its instance runs.

They take the messages of a server and answer like runners; jobs and calls are passed to callbacks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from rota.control.workers import CONTAINER
from rota.engine import Clock
from rota.runtime.interface import Subject
from rota.runtime.runner.jobs import Job, Outcome, Reason
from rota.runtime.runner.messages import (
    Acknowledge,
    Assign,
    Began,
    Call,
    Called,
    Cancel,
    CancelCall,
    Configure,
    Hold,
    Release,
    Report,
    Returned,
    ToRunner,
    Withdraw,
)
from rota.runtime.runners import JobNews, Runners
from rota.testing.runtime import MemoryRuntime


class MemoryRunners(Runners):
    """The runners of all workers of a plane.

    Each has a queue of jobs, and keeps outcomes until they are acknowledged, like a runner's journal. A running job
    ends when the test concludes it, when it is cancelled, or when its instance is gone; then the next one begins. Calls
    of a function begin at once, and end likewise.
    """

    def __init__(
        self,
        clock: Clock,
        runtime: MemoryRuntime,
        on_begin: Callable[[Subject, Job], None] = lambda subject, job: None,
        on_call: Callable[[Subject, Call], None] = lambda subject, call: None,
    ) -> None:
        """`on_begin` is called with each job that begins, `on_call` with each call."""
        super().__init__(clock.now)
        self.clock = clock
        self.runtime = runtime
        self.jobs: dict[Subject, Job] = {}
        """The running job."""
        self.queued: dict[Subject, list[Job]] = {}
        self.pending: dict[Subject, dict[str, Outcome]] = {}
        """Outcomes by job id, until they are acknowledged."""
        self._since: dict[Subject, float] = {}
        self._connected: dict[Subject, str] = {}
        self.calls: dict[Subject, dict[str, Call]] = {}
        """Calls in progress, by id."""
        self._on_begin = on_begin
        self._on_call = on_call
        runtime.listen(self._on_runtime_change)

    def stream(self, subject: Subject) -> Any:
        return self._connected.get(subject)

    def outcomes(self, subject: Subject) -> list[Outcome]:
        return list(self.pending.get(subject, {}).values())

    def _on_runtime_change(self, subject: Subject) -> None:
        if subject not in self.runtime.has_runner:
            return
        run = self.runtime.runs(subject).get(CONTAINER)
        if run is None or run.exit is not None:
            self._connected.pop(subject, None)
            self.queued.pop(subject, None)
            self.calls.pop(subject, None)
            if self._reports.pop(subject, None) is not None:
                asyncio.get_running_loop().call_soon(self._notify, subject)
            lost = self.jobs.pop(subject, None)
            if run is None:
                self.pending.pop(subject, None)
            elif lost is not None:
                began = self._since.pop(subject)
                outcome = Outcome(lost.id, "WorkerLost", began, self.clock.time())
                self.pending.setdefault(subject, {})[lost.id] = outcome
        elif self._connected.get(subject) != run.id:
            self._connected[subject] = run.id
            held = next(iter(self.pending.get(subject, ())), "")
            self._send_report(subject, Report(run.number, "Waiting", holder=held, has_task=bool(held)))

    def reconnect(self) -> None:
        """Reconnect all runners to a new server."""
        for subject, report in list(self._reports.items()):
            self._send_report(subject, report)

    def _send_report(self, subject: Subject, report: Report) -> None:
        """Send a report, and the outcomes that are not acknowledged."""
        self._reports[subject] = report
        asyncio.get_running_loop().call_soon(self._notify, subject)
        for pending in self.outcomes(subject):
            asyncio.get_running_loop().call_soon(self._report_outcome, subject, pending)

    def _report_outcome(self, subject: Subject, outcome: Outcome) -> None:
        for listener in tuple(self._outcome_listeners):
            listener(subject, outcome)

    def send(self, subject: Subject, message: ToRunner) -> bool:
        report = self._reports.get(subject)
        if report is None:
            return False
        match message:
            case Configure():
                phase = "Held" if report.holder else "Idle"
                self._send_report(subject, msgspec.structs.replace(report, phase=phase, configured=message.digest))
            case Assign() if message.job.id in self.pending.get(subject, ()):
                self._send_report(subject, report)
            case Assign() if subject not in self.jobs:
                self._begin(subject, message.job)
            case Assign() if message.job.id != self.jobs[subject].id:
                queued = self.queued.setdefault(subject, [])
                if message.job.id not in [one.id for one in queued]:
                    queued.append(message.job)
            case Hold():
                self._send_report(
                    subject, msgspec.structs.replace(report, phase="Held", holder=message.id, has_task=False)
                )
            case Release():
                self._send_report(subject, msgspec.structs.replace(report, phase="Idle", holder="", has_task=False))
            case Call():
                self.calls.setdefault(subject, {})[message.id] = message
                self._on_call(subject, message)
            case CancelCall() if message.id in self.calls.get(subject, ()):
                self.answer(subject, Called(message.id, "Cancelled"))
            case Withdraw():
                for id_ in message.ids:
                    self._withdraw(subject, id_)
            case Cancel() if subject in self.jobs and self.jobs[subject].id == message.id:
                self.conclude(subject, "Cancelled")
            case Cancel() if (waits := self._queued(subject, message.id)) is not None:
                self.queued[subject].remove(waits)
                now = self.clock.time()
                self._end(subject, Outcome(waits.id, "Cancelled", now, now))
            case Acknowledge() if message.id in self.pending.get(subject, ()):
                del self.pending[subject][message.id]
                if not self.pending[subject]:
                    del self.pending[subject]
                if subject not in self.jobs and not self.outcomes(subject) and report.has_task:
                    self._send_report(subject, msgspec.structs.replace(report, phase="Idle", holder="", has_task=False))
            case _:
                pass
        return True

    def _queued(self, subject: Subject, id_: str) -> Job | None:
        return next((one for one in self.queued.get(subject, ()) if one.id == id_), None)

    def _withdraw(self, subject: Subject, id_: str) -> None:
        job = self._queued(subject, id_)
        if job is not None:
            self.queued[subject].remove(job)
            self._notify_jobs(subject, Returned(id_))

    def _notify_jobs(self, subject: Subject, news: JobNews) -> None:
        for listener in tuple(self._job_listeners):
            asyncio.get_running_loop().call_soon(listener, subject, news)

    def _begin(self, subject: Subject, job: Job) -> None:
        self.jobs[subject] = job
        self._since[subject] = self.clock.time()
        self._send_report(
            subject, msgspec.structs.replace(self._reports[subject], phase="Held", holder=job.id, has_task=True)
        )
        self._on_begin(subject, job)

    def linger(self, name: str) -> None:
        """Report that the running job of an instance takes long, so that the jobs queued behind it are withdrawn."""
        subject = next(one for one in self.jobs if one.name == name)
        self._notify_jobs(subject, Began(self.jobs[subject].id, self._since[subject]))

    def conclude(self, subject: Subject, reason: Reason = "Succeeded", **more: Any) -> None:
        """End the running job of an instance, and begin the next one."""
        done = self.jobs.pop(subject)
        outcome = Outcome(done.id, reason, self._since.pop(subject), self.clock.time(), **more)
        self._end(subject, outcome)
        if self.queued.get(subject):
            self._begin(subject, self.queued[subject].pop(0))

    def answer(self, subject: Subject, called: Called) -> None:
        """End a call, if it is in progress."""
        if self.calls.get(subject, {}).pop(called.id, None) is not None:
            asyncio.get_running_loop().call_soon(self._handle, subject, called)

    def _end(self, subject: Subject, outcome: Outcome) -> None:
        self.pending.setdefault(subject, {})[outcome.id] = outcome
        self._report_outcome(subject, outcome)
