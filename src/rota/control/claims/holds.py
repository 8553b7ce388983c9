"""The holds of claims. All that this module keeps can be read again from objects.

The id of an assignment is the uid of its claim. A claim that is over or gone gives its instance back: at once, or, if a
runner has to reset the instance, after the runner has reported the hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import msgspec

from rota.api import Claim, Instance, WorkerPool
from rota.api.instance import Assignment
from rota.api.pool import ClaimStatus
from rota.client import Key
from rota.control.claims import lifecycle
from rota.control.claims.callers import Callers
from rota.control.claims.counting import ClaimCounting
from rota.control.claims.lifecycle import key_of, pool_of
from rota.control.claims.releases import NOT_FOUND, Releases
from rota.control.claims.runs import Runs
from rota.control.holds.arrivals import Arrivals
from rota.control.holds.executor import Executor
from rota.control.holds.handover import HandOver, Written
from rota.control.holds.ledger_index import LedgerIndex
from rota.control.holds.members import Member, PoolKey
from rota.control.holds.named import ByName
from rota.control.holds.options import is_restarted_for
from rota.control.inputs import reach, refusal
from rota.control.instances.names import controller_of
from rota.control.instances.reasons import is_ready
from rota.control.tasks.waits import place_of
from rota.engine.clock import Timer
from rota.engine.objects import get
from rota.pools import Binding, Opened, Request, State
from rota.registry import ApiError

CANCELLED = 499


class ClaimHolds:
    """Queues claims, gives them instances, and takes the instances back."""

    def __init__(
        self,
        executor: Executor,
        counting: ClaimCounting,
        log_sizes: Callable[[Instance], dict[str, tuple[int, int]]] = lambda _: {},
        on_ended: Callable[[str], None] = lambda uid: None,
        entries: Callable[[Instance], int] | None = None,
    ) -> None:
        """`log_sizes` returns the size of each container's log. `on_ended` gets the uid of a claim whose hold ends.

        `entries` returns a number that changes with each command that is run in an instance. If it is None, any holder
        may have run something.
        """
        self.executor = executor
        self._log_sizes = log_sizes
        self._on_ended = on_ended
        self._runs = Runs(entries)
        self._releases = Releases(executor, self._runs, on_ended, self.drop)
        self.counting = counting
        executor.join("Claim", self)
        executor.on_reset(lambda pool, seconds: counting.was_reset(pool.namespace, pool.name, seconds))
        counting.watch(lambda: {(pool.namespace, pool.name): one for pool, one in executor.ledgers.items()})
        self.active = LedgerIndex(executor)
        """The claims that wait for an instance or have one."""
        self.unstored: ByName[Claim] = ByName()
        """Claims that are not stored yet: each is created with its hold, or as waiting."""
        self._cancelled: dict[str, Claim] = {}
        """Claims that were cancelled while their holds were written, until these have ended."""
        self.arrivals = Arrivals(self.now)
        self._timers: dict[Key, Timer] = {}
        """The next reconciliation of each claim whose pool does not exist."""
        self.callers = Callers(self)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self.callers.close()

    def now(self) -> float:
        return self.executor.clock.time()

    def wake(self, key: Key) -> None:
        self.executor.wake(Claim.api, key)

    def wake_at(self, key: Key, seconds: float) -> None:
        """Reconcile a claim after so many seconds."""
        self._cancel_timer(key)

        def due() -> None:
            self._timers.pop(key, None)
            self.wake(key)

        self._timers[key] = self.executor.clock.call_at(self.executor.clock.now() + seconds, due)

    def _cancel_timer(self, key: Key) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    # `Holders`, which the executor calls.

    def restore(self) -> None:
        objects = self.executor.objects
        for instance in cast("list[Instance]", objects.list(Instance.api)):
            assigned, owner = instance.spec.assignment, controller_of(instance)
            if assigned is None or assigned.kind != "Claim" or owner is None:
                continue
            claim = self._claim(Key(instance.metadata.namespace, assigned.name), assigned.uid)
            if claim is not None:
                self._hold(PoolKey(instance.metadata.namespace, owner.name, owner.kind), claim, instance.metadata.uid)
        claims = cast("list[Claim]", objects.list(Claim.api))
        self.arrivals.restore(claims, (one for one in claims if one.status is None))
        for claim in claims:
            status = claim.status
            if status is None or status.phase != "Waiting" or status.arrival is None:
                continue
            if claim.spec.release or claim.metadata.deletion_timestamp is not None:
                continue
            pool = get(objects, WorkerPool, claim.spec.pool_ref.name, claim.metadata.namespace)
            if self.callers.lacks_caller(claim) or lifecycle.deadline(claim, pool) <= self.now():
                continue  # No caller waits, or the time to wait is over.
            self.queue(claim, status.arrival.timestamp())

    def give_back(self, pool: PoolKey, request: Request, instance: str) -> None:
        claim = self._cancelled.pop(request.id)
        self.counting.not_bound(claim, CANCELLED)
        self.executor.start(self.callers.end_unwanted(claim, instance))

    by_instance = True

    def creation_under_way(self, uid: str) -> asyncio.Future[None] | None:
        return self.callers.creation_under_way(uid)

    def begin(self, member: Member, binding: Binding) -> HandOver | None:
        uid, objects, instance = binding.request.id, self.executor.objects, member.instance
        claim = (self.unstored.get(uid) or self._stored(uid)) if uid in self.active else None
        if claim is None:
            raise ApiError(NOT_FOUND, "NotFound", f"no claim {uid} wants an instance")
        where = f"WorkerPool/{member.pool.name}"
        open_ = reach(objects, instance)
        if open_ and (refused := refusal(objects, where, open_, claim)):
            raise ApiError(403, "Forbidden", f"{refused}; only an admin can claim of it")
        # While the ends of tasks on it are written, it stays in the lane: this shows that its runner has outcomes.
        if not self.executor.is_owned(member) or member.opened is not Opened.WHOLE or member.ends:
            return None  # The instance has changed since the ledger's decision.
        self._runs.begin(uid, instance)
        now = lifecycle.time_of(self.now())
        status = lifecycle.bound(claim, instance, lifecycle.time_of(binding.request.arrival), now)
        return HandOver(
            member.subject,
            member.lane,
            lifecycle.assignment(claim, instance, now, self._log_sizes(instance)),
            begins=msgspec.structs.replace(claim, status=status),
            is_new=uid in self.unstored,
            marks=lifecycle.marks_at_begin(claim, instance),
        )

    def begun(self, binding: Binding, handover: HandOver, written: Written, member: Member | None) -> None:
        uid, claim = binding.request.id, cast(Claim, written.begun or handover.begins)
        assert handover.after is not None
        self.unstored.pop(uid)
        self.arrivals.pop(uid)
        if member is None:
            if not binding.is_wanted:
                self._cancelled[uid] = claim
            return
        since = handover.after.since.timestamp()
        self.counting.bound(claim, since - binding.request.arrival, self.now() - since)
        if written.begun is not None and not member.is_made_ready:
            self.callers.answer(key_of(claim), claim)
        # Its next reconciliation was at the end of its time to wait; now it is earlier.
        self.wake(key_of(claim))

    def is_at_fault(self, handover: HandOver, error: ApiError) -> bool:
        return lifecycle.is_about_claim(error, is_new=handover.is_new)

    def refused(self, request: Request, error: ApiError) -> None:
        """Drop a claim that is refused: its name is taken, or no instance can have what it asks for."""
        uid = request.id
        stored, unstored = self._stored(uid), self.unstored.pop(uid)
        self.drop(uid)
        claim = unstored or stored
        if claim is not None:
            self.counting.not_bound(claim, error.code)
        if unstored is not None:
            self.callers.fail(unstored, error)
        elif stored is not None:
            self.executor.start(self._failed(stored, error))

    def not_begun(self, binding: Binding, error: ApiError | None) -> None:
        uid = binding.request.id
        claim = self.unstored.get(uid) or self._stored(uid)
        if claim is not None and error is not None:
            self.counting.not_bound(claim, error.code)
        if uid not in self.active:
            self.unstored.pop(uid)
        elif uid not in self.unstored:
            self.wake(cast(Key, self.active.key_of(uid)))
        elif self.callers.creation_under_way(uid) is None and self.active.state(uid) is State.WAITING:
            self.callers.write_waiting(uid)

    def name_of(self, uid: str) -> str | None:
        return self.active.name_of(uid)

    def recall(self, instance: str, request: str) -> None:
        raise AssertionError("a claim has its instance from the moment that it is bound")

    def lost(self, request: Request, instance: str) -> None:
        self._runs.forget_instance(instance)
        self._on_ended(request.id)
        key = self.active.key_of(request.id)
        if key is not None:
            self.wake(key)

    def held_by_another(self, member: Member) -> None:
        """Do nothing: a claim leaves nothing on an instance that a task holds."""

    def appeared(self, member: Member) -> None:
        """Do nothing: the instance itself has all that is known of a claim's hold."""

    def vanished(self, instance: str) -> None:
        self._runs.forget_instance(instance)

    def pool_gone(self, pool: PoolKey) -> None:
        self.counting.forget(pool.namespace, pool.name)

    def assigned(self, member: Member, assignment: Assignment) -> None:
        key = Key(member.subject.namespace, assignment.name)
        if assignment.uid in self.unstored:
            return  # The creation of the claim is being written.
        self._runs.observe(member, assignment.id)
        claim = self._claim(key, assignment.uid)
        if claim is None:
            # An active claim may only not have been read yet. A claim that is over or gone is not active.
            if assignment.uid not in self.active:
                self._releases.free(member, assignment)
            return
        self._hold(member.pool, claim, member.subject.uid)
        status = claim.status
        is_written = status is not None and status.phase == "Bound" and status.instance_name == member.subject.name
        is_leaving = member.instance.metadata.deletion_timestamp is not None
        is_well = not is_leaving and not self.is_another_run(member) and not is_restarted_for(member.instance)
        # Right after a restart, a caller may have asked before this instance was known.
        if not is_written or not is_well or key in self.callers:
            self.wake(key)

    def _hold(self, pool: PoolKey, claim: Claim, instance: str) -> None:
        ledger = self.executor.ledger(pool)
        if ledger.instance_of(claim.metadata.uid) != instance:
            self.active.put(claim.metadata.uid, key_of(claim), pool)
            ledger.hold(lifecycle.request(claim, 0.0), instance)
            self.executor.carry_out(pool)

    def _claim(self, key: Key, uid: str) -> Claim | None:
        claim = get(self.executor.objects, Claim, key.name, key.namespace)
        return claim if claim is not None and claim.metadata.uid == uid and _is_live(claim) else None

    def is_another_run(self, member: Member) -> bool:
        """Report whether another run has replaced the claimed one."""
        return self._runs.is_another(member)

    # Claims that are stored.

    def before(self, claim: Claim) -> int | None:
        """Count the requests that are served before a claim, or return `UNCOUNTED`. None: the claim does not wait."""
        ledger = self.executor.ledgers.get(pool_of(claim))
        return place_of(ledger, claim.metadata.uid) if ledger is not None else None

    def is_full(self, pool: WorkerPool) -> bool:
        """Report whether the queue of a pool is full, so that a new claim would be refused."""
        ledger = self.executor.ledgers.get(PoolKey(pool.metadata.namespace, pool.metadata.name))
        depth = ledger.depth if ledger is not None else 0
        # With a free instance, a new claim does not have to wait.
        return depth >= pool.spec.queue.limit and (ledger is None or not ledger.free)

    def knows(self, uid: str) -> bool:
        return uid in self.active

    def queue(self, claim: Claim, arrival: float) -> None:
        """Queue a claim. Repeated, this has no effect."""
        pool = pool_of(claim)
        self.active.put(claim.metadata.uid, key_of(claim), pool)
        self.executor.ledger(pool).request(lifecycle.request(claim, arrival))
        self.executor.carry_out(pool)

    def member_of(self, claim: Claim) -> Member | None:
        """Return the instance that is assigned to a claim."""
        uid = claim.metadata.uid
        member = self.active.member(uid)
        assigned = member.assignment if member is not None else None
        return member if assigned is not None and assigned.uid == uid else None

    def is_usable(self, claim: Claim) -> bool:
        """Report whether a claim is bound and its instance is ready for the holder."""
        member = self.member_of(claim)
        if member is None or claim.status is None or claim.status.phase != "Bound":
            return False
        status = member.instance.status
        if not member.is_made_ready:
            return True
        known = status.assignment if status is not None else None
        return known is not None and known.id == claim.metadata.uid and is_ready(member.instance)

    def wait_estimate(self, pool: WorkerPool) -> float:
        """Estimate the seconds that a new claim waits, from the pace of the last bindings."""
        return self.executor.wait_estimate(PoolKey(pool.metadata.namespace, pool.metadata.name))

    def is_being_created(self, claim: Claim) -> bool:
        """Report whether a claim's creation is still being written. Its caller is answered after that."""
        return claim.metadata.uid in self.unstored

    def is_bound_soon(self, claim: Claim) -> bool:
        """Report whether the binding of a claim is being written."""
        return self.active.state(claim.metadata.uid) is State.BINDING

    def forget(self, claim: Claim) -> None:
        """Drop a claim that is over or gone, and take back its instance."""
        member = self.member_of(claim)
        self.drop(claim.metadata.uid)
        self.callers.forget_absence(key_of(claim))
        if member is not None:
            self.executor.update(member)

    def gone(self, key: Key) -> None:
        """Forget the deleted claim of this name, take back its instance, and answer its callers."""
        unstored = next(iter(self.unstored.of(key)), "")
        for uid in [uid for uid in self.active.of(key) if uid != unstored]:
            member = self.active.member(uid)
            self.drop(uid)
            if member is not None:
                self.executor.update(member)
        for uid in self.arrivals.of(key):
            if uid != unstored:
                self.arrivals.pop(uid)
        self.callers.gone(key, but=unstored)
        self._cancel_timer(key)

    def drop(self, uid: str) -> None:
        """Remove a claim from its ledger. If it is held, its hold ends there."""
        key, pool = self.active.key_of(uid), self.active.pop(uid)
        self.arrivals.pop(uid)
        self._cancelled.pop(uid, None)
        self._runs.forget_claim(uid)
        if key is not None:
            self.callers.forget_orphan(key, uid)
        ledger = self.executor.ledgers.get(pool) if pool is not None else None
        if pool is None or ledger is None:
            return
        if ledger.cancel(uid) in (State.HELD, State.ENDING):
            self._on_ended(uid)
            ledger.ended(uid)
        self.executor.carry_out(pool)

    # The end of a hold.

    async def end(self, claim: Claim, status: ClaimStatus) -> Claim:
        """Write the end of a claim, and take back its instance in the same commit if the backend is atomic."""
        member = self.member_of(claim)
        ended = msgspec.structs.replace(claim, status=status)
        written = None
        if member is not None and self._runs.can_be_given_back(member, claim.metadata.uid):
            written = await self._releases.release(member, ended)
        if written is None:
            written = await self.executor.client.update_status(ended)
            self.forget(written)
        self.counting.ended(written, self.now())
        self.executor.forget_if_gone(pool_of(written))
        self.callers.answer(key_of(claim), written)
        # The echo of this write wakes no controller, which has to delete the claim after a while.
        self.wake(key_of(claim))
        return written

    async def _failed(self, claim: Claim, error: ApiError) -> None:
        over = lifecycle.over(claim.status or ClaimStatus(), "Failed", self.now(), "Invalid", error.message)
        try:
            await self.end(claim, over)
        except ApiError:
            self.wake(key_of(claim))  # The claim has changed, and may be valid now.

    def _stored(self, uid: str) -> Claim | None:
        claim = self.active.find(Claim, uid)
        return claim if claim is not None and _is_live(claim) and not claim.spec.release else None


def _is_live(claim: Claim) -> bool:
    """Report whether a claim may have an instance, or wait for one."""
    return not claim.over() and claim.metadata.deletion_timestamp is None
