"""Which worker runs which task. Everything it knows can be found again in objects and in what runners say.

From the id of an assignment follows which attempt of which task it is; what is no longer an attempt that the task waits
for is nobody's, and is given back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any, cast

import msgspec

from rota.api import Instance, Task
from rota.api.instance import Assignment
from rota.client import Key
from rota.control.holds.desk import Desk
from rota.control.holds.members import Member, PoolKey, offer
from rota.control.holds.named import ByName
from rota.control.holds.turns import Turn, Turned
from rota.control.instances.names import controller_of
from rota.control.instances.states import is_draining
from rota.control.tasks.counting import Counting
from rota.control.tasks.holding import beginning, has_more_to_come, is_attempt, is_running_on, key_of, request
from rota.control.tasks.lifecycle import after, assignment_id, is_large, time_of
from rota.control.tasks.telling import warn
from rota.engine import Context
from rota.engine.metrics import Metrics
from rota.engine.objects import Objects, get
from rota.engine.reconciler import Recording
from rota.pools import Binding, Queue
from rota.registry import ApiError
from rota.runtime.interface import Subject
from rota.runtime.runner.jobs import Outcome
from rota.runtime.runner.messages import Acknowledge, Assign, Cancel
from rota.runtime.runners import Runners

log = logging.getLogger(__name__)

MakeJob = Callable[[Objects, Task, Instance, str], Any]


class Assigner:
    """Tasks in, outcomes out. `wake` is called for a task that has got a worker, an outcome, or lost what it had."""

    def __init__(
        self,
        desk: Desk,
        runners: Runners,
        make_job: MakeJob,
        counting: Counting | None = None,
        keep_result: Callable[[str, str, str, str], None] = lambda name, uid, namespace, result: None,
    ) -> None:
        """`keep_result` puts a large result where it is found again by the task's namespace, name and uid."""
        self._desk = desk
        desk.parties["Task"] = self
        self._runners = runners
        self._make_job = make_job
        self._keep_result = keep_result
        self.counting = counting or Counting(Metrics())
        self.counting.watch(lambda: {(pool.namespace, pool.name): queue for pool, queue in desk.queues.items()})
        self._assigned: dict[str, str] = {}
        """By the uid of a task, that of the instance that has it."""
        self._outcomes: ByName[Outcome] = ByName()
        """By the assignment's id, until they are recorded."""
        self._wanted: ByName[tuple[PoolKey, Key]] = ByName()
        """By the uid of a task that wants a worker, or has one: where, and its name."""
        self._binding: set[str] = set()
        """The uids of tasks to which a worker is just being given."""
        self._turning: set[str] = set()
        """Those that are being written down."""
        self.wake: Callable[[Key], None] = lambda key: None
        self.left: Callable[[Task], None] = lambda task: None
        """Told of a task that waits no longer, or is over."""
        self._events: Recording | None = None

    def begin(self, wake: Callable[[Key], None]) -> Callable[[], None]:
        self.wake = wake
        deaf = self._runners.hear_outcomes(self.outcome)

        def end() -> None:
            deaf()
            self._desk.close()

        return end

    def prepare(self, context: Context) -> None:
        self._events = context.events
        self._desk.prepare(context)

    # What the desk asks.

    def knows(self, request: str) -> bool:
        return request in self._wanted

    def restore(self) -> None:
        objects = self._objects
        for instance in cast("list[Instance]", objects.list(Instance.api)):
            assigned, owner = instance.spec.assignment, controller_of(instance)
            if assigned is not None and assigned.kind == "Task" and owner is not None:
                task = get(objects, Task, assigned.name, instance.metadata.namespace)
                if task is not None and is_attempt(task, assigned):
                    pool = PoolKey(instance.metadata.namespace, owner.name, owner.kind)
                    self._restore(pool, task, instance.metadata.uid)
        for task in cast("list[Task]", objects.list(Task.api)):
            self._take_place(task)

    def _take_place(self, task: Task) -> None:
        """One that waited before this process did: it has its place before anybody is served."""
        status, ref, uid = task.status, task.spec.worker_pool_ref, task.metadata.uid
        if status is None or status.phase != "Queued" or status.arrival is None or ref is None:
            return
        if uid not in self._assigned and not task.spec.cancel and task.metadata.deletion_timestamp is None:
            pool = PoolKey(task.metadata.namespace, ref.name)
            self._want(task, pool)
            self._desk.queue(pool).restore(waiting=[request(task, status.arrival.timestamp())])

    def met(self, member: Member) -> None:
        for outcome in self._runners.outcomes(member.subject):
            self.outcome(member.subject, outcome)

    def lost(self, instance: str) -> None:
        for task_uid in [one for one, at in self._assigned.items() if at == instance]:
            del self._assigned[task_uid]
            known = self._wanted.get(task_uid)
            if known is not None:
                self.wake(known[1])
        for id_ in [id_ for id_ in self._outcomes if id_ not in self._turning and _task_uid(id_) not in self._wanted]:
            self._outcomes.pop(id_)

    def pool_gone(self, pool: PoolKey) -> None:
        self.counting.forget(pool.namespace, pool.name)

    def settle(self, member: Member, assigned: Assignment) -> None:
        task = self._task(member, assigned)
        if task is None:
            self._give_back(member, assigned)
            return
        self._restore(member.pool, task, member.subject.uid)
        if not is_running_on(task, member.subject.name):
            self.wake(key_of(task))
            return
        if task.spec.cancel:
            # Its runner may not have been there when that was asked for. One that has not begun ends before it does.
            self._runners.send(member.subject, Cancel(assigned.id))
        self._tell(member, task, assigned)

    def _restore(self, pool: PoolKey, task: Task, instance: str) -> None:
        uid = task.metadata.uid
        if self._assigned.get(uid) != instance:
            self._assigned[uid] = instance
            self._want(task, pool)
            self._desk.queue(pool).restore(bound=[(request(task, 0.0), instance)])

    def _now(self) -> datetime:
        return time_of(self._desk.clock.time())

    @property
    def _objects(self) -> Objects:
        assert self._desk.objects is not None
        return self._desk.objects

    # Tasks.

    def want(self, task: Task, pool: PoolKey, arrival: float) -> None:
        """A task could run now. Said again, nothing happens."""
        self._want(task, pool)
        if task.metadata.uid not in self._assigned:
            self._desk.carry_out(pool, [self._desk.queue(pool).add(request(task, arrival))])

    def _want(self, task: Task, pool: PoolKey) -> None:
        key = key_of(task)
        self._wanted.put(task.metadata.uid, key, (pool, key))

    def is_waiting(self, task: Task) -> bool:
        """Whether a task waits for a worker, and none is on its way to it."""
        uid = task.metadata.uid
        return uid in self._wanted and uid not in self._assigned and uid not in self._binding

    def worker_of(self, task: Task) -> Member | None:
        """The worker that has the attempt which the task waits for, as the instance says."""
        worker = self._desk.members.get(self._assigned.get(task.metadata.uid, ""))
        assigned = worker.instance.spec.assignment if worker is not None else None
        if worker is None or assigned is None or assigned.id != assignment_id(task):
            return None
        return worker

    def outcome_of(self, task: Task) -> Outcome | None:
        """How the attempt that the task waits for ended, if that is still to be written down."""
        id_ = assignment_id(task)
        return self._outcomes.get(id_) if id_ not in self._turning else None

    def start(self, task: Task) -> None:
        """It is written down that a task runs: now it does."""
        worker = self.worker_of(task)
        if worker is not None and worker.instance.spec.assignment is not None:
            self._tell(worker, task, worker.instance.spec.assignment)

    def cancel(self, task: Task) -> None:
        """A task is not to run, or no longer. What runs says how it ended."""
        worker = self.worker_of(task)
        if worker is None:
            self._forget(task.metadata.uid)
        elif worker.instance.spec.assignment is not None:
            self._runners.send(worker.subject, Cancel(worker.instance.spec.assignment.id))

    def gone(self, key: Key) -> None:
        """There is no task of this name any more."""
        for uid in self._wanted.of(key):
            self._forget(uid)
        held = set()
        for worker in list(self._desk.members.values()):
            assigned = worker.instance.spec.assignment
            if assigned is not None and (worker.subject.namespace, assigned.name) == key:
                held.add(assigned.id)
                self._desk.settle(worker)
        for id_ in self._outcomes.of(key):
            # What a worker still has is acknowledged when it is taken from it.
            if id_ not in held and id_ not in self._turning:
                self._outcomes.pop(id_)

    def _forget(self, uid: str) -> None:
        self._assigned.pop(uid, None)
        known = self._wanted.pop(uid)
        if known is not None and known[0] in self._desk.queues:
            self._desk.queues[known[0]].cancel(uid)
            self._desk.told(known[0])

    def recorded(self, task: Task, id_: str, *, is_over: bool) -> None:
        """How an attempt ended is in the task's status: its worker is free for the next."""
        self._outcomes.pop(id_)
        worker = self._desk.members.get(self._assigned.get(task.metadata.uid, ""))
        self._leave(task, worker, id_, is_over=is_over)
        if worker is not None:
            self._desk.queue(worker.pool).released(worker.subject.uid)
        assigned = worker.instance.spec.assignment if worker is not None else None
        if worker is not None and assigned is not None and assigned.id == id_:
            self._desk.start(self._desk.release(worker, id_))

    def _leave(self, task: Task, worker: Member | None, id_: str, *, is_over: bool) -> None:
        uid = task.metadata.uid
        self._assigned.pop(uid, None)
        self._wanted.pop(uid)
        if worker is None:
            return
        if is_over:
            self._desk.complete(worker.pool)
        self._runners.send(worker.subject, Acknowledge(id_))
        worker.affinity = task.spec.affinity.key if task.spec.affinity is not None else ""

    def counted(self, task: Task) -> None:
        """Something was counted of a task. If its pool is gone, it is not kept."""
        if task.spec.worker_pool_ref is not None:
            self._desk.forget_if_gone(PoolKey(task.metadata.namespace, task.spec.worker_pool_ref.name))

    def before(self, task: Task) -> int | None:
        """How many get a worker before one that waits for it, as things stand. None: it does not wait."""
        uid = task.metadata.uid
        known = self._wanted.get(uid)
        queue = self._desk.queues.get(known[0]) if known is not None else None
        return queue.view.position(uid) if queue is not None else None

    # Workers.

    def _task(self, worker: Member, assigned: Assignment) -> Task | None:
        """The task that waits for this very attempt."""
        task = get(self._objects, Task, assigned.name, worker.subject.namespace)
        return task if task is not None and is_attempt(task, assigned) else None

    def _tell(self, worker: Member, task: Task, assigned: Assignment) -> None:
        """Have the runner begin, unless it has. It does nothing twice, whatever it is told."""
        report = worker.report
        if report is None or worker.told == assigned.id or report.holder == assigned.id:
            return
        if assigned.id in self._outcomes:
            return
        try:
            job = self._make_job(self._objects, task, worker.instance, assigned.id)
        except Exception as error:
            # It was looked at before it was let in: something has changed since.
            now = self._desk.clock.time()
            failed = Outcome(assigned.id, "Failed", now, now, message=str(error))
            self._outcomes.put(assigned.id, key_of(task), failed)
            self.wake(key_of(task))
            return
        if self._runners.send(worker.subject, Assign(job)):
            worker.told = assigned.id

    def _give_back(self, worker: Member, assigned: Assignment) -> None:
        """An assignment that nobody waits for."""
        report = worker.report
        queue = self._desk.queue(worker.pool)
        queue.released(worker.subject.uid)
        queue.withdraw(worker.subject.uid)
        if report is not None and (report.holder == assigned.id or worker.told == assigned.id):
            # It may still be at it. What it says of its end is then acknowledged, and it is released.
            if assigned.id not in self._outcomes:
                self._runners.send(worker.subject, Cancel(assigned.id))
                return
            self._runners.send(worker.subject, Acknowledge(assigned.id))
        self._outcomes.pop(assigned.id)
        self._desk.start(self._desk.release(worker, assigned.id))

    def judged(self, outcome: Outcome) -> Outcome:
        """How an attempt is taken to have ended."""
        return self._desk.judged(outcome)

    # What runners say.

    def outcome(self, subject: Subject, outcome: Outcome) -> None:
        """A runner tells how an attempt ended. It does so until that is acknowledged."""
        outcome = self._desk.judged(outcome)
        worker = self._desk.members.get(subject.uid)
        assigned = worker.instance.spec.assignment if worker is not None else None
        if worker is None:
            return  # It is looked for when the worker is known.
        if assigned is None or assigned.id != outcome.id:
            self._runners.send(subject, Acknowledge(outcome.id))
            return
        if outcome.id in self._outcomes:
            return
        if is_large(outcome.result):
            self._keep_result(assigned.name, assigned.uid, subject.namespace, outcome.result)
        self._outcomes.put(outcome.id, Key(subject.namespace, assigned.name), outcome)
        task = self._task(worker, assigned)
        if task is None:
            self._give_back(worker, assigned)
        elif is_running_on(task, worker.subject.name):
            self._turning.add(outcome.id)
            self._desk.start(self._turn_over(worker, task, outcome))
        else:
            self.wake(key_of(task))

    # Writing.

    async def bind(self, pool: PoolKey, binding: Binding) -> None:
        worker, task = self._desk.members.get(binding.instance), self._wanting(binding)
        if task is None or worker is None:
            self._desk.give_up(pool, binding, is_wanted=task is not None)
            return
        before = worker.instance.spec.assignment
        assignment, begins = beginning(task, worker, binding, self._now())
        turn = Turn(worker.subject, before.id if before is not None else None, assignment, begins=begins)
        try:
            turned = await self._written(turn, task)
        except ApiError as error:
            await self._desk.not_written(pool, binding, worker, error)
            return
        worker.learn(turned.instance)
        self._begun(worker, binding, turned.begun or task)

    async def _turn_over(self, worker: Member, task: Task, outcome: Outcome) -> None:
        """A task has ended: that is written down, and the worker is given to the next, or to nobody."""
        pool, uid = worker.pool, worker.subject.uid
        queue = self._desk.queue(pool)
        status = task.status
        assert status is not None
        ended = msgspec.structs.replace(task, status=after(task, status, worker.subject.name, outcome))
        queue.released(uid)
        binding, following = self._next(worker, queue)
        turn = Turn(worker.subject, outcome.id, None, ended)
        if following is not None and binding is not None:
            assignment, begins = beginning(following, worker, binding, self._now())
            turn = turn._replace(after=assignment, begins=begins)
        worker.is_turning = True
        try:
            turned = await self._written(turn, following)
        except ApiError as error:
            worker.is_turning = False
            log.info("how task %s ended is written down in another way: %s", task.metadata.name, error)
            if binding is not None:
                self._desk.carry_out(pool, queue.lost(binding))
            self._desk.look_again(worker)
            queue.restore(bound=[(request(task, 0.0), uid)])
            self._desk.drop_if_gone(worker)
            self._turning.discard(outcome.id)
            self.wake(key_of(task))
            return
        worker.is_turning = False
        self._turning.discard(outcome.id)
        self._outcomes.pop(outcome.id)
        worker.learn(turned.instance)
        self._leave(task, worker, outcome.id, is_over=ended.over())
        self.counting.ran(task, outcome.ended - outcome.started)
        if self._events is not None:
            warn(self._events, self._objects, ended, outcome.reason, outcome.message)
        if ended.over():
            self.counting.completed(ended)
        self._desk.forget_if_gone(pool)
        if binding is not None and following is not None:
            self._begun(worker, binding, turned.begun or following)
        self.left(ended)
        if turned.ended is None or has_more_to_come(turned.ended):
            self.wake(key_of(task))

    def _next(self, worker: Member, queue: Queue) -> tuple[Binding | None, Task | None]:
        """Who gets a worker that is about to be free."""
        if not queue.view.depth or worker.reset == "Recreate" or not worker.is_ready or is_draining(worker.instance):
            return None, None
        binding = queue.offer(offer(worker))
        if binding is None:
            queue.withdraw(worker.subject.uid)
            return None, None
        task = self._wanting(binding)
        if task is None:
            # Whoever else is first gets it when it is free and as new.
            if self.knows(binding.request.id):
                queue.cancel(binding.request.id)
            self._desk.carry_out(worker.pool, queue.lost(binding))
            return None, None
        return binding, task

    def _begun(self, worker: Member, binding: Binding, task: Task) -> None:
        """A binding has been carried out."""
        if not self._desk.queue(worker.pool).confirmed(binding):
            self._desk.start(self._desk.release(worker, assignment_id(task)))
            return
        self._assigned[task.metadata.uid] = worker.subject.uid
        assigned = worker.instance.spec.assignment
        arrival = binding.request.arrival
        if assigned is not None and isinstance(arrival, float):
            self.counting.began(task, assigned.since.timestamp() - arrival)
        self.left(task)
        if assigned is not None and is_running_on(task, worker.subject.name):
            self._tell(worker, task, assigned)
        else:
            self.wake(key_of(task))
        self._desk.drop_if_gone(worker)

    def _wanting(self, binding: Binding) -> Task | None:
        known = self._wanted.get(binding.request.id)
        return self._waiting(known[1], binding.request.id) if known is not None else None

    async def _written(self, turn: Turn, task: Task | None = None) -> Turned:
        """`task` is who gets the worker."""
        uid = task.metadata.uid if task is not None else ""
        self._binding.add(uid)
        try:
            return await self._desk.written(turn)
        finally:
            self._binding.discard(uid)

    def _waiting(self, key: Key, uid: str) -> Task | None:
        """A task that is still to be run."""
        task = get(self._objects, Task, key.name, key.namespace)
        if task is None or task.metadata.uid != uid or task.over() or task.spec.cancel:
            return None
        return task


def _task_uid(id_: str) -> str:
    """Of the task that an assignment is an attempt of."""
    return id_.rpartition(".")[0]
