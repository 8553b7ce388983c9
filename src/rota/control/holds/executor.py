"""The executor: it brings events to the ledgers of pools, and carries out what they decide.

`spec.assignment` of an Instance names the claim that holds it, or says that it is given to the tasks of its pool (the
lane). In the lane, the statuses of tasks say which of them run on it. So all that the executor knows can be read again
after a restart.

Tasks and claims each have a `Holders` here, which returns the write that begins a hold.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import msgspec

from rota.api import Instance, Kind, WorkerPool
from rota.api.instance import Assignment
from rota.client import Client, Key
from rota.control.holds.answered import Answered
from rota.control.holds.binder import LOOK_AGAIN_SECONDS, LOST_RACE, RETRY_SECONDS, Binder, Finish
from rota.control.holds.handover import HandOver, Written
from rota.control.holds.members import Member, PoolKey
from rota.control.holds.writes import Writes
from rota.control.inputs import made_for
from rota.control.instances.names import controller_of, subject_of
from rota.engine.clock import Clock, sleep
from rota.engine.objects import Objects, get
from rota.engine.reconciler import Context, Memory, Recording
from rota.engine.references import id_of
from rota.pools import Binding, GiveBack, Ledger, Lost, Recall, Request
from rota.pools.ledger import DEPTH_MAX
from rota.registry import ApiError
from rota.runtime.runner.jobs import Outcome
from rota.runtime.runner.messages import Report, ResetPolicy

log = logging.getLogger(__name__)

PACE_BINDINGS = 64
"""Recent bindings of a pool from which its pace is estimated."""
PACE_SECONDS_MIN = 0.1
WAIT_SECONDS_MAX = 60.0
"""The longest estimate of a wait."""
BLAMED_MAX = 1000


class Holders(Protocol):
    """Tasks or claims, as the executor sees them: `tasks.attempts.Attempts` and `claims.holds.ClaimHolds`.

    `begin` returns the write that begins a hold. Most other methods report events to them.
    """

    by_instance: bool
    """True: the assignment of the instance is the record of each hold. False: the statuses of the holders are."""

    def restore(self) -> None:
        """Fill the ledgers from the stored objects: holders and waiting requests."""
        ...

    def creation_under_way(self, uid: str) -> asyncio.Future[None] | None:
        """Return a future for the creation of the holder if that is under way. The hold is written after that."""
        ...

    def begin(self, member: Member, binding: Binding) -> HandOver | None:
        """Return the write that begins a hold; None: the instance cannot be given to this request any more.

        Raises `ApiError` if the request can never be given an instance, or does not want one any more.
        """
        ...

    def begun(self, binding: Binding, handover: HandOver, written: Written, member: Member | None) -> None:
        """Called when the beginning of a hold is written.

        `member` is None if there is no hold: the request was cancelled, or the instance is gone.
        """
        ...

    def is_at_fault(self, handover: HandOver, error: ApiError) -> bool:
        """Report whether the beginning of a hold was refused because of the request, so that no retry can succeed."""
        ...

    def refused(self, request: Request, error: ApiError) -> None:
        """Called when a request can never be given an instance, and is dropped."""
        ...

    def not_begun(self, binding: Binding, error: ApiError | None) -> None:
        """Called when a binding was not written. Unless cancelled, the request waits again, or has another binding."""
        ...

    def give_back(self, pool: PoolKey, request: Request, instance: str) -> None:
        """End a hold that was written after its request was cancelled."""
        ...

    def name_of(self, uid: str) -> str | None:
        """Return the name of a holder by its uid."""
        ...

    def recall(self, instance: str, request: str) -> None:
        """Ask a runner to return a request that it has not begun."""
        ...

    def lost(self, request: Request, instance: str) -> None:
        """Called when a request has lost the instance that it held."""
        ...

    def assigned(self, member: Member, assignment: Assignment) -> None:
        """Called when an instance is updated that is assigned to this kind."""
        ...

    def held_by_another(self, member: Member) -> None:
        """Called when an instance is updated that is assigned to another kind."""
        ...

    def appeared(self, member: Member) -> None:
        """Called when an instance is first observed."""
        ...

    def vanished(self, instance: str) -> None:
        """Called when an instance is gone, with its uid."""
        ...

    def pool_gone(self, pool: PoolKey) -> None:
        """Called when a pool is gone: drop its metrics."""
        ...


class Executor:
    """The ledgers of all pools, and the instances that can be held."""

    def __init__(self) -> None:
        self.ledgers: dict[PoolKey, Ledger] = {}
        self.members: dict[str, Member] = {}
        """All instances that can be held, by uid."""
        self._of: dict[PoolKey, set[str]] = {}
        self._by_name: dict[Key, str] = {}
        self._holders: dict[str, Holders] = {}
        """The holders of each kind of assignment."""
        self._works: set[asyncio.Task[None]] = set()
        self._blamed: dict[str, str] = {}
        """The reason why the instance of each of these attempts was ended, by the attempt's id."""
        self._memory: Memory | None = None
        self._events: Recording | None = None
        self._client: Client | None = None
        self._objects: Objects | None = None
        self._clock: Clock | None = None
        self._depths: dict[PoolKey, int] = {}
        self._completed: dict[PoolKey, int] = {}
        """The number of ended tasks that the pool's status does not count yet."""
        self.writes = Writes(self)
        self._binder = Binder(self, self.writes)
        self._paces: dict[PoolKey, deque[float]] = {}
        """The times of the last bindings of each pool."""
        self._reset_listeners: list[Callable[[PoolKey, float], None]] = []
        self._demand_listeners: list[Callable[[PoolKey], None]] = []

    def join(self, kind: str, holders: Holders) -> None:
        """Register the holders whose assignments have this kind."""
        assert kind not in self._holders, kind
        self._holders[kind] = holders

    def on_reset(self, listener: Callable[[PoolKey, float], None]) -> None:
        """Call `listener` when an instance can be held again, with the seconds since the end of its last hold."""
        self._reset_listeners.append(listener)

    def on_demand(self, listener: Callable[[PoolKey], None]) -> Callable[[], None]:
        """Call `listener` when the number of waiting requests of a pool changes. Returns a function that ends that."""
        self._demand_listeners.append(listener)
        return lambda: self._demand_listeners.remove(listener)

    def close(self) -> None:
        """Write nothing more."""
        self.writes.close()
        for work in self._works:
            work.cancel()

    @property
    def client(self) -> Client:
        assert self._client is not None, "it is prepared before it is used"
        return self._client

    @property
    def objects(self) -> Objects:
        assert self._objects is not None, "it is prepared before it is used"
        return self._objects

    @property
    def events(self) -> Recording:
        assert self._events is not None, "it is prepared before it is used"
        return self._events

    @property
    def clock(self) -> Clock:
        assert self._clock is not None, "it is prepared before it is used"
        return self._clock

    @property
    def is_prepared(self) -> bool:
        return self._objects is not None

    def prepare(self, context: Context) -> None:
        """Restore the ledgers from the stored objects, once. No instance is given to a request before that."""
        if self._objects is not None:
            return
        self._client, self._objects, self._memory = context.client, context.objects, context.memory
        self._events = context.events
        self._clock = context.clock
        if not context.client.in_process:
            backend = Answered(context.client.backend, context.clock)
            self._client = Client(backend, manager=context.client.manager, namespace=context.client.namespace)
        for holders in self._holders.values():
            holders.restore()
        for pool in tuple(self.ledgers):
            self.carry_out(pool)

    # Losses that are the holder's own fault.

    def blame(self, instance: Instance, why: str) -> None:
        """Note that an instance is ended because of its holders: their attempts then fail, and are not lost."""
        member = self.members.get(instance.metadata.uid)
        for id_ in member.sent if member is not None else ():
            self._blamed[id_] = why
        while len(self._blamed) > BLAMED_MAX:
            del self._blamed[next(iter(self._blamed))]

    def judged(self, outcome: Outcome) -> Outcome:
        """Return an outcome, turned into a failure if the task itself caused the loss of its worker."""
        why = self._blamed.get(outcome.id) if outcome.reason == "WorkerLost" else None
        return outcome if why is None else msgspec.structs.replace(outcome, reason="Failed", message=why)

    # Pools.

    def ledger(self, pool: PoolKey) -> Ledger:
        ledger = self.ledgers.get(pool)
        if ledger is None:
            ledger = self.ledgers[pool] = Ledger()
        return ledger

    def waiting(self, pool: WorkerPool) -> int:
        """Return the number of requests that wait for an instance of a pool."""
        ledger = self.ledgers.get(PoolKey(pool.metadata.namespace, pool.metadata.name))
        return ledger.depth if ledger is not None else 0

    def completed(self, pool: WorkerPool) -> int:
        """Return the number of ended tasks that the status of a pool does not count yet."""
        return self._completed.get(PoolKey(pool.metadata.namespace, pool.metadata.name), 0)

    def complete(self, pool: PoolKey) -> None:
        """Count an ended task for the status of its pool, if the pool exists."""
        if pool.kind == WorkerPool.api.name and not self._is_gone(pool):
            self._completed[pool] = self._completed.get(pool, 0) + 1

    def counted(self, pool: WorkerPool, number: int) -> None:
        """Subtract ended tasks that the status of a pool counts now."""
        key = PoolKey(pool.metadata.namespace, pool.metadata.name)
        left = self._completed.pop(key, 0) - number
        if left:
            self._completed[key] = left

    def forget(self, pool: PoolKey) -> None:
        """Forget a deleted pool."""
        self._completed.pop(pool, None)
        for holders in self._holders.values():
            holders.pool_gone(pool)
        self._tidy(pool)

    def forget_if_gone(self, pool: PoolKey) -> None:
        """Drop the metrics of a deleted pool: tasks and claims that end after the deletion have added to them again."""
        if self._is_gone(pool):
            for holders in self._holders.values():
                holders.pool_gone(pool)

    def _is_gone(self, pool: PoolKey) -> bool:
        if pool.kind != WorkerPool.api.name or self._objects is None:
            return False
        return not self._objects.has(WorkerPool.api, pool.namespace, pool.name)

    def wait_estimate(self, pool: PoolKey) -> float:
        """Estimate the seconds that a new request waits, from the pace of the last bindings."""
        ledger, pace = self.ledgers.get(pool), self._paces.get(pool)
        if ledger is None or not pace:
            return WAIT_SECONDS_MAX
        rate = len(pace) / max(self.clock.now() - pace[0], PACE_SECONDS_MIN)
        return min((ledger.depth + 1) / rate, WAIT_SECONDS_MAX)

    def _tidy(self, pool: PoolKey) -> None:
        """Drop the ledger of a pool without instances and requests."""
        ledger = self.ledgers.get(pool)
        if ledger is not None and pool not in self._of and ledger.is_empty:
            del self.ledgers[pool]
            self._depths.pop(pool, None)
            self._paces.pop(pool, None)
            self.forget_if_gone(pool)

    # Instances.

    def observe(self, instance: Instance, report: Report | None, reset: ResetPolicy, *, is_ready: bool) -> None:
        """Take an instance that can be held, as it is now, with the last report of its runner."""
        uid, key = instance.metadata.uid, Key(instance.metadata.namespace, instance.metadata.name)
        owner = controller_of(instance)
        if owner is None:
            self.remove(key)
            return
        pool = PoolKey(instance.metadata.namespace, owner.name, owner.kind)
        member = self.members.get(uid)
        if member is not None and member.pool != pool:
            self.remove(key)
            member = None
        is_new = member is None
        if member is None:
            self.remove(key, but=uid)
            member = self.members[uid] = Member(subject_of(instance), pool, instance, report, reset, is_ready)
            self._of.setdefault(pool, set()).add(uid)
            self._by_name[key] = uid
        if report is None or (member.report is not None and report.run != member.report.run):
            member.sent.clear()
        member.report, member.reset, member.is_ready = report, reset, is_ready
        # This instance may have been read before its last hand-over.
        member.learn(instance)
        self.update(member)
        if is_new:
            for holders in self._holders.values():
                holders.appeared(member)

    def remove(self, key: Key, but: str = "") -> None:
        """Remove the instance of this name, which is gone, unless its uid is `but`."""
        uid = self._by_name.get(key)
        if uid is None or uid == but:
            return
        del self._by_name[key]
        member = self.members.pop(uid)
        of_pool = self._of[member.pool]
        of_pool.discard(uid)
        if not of_pool:
            del self._of[member.pool]
        self.ledger(member.pool).gone(uid)
        self.carry_out(member.pool)
        for holders in self._holders.values():
            holders.vanished(uid)
        self._tidy(member.pool)

    def is_known(self, member: Member) -> bool:
        return self.members.get(member.subject.uid) is member

    def update(self, member: Member) -> None:
        """Bring the ledger up to date with the assignment of an instance."""
        if member.is_changing_hands or not self.is_known(member):
            return
        uid, assigned = member.subject.uid, member.assignment
        ledger = self.ledger(member.pool)
        if assigned is None:
            if ledger.holders_of(uid):
                # Another writer has removed the assignment.
                ledger.taken(uid)
            self._time_reset(member)
        else:
            member.was_held = True
            for kind, holders in self._holders.items():
                if kind == assigned.kind:
                    holders.assigned(member, assigned)
                else:
                    holders.held_by_another(member)
        self.reopen(member)
        self.carry_out(member.pool)

    def reopen(self, member: Member) -> None:
        """Update the ledger: the requests that an instance can be given to."""
        opened = member.opened
        if opened and not self.is_owned(member):
            opened = type(opened).CLOSED
        slots = DEPTH_MAX if member.reset == "Keep" else 1
        self.ledger(member.pool).open(member.subject.uid, opened, reopened=member.reopened, slots=slots)

    def holders_of(self, instance: Instance) -> list[str]:
        """Name the holders of an instance, such as `task build`, the first one first."""
        assigned, member = instance.spec.assignment, self.members.get(instance.metadata.uid)
        if assigned is None:
            return []
        holders = self._holders.get(assigned.kind)
        uids = self.ledger(member.pool).holders_of(member.subject.uid) if member is not None else []
        names = [name for uid in uids if holders is not None and (name := holders.name_of(uid)) is not None]
        return [f"{assigned.kind.lower()} {name}" for name in names or [assigned.name]]

    def is_owned(self, member: Member) -> bool:
        """Report whether the owner of an instance, a pool or a task, still exists, and is not a namesake."""
        return self._objects is not None and made_for(self._objects, member.instance) is not None

    def _time_reset(self, member: Member) -> None:
        if not member.was_held:
            return
        now = self.clock.now()
        if member.free_since is None:
            member.free_since = now
        if member.opened:
            for listener in self._reset_listeners:
                listener(member.pool, now - member.free_since)
            member.was_held, member.free_since = False, None

    def look_again(self, member: Member) -> None:
        """Read an instance again after a moment: if it is still free, no watch event says so."""

        def look() -> None:
            known = self.members.get(member.subject.uid)
            if known is None or self._objects is None:
                return
            found = get(self._objects, Instance, member.subject.name, member.subject.namespace)
            if found is not None and found.metadata.uid == member.subject.uid:
                known.learn(found)
                self.update(known)

        self.clock.call_at(self.clock.now() + LOOK_AGAIN_SECONDS, look)

    # Effects.

    def carry_out(self, pool: PoolKey) -> None:
        """Carry out what the ledger of a pool has decided."""
        ledger = self.ledgers.get(pool)
        if ledger is None:
            return
        while ledger.effects:
            effects, ledger.effects = ledger.effects, []
            for effect in effects:
                match effect:
                    case Binding():
                        self._paces.setdefault(pool, deque(maxlen=PACE_BINDINGS)).append(self.clock.now())
                        self._binder.bind(pool, effect)
                    case GiveBack():
                        self.holders(effect.request).give_back(pool, effect.request, effect.instance)
                    case Recall():
                        self.holders(effect.request).recall(effect.instance, effect.request.id)
                    case Lost():
                        self.holders(effect.request).lost(effect.request, effect.instance)
        if ledger.depth != self._depths.get(pool, 0):
            self._depths[pool] = ledger.depth
            for listener in tuple(self._demand_listeners):
                listener(pool)
        if not ledger.depth:
            self._depths.pop(pool, None)
            self._tidy(pool)

    def holders(self, request: Request) -> Holders:
        """Return the holders of the kind of a request."""
        return self._holders[request.kind]

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background. It is cancelled when the executor closes."""
        task = asyncio.create_task(work)
        self._works.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._works.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a hold could not be written", exc_info=error)

    # Writing.

    def hand_over(self, member: Member, handover: HandOver) -> None:
        """Write a hand-over without a binding. Other hand-overs of the instance wait until it is written."""
        self._binder.hand_over(member, handover)

    async def end(self, member: Member, handover: HandOver, finish: Finish) -> Written:
        """Write a hand-over that ends a hold, and finish it before anybody else can have the instance."""
        return await self._binder.end(member, handover, finish)

    def wake(self, kind: Kind, key: Key) -> None:
        """Have the controller of an object reconcile it."""
        if self._memory is not None:
            self._memory.wake(kind.key(*key))

    def expect(self, obj: Any) -> None:
        """Ignore the next watch event with this status: it is the echo of a write of our own."""
        assert self._memory is not None
        self._memory.expect(id_of(obj), obj.status)

    def unexpect(self, obj: Any) -> None:
        assert self._memory is not None
        self._memory.unexpect(id_of(obj))

    async def pause(self, error: ApiError, what: str) -> None:
        """Wait before a refused write is tried again; not after a lost race."""
        if error.code not in LOST_RACE:
            log.warning("%s: %s", what, error)
            await sleep(self.clock, RETRY_SECONDS)
