"""Claims: which instance is whose, and who waits to be answered. All that it knows can be read again from objects.

The id of an assignment is the uid of its claim. What a claim that is over, or gone, still has is given back: at once,
or, where a runner has to reset the instance, when the runner has reported the hold that ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, cast

import msgspec

from rota.api import Claim, Instance, WorkerPool
from rota.api.instance import Assignment
from rota.api.pool import ClaimStatus
from rota.client import Key
from rota.control.claims import lifecycle
from rota.control.claims.counting import Counting
from rota.control.claims.hearing import Hearing, Listener
from rota.control.holds.executor import LOOK_AGAIN_SECONDS, LOST_RACE, RETRY_SECONDS, Executor
from rota.control.holds.handover import HandOver, Written, creation
from rota.control.holds.members import Member, PoolKey
from rota.control.holds.named import ByName
from rota.control.holds.options import is_restarted_for, options_of, run_of
from rota.control.inputs import reach, refusal
from rota.control.instances.names import controller_of
from rota.control.instances.reasons import is_ready
from rota.engine import Context
from rota.engine.clock import Timer, sleep
from rota.engine.objects import get
from rota.pools import Binding, Opened, Request, State
from rota.registry import ApiError

log = logging.getLogger(__name__)

ARRIVALS_PER_SECOND = 1_000_000
"""Arrivals are told apart by what is stored of them, which is microseconds."""
ABANDON_TRIES_MAX = 10
RETURN_SECONDS_MAX = 30.0
"""How long the maker of a claim may stay away after a restart. Clients of Rota look for a server for half as long."""
NOT_FOUND = 404
UNPROCESSABLE = 422
REFUSED = (400, 403, 413)


def pool_of(claim: Claim) -> PoolKey:
    return PoolKey(claim.metadata.namespace, claim.spec.pool_ref.name)


def key_of(claim: Claim) -> Key:
    return Key(claim.metadata.namespace, claim.metadata.name)


class ClaimHolds:
    """Claims in, instances out."""

    def __init__(
        self,
        executor: Executor,
        counting: Counting,
        log_sizes: Callable[[Instance], dict[str, tuple[int, int]]] = lambda _: {},
        on_ended: Callable[[str], None] = lambda uid: None,
    ) -> None:
        """`log_sizes` returns the size of each container's log. `on_ended` gets the uid of a claim whose hold ends."""
        self.executor = executor
        self._log_sizes = log_sizes
        self._on_ended = on_ended
        self.counting = counting
        executor.join("Claim", self)
        executor.on_reset(lambda pool, seconds: counting.was_reset(pool.namespace, pool.name, seconds))
        counting.watch(lambda: {(pool.namespace, pool.name): one for pool, one in executor.ledgers.items()})
        self.wanted: ByName[PoolKey] = ByName()
        """By the uid of a claim that wants an instance, or has one."""
        self.unborn: ByName[Claim] = ByName()
        """Claims that are created with their hold, or as waiting, and that are not stored yet."""
        self.births: dict[str, asyncio.Future[None]] = {}
        """Those of them that have to wait, and are just being created."""
        self._landed: dict[str, Claim] = {}
        """Claims as they were written with a hold, until the ledger has the result."""
        self._unwanted: set[str] = set()
        """Claims that nobody wants any more, and that are just being created."""
        self.orphans: dict[Key, str] = {}
        """Claims whose caller has gone while somebody else waits for the same."""
        self._absent_since: dict[Key, tuple[str, float]] = {}
        """Claims that are not to be bound while nobody waits for them: the uid, and since when nobody does."""
        self._taken_on: dict[str, str] = {}
        """By the uid of an instance, the claim that its runner has reported to hold it."""
        self.arrivals: ByName[float] = ByName()
        self._last_arrival = 0
        self._timers: dict[Key, Timer] = {}
        """Of claims for a pool that is not there."""
        self.heard = Hearing()
        self.has_ended = False
        self._wake: Callable[[Key], None] | None = None

    def begin(self, wake: Callable[[Key], None]) -> Callable[[], None]:
        """Begin. `wake` has a claim reconciled."""
        self._wake = wake
        return self._end

    def _end(self) -> None:
        # What waits goes on waiting: whoever asks again under its name finds it at its place.
        self.has_ended = True
        for timer in self._timers.values():
            timer.cancel()
        self.heard.close(not_here())

    def prepare(self, context: Context) -> None:
        self.executor.prepare(context)

    @property
    def is_prepared(self) -> bool:
        return self.executor.is_prepared

    def now(self) -> float:
        return self.executor.clock.time()

    def wake(self, key: Key) -> None:
        if self._wake is not None:
            self._wake(key)

    def wake_at(self, key: Key, seconds: float) -> None:
        """Have a claim reconciled after so many seconds."""
        self._cancel_timer(key)

        def due() -> None:
            self._timers.pop(key, None)
            self.wake(key)

        self._timers[key] = self.executor.clock.call_at(self.executor.clock.now() + seconds, due)

    def _cancel_timer(self, key: Key) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    # What the executor asks.

    def restore(self) -> None:
        objects = self.executor.objects
        for instance in cast("list[Instance]", objects.list(Instance.api)):
            assigned, owner = instance.spec.assignment, controller_of(instance)
            if assigned is None or assigned.kind != "Claim" or owner is None:
                continue
            claim = self._claim(Key(instance.metadata.namespace, assigned.name), assigned.uid)
            if claim is not None:
                self._hold(PoolKey(instance.metadata.namespace, owner.name, owner.kind), claim, instance.metadata.uid)
        for claim in cast("list[Claim]", objects.list(Claim.api)):
            status = claim.status
            if status is not None and status.arrival is not None:
                # Whoever comes now comes later, whatever clock those arrivals are from.
                self._last_arrival = max(self._last_arrival, _ticks(status.arrival.timestamp()))
            if status is None or status.phase != "Waiting" or status.arrival is None:
                continue
            if claim.spec.release or claim.metadata.deletion_timestamp is not None:
                continue
            pool = get(objects, WorkerPool, claim.spec.pool_ref.name, claim.metadata.namespace)
            if self.is_absent(claim) or lifecycle.deadline(claim, pool) <= self.now():
                continue  # Nobody is there who would use an instance.
            self.want(claim, status.arrival.timestamp())

    def bind(self, pool: PoolKey, binding: Binding) -> None:
        self.executor.start(self._bound(pool, binding))

    def give_back(self, pool: PoolKey, request: Request, instance: str) -> None:
        claim = self._landed.pop(request.id)
        # It was given up while its hold was written.
        self.counting.not_bound(claim, 499)
        self.executor.start(self._abandon(claim, instance))

    def name_of(self, uid: str) -> str | None:
        key = self.wanted.key_of(uid)
        return key.name if key is not None else None

    def recall(self, instance: str, request: str) -> None:
        raise AssertionError("a claim has its instance from the moment that it is bound")

    def lost(self, request: Request, instance: str) -> None:
        self._taken_on.pop(instance, None)
        self._on_ended(request.id)
        key = self.wanted.key_of(request.id)
        if key is not None:
            self.wake(key)

    def appeared(self, member: Member) -> None:
        """Nothing is known of it that is not in the instance."""

    def vanished(self, instance: str) -> None:
        self._taken_on.pop(instance, None)

    def pool_gone(self, pool: PoolKey) -> None:
        self.counting.forget(pool.namespace, pool.name)

    def assigned(self, member: Member, assignment: Assignment) -> None:
        key = Key(member.subject.namespace, assignment.name)
        if assignment.uid in self.unborn:
            return  # It is just being written.
        if member.report is not None and member.report.holder == assignment.id:
            self._taken_on[member.subject.uid] = assignment.id
        claim = self._claim(key, assignment.uid)
        if claim is None:
            self._give_back(member, assignment)
            return
        self._hold(member.pool, claim, member.subject.uid)
        status = claim.status
        is_written = status is not None and status.phase == "Bound" and status.instance_name == member.subject.name
        is_leaving = member.instance.metadata.deletion_timestamp is not None
        is_well = not is_leaving and not self.is_another_run(member) and not is_restarted_for(member.instance)
        # Somebody may have asked before this instance was known, right after a restart.
        if not is_written or not is_well or key in self.heard:
            self.wake(key)

    def _hold(self, pool: PoolKey, claim: Claim, instance: str) -> None:
        ledger = self.executor.ledger(pool)
        if ledger.instance_of(claim.metadata.uid) != instance:
            self.wanted.put(claim.metadata.uid, key_of(claim), pool)
            ledger.hold(lifecycle.request(claim, 0.0), instance)
            self.executor.carry_out(pool)

    def _claim(self, key: Key, uid: str) -> Claim | None:
        """Return the claim that has, or waits for, an instance: it is there, and not over."""
        claim = get(self.executor.objects, Claim, key.name, key.namespace)
        if claim is None or claim.metadata.uid != uid or claim.over() or claim.metadata.deletion_timestamp is not None:
            return None
        return claim

    def is_another_run(self, member: Member) -> bool:
        """Report whether what was claimed has ended in between, and was started again."""
        instance, report = member.instance, member.report
        assigned = instance.spec.assignment
        known = instance.status.assignment if instance.status is not None else None
        if assigned is None:
            return False
        if known is not None and known.id == assigned.id and known.phase == "Done":
            return True
        if is_restarted_for(instance):
            return False  # It is what it is started anew for that was claimed.
        if member.has_runner and report is not None and self._taken_on.get(member.subject.uid) == assigned.id:
            # What was in it is gone, even if the runner is the same.
            return report.holder != assigned.id or options_of(instance).run != run_of(instance)
        return options_of(instance).run != run_of(instance)

    # Claims that are stored.

    def arrival(self) -> float:
        """Return when somebody comes now: no two at once, so that what is stored is their order."""
        self._last_arrival = max(_ticks(self.now()), self._last_arrival + 1)
        return self._last_arrival / ARRIVALS_PER_SECOND

    def arrival_of(self, claim: Claim) -> float:
        """Return when a claim came to the queue: what is stored, else when it was first seen."""
        status = claim.status
        if status is not None and status.arrival is not None:
            return status.arrival.timestamp()
        known = self.arrivals.get(claim.metadata.uid)
        if known is None:
            known = self.arrival()
            self.arrivals.put(claim.metadata.uid, key_of(claim), known)
        return known

    def before(self, claim: Claim) -> int | None:
        """Count those that get an instance before one that waits. None: it does not wait."""
        ledger = self.executor.ledgers.get(pool_of(claim))
        return ledger.position(claim.metadata.uid) if ledger is not None else None

    def is_full(self, pool: WorkerPool) -> bool:
        """Report whether as many wait as may."""
        ledger = self.executor.ledgers.get(PoolKey(pool.metadata.namespace, pool.metadata.name))
        depth = ledger.depth if ledger is not None else 0
        # One that would get an instance at once does not wait.
        return depth >= pool.spec.queue.limit and (ledger is None or not ledger.free)

    def knows(self, uid: str) -> bool:
        return uid in self.wanted

    def want(self, claim: Claim, arrival: float) -> None:
        """Queue a claim. Said again, nothing happens."""
        pool = pool_of(claim)
        self.wanted.put(claim.metadata.uid, key_of(claim), pool)
        self.executor.ledger(pool).request(lifecycle.request(claim, arrival))
        self.executor.carry_out(pool)

    def _state(self, uid: str) -> State | None:
        pool = self.wanted.get(uid)
        ledger = self.executor.ledgers.get(pool) if pool is not None else None
        return ledger.state(uid) if ledger is not None else None

    def member_of(self, claim: Claim) -> Member | None:
        """Return the instance that a claim has, as the instance says."""
        uid = claim.metadata.uid
        pool = self.wanted.get(uid)
        ledger = self.executor.ledgers.get(pool) if pool is not None else None
        instance = ledger.instance_of(uid) if ledger is not None else None
        member = self.executor.members.get(instance or "")
        assigned = member.assignment if member is not None else None
        return member if assigned is not None and assigned.uid == uid else None

    def is_just_bound(self, claim: Claim) -> bool:
        """Report whether it was created with its hold, and whoever asked for it is about to be answered."""
        return claim.metadata.uid in self.unborn

    def is_bound_soon(self, claim: Claim) -> bool:
        """Report whether it is just being given an instance."""
        return self._state(claim.metadata.uid) is State.BINDING

    def forget(self, claim: Claim) -> None:
        """A claim is over, or gone: it wants nothing any more, and gives back what it has."""
        member = self.member_of(claim)
        self._leave(claim.metadata.uid)
        self._absent_since.pop(key_of(claim), None)
        if member is not None:
            self.executor.update(member)

    def gone(self, key: Key) -> None:
        """There is no claim of this name any more."""
        unborn = next(iter(self.unborn.of(key)), "")
        for uid in [uid for uid in self.wanted.of(key) if uid != unborn]:
            pool = self.wanted.get(uid)
            ledger = self.executor.ledgers.get(pool) if pool is not None else None
            member = self.executor.members.get((ledger.instance_of(uid) if ledger is not None else None) or "")
            self._leave(uid)
            if member is not None:
                self.executor.update(member)
        self._absent_since.pop(key, None)
        for uid in self.arrivals.of(key):
            if uid != unborn:
                self.arrivals.pop(uid)
        self.heard.gone(key, but=unborn)
        self._cancel_timer(key)

    def _leave(self, uid: str) -> None:
        key, pool = self.wanted.key_of(uid), self.wanted.pop(uid)
        self.arrivals.pop(uid)
        if key is not None and self.orphans.get(key) == uid:
            del self.orphans[key]
        ledger = self.executor.ledgers.get(pool) if pool is not None else None
        if pool is None or ledger is None:
            return
        if ledger.cancel(uid) in (State.HELD, State.ENDING):
            self._on_ended(uid)
            ledger.ended(uid)
        self.executor.carry_out(pool)

    # The end of a hold.

    async def end(self, claim: Claim, status: ClaimStatus) -> Claim:
        """End a claim. What it has is given back, in the same commit where the backend is atomic."""
        member = self.member_of(claim)
        ended = msgspec.structs.replace(claim, status=status)
        written = None
        if member is not None and self._can_give_back(member, claim.metadata.uid):
            written = await self._end_with_hold(member, ended)
        if written is None:
            written = await self.executor.client.update_status(ended)
            self.forget(written)
        self.counting.ended(written, self.now())
        self.executor.forget_if_gone(pool_of(written))
        self.answer(key_of(claim), written)
        # The echo of this write wakes nobody: what is over is kept, and not for ever.
        self.wake(key_of(claim))
        return written

    async def _end_with_hold(self, member: Member, ended: Claim) -> Claim | None:
        """Write the end of a claim and of its hold; None: the instance is gone."""
        uid = ended.metadata.uid
        self.executor.ledger(member.pool).ending(uid, frees=False)
        try:
            written = await self._unassign(member, uid, ended)
        except BaseException as error:
            self.executor.ledger(member.pool).held_again(uid)
            if isinstance(error, ApiError) and error.code == NOT_FOUND:
                return None
            raise
        self._leave(uid)
        self.executor.update(member)
        return cast(Claim, written.ended or ended)

    def _give_back(self, member: Member, assigned: Assignment) -> None:
        """Free an instance from an assignment that nobody has any more."""
        ledger = self.executor.ledger(member.pool)
        for uid in ledger.holders_of(member.subject.uid):
            ledger.ended(uid)
        if self._can_give_back(member, assigned.id):
            self.executor.start(self._release(member, assigned.id))

    def _can_give_back(self, member: Member, id_: str) -> bool:
        """Report whether an instance can be taken from its holder: whoever resets it knows that it was held."""
        if not member.has_runner or (member.report is not None and member.report.holder == id_):
            return True
        # Or it was, and what has it now is another run, which began as new.
        known = member.instance.status.assignment if member.instance.status is not None else None
        return (known is not None and known.id == id_ and known.phase == "Done") or self._is_lost(member, id_)

    def _is_lost(self, member: Member, id_: str) -> bool:
        """Report whether a runner that had it for somebody has it for nobody now, and was not told so."""
        report = member.report
        is_taken_on = self._taken_on.get(member.subject.uid) == id_
        return is_taken_on and report is not None and report.phase == "Idle" and not report.holder

    async def _release(self, member: Member, id_: str) -> None:
        if member.is_changing_hands:
            return
        try:
            await self._unassign(member, id_, None)
        except ApiError as error:
            await self.executor.pause(error, f"{member.subject.name} could not be given back")
            self.executor.look_again(member)
        else:
            self.executor.update(member)

    async def _unassign(self, member: Member, id_: str, ends: Claim | None) -> Written:
        """Write that an instance is nobody's."""
        member.is_changing_hands = True
        try:
            marks = lifecycle.marks_at_end(member.instance, is_lost=self._is_lost(member, id_))
            written = await self.executor.write(HandOver(member.subject, id_, None, ends, marks=marks))
        except BaseException:
            member.is_changing_hands = False
            # News of it was passed over meanwhile: that its claim is over, say.
            self.executor.look_again(member)
            raise
        member.is_changing_hands = False
        self._taken_on.pop(member.subject.uid, None)
        member.learn(written.instance)
        return written

    # Binding.

    async def _bound(self, pool: PoolKey, binding: Binding) -> None:
        try:
            await self._write_binding(pool, binding)
        except Exception as error:
            log.exception("a claim could not be given an instance")
            self._refuse(pool, binding, ApiError(500, "InternalError", f"it could not be given an instance: {error}"))

    async def _write_binding(self, pool: PoolKey, binding: Binding) -> None:
        uid, ledger = binding.request.id, self.executor.ledger(pool)
        if uid in self.births:
            await asyncio.shield(self.births[uid])
        member = self.executor.members.get(binding.instance)
        claim = (self.unborn.get(uid) or self._stored(uid)) if uid in self.wanted else None
        if claim is None or member is None:
            self.unborn.pop(uid)
            if claim is None:
                ledger.refused(binding)
            else:
                ledger.lost(binding)
            self.executor.carry_out(pool)
            return
        where = f"WorkerPool/{pool.name}"
        open_ = reach(self.executor.objects, member.instance)
        if open_ and (refused := refusal(self.executor.objects, where, open_, claim)):
            self._refuse(pool, binding, ApiError(403, "Forbidden", f"{refused}; only an admin can claim of it"))
            return
        if not self.executor.is_owned(member) or member.opened is not Opened.WHOLE or member.is_changing_hands:
            # It has changed since that was decided.
            ledger.lost(binding)
            self._not_bound(pool, uid)
            self.executor.look_again(member)
            return
        came = binding.request.arrival
        now = lifecycle.time_of(self.now())
        status = lifecycle.bound(claim, member.instance, lifecycle.time_of(came), now)
        begins = msgspec.structs.replace(claim, status=status)
        handover = HandOver(
            member.subject,
            member.lane,
            lifecycle.assignment(claim, member.instance, now, self._log_sizes(member.instance)),
            begins=begins,
            is_new=uid in self.unborn,
            marks=lifecycle.marks_at_begin(claim, member.instance),
        )
        try:
            written = await self.executor.write(handover)
        except ApiError as error:
            self.counting.not_bound(claim, error.code)
            if is_about_claim(error, is_new=handover.is_new):
                self._refuse(pool, binding, error)
                return
            await self.executor.pause(error, f"{member.subject.name} could not be assigned")
            ledger.lost(binding)
            self._not_bound(pool, uid)
            self.executor.look_again(member)
            return
        member.learn(written.instance)
        self.unborn.pop(uid)
        self.arrivals.pop(uid)
        begun: Claim = written.begun or begins
        self._landed[uid] = begun
        is_bound = ledger.bound(binding)
        self.executor.carry_out(pool)
        self._landed.pop(uid, None)
        if not is_bound:
            return
        self.counting.bound(begun, now.timestamp() - came, self.now() - now.timestamp())
        if written.begun is not None and not member.is_made_ready:
            self.answer(key_of(claim), begun)
        # Until now it was to be reconciled when its time to wait is over.
        self.wake(key_of(claim))

    def _not_bound(self, pool: PoolKey, uid: str) -> None:
        """A race was lost: the claim waits again, and if it is not stored yet, it is now."""
        self.executor.carry_out(pool)
        key = self.wanted.key_of(uid)
        if key is None:
            self.unborn.pop(uid)
        elif uid not in self.unborn:
            self.wake(key)
        elif uid not in self.births and self._state(uid) is State.WAITING:
            self.executor.start(self.write_waiting(uid))

    def _refuse(self, pool: PoolKey, binding: Binding, error: ApiError) -> None:
        """Answer that a claim cannot be: there is another of its name, say, or no instance can have what it asks for.

        The instance is as free as before.
        """
        uid = binding.request.id
        stored, unborn = self._stored(uid), self.unborn.pop(uid)
        self._leave(uid)
        self.executor.ledger(pool).refused(binding)
        self.executor.carry_out(pool)
        if unborn is not None:
            self.heard.fail(key_of(unborn), uid, error)
        elif stored is not None:
            self.executor.start(self._failed(stored, error))

    async def _failed(self, claim: Claim, error: ApiError) -> None:
        over = lifecycle.over(claim.status or ClaimStatus(), "Failed", self.now(), "Invalid", error.message)
        try:
            await self.end(claim, over)
        except ApiError:
            self.wake(key_of(claim))  # It has changed: perhaps it can be bound now.

    def _stored(self, uid: str) -> Claim | None:
        key = self.wanted.key_of(uid)
        claim = self._claim(key, uid) if key is not None else None
        return None if claim is None or claim.spec.release else claim

    # Callers that wait for an answer.

    def answer(self, key: Key, claim: Claim) -> None:
        """Answer those that wait for a claim, if it has an instance or is over."""
        if key in self.heard and (claim.over() or (claim.status is not None and claim.status.phase == "Bound")):
            self.heard.tell(key, claim.metadata.uid, claim)

    def being_made(self, key: Key) -> Claim | None:
        """Return the claim of this name that is just being created, as it was asked for."""
        return next((self.unborn.get(uid) for uid in self.unborn.of(key)), None)

    def is_usable(self, claim: Claim) -> bool:
        """Report whether its holder can go to work."""
        member = self.member_of(claim)
        if member is None or claim.status is None or claim.status.phase != "Bound":
            return False
        status = member.instance.status
        if not member.is_made_ready:
            return True
        known = status.assignment if status is not None else None
        return known is not None and known.id == claim.metadata.uid and is_ready(member.instance)

    def wait_estimate(self, pool: WorkerPool) -> float:
        """Estimate the seconds until a claim that comes now has an instance, by how often one was given lately."""
        return self.executor.wait_estimate(PoolKey(pool.metadata.namespace, pool.metadata.name))

    def is_absent(self, claim: Claim) -> bool:
        """Report whether a claim is not to be bound for now: its maker waited for it on a connection that is gone.

        So it is after a restart. A maker that is alive asks again under the same name; until then the claim keeps its
        place, and others are served.
        """
        uid = claim.metadata.uid
        if not lifecycle.is_attended(claim) or uid in self.unborn or uid in self.births:
            return False
        return not self.heard.is_heard(key_of(claim), uid)

    def absent_seconds_left(self, claim: Claim) -> float | None:
        """Return how long the maker of a waiting claim may stay away; None: they are there."""
        uid, key = claim.metadata.uid, key_of(claim)
        if not self.is_absent(claim):
            self._absent_since.pop(key, None)
            return None
        now = self.now()
        known, since = self._absent_since.get(key, ("", now))
        if known != uid:
            since = now
            self._absent_since[key] = (uid, since)
        return max(0.0, since + RETURN_SECONDS_MAX - now)

    async def give_up(self, claim: Claim) -> None:
        """Remove a claim whose maker did not come back."""
        meta = claim.metadata
        log.info("claim %s/%s is given up: who asked for it did not come back", meta.namespace, meta.name)
        self._absent_since.pop(key_of(claim), None)
        await self._remove(claim)

    async def awaited(self, claim: Claim) -> Claim | None:
        """Wait until a claim that is known has an instance or is over; None: it is gone."""
        key = key_of(claim)
        if self.is_absent(claim) and (claim.status is None or claim.status.phase != "Bound"):
            # Whoever asks is its maker from now on: if they leave, nobody wants it.
            self.orphans[key] = claim.metadata.uid
            self.wake(key)
        listener = self.heard.join(key)
        try:
            found = await listener.future
        except asyncio.CancelledError:
            self.heard.leave(key, listener)
            if key in self.orphans and not self.heard.is_heard(key, self.orphans[key]):
                self._let_go(self.orphans.pop(key), key)
            raise
        self.orphans.pop(key, None)
        return found

    async def open(self, claim: Claim, *, may_wait: bool) -> Claim | None:
        """Create a claim, with a uid that its caller made up, and wait until it has an instance or is over.

        It is created together with its hold if an instance is free, else as waiting. None: nothing is free, and it may
        not wait. A caller that is cancelled here leaves nothing behind.
        """
        if not self.executor.is_prepared or self.has_ended:
            raise not_here()
        client = self.executor.client
        if not (client.atomic and client.in_process):
            return await self._open_in_steps(claim, may_wait=may_wait)
        uid, key, pool = claim.metadata.uid, key_of(claim), pool_of(claim)
        arrival, ledger = self.arrival(), self.executor.ledger(pool)
        state = ledger.request(lifecycle.request(claim, arrival))
        if state is State.WAITING and not may_wait:
            ledger.cancel(uid)
            self.executor.carry_out(pool)
            return None
        self.wanted.put(uid, key, pool)
        self.unborn.put(uid, key, claim)
        self.arrivals.put(uid, key, arrival)
        listener = self.heard.join(key, uid)
        try:
            self.executor.carry_out(pool)
            if state is State.WAITING:
                self.executor.start(self.write_waiting(uid))
            return await listener.future
        except asyncio.CancelledError:
            self._cancelled(uid, key, listener)
            raise

    async def _open_in_steps(self, claim: Claim, *, may_wait: bool) -> Claim | None:
        """Create a claim first, where it and its hold cannot be written together; it gets its uid there."""
        key, client = key_of(claim), self.executor.client
        if not may_wait and not self.executor.ledger(pool_of(claim)).free:
            self.executor.carry_out(pool_of(claim))
            return None
        listener = self.heard.join(key)
        metadata = msgspec.structs.replace(claim.metadata, uid="")
        making = asyncio.ensure_future(client.create(msgspec.structs.replace(claim, metadata=metadata)))
        try:
            made = await asyncio.shield(making)
        except asyncio.CancelledError:
            self.heard.leave(key, listener)
            self.executor.start(self._unmade(making))
            raise
        except ApiError:
            self.heard.leave(key, listener)
            raise
        try:
            return await listener.future
        except asyncio.CancelledError:
            self._cancelled(made.metadata.uid, key, listener, made)
            raise

    async def _unmade(self, making: asyncio.Future[Claim]) -> None:
        """Remove a claim whose caller left before it was created."""
        try:
            made = await making
        except ApiError:
            return
        await self._remove(made)

    async def write_waiting(self, uid: str) -> None:
        """Create a claim that has to wait: it keeps its place from now on, whatever happens."""
        claim = self.unborn.get(uid)
        if claim is None or uid not in self.wanted:
            self.unborn.pop(uid)
            return
        born = self.births[uid] = asyncio.get_running_loop().create_future()
        arrival = self.arrival_of(claim)
        status = lifecycle.waiting(claim.status or ClaimStatus(), lifecycle.time_of(arrival))
        created = creation(msgspec.structs.replace(claim, status=status))
        try:
            (written,) = await self.executor.client.batch([created], typed=True)
        except ApiError as error:
            self._unwanted.discard(uid)
            self._leave(uid)
            self.heard.fail(key_of(claim), uid, error)
            return
        finally:
            self.unborn.pop(uid)
            del self.births[uid]
            born.set_result(None)
        if uid in self._unwanted:
            self._unwanted.discard(uid)
            await self._remove(written)

    def _cancelled(self, uid: str, key: Key, listener: Listener, made: Claim | None = None) -> None:
        """The caller of a claim left before it was answered."""
        heard = listener.future
        if heard.done() and not heard.cancelled() and heard.exception() is None:
            made = heard.result() or made
        self.heard.leave(key, listener)
        if self.has_ended:
            return
        if self.heard.is_heard(key, uid):
            self.orphans[key] = uid  # Somebody else has asked for the same, and waits for it.
        else:
            self._let_go(uid, key, made)

    def _let_go(self, uid: str, key: Key, made: Claim | None = None) -> None:
        """Drop a claim that was asked for and that nobody wants."""
        claim = get(self.executor.objects, Claim, key.name, key.namespace)
        if claim is None or claim.metadata.uid != uid:
            claim = made
        if uid in self.births:
            self._unwanted.add(uid)
            self._leave(uid)
        elif uid in self.unborn:
            # If it is being given an instance, that is given back when it is written.
            self._leave(uid)
        elif claim is not None and claim.metadata.uid == uid and not claim.over():
            self.executor.start(self._remove(claim))

    async def _remove(self, claim: Claim) -> None:
        """Delete a claim that nobody waits for; if it has got an instance, end it."""
        member = self.member_of(claim)
        if member is not None:
            await self._abandon(claim, member.subject.uid)
            return
        kind: Any = Claim
        meta, client = claim.metadata, self.executor.client
        await self._until_done(lambda: client.delete(kind, meta.name, namespace=meta.namespace, uid=meta.uid))

    async def _abandon(self, claim: Claim, instance: str) -> None:
        """End a hold that nobody knows of, or wants."""
        client, meta = self.executor.client, claim.metadata
        kind: Any = Claim
        known = claim

        async def end() -> None:
            nonlocal known
            status = known.status or ClaimStatus()
            over = lifecycle.over(status, "Released", self.now(), "Cancelled", "who asked for it is gone")
            try:
                await self.end(known, over)
            except ApiError:
                found: Claim = await client.get(kind, meta.name, namespace=meta.namespace)
                if found.metadata.uid == meta.uid and not found.over():
                    known = found
                    raise

        member = self.executor.members.get(instance)
        if member is not None and meta.uid not in self.wanted:
            # It was dropped while its hold was written; by the instance it is still this claim's.
            self.wanted.put(meta.uid, key_of(claim), member.pool)
        await self._until_done(end)
        # If it was gone already, its instance says so still.
        self.forget(claim)
        if member is not None:
            self.executor.update(member)

    async def _until_done(self, act: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Try something until it is done, or what it is about is gone."""
        for _ in range(ABANDON_TRIES_MAX):
            try:
                await act()
                return
            except ApiError as error:
                if error.code == NOT_FOUND:
                    return
                log.info("a claim that nobody wants is dropped once more: %s", error)
                seconds = LOOK_AGAIN_SECONDS if error.code in LOST_RACE else RETRY_SECONDS
                await sleep(self.executor.clock, seconds)


def is_about_claim(error: ApiError, *, is_new: bool) -> bool:
    """Report whether it is the claim that was refused, or what it asks for, and not that something has changed."""
    if error.code == UNPROCESSABLE and error.causes:
        return True
    if not is_new:
        return False
    kind = (error.details or {}).get("kind")
    return error.reason == "AlreadyExists" or (error.code in REFUSED and kind in (Claim.api.name, Claim.api.plural))


def not_here() -> ApiError:
    return ApiError(
        503,
        "ServiceUnavailable",
        "nobody hands out instances here now: ask again under the same name",
        details={"retryAfterSeconds": 1},
    )


def _ticks(seconds: float) -> int:
    return round(seconds * ARRIVALS_PER_SECOND)
