"""The ends of attempts: an outcome is written into the task's status, and then acknowledged to the runner."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

import msgspec

from rota.api import Task
from rota.api.task import TaskStatus
from rota.client import Key
from rota.control.holds.binder import LOOK_AGAIN_SECONDS, RETRY_SECONDS, STATUS_RACE
from rota.control.holds.executor import Executor
from rota.control.holds.handover import HandOver, Result
from rota.control.holds.ledger_index import LedgerIndex
from rota.control.holds.members import Member
from rota.control.holds.named import ByName
from rota.control.tasks.counting import TaskCounting
from rota.control.tasks.lifecycle import after, assignment_id, is_large, without_findings
from rota.control.tasks.placing import key_of, pool_of
from rota.control.tasks.waits import warn
from rota.engine.clock import sleep
from rota.engine.objects import get
from rota.registry import ApiError
from rota.runtime.runner.jobs import Outcome
from rota.runtime.runner.messages import Acknowledge
from rota.runtime.runners import Runners

log = logging.getLogger(__name__)

KeepResult = Callable[[str, str, str, str], Awaitable[None]]
GONE, INVALID = 404, 422


class End(NamedTuple):
    """An attempt that has ended, until its outcome is written."""

    key: Key
    uid: str
    outcome: Outcome
    member: Member | None
    """The worker whose runner gets the acknowledgement; None: there is none."""
    is_bare: bool = False
    """True: the attempt's output is left out, since it cannot be stored."""


class Ends:
    """Writes outcomes, each once, and acknowledges it after that."""

    def __init__(
        self,
        executor: Executor,
        runners: Runners,
        active: LedgerIndex,
        counting: TaskCounting,
        keep_result: KeepResult,
        ended: Callable[[End, Task | None], None],
    ) -> None:
        """`keep_result` stores a large result.

        `ended` is called when nothing of an attempt is left to be written: with the written task, or None if nothing
        was written.
        """
        self._executor = executor
        self._runners = runners
        self._active = active
        self._keep_result = keep_result
        self._counting = counting
        self._ended = ended
        self._outcomes: ByName[Outcome] = ByName()
        """Outcomes that are being written, by the attempt's id."""
        self._repeated: dict[str, Member] = {}
        """The workers whose runners have reported an outcome while it was being written, by the attempt's id."""

    def __contains__(self, attempt: str) -> bool:
        """Report whether the outcome of an attempt is being written."""
        return attempt in self._outcomes

    def repeat(self, attempt: str, member: Member) -> None:
        """Note a worker that reports an outcome while it is being written. One of its reporters is acknowledged."""
        self._repeated[attempt] = member

    def finish(self, end: End) -> None:
        """Write the end of an attempt. The ledger can give its worker to the next request at once."""
        self._outcomes.put(end.outcome.id, end.key, end.outcome)
        if end.member is not None:
            end.member.ends += 1
        pool = self._active.get(end.uid)
        if pool is not None:
            ledger = self._executor.ledger(pool)
            ledger.ending(end.uid, frees=True)
            ledger.ran(end.outcome.ended - end.outcome.started)
        if is_large(end.outcome.result):
            self._executor.start(self._keep(end))
        else:
            self._write(end)
        if pool is not None:
            self._executor.carry_out(pool)

    def end(self, task: Task, outcome: Outcome) -> None:
        """Write the outcome of an attempt, unless an outcome of it is being written already."""
        if outcome.id not in self._outcomes:
            uid = task.metadata.uid
            self.finish(End(key_of(task), uid, outcome, self._active.member(uid)))

    def lost(self, task: Task) -> None:
        """Write the end of an attempt whose worker is lost. If the task itself caused that, it is a failure."""
        now, status = self._executor.clock.time(), task.status or TaskStatus()
        started = status.start_time.timestamp() if status.start_time is not None else now
        message = f"its worker {status.instance_name} is gone"
        lost = Outcome(assignment_id(task), "WorkerLost", started, now, message=message)
        self.end(task, self._executor.judged(lost))

    def cancelled(self, task: Task) -> None:
        """Write the end of an attempt that was cancelled before a runner began it."""
        now = self._executor.clock.time()
        outcome = Outcome(assignment_id(task), "Cancelled", now, now, message="it was cancelled")
        self.finish(End(key_of(task), task.metadata.uid, outcome, None))

    async def _keep(self, end: End) -> None:
        """Store a large result, then write the end of its attempt."""
        while True:
            try:
                await self._keep_result(end.key.name, end.uid, end.key.namespace, end.outcome.result)
                break
            except OSError as error:
                # For example, the disk is full. The runner keeps the outcome until it is acknowledged.
                log.warning("the result of task %s cannot be kept: %s", end.key.name, error.strerror)
                await sleep(self._executor.clock, RETRY_SECONDS)
        self._write(end)

    def _write(self, end: End) -> None:
        self._executor.writes.add(partial(self._made, end), partial(self._receive, end))

    def _made(self, end: End) -> HandOver | None:
        """Return the write of a task's status after an attempt; None: no task waits for this outcome."""
        task = get(self._executor.objects, Task, end.key.name, end.key.namespace)
        if task is None or task.metadata.uid != end.uid or task.over() or assignment_id(task) != end.outcome.id:
            self._over(end)
            return None
        status = task.status or TaskStatus()
        ended = after(task, status, status.instance_name or "", end.outcome)
        return HandOver(ends=msgspec.structs.replace(task, status=ended))

    def _receive(self, end: End, handover: HandOver, result: Result) -> None:
        if not isinstance(result, ApiError):
            self._count(end, result.ended)
            self._over(end, result.ended)
        elif result.code == GONE:
            self._over(end)
        elif result.code == INVALID and not end.is_bare:
            # The output is invalid: no retry can succeed with it.
            self._write(end._replace(outcome=without_findings(end.outcome, str(result)), is_bare=True))
        else:
            self._executor.start(self._again(end, result))

    async def _again(self, end: End, error: ApiError) -> None:
        """Write an end again: the task has changed meanwhile, or the server has failed."""
        if error.code not in STATUS_RACE:
            log.warning("the end of task %s could not be written: %s", end.key.name, error)
            await sleep(self._executor.clock, RETRY_SECONDS)
        elif not self._executor.client.in_process:
            await sleep(self._executor.clock, LOOK_AGAIN_SECONDS)
        self._write(end)

    def _over(self, end: End, task: Task | None = None) -> None:
        """Forget an attempt whose end is written, acknowledge it, and end its hold."""
        self._outcomes.pop(end.outcome.id)
        pool = self._active.get(end.uid)
        repeated = self._repeated.pop(end.outcome.id, None)
        if end.member is not None:
            end.member.ends -= 1
        if (reporter := end.member or repeated) is not None:
            self._runners.send(reporter.subject, Acknowledge(end.outcome.id))
        if pool is not None:
            self._executor.ledger(pool).ended(end.uid)
        self._ended(end, task)
        if pool is not None:
            self._executor.carry_out(pool)

    def _count(self, end: End, task: Task) -> None:
        outcome, pool = end.outcome, pool_of(task)
        warn(self._executor.events, self._executor.objects, task, outcome.reason, outcome.message)
        self._counting.ran(task, outcome.ended - outcome.started)
        if task.over():
            self._counting.completed(task)
            if end.uid in self._active:
                self._executor.complete(pool)
        self._executor.forget_if_gone(pool)
