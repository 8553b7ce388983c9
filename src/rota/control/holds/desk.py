"""Where instances are handed out: one queue a pool, for all who want one. What is known here can be found again.

Who has an instance is what the Instance says, in `spec.assignment`. A party sees to the holders of one kind: it knows
their requests, carries out what the queue decides for them, and says what becomes of an instance that says it is held
by one of them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Protocol

import msgspec

from rota.api import Instance, WorkerPool
from rota.api.instance import Assignment
from rota.client import Client, Key
from rota.control.holds.members import Member, PoolKey, offer
from rota.control.holds.turns import Turn, Turned, write
from rota.control.inputs import made_for
from rota.control.instances.names import controller_of
from rota.control.orders import subject_of
from rota.engine.clock import Clock, RealClock
from rota.engine.objects import Objects, get
from rota.engine.reconciler import Context, Memory
from rota.engine.references import id_of
from rota.pools import Binding, Queue
from rota.registry import ApiError
from rota.runtime.runner.jobs import Outcome
from rota.runtime.runner.messages import Report, ResetPolicy

log = logging.getLogger(__name__)

LOOK_AGAIN_SECONDS = 0.02
"""After a race that was lost: what was faster is known by then."""
RETRY_SECONDS = 1.0
"""After an error of the server that is nobody's fault."""
PACE_BINDINGS = 64
"""So many last ones tell how often an instance is given to somebody."""
PACE_SECONDS_MIN = 0.1
WAIT_SECONDS_MAX = 60.0
"""Nobody is told to come again later than this."""
BLAMED_MAX = 1000
LOST_RACE = frozenset((404, 409, 422))


class Party(Protocol):
    """Those who have instances for one reason."""

    def knows(self, request: str) -> bool:
        """Whether a request is of one of them."""
        ...

    def restore(self) -> None:
        """Put into the queues who has what, and who waits, by what is written down."""
        ...

    def bind(self, pool: PoolKey, binding: Binding) -> Coroutine[Any, Any, None]:
        """Carry out a decision of the queue, and tell it."""
        ...

    def settle(self, member: Member, assigned: Assignment) -> None:
        """An instance says that one of them has it."""
        ...

    def met(self, member: Member) -> None:
        """An instance is there that was not known."""
        ...

    def lost(self, instance: str) -> None:
        """An instance is gone, by its uid."""
        ...

    def pool_gone(self, pool: PoolKey) -> None:
        """A pool is gone: nothing is counted of it any more."""
        ...


class Desk:
    """The queues of all pools, and the instances that can be had."""

    def __init__(self) -> None:
        self.queues: dict[PoolKey, Queue] = {}
        self.members: dict[str, Member] = {}
        self._of: dict[PoolKey, set[str]] = {}
        self._by_name: dict[Key, str] = {}
        self.parties: dict[str, Party] = {}
        """By the kind that an assignment has."""
        self._works: set[asyncio.Task[None]] = set()
        self._blamed: dict[str, str] = {}
        """By the id of an assignment, why its instance was ended."""
        self.memory: Memory | None = None
        self.client: Client | None = None
        self.objects: Objects | None = None
        self.clock: Clock = RealClock()
        self._depths: dict[PoolKey, int] = {}
        self._completed: dict[PoolKey, int] = {}
        """Tasks that have ended, and are not in the pool's status yet."""
        self._paces: dict[PoolKey, deque[float]] = {}
        """When instances of a pool were last given to somebody."""
        self.on_reset: Callable[[PoolKey, float], None] = lambda pool, seconds: None
        """Told how long it took until one that was given back could be had again."""
        self.demand_changed: Callable[[PoolKey], None] = lambda pool: None
        """Told when more, or fewer, wait for an instance of a pool."""

    def close(self) -> None:
        for work in self._works:
            work.cancel()

    def blame(self, assignment: str, why: str) -> None:
        """An instance is ended for what its holder did: the loss of it is the holder's own failure."""
        self._blamed[assignment] = why
        while len(self._blamed) > BLAMED_MAX:
            del self._blamed[next(iter(self._blamed))]

    def judged(self, outcome: Outcome) -> Outcome:
        """An outcome, as a failure if the worker was lost by the task's own fault."""
        why = self._blamed.get(outcome.id) if outcome.reason == "WorkerLost" else None
        return outcome if why is None else msgspec.structs.replace(outcome, reason="Failed", message=why)

    def prepare(self, context: Context) -> None:
        """Before anything is handed out: what was handed out earlier, by whomever, and who waits since."""
        if self.objects is not None:
            return
        self.client, self.objects, self.memory = context.client, context.objects, context.memory
        self.clock = context.clock
        for party in self.parties.values():
            party.restore()
        for pool in tuple(self.queues):
            self.told(pool)

    def queue(self, pool: PoolKey) -> Queue:
        queue = self.queues.get(pool)
        if queue is None:
            queue = self.queues[pool] = Queue()
        return queue

    def waiting(self, pool: WorkerPool) -> int:
        """How many wait for an instance of a pool."""
        queue = self.queues.get(PoolKey(pool.metadata.namespace, pool.metadata.name))
        return queue.view.depth if queue is not None else 0

    def completed(self, pool: WorkerPool) -> int:
        """How many tasks of a pool have ended and were not counted yet."""
        return self._completed.get(PoolKey(pool.metadata.namespace, pool.metadata.name), 0)

    def complete(self, pool: PoolKey) -> None:
        """A task of a pool has ended. Only pools that are there have a status to say so in."""
        if pool.kind == WorkerPool.api.name and not self._is_gone(pool):
            self._completed[pool] = self._completed.get(pool, 0) + 1

    def forget(self, pool: PoolKey) -> None:
        """There is no such pool any more."""
        self._completed.pop(pool, None)
        for party in self.parties.values():
            party.pool_gone(pool)
        self.tidy(pool)

    def forget_if_gone(self, pool: PoolKey) -> None:
        """Count nothing of a pool that is gone: some of what it had under way ends, and is counted, after it."""
        if self._is_gone(pool):
            for party in self.parties.values():
                party.pool_gone(pool)

    def counted(self, pool: WorkerPool, number: int) -> None:
        key = PoolKey(pool.metadata.namespace, pool.metadata.name)
        left = self._completed.pop(key, 0) - number
        if left:
            self._completed[key] = left

    def _is_gone(self, pool: PoolKey) -> bool:
        """Whether it is a pool that there is not, or no longer."""
        if pool.kind != WorkerPool.api.name or self.objects is None:
            return False
        return not self.objects.has(WorkerPool.api, pool.namespace, pool.name)

    def told(self, pool: PoolKey) -> None:
        """The queue of a pool was told something: whether as many wait as before is looked at when it has settled."""
        queue = self.queues.get(pool)
        depth = queue.view.depth if queue is not None else 0
        if depth != self._depths.get(pool, 0):
            if depth:
                self._depths[pool] = depth
            else:
                self._depths.pop(pool, None)
            self.demand_changed(pool)
        if not depth:
            self.tidy(pool)

    def wait_estimate(self, pool: PoolKey, now: float) -> float:
        """In how many seconds one that comes now may have its turn, by how often one had it lately."""
        queue, pace = self.queues.get(pool), self._paces.get(pool)
        if queue is None or not pace:
            return WAIT_SECONDS_MAX
        rate = len(pace) / max(now - pace[0], PACE_SECONDS_MIN)
        return min((queue.view.depth + 1) / rate, WAIT_SECONDS_MAX)

    # Instances.

    def see(self, instance: Instance, report: Report | None, reset: ResetPolicy, *, is_ready: bool) -> None:
        """An instance that can be had, as it is now."""
        uid, key = instance.metadata.uid, Key(instance.metadata.namespace, instance.metadata.name)
        owner = controller_of(instance)
        if owner is None:
            self.unsee(key)
            return
        pool = PoolKey(instance.metadata.namespace, owner.name, owner.kind)
        member = self.members.get(uid)
        if member is not None and member.pool != pool:
            self.unsee(key)
            member = None
        is_new = member is None
        if member is None:
            self.unsee(key, but=uid)
            member = self.members[uid] = Member(subject_of(instance), pool, instance, report, reset, is_ready)
            self._of.setdefault(pool, set()).add(uid)
            self._by_name[key] = uid
        if report is None or (member.report is not None and report.run != member.report.run):
            member.told = ""
        member.report, member.reset, member.is_ready = report, reset, is_ready
        # Who looked at it may have begun before it was given to another.
        member.learn(instance)
        self.settle(member)
        if is_new:
            for party in self.parties.values():
                party.met(member)

    def unsee(self, key: Key, but: str = "") -> None:
        """There is no instance of this name any more, unless it is one with this uid."""
        uid = self._by_name.get(key)
        if uid is None or uid == but:
            return
        del self._by_name[key]
        member = self.members.pop(uid)
        queue = self.queue(member.pool)
        queue.withdraw(uid)
        queue.released(uid)
        for party in self.parties.values():
            party.lost(uid)
        of_pool = self._of[member.pool]
        of_pool.discard(uid)
        if not of_pool:
            del self._of[member.pool]
            self.tidy(member.pool)

    def drop_if_gone(self, member: Member) -> None:
        """End the hold on an instance that went while the hold was being written down: no news of it will come."""
        uid = member.subject.uid
        if self.members.get(uid) is member:
            return
        self.queue(member.pool).released(uid)
        for party in self.parties.values():
            party.lost(uid)
        self.tidy(member.pool)

    def tidy(self, pool: PoolKey) -> None:
        """Nothing is kept of a pool that has no instances and for which nobody waits."""
        queue = self.queues.get(pool)
        if queue is not None and pool not in self._of and not queue.view.depth and not queue.view.in_flight:
            del self.queues[pool]
            self._depths.pop(pool, None)
            self._paces.pop(pool, None)
            self.forget_if_gone(pool)

    def settle(self, member: Member) -> None:
        """Bring what is known of an instance together with what it says."""
        if member.is_turning or self.members.get(member.subject.uid) is not member:
            return  # It is gone: what is told of it came too late.
        assigned = member.instance.spec.assignment
        queue = self.queue(member.pool)
        if assigned is None:
            if queue.released(member.subject.uid) is not None:
                # Somebody else has taken it away from who had it.
                for party in self.parties.values():
                    party.lost(member.subject.uid)
            self._time_reset(member)
            if member.can_be_had and self.is_owned(member):
                self.carry_out(member.pool, [queue.offer(offer(member))])
            else:
                queue.withdraw(member.subject.uid)
            return
        member.held_last = True
        theirs = self.parties.get(assigned.kind)
        if theirs is None:
            queue.withdraw(member.subject.uid)
        else:
            theirs.settle(member, assigned)

    def is_owned(self, member: Member) -> bool:
        """Report whether it is of the pool, or of the task, that has this name now, and not of one that is gone."""
        return self.objects is not None and made_for(self.objects, member.instance) is not None

    def _time_reset(self, member: Member) -> None:
        if not member.held_last:
            return
        now = time.monotonic()
        if member.free_since is None:
            member.free_since = now
        if member.can_be_had:
            self.on_reset(member.pool, now - member.free_since)
            member.held_last, member.free_since = False, None

    def look_again(self, member: Member) -> None:
        """It was the holder that had changed, or the instance: if it is still free, nobody else says so."""

        def look() -> None:
            known = self.members.get(member.subject.uid)
            if known is None or self.objects is None:
                return
            found = get(self.objects, Instance, member.subject.name, member.subject.namespace)
            if found is not None and found.metadata.uid == member.subject.uid:
                known.learn(found)
                self.settle(known)

        asyncio.get_running_loop().call_later(LOOK_AGAIN_SECONDS, look)

    # Carrying out.

    def carry_out(self, pool: PoolKey, bindings: Iterable[Binding | None]) -> None:
        for binding in bindings:
            if binding is None:
                continue
            for party in self.parties.values():
                if party.knows(binding.request.id):
                    self.start(party.bind(pool, binding))
                    self._paces.setdefault(pool, deque(maxlen=PACE_BINDINGS)).append(time.monotonic())
                    break
            else:
                self.give_up(pool, binding, is_wanted=False)
        self.told(pool)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._works.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._works.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("an assignment could not be carried out", exc_info=error)

    def give_up(self, pool: PoolKey, binding: Binding, *, is_wanted: bool) -> None:
        """Nobody wants what was decided any more, or there is no such instance any more."""
        queue = self.queue(pool)
        if not is_wanted:
            queue.cancel(binding.request.id)
        self.carry_out(pool, queue.lost(binding, instance_taken=binding.instance not in self.members))

    async def not_written(self, pool: PoolKey, binding: Binding, member: Member, error: ApiError) -> None:
        """A decision could not be written down: the request goes on, from its place."""
        if error.code not in LOST_RACE:
            log.warning("%s could not be assigned: %s", member.subject.name, error)
            await asyncio.sleep(RETRY_SECONDS)
        self.carry_out(pool, self.queue(pool).lost(binding))
        self.look_again(member)

    async def written(self, turn: Turn) -> Turned:
        """Write a change of hands down. What is written here is no news to whoever sees to the holders."""
        assert self.client is not None and self.memory is not None
        told = [one for one in (turn.ends, turn.begins) if one is not None] if self.client.atomic else []
        for one in told:
            self.memory.expect(id_of(one), getattr(one, "status", None))
        try:
            return await write(self.client, turn)
        except BaseException:
            for one in told:
                self.memory.unexpect(id_of(one))
            raise

    async def release(self, member: Member, id_: str) -> None:
        """An assignment is over, and that is all that is written down."""
        if member.told == id_:
            member.told = ""  # What its runner was told of it is done with, even if this has to be tried again.
        try:
            member.learn((await self.written(Turn(member.subject, id_, None))).instance)
        except ApiError as error:
            await self.not_given_back(member, error)
        else:
            self.settle(member)

    async def not_given_back(self, member: Member, error: ApiError) -> None:
        """That nobody has an instance any more could not be written down: nobody else will."""
        if error.code not in LOST_RACE:
            log.warning("%s could not be given back: %s", member.subject.name, error)
            await asyncio.sleep(RETRY_SECONDS)
        self.look_again(member)
