"""Claims: which instance is whose, and who waits to be answered. All that it knows can be read again from objects.

The id of an assignment is the uid of its claim. What a claim that is over, or gone, still has is given back: at once,
or, where a runner has to reset the instance, when the runner has reported the hold that ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, cast

import msgspec

from rota.api import Claim, Instance, WorkerPool
from rota.api.instance import Assignment
from rota.api.pool import ClaimStatus
from rota.client import Key
from rota.control.claims import lifecycle
from rota.control.claims.callers import NOT_FOUND, Callers
from rota.control.claims.counting import Counting
from rota.control.claims.lifecycle import key_of, pool_of
from rota.control.holds.arrivals import Arrivals
from rota.control.holds.executor import Executor
from rota.control.holds.handover import HandOver, Written
from rota.control.holds.members import Member, PoolKey
from rota.control.holds.named import ByName
from rota.control.holds.options import has_runner, is_restarted_for, options_of, run_of
from rota.control.holds.wanted import Wanted
from rota.control.inputs import reach, refusal
from rota.control.instances.names import controller_of
from rota.control.instances.reasons import is_ready
from rota.control.instances.states import USED
from rota.control.tasks.telling import place_of
from rota.engine import Context
from rota.engine.clock import Timer
from rota.engine.objects import get
from rota.pools import Binding, Opened, Request, State
from rota.registry import ApiError

log = logging.getLogger(__name__)

UNPROCESSABLE = 422
REFUSED = (400, 403, 413)


class ClaimHolds:
    """Claims in, instances out."""

    def __init__(
        self,
        executor: Executor,
        counting: Counting,
        log_sizes: Callable[[Instance], dict[str, tuple[int, int]]] = lambda _: {},
        on_ended: Callable[[str], None] = lambda uid: None,
        entries: Callable[[Instance], int] | None = None,
    ) -> None:
        """`log_sizes` returns the size of each container's log. `on_ended` gets the uid of a claim whose hold ends.

        `entries` returns a number that is another one after each command that is run in an instance. None: it is not
        known whether a holder got there.
        """
        self.executor = executor
        self._log_sizes = log_sizes
        self._on_ended = on_ended
        self._entries = entries
        self._entries_before: dict[str, int] = {}
        """By the uid of a claim that was bound here, the number of its instance before that."""
        self.counting = counting
        executor.join("Claim", self)
        executor.on_reset(lambda pool, seconds: counting.was_reset(pool.namespace, pool.name, seconds))
        counting.watch(lambda: {(pool.namespace, pool.name): one for pool, one in executor.ledgers.items()})
        self.wanted = Wanted(executor)
        """By the uid of a claim that wants an instance, or has one."""
        self.unborn: ByName[Claim] = ByName()
        """Claims that are created with their hold, or as waiting, and that are not stored yet."""
        self._landed: dict[str, Claim] = {}
        """Claims as they were written with a hold, until the ledger has the result."""
        self._taken_on: dict[str, str] = {}
        """By the uid of an instance, the claim that its runner has reported to hold it."""
        self.arrivals = Arrivals(self.now)
        self._timers: dict[Key, Timer] = {}
        """Of claims for a pool that is not there."""
        self.callers = Callers(self)
        self._wake: Callable[[Key], None] | None = None

    def begin(self, wake: Callable[[Key], None]) -> Callable[[], None]:
        """Begin. `wake` has a claim reconciled."""
        self._wake = wake
        return self._end

    def _end(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self.callers.close()

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
        claims = cast("list[Claim]", objects.list(Claim.api))
        self.arrivals.restore(claims, (one for one in claims if one.status is None))
        for claim in claims:
            status = claim.status
            if status is None or status.phase != "Waiting" or status.arrival is None:
                continue
            if claim.spec.release or claim.metadata.deletion_timestamp is not None:
                continue
            pool = get(objects, WorkerPool, claim.spec.pool_ref.name, claim.metadata.namespace)
            if self.callers.is_absent(claim) or lifecycle.deadline(claim, pool) <= self.now():
                continue  # Nobody is there who would use an instance.
            self.want(claim, status.arrival.timestamp())

    def bind(self, pool: PoolKey, binding: Binding) -> None:
        self.executor.start(self._bound(pool, binding))

    def give_back(self, pool: PoolKey, request: Request, instance: str) -> None:
        claim = self._landed.pop(request.id)
        # It was given up while its hold was written.
        self.counting.not_bound(claim, 499)
        self.executor.start(self.callers.abandon(claim, instance))

    def name_of(self, uid: str) -> str | None:
        return self.wanted.name_of(uid)

    def recall(self, instance: str, request: str) -> None:
        raise AssertionError("a claim has its instance from the moment that it is bound")

    def lost(self, request: Request, instance: str) -> None:
        self._taken_on.pop(instance, None)
        self._on_ended(request.id)
        key = self.wanted.key_of(request.id)
        if key is not None:
            self.wake(key)

    def held_by_another(self, member: Member) -> None:
        """Nothing of a claim is left on an instance that a task holds."""

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
        if not is_written or not is_well or key in self.callers:
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

    def before(self, claim: Claim) -> int | None:
        """Count those that get an instance before one that waits, or return `UNCOUNTED`. None: it does not wait."""
        ledger = self.executor.ledgers.get(pool_of(claim))
        return place_of(ledger, claim.metadata.uid) if ledger is not None else None

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

    def member_of(self, claim: Claim) -> Member | None:
        """Return the instance that a claim has, as the instance says."""
        uid = claim.metadata.uid
        member = self.wanted.member(uid)
        assigned = member.assignment if member is not None else None
        return member if assigned is not None and assigned.uid == uid else None

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

    def is_just_bound(self, claim: Claim) -> bool:
        """Report whether it was created with its hold, and whoever asked for it is about to be answered."""
        return claim.metadata.uid in self.unborn

    def is_bound_soon(self, claim: Claim) -> bool:
        """Report whether it is just being given an instance."""
        return self.wanted.state(claim.metadata.uid) is State.BINDING

    def forget(self, claim: Claim) -> None:
        """A claim is over, or gone: it wants nothing any more, and gives back what it has."""
        member = self.member_of(claim)
        self.drop(claim.metadata.uid)
        self.callers.over(key_of(claim))
        if member is not None:
            self.executor.update(member)

    def gone(self, key: Key) -> None:
        """There is no claim of this name any more."""
        unborn = next(iter(self.unborn.of(key)), "")
        for uid in [uid for uid in self.wanted.of(key) if uid != unborn]:
            member = self.wanted.member(uid)
            self.drop(uid)
            if member is not None:
                self.executor.update(member)
        for uid in self.arrivals.of(key):
            if uid != unborn:
                self.arrivals.pop(uid)
        self.callers.gone(key, but=unborn)
        self._cancel_timer(key)

    def drop(self, uid: str) -> None:
        """A claim wants nothing any more; a hold that it has ends."""
        key, pool = self.wanted.key_of(uid), self.wanted.pop(uid)
        self.arrivals.pop(uid)
        self._entries_before.pop(uid, None)
        if key is not None:
            self.callers.dropped(key, uid)
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
        self.callers.answer(key_of(claim), written)
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
        self.drop(uid)
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
        try:
            with member.changing_hands():
                is_lost, is_untouched = self._is_lost(member, id_), self._is_untouched(member, id_)
                marks = lifecycle.marks_at_end(member.instance, is_lost=is_lost, is_untouched=is_untouched)
                written = await self.executor.write(HandOver(member.subject, id_, None, ends, marks=marks))
                if is_untouched:
                    # From here on its holder begins nothing more there.
                    self._on_ended(id_)
                    if not self._is_untouched(member, id_):
                        written = written._replace(instance=await self._mark(member, id_))
        except BaseException:
            # News of it was passed over meanwhile: that its claim is over, say.
            self.executor.look_again(member)
            raise
        self._taken_on.pop(member.subject.uid, None)
        member.learn(written.instance)
        return written

    def _is_untouched(self, member: Member, id_: str) -> bool:
        """Report whether it is certain that a holder never got to what runs there, so that nothing of it is left."""
        instance = member.instance
        if has_runner(instance) or lifecycle.can_be_touched(instance) or self.is_another_run(member):
            return False
        return self._entries is not None and self._entries_before.get(id_) == self._entries(instance)

    async def _mark(self, member: Member, id_: str) -> Instance:
        """Have an instance started anew: its holder got there while the end of the hold was written."""
        kind: Any = Instance
        subject = member.subject
        mark = {"metadata": {"uid": subject.uid, "annotations": {USED: id_}}}
        while True:
            try:
                written: Instance = await self.executor.client.patch(
                    kind, subject.name, mark, namespace=subject.namespace, type="merge"
                )
                return written
            except ApiError as error:
                if error.code == NOT_FOUND:
                    raise
                await self.executor.pause(error, f"{member.subject.name} could not be marked")

    # Binding.

    async def _bound(self, pool: PoolKey, binding: Binding) -> None:
        try:
            await self._write_binding(pool, binding)
        except Exception as error:
            log.exception("a claim could not be given an instance")
            self._refuse(pool, binding, ApiError(500, "InternalError", f"it could not be given an instance: {error}"))

    async def _write_binding(self, pool: PoolKey, binding: Binding) -> None:
        uid, ledger = binding.request.id, self.executor.ledger(pool)
        await self.callers.stored(uid)
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
        is_free = member.opened is Opened.WHOLE and not member.is_changing_hands
        # Until the ends of its tasks are written, that it is given to tasks tells that its runner has their outcomes.
        if not self.executor.is_owned(member) or not is_free or member.ends:
            # It has changed since that was decided.
            ledger.lost(binding)
            self._not_bound(pool, uid)
            self.executor.look_again(member)
            return
        came = binding.request.arrival
        if self._entries is not None:
            self._entries_before[uid] = self._entries(member.instance)
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
            self.callers.answer(key_of(claim), begun)
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
        elif not self.callers.is_being_stored(uid) and self.wanted.state(uid) is State.WAITING:
            self.executor.start(self.callers.write_waiting(uid))

    def _refuse(self, pool: PoolKey, binding: Binding, error: ApiError) -> None:
        """Answer that a claim cannot be: there is another of its name, say, or no instance can have what it asks for.

        The instance is as free as before.
        """
        uid = binding.request.id
        stored, unborn = self._stored(uid), self.unborn.pop(uid)
        self.drop(uid)
        self.executor.ledger(pool).refused(binding)
        self.executor.carry_out(pool)
        if unborn is not None:
            self.callers.fail(unborn, error)
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


def is_about_claim(error: ApiError, *, is_new: bool) -> bool:
    """Report whether it is the claim that was refused, or what it asks for, and not that something has changed."""
    if error.code == UNPROCESSABLE and error.causes:
        return True
    if not is_new:
        return False
    kind = (error.details or {}).get("kind")
    return error.reason == "AlreadyExists" or (error.code in REFUSED and kind in (Claim.api.name, Claim.api.plural))
