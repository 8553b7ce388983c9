"""Which instance is whose. Everything it knows can be found again in objects.

The id of an assignment is the uid of its claim. What a claim that is over, or gone, still has is given back: at once,
or, where a runner has to make the instance as new, when that has heard of the hold that ends.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import cast

import msgspec

from rota.api import Claim, Instance, WorkerPool
from rota.api.instance import Assignment
from rota.api.pool import ClaimStatus
from rota.client import Key
from rota.control.claims import lifecycle
from rota.control.claims.counting import Counting
from rota.control.claims.hearing import Hearing
from rota.control.claims.named import Wanted, key_of, pool_of
from rota.control.claims.opening import NOT_FOUND, Opening, not_here
from rota.control.holds.desk import Desk
from rota.control.holds.members import Member, PoolKey
from rota.control.holds.named import ByName
from rota.control.holds.options import is_restarted_for, options_of, run_of
from rota.control.holds.turns import Turn, Turned
from rota.control.inputs import reach, refusal
from rota.control.instances.names import controller_of
from rota.control.instances.reasons import is_ready
from rota.engine import Context
from rota.engine.objects import Objects, get
from rota.pools import Binding
from rota.registry import ApiError

log = logging.getLogger(__name__)

ARRIVALS_PER_SECOND = 1_000_000
"""Arrivals are told apart by what is written down of them, which is microseconds."""
UNPROCESSABLE = 422
REFUSED = (400, 403, 413)


class Claiming:
    """Claims in, instances out. `wake` is called for a claim that has got an instance, or lost it."""

    def __init__(
        self,
        desk: Desk,
        counting: Counting,
        log_sizes: Callable[[Instance], dict[str, tuple[int, int]]] = lambda _: {},
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`log_sizes` says how far the log of each container is."""
        self.desk = desk
        self.clock = clock
        self._log_sizes = log_sizes
        desk.parties["Claim"] = self
        self.counting = counting
        desk.on_reset = lambda pool, seconds: counting.was_reset(pool.namespace, pool.name, seconds)
        self.counting.watch(lambda: {(pool.namespace, pool.name): queue for pool, queue in desk.queues.items()})
        self.wanted: ByName[Wanted] = ByName()
        """By the uid of a claim."""
        self._at: dict[str, str] = {}
        """By the uid of a claim, that of the instance that it has; and the other way round."""
        self._by: dict[str, str] = {}
        self.unborn: ByName[Claim] = ByName()
        """Claims that are made when they get an instance at once, and that nobody has heard of before."""
        self.births: dict[str, asyncio.Future[None]] = {}
        """Those of them that have to wait, and are just being written down."""
        self._taken_on: dict[str, str] = {}
        """By the uid of an instance, the claim that its runner has said to have it."""
        self.arrivals: ByName[float] = ByName()
        self._last_arrival = 0
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        """Of claims for a pool that is not there."""
        self.heard = Hearing()
        self.opening = Opening(self)
        self.has_ended = False
        self.wake: Callable[[Key], None] = lambda key: None
        self.on_ended: Callable[[str], None] = lambda uid: None
        """Told of a claim that has no instance any more, by its uid."""

    def begin(self, wake: Callable[[Key], None]) -> Callable[[], None]:
        self.wake = wake
        return self._end

    def _end(self) -> None:
        # What waits goes on waiting: who asks again under its name finds it at its place.
        self.has_ended = True
        for timer in self._timers.values():
            timer.cancel()
        self.heard.close(not_here())

    def prepare(self, context: Context) -> None:
        self.desk.prepare(context)

    @property
    def objects(self) -> Objects:
        assert self.desk.objects is not None
        return self.desk.objects

    def wake_at(self, key: Key, seconds: float) -> None:
        """Have a claim looked at then."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._timers[key] = asyncio.get_running_loop().call_later(seconds, self._wake_now, key)

    def _wake_now(self, key: Key) -> None:
        self._timers.pop(key, None)
        self.wake(key)

    # What the desk asks.

    def knows(self, request: str) -> bool:
        return request in self.wanted

    def restore(self) -> None:
        for instance in cast("list[Instance]", self.objects.list(Instance.api)):
            assigned, owner = instance.spec.assignment, controller_of(instance)
            if assigned is None or assigned.kind != "Claim" or owner is None:
                continue
            claim = self._claim(Key(instance.metadata.namespace, assigned.name), assigned.uid)
            if claim is not None:
                self._take(PoolKey(instance.metadata.namespace, owner.name, owner.kind), claim, instance.metadata.uid)
        for claim in cast("list[Claim]", self.objects.list(Claim.api)):
            status = claim.status
            if status is not None and status.arrival is not None:
                # Whoever comes now comes later, whatever clock it was that those were told by.
                self._last_arrival = max(self._last_arrival, _ticks(status.arrival.timestamp()))
            if status is None or status.phase != "Waiting" or status.arrival is None or claim.metadata.uid in self._at:
                continue
            pool = get(self.objects, WorkerPool, claim.spec.pool_ref.name, claim.metadata.namespace)
            if self.opening.is_absent(claim) or lifecycle.deadline(claim, pool) <= self.clock():
                continue  # Nobody is there who would use an instance.
            if not claim.spec.release and claim.metadata.deletion_timestamp is None:
                wanted = self._wants(claim, pool_of(claim))
                arrived = lifecycle.request(claim, status.arrival.timestamp())
                self.desk.queue(wanted.pool).restore(waiting=[arrived])

    def met(self, member: Member) -> None:
        """Nothing is known of it that is not in the instance."""

    def lost(self, instance: str) -> None:
        uid = self._by.pop(instance, None)
        self._taken_on.pop(instance, None)
        if uid is not None:
            self._at.pop(uid, None)
            self.on_ended(uid)
            known = self.wanted.get(uid)
            if known is not None:
                self.wake(known.key)

    def pool_gone(self, pool: PoolKey) -> None:
        self.counting.forget(pool.namespace, pool.name)

    def settle(self, member: Member, assigned: Assignment) -> None:
        key = Key(member.subject.namespace, assigned.name)
        if assigned.uid in self.unborn:
            return  # It is just being written down.
        if member.report is not None and member.report.holder == assigned.id:
            self._taken_on[member.subject.uid] = assigned.id
        claim = self._claim(key, assigned.uid)
        if claim is None:
            self._give_back(member, assigned)
            return
        self._take(member.pool, claim, member.subject.uid)
        status = claim.status
        is_settled = status is not None and status.phase == "Bound" and status.instance_name == member.subject.name
        is_leaving = member.instance.metadata.deletion_timestamp is not None
        is_well = not is_leaving and not self.is_another_run(member) and not is_restarted_for(member.instance)
        # Somebody may have asked before this instance was known, right after a restart.
        if not is_settled or not is_well or key in self.heard:
            self.wake(key)

    def _take(self, pool: PoolKey, claim: Claim, instance: str) -> None:
        uid = claim.metadata.uid
        if self._at.get(uid) != instance:
            self._at[uid], self._by[instance] = instance, uid
            self._wants(claim, pool)
            self.desk.queue(pool).restore(bound=[(lifecycle.request(claim, 0.0), instance)])

    def _wants(self, claim: Claim, pool: PoolKey) -> Wanted:
        wanted = Wanted(pool, key_of(claim))
        self.wanted.put(claim.metadata.uid, wanted.key, wanted)
        return wanted

    def _claim(self, key: Key, uid: str) -> Claim | None:
        """The claim that has, or waits for, an instance: it is there, and not over."""
        claim = get(self.objects, Claim, key.name, key.namespace)
        if claim is None or claim.metadata.uid != uid or claim.over() or claim.metadata.deletion_timestamp is not None:
            return None
        return claim

    def is_another_run(self, member: Member) -> bool:
        """Whether what runs is not what was claimed: it has ended in between, and was started again."""
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

    # Claims.

    def arrival(self) -> float:
        """When a claim comes to the queue. No two come at once: written down, this is their order."""
        self._last_arrival = max(_ticks(self.clock()), self._last_arrival + 1)
        return self._last_arrival / ARRIVALS_PER_SECOND

    def arrival_of(self, claim: Claim) -> float:
        """When a claim came: what is written down, or what will be."""
        status = claim.status
        if status is not None and status.arrival is not None:
            return status.arrival.timestamp()
        known = self.arrivals.get(claim.metadata.uid)
        if known is None:
            known = self.arrival()
            self.arrivals.put(claim.metadata.uid, key_of(claim), known)
        return known

    def before(self, claim: Claim) -> int | None:
        """How many get an instance before one that waits for it, as things stand. None: it does not wait."""
        queue = self.desk.queues.get(pool_of(claim))
        return queue.view.position(claim.metadata.uid) if queue is not None else None

    def is_full(self, pool: WorkerPool) -> bool:
        """Whether as many wait as may."""
        queue = self.desk.queues.get(PoolKey(pool.metadata.namespace, pool.metadata.name))
        depth = queue.view.depth if queue is not None else 0
        # Who would get one at once does not wait.
        return depth >= pool.spec.queue.limit and (queue is None or not queue.view.free)

    def want(self, claim: Claim, arrival: float) -> None:
        """A claim waits for an instance. Said again, nothing happens."""
        uid = claim.metadata.uid
        if uid in self._at:
            return
        wanted = self._wants(claim, pool_of(claim))
        queue = self.desk.queue(wanted.pool)
        self.desk.carry_out(wanted.pool, [queue.add(lifecycle.request(claim, arrival))])

    def member_of(self, claim: Claim) -> Member | None:
        """The instance that a claim has, as the instance says."""
        member = self.desk.members.get(self._at.get(claim.metadata.uid, ""))
        assigned = member.instance.spec.assignment if member is not None else None
        return member if assigned is not None and assigned.uid == claim.metadata.uid else None

    def is_just_bound(self, claim: Claim) -> bool:
        """Whether it was made with what it wants, and who asked for it is about to hear so."""
        return claim.metadata.uid in self.unborn

    @property
    def is_prepared(self) -> bool:
        return self.desk.objects is not None

    def is_bound_soon(self, claim: Claim) -> bool:
        """Whether it is just being given an instance: it does not wait any more, and has none yet."""
        uid = claim.metadata.uid
        known = self.wanted.get(uid)
        return known is not None and uid not in self._at and not self._is_in_line(known.pool, uid)

    def forget(self, claim: Claim) -> None:
        """A claim is over, or gone: it wants nothing any more, and gives back what it has."""
        uid = claim.metadata.uid
        member = self.member_of(claim)
        self.leave(uid)
        self.opening.forget(key_of(claim))
        if member is not None:
            self.desk.settle(member)

    def gone(self, key: Key) -> None:
        """There is no claim of this name any more."""
        unborn = next(iter(self.unborn.of(key)), "")
        for uid in [uid for uid in self.wanted.of(key) if uid != unborn]:
            member = self.desk.members.get(self._at.get(uid, ""))
            self.leave(uid)
            if member is not None:
                self.desk.settle(member)
        self.opening.forget(key)
        for uid in self.arrivals.of(key):
            if uid != unborn:
                self.arrivals.pop(uid)
        self.heard.gone(key, but=unborn)
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def leave(self, uid: str) -> None:
        wanted = self.wanted.pop(uid)
        instance = self._at.pop(uid, None)
        self.arrivals.pop(uid)
        if wanted is not None and self.opening.orphans.get(wanted.key) == uid:
            del self.opening.orphans[wanted.key]
        if instance is not None:
            self._by.pop(instance, None)
            self.on_ended(uid)
        if wanted is not None and wanted.pool in self.desk.queues:
            self.desk.queues[wanted.pool].cancel(uid)
            self.desk.told(wanted.pool)

    async def end(self, claim: Claim, status: ClaimStatus) -> Claim:
        """A claim is over. With that it gives back what it has, in the same commit where that can be."""
        member = self.member_of(claim)
        ended = msgspec.structs.replace(claim, status=status)
        assert self.desk.client is not None
        written = None
        if member is not None and self._can_give_back(member, claim.metadata.uid):
            written = await self._ended_with(member, ended)
        if written is None:
            written = await self.desk.client.update_status(ended)
            self.forget(written)
        self.counting.ended(written, self.clock())
        self.desk.forget_if_gone(pool_of(written))
        self.told(key_of(claim), written)
        # That this was written is no news to who sees to claims: what is over is kept, and not for ever.
        self.wake(key_of(claim))
        return written

    async def _ended_with(self, member: Member, ended: Claim) -> Claim | None:
        """A claim that is over, with what it had given back; None: there is no such instance any more."""
        try:
            turned = await self._turned(member, ended.metadata.uid, ended)
        except ApiError as error:
            if error.code != NOT_FOUND:
                raise
            return None
        self.leave(ended.metadata.uid)
        self.desk.queue(member.pool).released(member.subject.uid)
        self.desk.settle(member)
        return cast(Claim, turned.ended or ended)

    def _give_back(self, member: Member, assigned: Assignment) -> None:
        """An assignment that nobody has any more."""
        queue = self.desk.queue(member.pool)
        queue.released(member.subject.uid)
        queue.withdraw(member.subject.uid)
        if self._can_give_back(member, assigned.id):
            self.desk.start(self._release(member, assigned.id))

    def _can_give_back(self, member: Member, id_: str) -> bool:
        """Whether an instance can be taken from its holder: what has to make it as new knows that it was held."""
        if not member.has_runner or (member.report is not None and member.report.holder == id_):
            return True
        # Or it was, and what has it now is another run, which began as new.
        known = member.instance.status.assignment if member.instance.status is not None else None
        return (known is not None and known.id == id_ and known.phase == "Done") or self._is_lost(member, id_)

    def _is_lost(self, member: Member, id_: str) -> bool:
        """Whether a runner that had it for somebody has it for nobody now, and has not been told so."""
        report = member.report
        is_taken_on = self._taken_on.get(member.subject.uid) == id_
        return is_taken_on and report is not None and report.phase == "Idle" and not report.holder

    async def _release(self, member: Member, id_: str) -> None:
        if member.is_turning:
            return
        try:
            await self._turned(member, id_, None)
        except ApiError as error:
            await self.desk.not_given_back(member, error)
        else:
            self.desk.settle(member)

    async def _turned(self, member: Member, id_: str, ends: Claim | None) -> Turned:
        """An instance is nobody's any more."""
        member.is_turning = True
        try:
            marks = lifecycle.marks_at_end(member.instance, member.reset, is_lost=self._is_lost(member, id_))
            turned = await self.desk.written(Turn(member.subject, id_, None, ends, marks=marks))
        except BaseException:
            member.is_turning = False
            # What was said of it meanwhile was passed over: that its claim is over, say.
            self.desk.look_again(member)
            raise
        member.is_turning = False
        self._taken_on.pop(member.subject.uid, None)
        member.learn(turned.instance)
        return turned

    # Binding.

    async def bind(self, pool: PoolKey, binding: Binding) -> None:
        try:
            await self._bind(pool, binding)
        except Exception as error:
            log.exception("a claim could not be given an instance")
            self._refuse(pool, binding, ApiError(500, "InternalError", f"it could not be given an instance: {error}"))

    async def _bind(self, pool: PoolKey, binding: Binding) -> None:
        uid = binding.request.id
        if uid in self.births:
            await asyncio.shield(self.births[uid])
        member = self.desk.members.get(binding.instance)
        claim = (self.unborn.get(uid) or self._stored(uid)) if uid in self.wanted else None
        if claim is None or member is None:
            self.unborn.pop(uid)
            self.desk.give_up(pool, binding, is_wanted=claim is not None)
            return
        where = f"WorkerPool/{pool.name}"
        open_ = reach(self.objects, member.instance)
        if open_ and (refused := refusal(self.objects, where, open_, claim)):
            self._refuse(pool, binding, ApiError(403, "Forbidden", f"{refused}; only an admin can claim of it"))
            return
        if not self.desk.is_owned(member) or not member.can_be_had or member.instance.spec.assignment is not None:
            # It has changed since that was decided.
            self._not_bound(pool, uid, self.desk.queue(pool).lost(binding))
            return
        arrival = binding.request.arrival
        came = arrival if isinstance(arrival, float) else 0.0
        now = lifecycle.time_of(self.clock())
        status = lifecycle.bound(claim, member.instance, lifecycle.time_of(came), now)
        begins = msgspec.structs.replace(claim, status=status)
        turn = Turn(
            member.subject,
            None,
            lifecycle.assignment(claim, member.instance, now, self._log_sizes(member.instance)),
            begins=begins,
            is_new=uid in self.unborn,
            marks=lifecycle.marks_at_begin(claim, member.instance),
        )
        try:
            turned = await self.desk.written(turn)
        except ApiError as error:
            self.counting.not_bound(claim, error.code)
            if is_about_claim(error, is_new=turn.is_new):
                self._refuse(pool, binding, error)
                return
            await self.desk.not_written(pool, binding, member, error)
            self._not_bound(pool, uid, [])
            return
        member.learn(turned.instance)
        self.unborn.pop(uid)
        self.arrivals.pop(uid)
        self._at[uid], self._by[member.subject.uid] = member.subject.uid, uid
        begun: Claim = turned.begun or begins
        if not self.desk.queue(pool).confirmed(binding):
            # It was given up meanwhile.
            self.counting.not_bound(claim, 499)
            self.desk.start(self.opening.abandoned(begun))
            return
        self.counting.bound(begun, now.timestamp() - came, self.clock() - now.timestamp())
        if turned.begun is not None and not is_restarted_for(turned.instance):
            self.told(key_of(claim), begun)
        # Until now it was to be looked at when its time to wait is over.
        self.wake(key_of(claim))
        self.desk.drop_if_gone(member)

    def _not_bound(self, pool: PoolKey, uid: str, bindings: list[Binding]) -> None:
        """A race was lost: the claim waits again, and if it was not written down so far, it is."""
        self.desk.carry_out(pool, bindings)
        known = self.wanted.get(uid)
        if known is None:
            self.unborn.pop(uid)
        elif uid not in self.unborn:
            self.wake(known.key)
        elif uid not in self.births and self._is_in_line(pool, uid):
            self.desk.start(self.opening.write_down(uid))

    def _refuse(self, pool: PoolKey, binding: Binding, error: ApiError) -> None:
        """It is the claim that cannot be: whoever asked for it is told so, and the instance is as free as before.

        There is another one of this name, say, or no instance can have what it asks for.
        """
        uid = binding.request.id
        stored, unborn = self._stored(uid), self.unborn.pop(uid)
        self.leave(uid)
        self.desk.carry_out(pool, self.desk.queue(pool).lost(binding, instance_taken=False))
        if unborn is not None:
            self.heard.fail(key_of(unborn), uid, error)
        elif stored is not None:
            self.desk.start(self._failed(stored, error))

    async def _failed(self, claim: Claim, error: ApiError) -> None:
        over = lifecycle.over(claim.status or ClaimStatus(), "Failed", self.clock(), "Invalid", error.message)
        try:
            await self.end(claim, over)
        except ApiError:
            self.wake(key_of(claim))  # It has changed: perhaps it can be had now.

    def _is_in_line(self, pool: PoolKey, uid: str) -> bool:
        queue = self.desk.queues.get(pool)
        return queue is not None and queue.view.waits(uid)

    def _stored(self, uid: str) -> Claim | None:
        known = self.wanted.get(uid)
        claim = self._claim(known.key, uid) if known is not None else None
        return None if claim is None or claim.spec.release else claim

    # For whoever waits for one.

    def told(self, key: Key, claim: Claim) -> None:
        """How a claim stands, for those who wait for it: it has an instance, or it is over."""
        if key in self.heard and (claim.over() or (claim.status is not None and claim.status.phase == "Bound")):
            self.heard.tell(key, claim.metadata.uid, claim)

    def being_made(self, key: Key) -> Claim | None:
        """The claim of this name that is just being made, as it was asked for."""
        return next((self.unborn.get(uid) for uid in self.unborn.of(key)), None)

    def is_usable(self, claim: Claim) -> bool:
        """Whether its holder can go to work."""
        member = self.member_of(claim)
        if member is None or claim.status is None or claim.status.phase != "Bound":
            return False
        status = member.instance.status
        if not is_restarted_for(member.instance):
            return True
        known = status.assignment if status is not None else None
        return known is not None and known.id == claim.metadata.uid and is_ready(member.instance)

    def wait_estimate(self, pool: WorkerPool) -> float:
        """In how many seconds one that comes now may have an instance, by how often one was had lately."""
        return self.desk.wait_estimate(PoolKey(pool.metadata.namespace, pool.metadata.name), time.monotonic())


def is_about_claim(error: ApiError, *, is_new: bool) -> bool:
    """Whether it is the claim that was refused, or what it asks for, and not that something has changed."""
    if error.code == UNPROCESSABLE and error.causes:
        return True
    if not is_new:
        return False
    kind = (error.details or {}).get("kind")
    return error.reason == "AlreadyExists" or (error.code in REFUSED and kind in (Claim.api.name, Claim.api.plural))


def _ticks(seconds: float) -> int:
    return round(seconds * ARRIVALS_PER_SECOND)
