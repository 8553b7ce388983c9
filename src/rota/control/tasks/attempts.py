"""Attempts of tasks: which worker has which, from the write that begins one to the write that ends it.

A worker is given to the tasks of its pool (its lane) by one write of the Instance; after that `Task.status` (the
instance, its uid and the number of the try) is the record of each hand-over. A task is sent to its runner only when it
is written that it runs there, and an outcome is acknowledged only when it is written. What begins and ends in one turn
of the event loop is written together.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, NamedTuple, cast

import msgspec

from rota.api import Instance, Task
from rota.api.instance import Assignment
from rota.api.task import TaskStatus
from rota.client import Key
from rota.control.holds.executor import LOOK_AGAIN_SECONDS, LOST_RACE, RETRY_SECONDS, Executor
from rota.control.holds.handover import HandOver, status_write
from rota.control.holds.members import Member, PoolKey
from rota.control.holds.named import ByName
from rota.control.instances.names import controller_of
from rota.control.tasks.counting import Counting
from rota.control.tasks.lifecycle import (
    after,
    assignment_id,
    is_large,
    queued,
    running,
    time_of,
    without_findings,
)
from rota.control.tasks.telling import warn
from rota.engine.clock import Timer, sleep
from rota.engine.metrics import Metrics
from rota.engine.objects import Objects, get
from rota.engine.reconciler import Context, Recording
from rota.pools import Binding, Ledger, Opened, Request, State
from rota.registry import ApiError
from rota.registry.metadata import new_uid
from rota.runtime.interface import Subject
from rota.runtime.runner.jobs import Outcome
from rota.runtime.runner.messages import Acknowledge, Assign, Began, Cancel, Returned, Withdraw
from rota.runtime.runners import JobNews, Runners

log = logging.getLogger(__name__)

LINGER_SECONDS = 0.05
"""How long a worker without a task stays given to the tasks of its pool: the next one often comes at once."""
ARRIVAL_STEP_SECONDS = 1e-6
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
    """What the attempt said was refused, and is left out."""


class Begin(NamedTuple):
    """An attempt that is to begin on a worker that the tasks of the pool have."""

    pool: PoolKey
    binding: Binding
    member: Member
    task: Task


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
        self._linger_seconds = linger_seconds
        self.counting = counting or Counting(Metrics())
        self.counting.watch(lambda: {(pool.namespace, pool.name): one for pool, one in executor.ledgers.items()})
        self._pools: ByName[PoolKey] = ByName()
        """By the uid of a task that waits for a worker or has one."""
        self._arrivals: ByName[float] = ByName()
        self._last_arrival = 0.0
        self._outcomes: ByName[Outcome] = ByName()
        """By the attempt's id, until they are written."""
        self._repeated: dict[str, Member] = {}
        """The workers whose runners report an outcome that is being written, perhaps because the worker was lost."""
        self._begins: list[Begin] = []
        self._ends: list[End] = []
        self._is_flush_due = self._has_ended = False
        self._entering: dict[str, list[Binding]] = {}
        """By the uid of an instance that is being given to tasks, what is to begin on it then."""
        self._lingering: dict[str, Timer] = {}
        self._wake: Callable[[Key], None] | None = None
        self._events: Recording | None = None
        executor.join("Task", self)

    def begin(self, wake: Callable[[Key], None]) -> Callable[[], None]:
        """Begin to take outcomes. `wake` has a task reconciled."""
        self._wake = wake
        ends = [self._runners.hear_outcomes(self.outcome), self._runners.hear_jobs(self._heard)]

        def end() -> None:
            self._has_ended = True
            for one in ends:
                one()
            for timer in self._lingering.values():
                timer.cancel()
            self._executor.close()

        return end

    def prepare(self, context: Context) -> None:
        self._events = context.events
        self._executor.prepare(context)

    def wake(self, key: Key) -> None:
        if self._wake is not None:
            self._wake(key)

    # Tasks.

    def arrival(self, task: Task, now: float) -> float:
        """Return when a task came to the queue. No two have the same: written down, this is their order."""
        if task.status is not None and task.status.arrival is not None:
            return task.status.arrival.timestamp()
        uid = task.metadata.uid
        known = self._arrivals.get(uid)
        if known is None:
            known = self._last_arrival = max(now, self._last_arrival + ARRIVAL_STEP_SECONDS)
            self._arrivals.put(uid, key_of(task), known)
        return known

    def waited(self, task: Task, now: float) -> float:
        """Return the seconds since a task was first seen to wait here."""
        known = self._arrivals.get(task.metadata.uid)
        return now - known if known is not None else 0.0

    def want(self, task: Task, pool: PoolKey, arrival: float) -> None:
        """Queue a task that could run now. Said again, nothing happens."""
        self._pools.put(task.metadata.uid, key_of(task), pool)
        self._executor.ledger(pool).request(request(task, arrival))
        self._executor.carry_out(pool)

    def is_waiting(self, task: Task) -> bool:
        """Report whether a task waits for a worker, and none is being given to it."""
        return self._state(task.metadata.uid) is State.WAITING

    def is_ending(self, task: Task) -> bool:
        """Report whether the outcome of the current attempt is being written."""
        return assignment_id(task) in self._outcomes

    def holders_of(self, instance: Instance) -> list[str]:
        """Name those that hold an instance."""
        return self._executor.holders_of(instance)

    def before(self, task: Task) -> int | None:
        """Count those that get a worker before one that waits. None: it does not wait."""
        pool = self._pools.get(task.metadata.uid)
        ledger = self._executor.ledgers.get(pool) if pool is not None else None
        return ledger.position(task.metadata.uid) if ledger is not None else None

    def resume(self, task: Task, instance: Instance) -> None:
        """Have a task that is written to run on an instance run there, unless it does."""
        member = self._executor.members.get(instance.metadata.uid)
        if member is None or self.is_ending(task):
            return
        uid = task.metadata.uid
        if self._state(uid) is not State.HELD:
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
        self._arrivals.drop(key)
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
                    self._leave_if_idle(member)
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
        pool = self._pools.get(task.metadata.uid)
        held = self._executor.ledger(pool).instance_of(task.metadata.uid) if pool is not None else None
        self._finish(End(key_of(task), task.metadata.uid, outcome, self._executor.members.get(held or "")))

    def forget_if_pool_gone(self, task: Task) -> None:
        """Something was counted of a task. If its pool is gone, it is not kept."""
        if task.spec.worker_pool_ref is not None:
            self._executor.forget_if_gone(PoolKey(task.metadata.namespace, task.spec.worker_pool_ref.name))

    def _forget(self, uid: str) -> None:
        self._pools.pop(uid)
        self._arrivals.pop(uid)

    def _state(self, uid: str) -> State | None:
        pool = self._pools.get(uid)
        ledger = self._executor.ledgers.get(pool) if pool is not None else None
        return ledger.state(uid) if ledger is not None else None

    def _hold(self, pool: PoolKey, task: Task, instance: str) -> None:
        self._pools.put(task.metadata.uid, key_of(task), pool)
        status = task.status
        arrival = status.arrival.timestamp() if status is not None and status.arrival is not None else 0.0
        self._executor.ledger(pool).hold(request(task, arrival), instance)
        self._executor.carry_out(pool)

    # What the executor asks.

    def restore(self) -> None:
        objects = self._executor.objects
        for task in cast("list[Task]", objects.list(Task.api)):
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
        elif binding.instance in self._entering:
            self._entering[binding.instance].append(binding)
        elif member.lane is None and member.is_changing_hands:
            ledger.lost(binding)
            self._executor.look_again(member)
        elif member.lane is None:
            self._entering[binding.instance] = [binding]
            member.is_changing_hands = True
            self._executor.start(self._enter(pool, member, task, binding))
        else:
            self._begins.append(Begin(pool, binding, member, task))
            self._flush_soon()

    def give_back(self, pool: PoolKey, request: Request, instance: str) -> None:
        task, member = self._task(request.id), self._executor.members.get(instance)
        if task is not None and not task.over() and task.spec.cancel:
            self._finish_cancelled(task)
            return
        self._forget(request.id)
        self._executor.ledger(pool).ended(request.id)
        if task is not None and not task.over():
            self._executor.start(self._unbegin(task))
        self._leave_if_idle(member)

    def name_of(self, uid: str) -> str | None:
        key = self._pools.key_of(uid)
        return key.name if key is not None else None

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
        self._leave_if_idle(member)

    def appeared(self, member: Member) -> None:
        for outcome in self._runners.outcomes(member.subject):
            self.outcome(member.subject, outcome)

    def vanished(self, instance: str) -> None:
        timer = self._lingering.pop(instance, None)
        if timer is not None:
            timer.cancel()

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
                    self._leave_if_idle(member)
                return
            self._finish(End(key_of(task), uid, outcome, member))
        elif self._executor.client.in_process:
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
            assigned, name = member.assignment, self.name_of(uid)
            if assigned is not None and name is not None and assigned.name != name and not member.is_changing_hands:
                member.is_changing_hands = True
                renamed = msgspec.structs.replace(assigned, name=name, uid=uid)
                self._executor.start(self._rename(member, renamed))
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
        self._leave_if_idle(member)

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

    def _flush_soon(self) -> None:
        if not self._is_flush_due and not self._has_ended:
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(lambda: self._executor.start(self._flush()))

    async def _flush(self) -> None:
        """Write what begins and ends in this turn."""
        self._is_flush_due = False
        begins, self._begins = self._begins, []
        ends, self._ends = self._ends, []
        ended = [(end, obj) for end in ends if (obj := self._ended(end)) is not None]
        now = time_of(self._executor.clock.time())
        begun = [(begin, begun_task(begin.task, begin.member, begin.binding, now)) for begin in begins]
        objs = [obj for _, obj in ended] + [obj for _, obj in begun]
        if not objs:
            return
        errors = await self._write(objs)
        for (end, obj), error in zip(ended, errors[: len(ended)], strict=True):
            self._end_written(end, obj, error)
        for (begin, obj), error in zip(begun, errors[len(ended) :], strict=True):
            self._begin_written(begin, obj, error)

    async def _write(self, objs: list[Task]) -> list[ApiError | None]:
        """Write the statuses of tasks, each by itself; return what was refused."""
        executor, client = self._executor, self._executor.client
        for obj in objs:
            executor.expect(obj)
        answers = await client.write_each([status_write(client, obj) for obj in objs])
        results = [one if isinstance(one, ApiError) else None for one in answers]
        for obj, error in zip(objs, results, strict=True):
            if error is not None:
                executor.unexpect(obj)
        return results

    async def _enter(self, pool: PoolKey, member: Member, task: Task, binding: Binding) -> None:
        """Give a worker to the tasks of its pool, and the first of them its place on it."""
        executor, uid = self._executor, member.subject.uid
        now = time_of(executor.clock.time())
        meta = task.metadata
        lane = Assignment(id=new_uid(), kind="Task", name=meta.name, uid=meta.uid, since=now)
        begins = begun_task(task, member, binding, now)
        try:
            written = await executor.write(HandOver(member.subject, None, lane, begins=begins))
        except ApiError as error:
            await executor.pause(error, f"{member.subject.name} could not be given to tasks")
            member.is_changing_hands = False
            ledger = executor.ledger(pool)
            for one in self._entering.pop(uid):
                self._not_bound(ledger, one)
            executor.carry_out(pool)
            executor.look_again(member)
            return
        member.is_changing_hands = False
        member.learn(written.instance)
        others = self._entering.pop(uid)[1:]
        if written.begun is not None:
            self._begun(Begin(pool, binding, member, task), begins)
        else:
            # The backend is not atomic: the worker is theirs, and that the task runs is written next.
            others = [binding, *others]
        for one in others:
            self.bind(pool, one)
        executor.update(member)
        executor.carry_out(pool)

    def _begin_written(self, begin: Begin, obj: Task, error: ApiError | None) -> None:
        if error is not None and not (error.code in STATUS_RACE and self._executor.client.in_process):
            self._executor.start(self._not_begun(begin, error))
            return
        if error is None:
            self._begun(begin, obj)
        else:
            # The task has changed meanwhile, or is gone: its worker is as free as before.
            self._not_bound(self._executor.ledger(begin.pool), begin.binding, instance_taken=False)
            self.wake(key_of(obj))
        self._executor.carry_out(begin.pool)
        self._leave_if_idle(begin.member)

    async def _not_begun(self, begin: Begin, error: ApiError) -> None:
        """Queue a task again, at its place, whose begin was refused; not before the reason for that can be known."""
        await self._pause(error, f"task {begin.task.metadata.name} could not begin")
        self._not_bound(self._executor.ledger(begin.pool), begin.binding, instance_taken=False)
        self.wake(key_of(begin.task))
        self._executor.carry_out(begin.pool)
        self._leave_if_idle(begin.member)

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

    def _begun(self, begin: Begin, task: Task) -> None:
        """An attempt is written to run on a worker: its runner begins it."""
        if not self._executor.ledger(begin.pool).bound(begin.binding):
            return
        self._arrivals.pop(task.metadata.uid)
        assert task.status is not None and task.status.start_time is not None
        self.counting.began(task, self._executor.clock.time() - begin.binding.request.arrival)
        if task.spec.branch is not None:
            self.wake(key_of(task))
        if begin.member.lane is None:
            # Somebody has taken the worker while that was written.
            self._executor.update(begin.member)
        else:
            self._send(begin.member, task)

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
            self._ends.append(end)
            self._flush_soon()
        if pool is not None:
            self._executor.carry_out(pool)

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
        self._ends.append(end)
        self._flush_soon()

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
                self._ends.append(end._replace(outcome=bare, is_bare=True))
                self._flush_soon()
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
                self.want(task, PoolKey(task.metadata.namespace, ref.name), self.arrival(task, end.outcome.ended))
        if has_more_to_come(task):
            self.wake(end.key)

    async def _again(self, end: End, error: ApiError) -> None:
        """Write an end once more: the task has changed meanwhile, or the server has a problem."""
        await self._pause(error, f"the end of task {end.key.name} could not be written")
        self._ends.append(end)
        self._flush_soon()

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
        self._leave_if_idle(end.member)

    async def _unbegin(self, task: Task) -> None:
        """Write that a task waits which was written to run, and was never sent to a runner."""
        arrival = task.status.arrival if task.status is not None else None
        status = queued(task.status or TaskStatus(), arrival or time_of(self._executor.clock.time()))
        await _caught(self._executor.client.update_status(msgspec.structs.replace(task, status=status)))
        self.wake(key_of(task))

    # Leaving the lane.

    def _leave_if_idle(self, member: Member | None) -> None:
        """Take a worker from the tasks of its pool when none of them has been on it for a moment."""
        if member is None or not self._may_leave(member):
            return
        uid = member.subject.uid
        if not self._linger_seconds or not member.opened or member.reset != "Keep":
            self._leave(member)
        elif uid not in self._lingering:
            clock = self._executor.clock

            def due() -> None:
                self._lingering.pop(uid, None)
                if self._may_leave(member):
                    self._leave(member)

            self._lingering[uid] = clock.call_at(clock.now() + self._linger_seconds, due)

    def _may_leave(self, member: Member) -> bool:
        executor, uid = self._executor, member.subject.uid
        if member.lane is None or member.is_changing_hands or not executor.is_known(member) or uid in self._entering:
            return False
        if member.ends:
            return False  # Until they are written, only this tells that its runner has them.
        return not executor.ledger(member.pool).is_used(uid)

    def _leave(self, member: Member) -> None:
        member.is_changing_hands = True
        self._executor.ledger(member.pool).open(member.subject.uid, Opened.CLOSED)
        self._executor.start(self._left(member))

    async def _rename(self, member: Member, assignment: Assignment) -> None:
        """Have an instance name the task that runs on it. It named another one that it was given for earlier."""
        try:
            written = await self._executor.write(HandOver(member.subject, assignment.id, assignment))
            member.learn(written.instance)
        except ApiError:
            self._executor.look_again(member)
        finally:
            member.is_changing_hands = False
        self._executor.update(member)

    async def _left(self, member: Member) -> None:
        executor = self._executor
        for outcome in self._runners.outcomes(member.subject):
            if outcome.id not in self._outcomes:
                # Of an attempt that nobody waits for.
                self._runners.send(member.subject, Acknowledge(outcome.id))
        try:
            written = await executor.write(HandOver(member.subject, member.lane, None))
        except ApiError as error:
            await executor.pause(error, f"{member.subject.name} could not be given back")
            member.is_changing_hands = False
            executor.look_again(member)
            return
        member.is_changing_hands = False
        member.learn(written.instance)
        executor.update(member)

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


async def _caught(work: Awaitable[object]) -> ApiError | None:
    try:
        await work
    except ApiError as error:
        return error
    return None


def request(task: Task, arrival: float) -> Request:
    spec = task.spec
    prefers = spec.affinity.key if spec.affinity is not None else ""
    return Request(task.metadata.uid, spec.holder or "", spec.priority, arrival, prefers, shares=True)


def begun_task(task: Task, member: Member, binding: Binding, now: datetime) -> Task:
    """Return a task with the status that it has when it is handed to a worker."""
    meta = member.instance.metadata
    status = running(task.status or TaskStatus(), meta.name, meta.uid, now, binding.request.arrival)
    return msgspec.structs.replace(task, status=status)


def pool_of(task: Task) -> PoolKey:
    """Return the pool whose workers run a task; one with a worker of its own is its own."""
    ref = task.spec.worker_pool_ref
    if ref is None:
        return PoolKey(task.metadata.namespace, task.metadata.name, Task.api.name)
    return PoolKey(task.metadata.namespace, ref.name)


def worker_of(objects: Objects, task: Task) -> Instance | None:
    """Return the instance on which a task is written to run, if it is there and given to tasks."""
    status = task.status
    instance = get(objects, Instance, status.instance_name or "", task.metadata.namespace) if status else None
    return instance if instance is not None and is_on(task, instance) else None


def is_on(task: Task, instance: Instance) -> bool:
    """Report whether a task is written to run on this very instance, which the tasks of its pool have."""
    status, assigned, owner = task.status, instance.spec.assignment, controller_of(instance)
    if status is None or status.phase != "Running" or assigned is None or assigned.kind != "Task":
        return False
    # Who may write a status must not choose a worker of another pool by it.
    if owner is None or (owner.name, owner.kind) != pool_of(task)[1:]:
        return False
    return status.instance_name == instance.metadata.name and status.instance_uid in (None, instance.metadata.uid)


def has_more_to_come(task: Task) -> bool:
    """Report whether there is something to do about a task after an attempt has ended."""
    spec, meta = task.spec, task.metadata
    is_plain = task.over() and spec.ttl_seconds_after_finished is None and spec.worker is None and not spec.branch
    return not is_plain or bool(meta.finalizers) or meta.deletion_timestamp is not None


def key_of(task: Task) -> Key:
    return Key(task.metadata.namespace, task.metadata.name)


def task_uid(id_: str) -> str:
    """Return the uid of the task that an attempt is of."""
    return id_.rpartition(".")[0]
