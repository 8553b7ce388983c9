"""Attempts of tasks on the workers of pools, from the write that begins an attempt to the write that ends it.

One write of the Instance gives a worker to the tasks of its pool (its lane). After that `Task.status` (the instance,
its uid and the number of the try) is the record of each hand-over. A runner is sent a task only after the task's status
says that it runs there, and an outcome is acknowledged only after it is written. Attempts that begin or end in one
iteration of the event loop are written together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import msgspec

from rota.api import Instance, Task
from rota.api.instance import Assignment
from rota.api.task import TaskStatus
from rota.client import Key
from rota.control.holds.arrivals import Arrivals
from rota.control.holds.executor import Executor
from rota.control.holds.handover import HandOver, Written
from rota.control.holds.ledger_index import LedgerIndex
from rota.control.holds.members import Member, PoolKey
from rota.control.instances.names import controller_of
from rota.control.tasks.counting import TaskCounting
from rota.control.tasks.ends import End, Ends, KeepResult
from rota.control.tasks.lane import LINGER_SECONDS, Lane
from rota.control.tasks.lifecycle import assignment_id, queued, time_of
from rota.control.tasks.notices import Notices
from rota.control.tasks.placing import (
    begun_task,
    has_more_to_come,
    is_on,
    is_plain,
    key_of,
    pool_of,
    request,
    task_uid,
    worker_of,
)
from rota.control.tasks.sending import MakeJob, Sending
from rota.control.tasks.waits import place_of
from rota.engine.metrics import Metrics
from rota.pools import Binding, Request, State
from rota.registry import ApiError
from rota.runtime.interface import Subject
from rota.runtime.runner.jobs import Outcome
from rota.runtime.runner.messages import Acknowledge, Began, Returned
from rota.runtime.runners import JobNews, Runners


class Attempts:
    """Runs tasks on the workers of pools: it writes in a task's status that an attempt runs, and its outcome."""

    def __init__(
        self,
        executor: Executor,
        runners: Runners,
        make_job: MakeJob,
        keep_result: KeepResult,
        counting: TaskCounting | None = None,
        linger_seconds: float = LINGER_SECONDS,
    ) -> None:
        """`keep_result` stores a large result under the task's name, uid and namespace."""
        self.executor = executor
        self._runners = runners
        self.counting = counting or TaskCounting(Metrics())
        self.counting.watch(lambda: {(pool.namespace, pool.name): one for pool, one in executor.ledgers.items()})
        self._active = LedgerIndex(executor)
        """The tasks that wait for a worker or have one."""
        self.arrivals = Arrivals(lambda: executor.clock.time())
        self.ends = Ends(executor, runners, self._active, self.counting, keep_result, self._ended)
        self._sending = Sending(executor, runners, self.ends, make_job)
        self._lane = Lane(executor, runners, self.ends.__contains__, linger_seconds)
        self._notices = Notices(executor, self._queued_write)
        executor.join("Task", self)

    def serve(self) -> Callable[[], None]:
        """Take outcomes and other news from runners. Returns a function that ends that."""
        ends = [self._runners.on_outcomes(self.outcome), self._runners.on_job_news(self._on_job_news)]

        def end() -> None:
            for one in ends:
                one()
            self._lane.close()
            self._notices.close()
            self.executor.close()

        return end

    def wake(self, key: Key) -> None:
        self.executor.wake(Task.api, key)

    # Tasks.

    def queue(self, task: Task, pool: PoolKey, arrival: float) -> None:
        """Queue a task that needs nothing more than a worker. Repeated, this has no effect.

        If the task has to wait, its status says so after a moment.
        """
        uid = task.metadata.uid
        self._active.put(uid, key_of(task), pool)
        state = self.executor.ledger(pool).request(request(task, arrival))
        if state is State.WAITING and (task.status is None or task.status.phase != "Queued"):
            self._notices.put(uid)
        self.executor.carry_out(pool)

    def is_ending(self, task: Task) -> bool:
        """Report whether the outcome of the current attempt is being written."""
        return assignment_id(task) in self.ends

    def before(self, task: Task) -> int | None:
        """Count the requests that are served before a task, or return `UNCOUNTED`. None: the task does not wait."""
        ledger = self._active.ledger(task.metadata.uid)
        return place_of(ledger, task.metadata.uid) if ledger is not None else None

    def resume(self, task: Task, instance: Instance) -> None:
        """Restore the hold of a task whose status says that it runs on an instance, and send it to the runner.

        If the runner has reported its outcome already, take that instead.
        """
        member = self.executor.members.get(instance.metadata.uid)
        if member is None or self.is_ending(task):
            return
        uid = task.metadata.uid
        if self._active.state(uid) is not State.HELD:
            self._hold(member.pool, task, member.subject.uid)
            for outcome in self._runners.outcomes(member.subject):
                if outcome.id == assignment_id(task):
                    self.outcome(member.subject, outcome)
                    return
        self._sending.begin(member, task)

    def cancel(self, task: Task) -> None:
        """Drop a waiting task, or ask the runner of a running one to end it. The runner then reports the outcome."""
        uid = task.metadata.uid
        pool = self._active.get(uid)
        if pool is None:
            return
        ledger = self.executor.ledger(pool)
        state = ledger.cancel(uid)
        if state in (State.HELD, State.ENDING):
            if (member := self._active.member(uid)) is not None:
                self._sending.cancel(member, assignment_id(task))
        elif state is not State.BINDING:
            # While its binding is being written, a task stays known: its worker is given back after that.
            self._forget(uid)
        self.executor.carry_out(pool)

    def gone(self, key: Key) -> None:
        """Forget the deleted task of this name. If it was sent to a runner, have the runner end it."""
        self.arrivals.drop(key)
        for uid in self._active.of(key):
            pool = self._active.get(uid)
            assert pool is not None
            ledger = self.executor.ledger(pool)
            if ledger.cancel(uid) is State.HELD:
                # The hold ends when the runner reports the outcome, which is then acknowledged.
                member = self._active.member(uid)
                sent = [id_ for id_ in member.sent if task_uid(id_) == uid] if member is not None else []
                for id_ in sent:
                    self._sending.cancel(cast(Member, member), id_)
                if not sent:
                    self._drop(pool, uid, member)
            elif ledger.state(uid) is None:
                self._forget(uid)
            self.executor.carry_out(pool)

    def _forget(self, uid: str) -> None:
        self._active.pop(uid)
        self.arrivals.pop(uid)

    def _drop(self, pool: PoolKey, uid: str, member: Member | None) -> None:
        """End a hold in the ledger only, since nothing of its end has to be written."""
        self.executor.ledger(pool).ended(uid)
        self._forget(uid)
        self.executor.carry_out(pool)
        self._lane.leave_if_idle(member)

    def _hold(self, pool: PoolKey, task: Task, instance: str) -> None:
        self._active.put(task.metadata.uid, key_of(task), pool)
        status = task.status
        arrival = status.arrival.timestamp() if status is not None and status.arrival is not None else 0.0
        self.executor.ledger(pool).hold(request(task, arrival), instance)
        self.executor.carry_out(pool)

    # `Holders`, which the executor calls.

    by_instance = False

    def creation_under_way(self, uid: str) -> asyncio.Future[None] | None:
        return None

    def begin(self, member: Member, binding: Binding) -> HandOver | None:
        task = self._runnable_task(binding.request.id)
        if task is None:
            raise ApiError(404, "NotFound", f"no task {binding.request.id} is to be run")
        begun = begun_task(task, member, binding, time_of(self.executor.clock.time()))
        return HandOver(begins=begun) if member.lane is not None else self._lane.enter(member, begun)

    def begun(self, binding: Binding, handover: HandOver, written: Written, member: Member | None) -> None:
        if member is None:
            return
        task: Task = written.begun
        self.arrivals.pop(task.metadata.uid)
        self.counting.began(task, self.executor.clock.time() - binding.request.arrival)
        if task.spec.branch is not None:
            self.wake(key_of(task))
        if member.lane is None:
            # Another writer has taken the worker meanwhile.
            self.executor.update(member)
        else:
            self._sending.begin(member, task)
            self._lane.leave_if_idle(member)

    def is_at_fault(self, handover: HandOver, error: ApiError) -> bool:
        return False  # A task whose begin is refused has changed, or is gone.

    def refused(self, request: Request, error: ApiError) -> None:
        self._forget(request.id)

    def not_begun(self, binding: Binding, error: ApiError | None) -> None:
        key = self._active.key_of(binding.request.id)
        if not binding.is_wanted:
            self._forget(binding.request.id)
        if key is not None and error is not None:
            self.wake(key)
        self._lane.leave_if_idle(self.executor.members.get(binding.instance))

    def restore(self) -> None:
        objects = self.executor.objects
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
            elif status.phase == "Queued" and status.arrival is not None and _waits_for_pool(task):
                # Queued tasks get their places back before any worker is given out.
                self.queue(task, pool_of(task), status.arrival.timestamp())

    def give_back(self, pool: PoolKey, request: Request, instance: str) -> None:
        task, member = self._active.find(Task, request.id), self.executor.members.get(instance)
        if task is not None and not task.over() and task.spec.cancel:
            self.ends.cancelled(task)
            return
        if task is not None and not task.over():
            self._requeue(task)
        self._drop(pool, request.id, member)

    def name_of(self, uid: str) -> str | None:
        return self._active.name_of(uid)

    def recall(self, instance: str, request: str) -> None:
        task, member = self._active.find(Task, request), self.executor.members.get(instance)
        if task is not None and member is not None:
            self._sending.recall(member, task)

    def lost(self, request: Request, instance: str) -> None:
        task = self._active.find(Task, request.id)
        self._active.pop(request.id)
        if task is not None and task.status is not None and task.status.phase == "Running":
            self.ends.lost(task)

    def assigned(self, member: Member, assignment: Assignment) -> None:
        ledger = self.executor.ledger(member.pool)
        for uid in ledger.holders_of(member.subject.uid):
            if ledger.state(uid) is not State.HELD:
                continue
            task = self._active.find(Task, uid)
            if task is not None and is_on(task, member.instance):
                self._sending.begin(member, task)
        self._lane.leave_if_idle(member)

    def held_by_another(self, member: Member) -> None:
        if member.is_claimed:
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
        """Take the outcome of an attempt. The runner repeats it on each stream until it is acknowledged."""
        outcome = self.executor.judged(outcome)
        member = self.executor.members.get(subject.uid)
        if member is None:
            return  # The worker is not known yet: `appeared` takes its outcomes.
        if outcome.id in self.ends:
            self.ends.repeat(outcome.id, member)
            return
        member.sent.discard(outcome.id)
        uid = task_uid(outcome.id)
        pool = self._active.get(uid)
        ledger = self.executor.ledger(member.pool)
        if pool is not None and ledger.instance_of(uid) == subject.uid:
            task = self._active.find(Task, uid)
            if task is None or task.over() or assignment_id(task) != outcome.id:
                self._runners.send(subject, Acknowledge(outcome.id))
                if task is None or task.over():
                    self._drop(pool, uid, member)
                return
            self.ends.finish(End(key_of(task), uid, outcome, member))
        elif self.executor.client.in_process or member.is_claimed:
            # No task waits for this outcome. With a remote registry, the task may only not have been read yet: then
            # the outcome is acknowledged when the worker leaves the lane.
            self._runners.send(subject, Acknowledge(outcome.id))

    def _on_job_news(self, subject: Subject, news: JobNews) -> None:
        """Take news of a job: it has run for longer than a moment, or its runner has returned it before it began."""
        member = self.executor.members.get(subject.uid)
        if member is None or not isinstance(news, Began | Returned):
            return
        uid = task_uid(news.id)
        ledger = self.executor.ledger(member.pool)
        if ledger.instance_of(uid) != subject.uid:
            return
        if isinstance(news, Began):
            ledger.runs_long(uid)
            self.executor.carry_out(member.pool)
            name = self.name_of(uid)
            if name is not None:
                self._lane.rename(member, name, uid)
            return
        member.sent.discard(news.id)
        task = self._active.find(Task, uid)
        if task is None or task.over() or assignment_id(task) != news.id:
            self._drop(member.pool, uid, member)
        elif task.spec.cancel:
            self.ends.cancelled(task)
        elif ledger.returned(uid, subject.uid) is not None and ledger.state(uid) is State.WAITING:
            self._requeue(task)
        self.executor.carry_out(member.pool)
        self._lane.leave_if_idle(member)

    # Writing.

    def _queued_write(self, uid: str) -> HandOver | None:
        """Return the write of phase Queued for a waiting task; None: it does not wait, or its status says so."""
        task = self._runnable_task(uid) if self._active.state(uid) is State.WAITING else None
        if task is None or (task.status is not None and task.status.phase == "Queued"):
            return None
        arrival = time_of(self.arrivals.when(task))
        return HandOver(begins=msgspec.structs.replace(task, status=queued(task.status or TaskStatus(), arrival)))

    def _requeue(self, task: Task) -> None:
        """Write a task back to Queued that no runner has begun, though its status says that it runs."""
        arrival = task.status.arrival if task.status is not None else None
        status = queued(task.status or TaskStatus(), arrival or time_of(self.executor.clock.time()))
        waits = HandOver(begins=msgspec.structs.replace(task, status=status))
        self.executor.writes.add(lambda: waits, lambda _, result: self.wake(key_of(task)))

    def _ended(self, end: End, task: Task | None) -> None:
        """Go on after the end of an attempt was written. `task`: the written task; None: nothing had to be written."""
        self._forget(end.uid)
        self._lane.leave_if_idle(end.member)
        if task is None:
            return
        is_lost = end.outcome.reason == "WorkerLost" and task.metadata.deletion_timestamp is None
        if is_lost and not task.over() and task.spec.branch is None and _waits_for_pool(task):
            # It is queued at its place before another worker is free.
            self.queue(task, pool_of(task), self.arrivals.when(task))
        if has_more_to_come(task):
            self.wake(end.key)

    # Reading.

    def _runnable_task(self, uid: str) -> Task | None:
        """Return the task with this uid; None: it must not begin (it is over, cancelled, being deleted or gone)."""
        task = self._active.find(Task, uid)
        if task is None or task.over() or task.spec.cancel or task.metadata.deletion_timestamp is not None:
            return None
        return task


def _waits_for_pool(task: Task) -> bool:
    """Report whether a waiting task needs only a worker of its pool."""
    return task.spec.worker_pool_ref is not None and not task.spec.cancel
