"""Attempts of tasks: which worker has which, from the write that begins one to the write that ends it.

A worker is given to the tasks of its pool (its lane) by one write of the Instance; after that `Task.status` (the
instance, its uid and the number of the try) is the record of each hand-over. A task is sent to its runner only when it
is written that it runs there, and an outcome is acknowledged only when it is written. What begins and ends in one turn
of the event loop is written together.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple, cast

import msgspec

from rota.api import Instance, Task
from rota.api.instance import Assignment
from rota.api.task import TaskStatus
from rota.client import Key
from rota.control.holds.arrivals import Arrivals
from rota.control.holds.executor import LOOK_AGAIN_SECONDS, LOST_RACE, RETRY_SECONDS, Executor
from rota.control.holds.grouped_writes import GroupedWrites
from rota.control.holds.members import Member, PoolKey
from rota.control.holds.named import ByName
from rota.control.holds.wanted import Wanted
from rota.control.instances.names import controller_of
from rota.control.tasks.counting import Counting
from rota.control.tasks.lane import LINGER_SECONDS, Lane
from rota.control.tasks.lifecycle import after, assignment_id, is_large, queued, time_of, without_findings
from rota.control.tasks.notices import Notices
from rota.control.tasks.placing import (
    begun_task,
    has_more_to_come,
    is_on,
    is_plain,
    key_of,
    request,
    task_uid,
    worker_of,
)
from rota.control.tasks.telling import place_of, warn
from rota.engine.clock import sleep
from rota.engine.metrics import Metrics
from rota.engine.objects import Objects, get
from rota.engine.reconciler import Context, Recording
from rota.pools import Binding, Ledger, Request, State
from rota.registry import ApiError
from rota.runtime.interface import Subject
from rota.runtime.runner.jobs import Outcome
from rota.runtime.runner.messages import Acknowledge, Assign, Began, Cancel, Returned, Withdraw
from rota.runtime.runners import JobNews, Runners

log = logging.getLogger(__name__)

INVALID = 422
"""The code of a status that cannot be stored."""
STATUS_RACE = LOST_RACE - {INVALID}
"""Refusals of a status because its object has changed meanwhile."""

MakeJob = Callable[[Objects, Task, Instance, str], Any]
KeepResult = Callable[[str, str, str, str], Awaitable[None]]


class End(NamedTuple):
    """An attempt that has ended, until that is written."""

    key: Key
    uid: str
    outcome: Outcome
    member: Member | None
    """The worker, if its runner has to be told that the outcome is written."""
    is_bare: bool = False
    """The findings of the attempt cannot be stored, and are left out."""


class Attempts:
    """Tasks in, outcomes out. Of the status of a task it writes that it runs, and how an attempt ended."""

    def __init__(
        self,
        executor: Executor,
        runners: Runners,
        make_job: MakeJob,
        keep_result: KeepResult,
        counting: Counting | None = None,
        linger_seconds: float = LINGER_SECONDS,
    ) -> None:
        """`keep_result` stores a large result, to be found by the task's name, uid and namespace."""
        self._executor = executor
        self._runners = runners
        self._make_job = make_job
        self._keep_result = keep_result
        self._lane = Lane(executor, runners, self, linger_seconds)
        self._writes: GroupedWrites[Task] = GroupedWrites(executor)
        self.counting = counting or Counting(Metrics())
        self.counting.watch(lambda: {(pool.namespace, pool.name): one for pool, one in executor.ledgers.items()})
        self._pools = Wanted(executor)
        """By the uid of a task that waits for a worker or has one."""
        self.arrivals = Arrivals(lambda: executor.clock.time())
        self._outcomes: ByName[Outcome] = ByName()
        """By the attempt's id, until they are written."""
        self._repeated: dict[str, Member] = {}
        """The workers whose runners report an outcome that is being written, perhaps because the worker was lost."""
        self._notices = Notices(self._notice)
        self._wake: Callable[[Key], None] | None = None
        self._events: Recording | None = None
        executor.join("Task", self)

    def begin(self, wake: Callable[[Key], None]) -> Callable[[], None]:
        """Begin to take outcomes. `wake` has a task reconciled."""
        self._wake = wake
        ends = [self._runners.hear_outcomes(self.outcome), self._runners.hear_jobs(self._heard)]

        def end() -> None:
            for one in ends:
                one()
            self._writes.close()
            self._lane.close()
            self._notices.close()
            self._executor.close()

        return end

    def prepare(self, context: Context) -> None:
        self._events = context.events
        self._executor.prepare(context)

    def wake(self, key: Key) -> None:
        if self._wake is not None:
            self._wake(key)

    # Tasks.

    def want(self, task: Task, pool: PoolKey, arrival: float) -> None:
        """Queue a task that could run now. Said again, nothing happens. If it has to wait, its status will say so."""
        uid = task.metadata.uid
        self._pools.put(uid, key_of(task), pool)
        state = self._executor.ledger(pool).request(request(task, arrival))
        if state is State.WAITING and (task.status is None or task.status.phase != "Queued"):
            self._notices.put(uid, self._executor.clock)
        self._executor.carry_out(pool)

    def _notice(self, uids: list[str]) -> None:
        for uid in uids:
            self._writes.add(partial(self._waiting, uid), self._noticed)

    def _noticed(self, task: Task, error: ApiError | None) -> None:
        if error is not None:
            self.wake(key_of(task))

    def is_ending(self, task: Task) -> bool:
        """Report whether the outcome of the current attempt is being written."""
        return assignment_id(task) in self._outcomes

    def holders_of(self, instance: Instance) -> list[str]:
        """Name those that hold an instance."""
        return self._executor.holders_of(instance)

    def before(self, task: Task) -> int | None:
        """Count those that get a worker before one that waits, or return `UNCOUNTED`. None: it does not wait."""
        ledger = self._pools.ledger(task.metadata.uid)
        return place_of(ledger, task.metadata.uid) if ledger is not None else None

    def resume(self, task: Task, instance: Instance) -> None:
        """Have a task that is written to run on an instance run there, unless it does."""
        member = self._executor.members.get(instance.metadata.uid)
        if member is None or self.is_ending(task):
            return
        uid = task.metadata.uid
        if self._pools.state(uid) is not State.HELD:
            self._hold(member.pool, task, member.subject.uid)
            for outcome in self._runners.outcomes(member.subject):
                if outcome.id == assignment_id(task):
                    self.outcome(member.subject, outcome)
                    return
        self._send(member, task)
        if task.spec.cancel:
            # Its runner may not have been there when that was asked for. One that has not begun does not begin.
            self._runners.send(member.subject, Cancel(assignment_id(task)))

    def cancel(self, task: Task) -> None:
        """Drop a task that waits; ask the runner of one that runs to end it, which then reports its outcome."""
        uid = task.metadata.uid
        pool = self._pools.get(uid)
        if pool is None:
            return
        ledger = self._executor.ledger(pool)
        state = ledger.cancel(uid)
        if state in (State.HELD, State.ENDING):
            member = self._executor.members.get(ledger.instance_of(uid) or "")
            if member is not None:
                self._runners.send(member.subject, Cancel(assignment_id(task)))
        elif state is not State.BINDING:
            # One that is just being given a worker is known until that is written, and then given back.
            self._forget(uid)
        self._executor.carry_out(pool)

    def gone(self, key: Key) -> None:
        """There is no task of this name any more."""
        self.arrivals.drop(key)
        for uid in self._pools.of(key):
            pool = self._pools.get(uid)
            assert pool is not None
            ledger = self._executor.ledger(pool)
            if ledger.cancel(uid) is State.HELD:
                # What its runner says of its end is acknowledged then.
                member = self._executor.members.get(ledger.instance_of(uid) or "")
                sent = [id_ for id_ in member.sent if task_uid(id_) == uid] if member is not None else []
                for id_ in sent:
                    self._runners.send(cast(Member, member).subject, Cancel(id_))
                if not sent:
                    ledger.ended(uid)
                    self._forget(uid)
                    self._lane.leave_if_idle(member)
            elif ledger.state(uid) is None:
                self._forget(uid)
            self._executor.carry_out(pool)

    def lost_outcome(self, task: Task) -> Outcome:
        """Return the outcome of an attempt whose worker is gone; a failure if that is the task's own fault."""
        now, status = self._executor.clock.time(), task.status or TaskStatus()
        started = status.start_time.timestamp() if status.start_time is not None else now
        message = f"its worker {status.instance_name} is gone"
        return self._executor.judged(Outcome(assignment_id(task), "WorkerLost", started, now, message=message))

    def end(self, task: Task, outcome: Outcome) -> None:
        """Write how an attempt ended, once."""
        if outcome.id in self._outcomes:
            return
        uid = task.metadata.uid
        self._finish(End(key_of(task), uid, outcome, self._pools.member(uid)))

    def forget_if_pool_gone(self, task: Task) -> None:
        """Something was counted of a task. If its pool is gone, it is not kept."""
        if task.spec.worker_pool_ref is not None:
            self._executor.forget_if_gone(PoolKey(task.metadata.namespace, task.spec.worker_pool_ref.name))

    def _forget(self, uid: str) -> None:
        self._pools.pop(uid)
        self.arrivals.pop(uid)

    def _hold(self, pool: PoolKey, task: Task, instance: str) -> None:
        self._pools.put(task.metadata.uid, key_of(task), pool)
        status = task.status
        arrival = status.arrival.timestamp() if status is not None and status.arrival is not None else 0.0
        self._executor.ledger(pool).hold(request(task, arrival), instance)
        self._executor.carry_out(pool)

    # What the executor asks.

    def restore(self) -> None:
        objects = self._executor.objects
        tasks = cast("list[Task]", objects.list(Task.api))
        self.arrivals.restore(tasks, (one for one in tasks if is_plain(one)))
        for task in tasks:
            status = task.status
            if status is None or task.metadata.deletion_timestamp is not None or task.spec.function is not None:
                continue
            if status.phase == "Running":
                instance = worker_of(objects, task)
                owner = controller_of(instance) if instance is not None else None
                if instance is not None and owner is not None:
                    pool = PoolKey(task.metadata.namespace, owner.name, owner.kind)
                    self._hold(pool, task, instance.metadata.uid)
            elif status.phase == "Queued" and status.arrival is not None and not task.spec.cancel:
                # It has its place before anybody is served.
                ref = task.spec.worker_pool_ref
                if ref is not None:
                    self.want(task, PoolKey(task.metadata.namespace, ref.name), status.arrival.timestamp())

    def bind(self, pool: PoolKey, binding: Binding) -> None:
        ledger = self._executor.ledger(pool)
        member, task = self._executor.members.get(binding.instance), self._wanting(binding.request.id)
        if task is None:
            self._forget(binding.request.id)
            ledger.refused(binding)
        elif member is None:
            ledger.lost(binding)
        elif self._lane.is_entering(binding.instance):
            self._lane.wait(binding)
        elif member.lane is None and member.is_changing_hands:
            ledger.lost(binding)
            self._executor.look_again(member)
        elif member.lane is None:
            self._lane.enter(pool, member, binding, self._begun_task(task, member, binding))
        else:
            self._writes.add(
                partial(self._begun_task, task, member, binding), partial(self._begin_written, pool, member, binding)
            )

    def give_back(self, pool: PoolKey, request: Request, instance: str) -> None:
        task, member = self._task(request.id), self._executor.members.get(instance)
        if task is not None and not task.over() and task.spec.cancel:
            self._finish_cancelled(task)
            return
        self._forget(request.id)
        self._executor.ledger(pool).ended(request.id)
        if task is not None and not task.over():
            self._executor.start(self._unbegin(task))
        self._lane.leave_if_idle(member)

    def name_of(self, uid: str) -> str | None:
        return self._pools.name_of(uid)

    def recall(self, instance: str, request: str) -> None:
        task, member = self._task(request), self._executor.members.get(instance)
        if task is not None and member is not None:
            self._runners.send(member.subject, Withdraw((assignment_id(task),)))

    def lost(self, request: Request, instance: str) -> None:
        task = self._task(request.id)
        self._pools.pop(request.id)
        if task is not None and task.status is not None and task.status.phase == "Running":
            self.end(task, self.lost_outcome(task))

    def assigned(self, member: Member, assignment: Assignment) -> None:
        ledger = self._executor.ledger(member.pool)
        for uid in ledger.holders_of(member.subject.uid):
            if ledger.state(uid) is not State.HELD:
                continue
            task = self._task(uid)
            if task is not None and is_on(task, member.instance):
                self._send(member, task)
                if task.spec.cancel:
                    self._runners.send(member.subject, Cancel(assignment_id(task)))
        self._lane.leave_if_idle(member)

    def held_by_another(self, member: Member) -> None:
        if _is_claimed(member):
            # A leader before this one may have ended between the write of an end and its acknowledgement.
            self._lane.acknowledge_rest(member)

    def appeared(self, member: Member) -> None:
        for outcome in self._runners.outcomes(member.subject):
            self.outcome(member.subject, outcome)

    def vanished(self, instance: str) -> None:
        self._lane.forget(instance)

    def pool_gone(self, pool: PoolKey) -> None:
        self.counting.forget(pool.namespace, pool.name)

    # Runners.

    def outcome(self, subject: Subject, outcome: Outcome) -> None:
        """Take the outcome of an attempt. Its runner repeats it on each stream until it is acknowledged."""
        outcome = self._executor.judged(outcome)
        member = self._executor.members.get(subject.uid)
        if member is None:
            return  # Of one that is not known here yet: it is asked for when the worker appears.
        if outcome.id in self._outcomes:
            self._repeated[outcome.id] = member
            return
        member.sent.discard(outcome.id)
        uid = task_uid(outcome.id)
        pool = self._pools.get(uid)
        ledger = self._executor.ledger(member.pool)
        if pool is not None and ledger.instance_of(uid) == subject.uid:
            task = self._task(uid)
            if task is None or task.over() or assignment_id(task) != outcome.id:
                self._runners.send(subject, Acknowledge(outcome.id))
                if task is None or task.over():
                    ledger.ended(uid)
                    self._forget(uid)
                    self._executor.carry_out(member.pool)
                    self._lane.leave_if_idle(member)
                return
            self._finish(End(key_of(task), uid, outcome, member))
        elif self._executor.client.in_process or _is_claimed(member):
            # Nobody waits for it. Elsewhere the task may only not be known here yet: what is left of them is
            # acknowledged when the worker is taken from the tasks of its pool.
            self._runners.send(subject, Acknowledge(outcome.id))

    def _heard(self, subject: Subject, news: JobNews) -> None:
        """Take the news that a job runs for longer than a moment, or was returned before it began."""
        member = self._executor.members.get(subject.uid)
        if member is None or not isinstance(news, Began | Returned):
            return
        uid = task_uid(news.id)
        ledger = self._executor.ledger(member.pool)
        if ledger.instance_of(uid) != subject.uid:
            return
        if isinstance(news, Began):
            ledger.runs_long(uid)
            self._executor.carry_out(member.pool)
            name = self.name_of(uid)
            if name is not None:
                self._lane.rename(member, name, uid)
            return
        member.sent.discard(news.id)
        task = self._task(uid)
        if task is None or task.over() or assignment_id(task) != news.id:
            ledger.ended(uid)
            self._forget(uid)
        elif task.spec.cancel:
            self._finish_cancelled(task)
        elif ledger.returned(uid, subject.uid) is not None and ledger.state(uid) is State.WAITING:
            self._executor.start(self._unbegin(task))
        self._executor.carry_out(member.pool)
        self._lane.leave_if_idle(member)

    def _send(self, member: Member, task: Task) -> None:
        """Have the runner begin an attempt, unless it was told. It does nothing twice."""
        id_ = assignment_id(task)
        if member.report is None or id_ in member.sent or id_ in self._outcomes:
            return
        try:
            job = self._make_job(self._executor.objects, task, member.instance, id_)
        except Exception as error:
            # It was checked before it was queued: something has changed since.
            now = self._executor.clock.time()
            failed = Outcome(id_, "Failed", now, now, message=str(error))
            self._finish(End(key_of(task), task.metadata.uid, failed, None))
            return
        if self._runners.send(member.subject, Assign(job)):
            member.sent.add(id_)
            if self._executor.ledger(member.pool).is_recalled(task.metadata.uid):
                # The answer to that may have been lost with the stream.
                self._runners.send(member.subject, Withdraw((id_,)))

    # Writing.

    def _waiting(self, uid: str) -> Task | None:
        """Return a task with the status that says that it waits for a worker; None: it does not, or says so."""
        task = self._wanting(uid) if self._pools.state(uid) is State.WAITING else None
        if task is None or (task.status is not None and task.status.phase == "Queued"):
            return None
        arrival = time_of(self.arrivals.when(task))
        return msgspec.structs.replace(task, status=queued(task.status or TaskStatus(), arrival))

    def _begun_task(self, task: Task, member: Member, binding: Binding) -> Task:
        return begun_task(task, member, binding, time_of(self._executor.clock.time()))

    def entered(self, pool: PoolKey, member: Member, bindings: list[Binding], begun: Task | None) -> None:
        if begun is not None:
            self._begun(pool, member, bindings[0], begun)
        for binding in bindings if begun is None else bindings[1:]:
            self.bind(pool, binding)

    def not_entered(self, pool: PoolKey, member: Member, bindings: list[Binding]) -> None:
        ledger = self._executor.ledger(pool)
        for binding in bindings:
            self._not_bound(ledger, binding)
        self._executor.carry_out(pool)

    def awaits(self, attempt: str) -> bool:
        return attempt in self._outcomes

    def _begin_written(
        self, pool: PoolKey, member: Member, binding: Binding, task: Task, error: ApiError | None
    ) -> None:
        if error is not None and not (error.code in STATUS_RACE and self._executor.client.in_process):
            self._executor.start(self._begin_refused(pool, member, binding, task, error))
            return
        if error is None:
            self._begun(pool, member, binding, task)
            self._executor.carry_out(pool)
            self._lane.leave_if_idle(member)
        else:
            # The task has changed meanwhile, or is gone: its worker is as free as before.
            self._not_begun(pool, member, binding, task)

    async def _begin_refused(
        self, pool: PoolKey, member: Member, binding: Binding, task: Task, error: ApiError
    ) -> None:
        """Queue a task again whose begin was refused, not before the reason for that can be known."""
        await self._pause(error, f"task {task.metadata.name} could not begin")
        self._not_begun(pool, member, binding, task)

    def _not_begun(self, pool: PoolKey, member: Member, binding: Binding, task: Task) -> None:
        self._not_bound(self._executor.ledger(pool), binding, instance_taken=False)
        self.wake(key_of(task))
        self._executor.carry_out(pool)
        self._lane.leave_if_idle(member)

    def _not_bound(self, ledger: Ledger, binding: Binding, *, instance_taken: bool = True) -> None:
        """A begin was refused: the task is at its place again, unless it was cancelled meanwhile."""
        if not binding.is_wanted:
            self._forget(binding.request.id)
        ledger.lost(binding, instance_taken=instance_taken)

    async def _pause(self, error: ApiError, what: str) -> None:
        if error.code not in STATUS_RACE:
            log.warning("%s: %s", what, error)
            await sleep(self._executor.clock, RETRY_SECONDS)
        elif not self._executor.client.in_process:
            await sleep(self._executor.clock, LOOK_AGAIN_SECONDS)

    def _begun(self, pool: PoolKey, member: Member, binding: Binding, task: Task) -> None:
        """An attempt is written to run on a worker: its runner begins it."""
        if not self._executor.ledger(pool).bound(binding):
            return
        self.arrivals.pop(task.metadata.uid)
        assert task.status is not None and task.status.start_time is not None
        self.counting.began(task, self._executor.clock.time() - binding.request.arrival)
        if task.spec.branch is not None:
            self.wake(key_of(task))
        if member.lane is None:
            # Somebody has taken the worker while that was written.
            self._executor.update(member)
        else:
            self._send(member, task)

    def _finish(self, end: End) -> None:
        """An attempt has ended: its worker can be given to the next, and that it has ended is written."""
        self._outcomes.put(end.outcome.id, end.key, end.outcome)
        if end.member is not None:
            end.member.ends += 1
        pool = self._pools.get(end.uid)
        if pool is not None:
            ledger = self._executor.ledger(pool)
            ledger.ending(end.uid, frees=True)
            ledger.ran(end.outcome.ended - end.outcome.started)
        if is_large(end.outcome.result):
            self._executor.start(self._keep(end))
        else:
            self._write_end(end)
        if pool is not None:
            self._executor.carry_out(pool)

    def _write_end(self, end: End) -> None:
        self._writes.add(partial(self._ended, end), partial(self._end_written, end))

    def _finish_cancelled(self, task: Task) -> None:
        """End an attempt that was cancelled before a runner began it."""
        now = self._executor.clock.time()
        outcome = Outcome(assignment_id(task), "Cancelled", now, now, message="it was cancelled")
        self._finish(End(key_of(task), task.metadata.uid, outcome, None))

    async def _keep(self, end: End) -> None:
        """Store a large result before it is written that there is one."""
        while True:
            try:
                await self._keep_result(end.key.name, end.uid, end.key.namespace, end.outcome.result)
                break
            except OSError as error:
                # The disk is full, say. Its runner has the outcome until it is written.
                log.warning("the result of task %s cannot be kept: %s", end.key.name, error.strerror)
                await sleep(self._executor.clock, RETRY_SECONDS)
        self._write_end(end)

    def _ended(self, end: End) -> Task | None:
        """Return the task with the status that it has after an attempt; None: nobody waits for that."""
        task = get(self._executor.objects, Task, end.key.name, end.key.namespace)
        if task is None or task.metadata.uid != end.uid or task.over() or assignment_id(task) != end.outcome.id:
            self._over(end)
            return None
        status = task.status or TaskStatus()
        return msgspec.structs.replace(task, status=after(task, status, status.instance_name or "", end.outcome))

    def _end_written(self, end: End, task: Task, error: ApiError | None) -> None:
        if error is not None:
            if error.code == 404:
                self._over(end)
            elif error.code == INVALID and not end.is_bare:
                # It would be refused for ever, whatever else changes.
                bare = without_findings(end.outcome, str(error))
                self._write_end(end._replace(outcome=bare, is_bare=True))
            else:
                self._executor.start(self._again(end, error))
            return
        pool = self._pools.get(end.uid)
        self._over(end)
        if self._events is not None:
            warn(self._events, self._executor.objects, task, end.outcome.reason, end.outcome.message)
        self.counting.ran(task, end.outcome.ended - end.outcome.started)
        if task.over():
            self.counting.completed(task)
            if pool is not None:
                self._executor.complete(pool)
        if pool is not None:
            self._executor.forget_if_gone(pool)
        self.forget_if_pool_gone(task)
        if end.outcome.reason == "WorkerLost" and not task.over() and task.spec.branch is None:
            # It has its place again before another worker is there.
            ref = task.spec.worker_pool_ref
            if ref is not None and not task.spec.cancel and task.metadata.deletion_timestamp is None:
                self.want(task, PoolKey(task.metadata.namespace, ref.name), self.arrivals.when(task))
        if has_more_to_come(task):
            self.wake(end.key)

    async def _again(self, end: End, error: ApiError) -> None:
        """Write an end once more: the task has changed meanwhile, or the server has a problem."""
        await self._pause(error, f"the end of task {end.key.name} could not be written")
        self._write_end(end)

    def _over(self, end: End) -> None:
        """Nothing more is to be written of an attempt: its runner may forget it."""
        self._outcomes.pop(end.outcome.id)
        pool = self._pools.get(end.uid)
        self._forget(end.uid)
        repeated = self._repeated.pop(end.outcome.id, None)
        if end.member is not None:
            end.member.ends -= 1
        if (reporter := end.member or repeated) is not None:
            self._runners.send(reporter.subject, Acknowledge(end.outcome.id))
        if pool is not None:
            self._executor.ledger(pool).ended(end.uid)
            self._executor.carry_out(pool)
        self._lane.leave_if_idle(end.member)

    async def _unbegin(self, task: Task) -> None:
        """Write that a task waits which was written to run, and was never sent to a runner."""
        arrival = task.status.arrival if task.status is not None else None
        status = queued(task.status or TaskStatus(), arrival or time_of(self._executor.clock.time()))
        await _caught(self._executor.client.update_status(msgspec.structs.replace(task, status=status)))
        self.wake(key_of(task))

    # Reading.

    def _task(self, uid: str) -> Task | None:
        key = self._pools.key_of(uid)
        task = get(self._executor.objects, Task, key.name, key.namespace) if key is not None else None
        return task if task is not None and task.metadata.uid == uid else None

    def _wanting(self, uid: str) -> Task | None:
        """Return a task that is still to be run."""
        task = self._task(uid)
        if task is None or task.over() or task.spec.cancel or task.metadata.deletion_timestamp is not None:
            return None
        return task


def _is_claimed(member: Member) -> bool:
    """Report whether a claim holds a worker: it got it after the ends of all tasks there were written."""
    return member.assignment is not None and member.assignment.kind == "Claim"


async def _caught(work: Awaitable[object]) -> ApiError | None:
    try:
        await work
    except ApiError as error:
        return error
    return None
