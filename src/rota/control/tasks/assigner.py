"""Which worker runs which task. Everything it knows can be found again in objects and in what runners say.

An assignment is what an Instance says it is, in `spec.assignment`. From its id follows which attempt of which task it
is; what is no longer an attempt that the task waits for is nobody's, and is given back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, cast

import msgspec

from rota.api import Instance, Task, WorkerPool
from rota.api.instance import Assignment
from rota.client import Client, Key
from rota.control.instances.names import controller_of
from rota.control.instances.states import is_draining
from rota.control.orders import subject_of
from rota.control.tasks.counting import Counting
from rota.control.tasks.holding import (
    PoolKey,
    Worker,
    beginning,
    has_more_to_come,
    is_attempt,
    is_running_on,
    key_of,
    offer,
    request,
)
from rota.control.tasks.lifecycle import after, assignment_id, is_large
from rota.control.tasks.turns import Turn, Turned, write
from rota.engine.metrics import Metrics
from rota.engine.objects import Objects, get
from rota.engine.reconciler import Memory
from rota.engine.references import id_of
from rota.pools import Binding, Queue
from rota.registry import ApiError
from rota.runtime.interface import Subject
from rota.runtime.runner.jobs import Outcome
from rota.runtime.runner.messages import Acknowledge, Assign, Cancel, Report, ResetPolicy
from rota.runtime.runners import Runners

log = logging.getLogger(__name__)

LOOK_AGAIN_SECONDS = 0.02
"""After a race that was lost: what was faster is known by then."""
RETRY_SECONDS = 1.0
"""After an error of the server that is nobody's fault."""
LOST_RACE = frozenset((404, 409, 422))

MakeJob = Callable[[Objects, Task, Instance, str], Any]


class Assigner:
    """Tasks in, outcomes out. `wake` is called for a task that has got a worker, an outcome, or lost what it had."""

    def __init__(
        self,
        runners: Runners,
        make_job: MakeJob,
        counting: Counting | None = None,
        keep_result: Callable[[str, str, str, str], None] = lambda name, uid, namespace, result: None,
    ) -> None:
        """`keep_result` puts a large result where it is found again by the task's namespace, name and uid."""
        self._runners = runners
        self._make_job = make_job
        self._keep_result = keep_result
        self.counting = counting or Counting(Metrics())
        self.counting.watch(lambda: {(pool.namespace, pool.name): queue for pool, queue in self._queues.items()})
        self._queues: dict[PoolKey, Queue] = {}
        self._workers: dict[str, Worker] = {}
        self._assigned: dict[str, str] = {}
        """By the uid of a task, that of the instance that has it."""
        self._outcomes: dict[str, Outcome] = {}
        """By the assignment's id, until they are recorded."""
        self._wanted: dict[str, tuple[PoolKey, Key]] = {}
        """By the uid of a task that wants a worker, or has one: where, and its name."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._binding: set[str] = set()
        """The uids of tasks to which a worker is just being given."""
        self._turning: set[str] = set()
        """Those that are being written down."""
        self._completed: dict[PoolKey, int] = {}
        """Tasks that have ended, and are not in the pool's status yet."""
        self.wake: Callable[[Key], None] = lambda key: None
        self.left: Callable[[Task], None] = lambda task: None
        """Told of a task that waits no longer, or is over."""
        self._memory: Memory | None = None
        self.client: Client | None = None
        self.objects: Objects | None = None

    def begin(self, wake: Callable[[Key], None]) -> Callable[[], None]:
        self.wake = wake
        deaf = self._runners.hear_outcomes(self.outcome)

        def end() -> None:
            deaf()
            for task in self._tasks:
                task.cancel()

        return end

    def prepare(self, client: Client, objects: Objects, memory: Memory) -> None:
        """Before anything is assigned: what was assigned earlier, by whomever."""
        if self.objects is not None:
            return
        self.client, self.objects, self._memory = client, objects, memory
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
            self._wanted[uid] = pool, key_of(task)
            self._queue(pool).restore(waiting=[request(task, status.arrival.timestamp())])

    # Tasks.

    def want(self, task: Task, pool: PoolKey, arrival: float) -> None:
        """A task could run now. Said again, nothing happens."""
        uid = task.metadata.uid
        self._wanted[uid] = pool, key_of(task)
        if uid not in self._assigned:
            self._carry_out(pool, [self._queue(pool).add(request(task, arrival))])

    def is_waiting(self, task: Task) -> bool:
        """Whether a task waits for a worker, and none is on its way to it."""
        uid = task.metadata.uid
        return uid in self._wanted and uid not in self._assigned and uid not in self._binding

    def worker_of(self, task: Task) -> Worker | None:
        """The worker that has the attempt which the task waits for, as the instance says."""
        worker = self._workers.get(self._assigned.get(task.metadata.uid, ""))
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
        for uid in [uid for uid, (_, whose) in self._wanted.items() if whose == key]:
            self._forget(uid)
        for worker in list(self._workers.values()):
            assigned = worker.instance.spec.assignment
            if assigned is not None and (worker.subject.namespace, assigned.name) == key:
                self._settle(worker)

    def _forget(self, uid: str) -> None:
        known = self._wanted.pop(uid, None)
        if known is not None and known[0] in self._queues:
            self._queues[known[0]].cancel(uid)

    def recorded(self, task: Task, id_: str, *, is_over: bool) -> None:
        """How an attempt ended is in the task's status: its worker is free for the next."""
        self._outcomes.pop(id_, None)
        worker = self._workers.get(self._assigned.get(task.metadata.uid, ""))
        self._leave(task, worker, id_, is_over=is_over)
        if worker is not None:
            self._queue(worker.pool).released(worker.subject.uid)
        assigned = worker.instance.spec.assignment if worker is not None else None
        if worker is not None and assigned is not None and assigned.id == id_:
            self._start(self._release(worker, id_))

    def _leave(self, task: Task, worker: Worker | None, id_: str, *, is_over: bool) -> None:
        uid = task.metadata.uid
        self._assigned.pop(uid, None)
        self._wanted.pop(uid, None)
        if worker is None:
            return
        if is_over:
            self._completed[worker.pool] = self._completed.get(worker.pool, 0) + 1
        self._runners.send(worker.subject, Acknowledge(id_))
        worker.affinity = task.spec.affinity.key if task.spec.affinity is not None else ""

    def waiting(self, pool: WorkerPool) -> int:
        """How many wait for a worker of a pool."""
        queue = self._queues.get(PoolKey(pool.metadata.namespace, pool.metadata.name))
        return queue.view.depth if queue is not None else 0

    def completed(self, pool: WorkerPool) -> int:
        """How many tasks of a pool have ended and were not counted yet."""
        return self._completed.get(PoolKey(pool.metadata.namespace, pool.metadata.name), 0)

    def counted(self, pool: WorkerPool, number: int) -> None:
        if number:
            self._completed[PoolKey(pool.metadata.namespace, pool.metadata.name)] -= number

    # Instances.

    def see(self, instance: Instance, report: Report | None, reset: ResetPolicy, *, is_ready: bool) -> None:
        """An instance that runs tasks, as it is now."""
        uid = instance.metadata.uid
        worker = self._workers.get(uid)
        is_new = worker is None
        if worker is None:
            self.unsee(Key(instance.metadata.namespace, instance.metadata.name), but=uid)
            owner = controller_of(instance)
            if owner is None:
                return
            pool = PoolKey(instance.metadata.namespace, owner.name, owner.kind)
            worker = self._workers[uid] = Worker(subject_of(instance), pool, instance, report, reset, is_ready)
        if report is None or (worker.report is not None and report.run != worker.report.run):
            worker.told = ""
        worker.report, worker.reset, worker.is_ready = report, reset, is_ready
        # Who looked at it may have begun before it was given to another.
        if instance.metadata.generation >= worker.instance.metadata.generation:
            worker.instance = instance
        self._settle(worker)
        if is_new:
            for outcome in self._runners.outcomes(worker.subject):
                self.outcome(worker.subject, outcome)

    def unsee(self, key: Key, but: str = "") -> None:
        """There is no instance of this name any more, unless it is one with this uid."""
        for worker in [one for one in self._workers.values() if one.subject[:2] == key and one.subject.uid != but]:
            uid = worker.subject.uid
            del self._workers[uid]
            queue = self._queue(worker.pool)
            queue.withdraw(uid)
            queue.released(uid)
            self._lose(uid)
            if not any(one.pool == worker.pool for one in self._workers.values()) and not queue.view.depth:
                del self._queues[worker.pool]

    def _lose(self, uid: str) -> None:
        for task_uid in [one for one, at in self._assigned.items() if at == uid]:
            del self._assigned[task_uid]
            known = self._wanted.get(task_uid)
            if known is not None:
                self.wake(known[1])

    def _settle(self, worker: Worker) -> None:
        """Bring what is known of a worker together with what it says it has."""
        if worker.is_turning:
            return
        assigned = worker.instance.spec.assignment
        queue = self._queue(worker.pool)
        if assigned is None and worker.can_be_had:
            self._carry_out(worker.pool, [queue.offer(offer(worker))])
            return
        if assigned is None or assigned.kind != "Task":
            queue.withdraw(worker.subject.uid)
            return
        task = self._task(worker, assigned)
        if task is None:
            self._give_back(worker, assigned)
            return
        self._restore(worker.pool, task, worker.subject.uid)
        if is_running_on(task, worker.subject.name):
            self._tell(worker, task, assigned)
        else:
            self.wake(key_of(task))

    def _restore(self, pool: PoolKey, task: Task, instance: str) -> None:
        uid = task.metadata.uid
        if self._assigned.get(uid) != instance:
            self._assigned[uid] = instance
            self._wanted[uid] = pool, key_of(task)
            self._queue(pool).restore(bound=[(request(task, 0.0), instance)])

    def _task(self, worker: Worker, assigned: Assignment) -> Task | None:
        """The task that waits for this very attempt."""
        assert self.objects is not None
        task = get(self.objects, Task, assigned.name, worker.subject.namespace)
        return task if task is not None and is_attempt(task, assigned) else None

    def _tell(self, worker: Worker, task: Task, assigned: Assignment) -> None:
        """Have the runner begin, unless it has. It does nothing twice, whatever it is told."""
        report = worker.report
        if report is None or worker.told == assigned.id or report.holder == assigned.id:
            return
        if assigned.id in self._outcomes:
            return
        assert self.objects is not None
        try:
            job = self._make_job(self.objects, task, worker.instance, assigned.id)
        except Exception as error:
            # It was looked at before it was let in: something has changed since.
            now = datetime.now(UTC).timestamp()
            self._outcomes[assigned.id] = Outcome(assigned.id, "Failed", now, now, message=str(error))
            self.wake(key_of(task))
            return
        if self._runners.send(worker.subject, Assign(job)):
            worker.told = assigned.id

    def _give_back(self, worker: Worker, assigned: Assignment) -> None:
        """An assignment that nobody waits for."""
        report = worker.report
        queue = self._queue(worker.pool)
        queue.released(worker.subject.uid)
        queue.withdraw(worker.subject.uid)
        if report is not None and (report.holder == assigned.id or worker.told == assigned.id):
            # It may still be at it. What it says of its end is then acknowledged, and it is released.
            if assigned.id not in self._outcomes:
                self._runners.send(worker.subject, Cancel(assigned.id))
                return
            self._outcomes.pop(assigned.id)
            self._runners.send(worker.subject, Acknowledge(assigned.id))
        self._start(self._release(worker, assigned.id))

    # What runners say.

    def outcome(self, subject: Subject, outcome: Outcome) -> None:
        """A runner tells how an attempt ended. It does so until that is acknowledged."""
        worker = self._workers.get(subject.uid)
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
        self._outcomes[outcome.id] = outcome
        task = self._task(worker, assigned)
        if task is None:
            self._give_back(worker, assigned)
        elif is_running_on(task, worker.subject.name):
            self._turning.add(outcome.id)
            self._start(self._turn_over(worker, task, outcome))
        else:
            self.wake(key_of(task))

    # Writing.

    def _queue(self, pool: PoolKey) -> Queue:
        queue = self._queues.get(pool)
        if queue is None:
            queue = self._queues[pool] = Queue()
        return queue

    def _carry_out(self, pool: PoolKey, bindings: Iterable[Binding | None]) -> None:
        for binding in bindings:
            if binding is not None:
                self._start(self._bind(pool, binding))

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("an assignment could not be carried out", exc_info=error)

    async def _bind(self, pool: PoolKey, binding: Binding) -> None:
        queue, worker = self._queue(pool), self._workers.get(binding.instance)
        task = self._wanting(binding)
        if task is None or worker is None:
            if task is None:
                queue.cancel(binding.request.id)
            self._carry_out(pool, queue.lost(binding, instance_taken=worker is None))
            return
        before = worker.instance.spec.assignment
        assignment, begins = beginning(task, worker, binding)
        turn = Turn(worker.subject, before.id if before is not None else None, assignment, begins=begins)
        try:
            turned = await self._written(turn, task)
        except ApiError as error:
            if error.code not in LOST_RACE:
                log.warning("task %s could not be assigned: %s", task.metadata.name, error)
                await asyncio.sleep(RETRY_SECONDS)
            self._carry_out(pool, queue.lost(binding))
            self._look_again(worker)
            return
        worker.instance = turned.instance
        self._begun(worker, binding, turned.begun or task)

    def _look_again(self, worker: Worker) -> None:
        """It was the task that had changed, or the worker: if it is still free, nobody else says so."""

        def look() -> None:
            known = self._workers.get(worker.subject.uid)
            if known is None or self.objects is None:
                return
            found = get(self.objects, Instance, worker.subject.name, worker.subject.namespace)
            if found is not None and found.metadata.uid == worker.subject.uid:
                known.instance = found
                self._settle(known)

        asyncio.get_running_loop().call_later(LOOK_AGAIN_SECONDS, look)

    async def _turn_over(self, worker: Worker, task: Task, outcome: Outcome) -> None:
        """A task has ended: that is written down, and the worker is given to the next, or to nobody."""
        pool, uid = worker.pool, worker.subject.uid
        queue = self._queue(pool)
        status = task.status
        assert status is not None
        ended = msgspec.structs.replace(task, status=after(task, status, worker.subject.name, outcome))
        queue.released(uid)
        binding, following = self._next(worker, queue)
        turn = Turn(worker.subject, outcome.id, None, ended)
        if following is not None and binding is not None:
            assignment, begins = beginning(following, worker, binding)
            turn = turn._replace(after=assignment, begins=begins)
        worker.is_turning = True
        try:
            turned = await self._written(turn, following)
        except ApiError as error:
            worker.is_turning = False
            log.info("how task %s ended is written down in another way: %s", task.metadata.name, error)
            if binding is not None:
                self._carry_out(pool, queue.lost(binding))
            self._look_again(worker)
            queue.restore(bound=[(request(task, 0.0), uid)])
            self._turning.discard(outcome.id)
            self.wake(key_of(task))
            return
        worker.is_turning = False
        self._turning.discard(outcome.id)
        self._outcomes.pop(outcome.id, None)
        worker.instance = turned.instance
        self._leave(task, worker, outcome.id, is_over=ended.over())
        self.counting.ran(task, outcome.ended - outcome.started)
        if ended.over():
            self.counting.completed(ended)
        if binding is not None and following is not None:
            self._begun(worker, binding, turned.begun or following)
        self.left(ended)
        if turned.ended is None or has_more_to_come(turned.ended):
            self.wake(key_of(task))

    def _next(self, worker: Worker, queue: Queue) -> tuple[Binding | None, Task | None]:
        """Who gets a worker that is about to be free."""
        if not queue.view.depth or worker.reset == "Recreate" or not worker.is_ready or is_draining(worker.instance):
            return None, None
        binding = queue.offer(offer(worker))
        if binding is None:
            queue.withdraw(worker.subject.uid)
            return None, None
        task = self._wanting(binding)
        if task is None:
            queue.cancel(binding.request.id)
            self._carry_out(worker.pool, queue.lost(binding))
            return None, None
        return binding, task

    def _begun(self, worker: Worker, binding: Binding, task: Task) -> None:
        """A binding has been carried out."""
        if not self._queue(worker.pool).confirmed(binding):
            self._start(self._release(worker, assignment_id(task)))
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

    def _wanting(self, binding: Binding) -> Task | None:
        known = self._wanted.get(binding.request.id)
        return self._waiting(known[1], binding.request.id) if known is not None else None

    async def _written(self, turn: Turn, task: Task | None = None) -> Turned:
        """`task` is who gets the worker."""
        assert self.client is not None
        uid = task.metadata.uid if task is not None else ""
        self._binding.add(uid)
        # What is written here is no news to whoever sees to tasks.
        told = [one for one in (turn.ends, turn.begins) if one is not None] if self.client.atomic else []
        assert self._memory is not None
        for one in told:
            self._memory.expect(id_of(one), one.status)
        try:
            return await write(self.client, turn)
        except BaseException:
            for one in told:
                self._memory.unexpect(id_of(one))
            raise
        finally:
            self._binding.discard(uid)

    def _waiting(self, key: Key, uid: str) -> Task | None:
        """A task that is still to be run."""
        assert self.objects is not None
        task = get(self.objects, Task, key.name, key.namespace)
        if task is None or task.metadata.uid != uid or task.over() or task.spec.cancel:
            return None
        return task

    async def _release(self, worker: Worker, id_: str) -> None:
        try:
            worker.instance = (await self._written(Turn(worker.subject, id_, None))).instance
        except ApiError as error:
            if error.code not in LOST_RACE:
                raise
        else:
            self._settle(worker)
