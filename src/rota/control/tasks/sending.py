"""Messages to runners: begin an attempt, end it, or return it if it has not begun."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rota.api import Instance, Task
from rota.control.holds.executor import Executor
from rota.control.holds.members import Member
from rota.control.tasks.ends import End, Ends
from rota.control.tasks.lifecycle import assignment_id
from rota.control.tasks.placing import key_of
from rota.engine.objects import Objects
from rota.runtime.runner.jobs import Outcome
from rota.runtime.runner.messages import Assign, Cancel, Withdraw
from rota.runtime.runners import Runners

MakeJob = Callable[[Objects, Task, Instance, str], Any]


class Sending:
    """Sends attempts to runners. A runner that gets one twice begins it once."""

    def __init__(self, executor: Executor, runners: Runners, ends: Ends, make_job: MakeJob) -> None:
        self._executor = executor
        self._runners = runners
        self._ends = ends
        self._make_job = make_job

    def begin(self, member: Member, task: Task) -> None:
        """Have the runner begin an attempt, unless it was sent before. A cancelled task is ended at once."""
        id_ = assignment_id(task)
        if member.report is not None and id_ not in member.sent and id_ not in self._ends:
            self._assign(member, task, id_)
        if task.spec.cancel:
            # The runner may not have been connected at the cancellation. An attempt that has not begun does not begin.
            self.cancel(member, id_)

    def cancel(self, member: Member, attempt: str) -> None:
        """Have the runner end an attempt. The runner then reports the outcome."""
        self._runners.send(member.subject, Cancel(attempt))

    def recall(self, member: Member, task: Task) -> None:
        """Ask the runner to return an attempt that it has not begun."""
        self._runners.send(member.subject, Withdraw((assignment_id(task),)))

    def _assign(self, member: Member, task: Task, id_: str) -> None:
        try:
            job = self._make_job(self._executor.objects, task, member.instance, id_)
        except Exception as error:
            # The task was checked before it was queued, and something has changed since.
            now = self._executor.clock.time()
            failed = Outcome(id_, "Failed", now, now, message=str(error))
            self._ends.finish(End(key_of(task), task.metadata.uid, failed, None))
            return
        if self._runners.send(member.subject, Assign(job)):
            member.sent.add(id_)
            if self._executor.ledger(member.pool).is_recalled(task.metadata.uid):
                # The answer to an earlier recall may have been lost with the stream.
                self.recall(member, task)
