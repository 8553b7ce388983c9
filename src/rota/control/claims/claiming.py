"""Which instance is whose. Everything it knows can be found again in objects.

The id of an assignment is the uid of its claim. What a claim that is over, or gone, still has is given back: at once,
or, where a runner has to make the instance as new, when that has heard of the hold that ends.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import msgspec

from rota.api import Claim, Instance, WorkerPool
from rota.api.instance import Assignment
from rota.api.pool import ClaimStatus
from rota.client import Key
from rota.control.claims import lifecycle
from rota.control.claims.counting import Counting
from rota.control.holds.desk import LOST_RACE, Desk
from rota.control.holds.members import Member, PoolKey
from rota.control.holds.options import is_restarted_for, options_of, run_of
from rota.control.holds.turns import Turn, creation
from rota.control.instances.names import controller_of
from rota.control.instances.reasons import is_ready
from rota.engine import Context
from rota.engine.objects import Objects, get
from rota.pools import Binding
from rota.registry import ApiError

ARRIVAL_STEP_SECONDS = 1e-6


class Wanted(NamedTuple):
    """A claim that wants an instance, or has one."""

    pool: PoolKey
    key: Key


class Claiming:
    """Claims in, instances out. `wake` is called for a claim that has got an instance, or lost it."""

    def __init__(
        self, desk: Desk, counting: Counting, log_sizes: Callable[[Instance], dict[str, tuple[int, int]]] = lambda _: {}
    ) -> None:
        """`log_sizes` says how far the log of each container is."""
        self._desk = desk
        self._log_sizes = log_sizes
        desk.parties["Claim"] = self
        self.counting = counting
        self.counting.watch(lambda: {(pool.namespace, pool.name): queue for pool, queue in desk.queues.items()})
        self._wanted: dict[str, Wanted] = {}
        """By the uid of a claim."""
        self._at: dict[str, str] = {}
        """By the uid of a claim, that of the instance that it has; and the other way round."""
        self._by: dict[str, str] = {}
        self._unborn: dict[str, Claim] = {}
        """Claims that are made when they get an instance at once, and that nobody has heard of before."""
        self._births: dict[str, asyncio.Future[None]] = {}
        """Those of them that have to wait, and are just being written down."""
        self._unwanted: set[str] = set()
        self._arrivals: dict[str, float] = {}
        self._last_arrival = 0.0
        self._heard: dict[Key, list[asyncio.Future[Claim | None]]] = {}
        self.wake: Callable[[Key], None] = lambda key: None
        self.on_ended: Callable[[str], None] = lambda uid: None
        """Told of a claim that has no instance any more, by its uid."""

    def begin(self, wake: Callable[[Key], None]) -> Callable[[], None]:
        self.wake = wake
        return self._end

    def _end(self) -> None:
        for futures in self._heard.values():
            for future in futures:
                future.cancel()

    def prepare(self, context: Context) -> None:
        self._desk.prepare(context.client, context.objects, context.memory)

    @property
    def _objects(self) -> Objects:
        assert self._desk.objects is not None
        return self._desk.objects

    # What the desk asks.

    def knows(self, request: str) -> bool:
        return request in self._wanted

    def restore(self) -> None:
        for instance in cast("list[Instance]", self._objects.list(Instance.api)):
            assigned, owner = instance.spec.assignment, controller_of(instance)
            if assigned is None or assigned.kind != "Claim" or owner is None:
                continue
            claim = self._claim(Key(instance.metadata.namespace, assigned.name), assigned.uid)
            if claim is not None:
                self._take(PoolKey(instance.metadata.namespace, owner.name, owner.kind), claim, instance.metadata.uid)
        for claim in cast("list[Claim]", self._objects.list(Claim.api)):
            status = claim.status
            if status is None or status.phase != "Waiting" or status.arrival is None or claim.metadata.uid in self._at:
                continue
            if not claim.spec.release and claim.metadata.deletion_timestamp is None:
                wanted = self._wanted[claim.metadata.uid] = Wanted(_pool(claim), _key(claim))
                arrived = lifecycle.request(claim, status.arrival.timestamp())
                self._desk.queue(wanted.pool).restore(waiting=[arrived])

    def met(self, member: Member) -> None:
        """Nothing is known of it that is not in the instance."""

    def lost(self, instance: str) -> None:
        uid = self._by.pop(instance, None)
        if uid is not None:
            self._at.pop(uid, None)
            known = self._wanted.get(uid)
            if known is not None:
                self.wake(known.key)

    def settle(self, member: Member, assigned: Assignment) -> None:
        key = Key(member.subject.namespace, assigned.name)
        if assigned.uid in self._unborn:
            return  # It is just being written down.
        claim = self._claim(key, assigned.uid)
        if claim is None:
            self._give_back(member, assigned)
            return
        self._take(member.pool, claim, member.subject.uid)
        status = claim.status
        is_settled = status is not None and status.phase == "Bound" and status.instance_name == member.subject.name
        if not is_settled or self.is_another_run(member.instance) or member.instance.metadata.deletion_timestamp:
            self.wake(key)

    def _take(self, pool: PoolKey, claim: Claim, instance: str) -> None:
        uid = claim.metadata.uid
        if self._at.get(uid) != instance:
            self._at[uid], self._by[instance] = instance, uid
            self._wanted[uid] = Wanted(pool, _key(claim))
            self._desk.queue(pool).restore(bound=[(lifecycle.request(claim, 0.0), instance)])

    def _claim(self, key: Key, uid: str) -> Claim | None:
        """The claim that has, or waits for, an instance: it is there, and not over."""
        claim = get(self._objects, Claim, key.name, key.namespace)
        if claim is None or claim.metadata.uid != uid or claim.over() or claim.metadata.deletion_timestamp is not None:
            return None
        return claim

    @staticmethod
    def is_another_run(instance: Instance) -> bool:
        """Whether what runs is not what was claimed: it has ended in between, and was started again."""
        options = options_of(instance)
        if is_restarted_for(instance):
            known = instance.status.assignment if instance.status is not None else None
            assigned = instance.spec.assignment
            # It is what it was started anew for that was claimed.
            return bool(known and assigned and known.id == assigned.id and known.phase == "Done")
        return options.run != run_of(instance)

    # Claims.

    def arrival(self) -> float:
        """When a claim comes to the queue. No two come at once: written down, this is their order."""
        self._last_arrival = max(time.time(), self._last_arrival + ARRIVAL_STEP_SECONDS)
        return self._last_arrival

    def is_full(self, pool: WorkerPool) -> bool:
        """Whether as many wait as may."""
        queue = self._desk.queues.get(PoolKey(pool.metadata.namespace, pool.metadata.name))
        return queue is not None and queue.view.depth >= pool.spec.queue.limit

    def want(self, claim: Claim, arrival: float) -> None:
        """A claim waits for an instance. Said again, nothing happens."""
        uid = claim.metadata.uid
        if uid in self._at:
            return
        wanted = self._wanted[uid] = Wanted(_pool(claim), _key(claim))
        queue = self._desk.queue(wanted.pool)
        self._desk.carry_out(wanted.pool, [queue.add(lifecycle.request(claim, arrival))])

    def member_of(self, claim: Claim) -> Member | None:
        """The instance that a claim has, as the instance says."""
        member = self._desk.members.get(self._at.get(claim.metadata.uid, ""))
        assigned = member.instance.spec.assignment if member is not None else None
        return member if assigned is not None and assigned.uid == claim.metadata.uid else None

    @property
    def is_prepared(self) -> bool:
        return self._desk.objects is not None

    def is_bound_soon(self, claim: Claim) -> bool:
        """Whether it is just being given an instance: it does not wait any more, and has none yet."""
        uid = claim.metadata.uid
        known = self._wanted.get(uid)
        return known is not None and uid not in self._at and not self._is_in_line(known.pool, uid)

    def forget(self, claim: Claim) -> None:
        """A claim is over, or gone: it wants nothing any more, and gives back what it has."""
        uid = claim.metadata.uid
        member = self.member_of(claim)
        self._leave(uid)
        if member is not None:
            self._desk.settle(member)

    def gone(self, key: Key) -> None:
        """There is no claim of this name any more."""
        for uid in [uid for uid, wanted in self._wanted.items() if wanted.key == key and uid not in self._unborn]:
            member = self._desk.members.get(self._at.get(uid, ""))
            self._leave(uid)
            if member is not None:
                self._desk.settle(member)
        self.told(key, None)

    def _leave(self, uid: str) -> None:
        wanted = self._wanted.pop(uid, None)
        instance = self._at.pop(uid, None)
        self._arrivals.pop(uid, None)
        if instance is not None:
            self._by.pop(instance, None)
            self.on_ended(uid)
        if wanted is not None and wanted.pool in self._desk.queues:
            self._desk.queues[wanted.pool].cancel(uid)
            self._desk.told(wanted.pool)

    async def end(self, claim: Claim, status: ClaimStatus) -> Claim:
        """A claim is over. With that it gives back what it has, in the same commit where that can be."""
        member = self.member_of(claim)
        ended = msgspec.structs.replace(claim, status=status)
        assert self._desk.client is not None
        if member is None or not _can_give_back(member, claim.metadata.uid):
            written = await self._desk.client.update_status(ended)
            self.counting.ended(written, time.time())
            self.forget(written)
            return written
        member.is_turning = True
        try:
            marks = lifecycle.marks_at_end(member.instance, member.reset)
            turn = Turn(member.subject, claim.metadata.uid, None, ended, labels=marks[0], annotations=marks[1])
            turned = await self._desk.written(turn)
        finally:
            member.is_turning = False
        member.instance = turned.instance
        self._leave(claim.metadata.uid)
        self.counting.ended(ended, time.time())
        self._desk.queue(member.pool).released(member.subject.uid)
        self._desk.settle(member)
        return cast(Claim, turned.ended or ended)

    def _give_back(self, member: Member, assigned: Assignment) -> None:
        """An assignment that nobody has any more."""
        queue = self._desk.queue(member.pool)
        queue.released(member.subject.uid)
        queue.withdraw(member.subject.uid)
        if _can_give_back(member, assigned.id):
            self._desk.start(self._release(member, assigned.id))

    async def _release(self, member: Member, id_: str) -> None:
        if member.is_turning:
            return
        marks = lifecycle.marks_at_end(member.instance, member.reset)
        member.is_turning = True
        try:
            turned = await self._desk.written(Turn(member.subject, id_, None, labels=marks[0], annotations=marks[1]))
        except ApiError as error:
            if error.code not in LOST_RACE:
                raise
            self._desk.look_again(member)
        else:
            member.instance = turned.instance
        finally:
            member.is_turning = False
        self._desk.settle(member)

    # Binding.

    async def bind(self, pool: PoolKey, binding: Binding) -> None:
        uid = binding.request.id
        if uid in self._births:
            await asyncio.shield(self._births[uid])
        member = self._desk.members.get(binding.instance)
        claim = self._unborn.get(uid) or self._stored(uid)
        if claim is None or member is None:
            self._desk.give_up(pool, binding, is_wanted=claim is not None)
            return
        arrival = binding.request.arrival
        came = arrival if isinstance(arrival, float) else 0.0
        now = lifecycle.time_of(time.time())
        status = lifecycle.bound(claim, member.instance, lifecycle.time_of(came), now)
        begins = msgspec.structs.replace(claim, status=status)
        marks = lifecycle.marks_at_begin(claim, member.instance)
        turn = Turn(
            member.subject,
            None,
            lifecycle.assignment(claim, member.instance, now, self._log_sizes(member.instance)),
            begins=begins,
            is_new=uid in self._unborn,
            labels=marks.labels,
            annotations=marks.annotations,
        )
        try:
            turned = await self._desk.written(turn)
        except ApiError as error:
            self.counting.not_bound(claim, error.code)
            if error.reason == "AlreadyExists":
                self._refuse(pool, binding, claim, error)
                return
            await self._desk.not_written(pool, binding, member, error)
            if uid in self._unborn and uid not in self._births and self._is_in_line(pool, uid):
                self._desk.start(self._write_down(uid))
            return
        member.instance = turned.instance
        self._unborn.pop(uid, None)
        self._arrivals.pop(uid, None)
        self._at[uid], self._by[member.subject.uid] = member.subject.uid, uid
        begun: Claim = turned.begun or begins
        if not self._desk.queue(pool).confirmed(binding):
            # It was given up meanwhile.
            self.counting.not_bound(claim, 499)
            self._abandon(begun)
            return
        self.counting.bound(begun, now.timestamp() - came, time.time() - now.timestamp())
        if turned.begun is None:
            self.wake(_key(claim))
        elif not is_restarted_for(turned.instance):
            self.told(_key(claim), begun)

    def _refuse(self, pool: PoolKey, binding: Binding, claim: Claim, error: ApiError) -> None:
        """There is another claim of this name: whoever asked for this one is told so."""
        self._unborn.pop(claim.metadata.uid, None)
        self._leave(claim.metadata.uid)
        self._desk.carry_out(pool, self._desk.queue(pool).lost(binding, instance_taken=False))
        self._fail(_key(claim), error)

    def _fail(self, key: Key, error: ApiError) -> None:
        for future in self._heard.pop(key, ()):
            if not future.done():
                future.set_exception(error)

    def _is_in_line(self, pool: PoolKey, uid: str) -> bool:
        queue = self._desk.queues.get(pool)
        return queue is not None and queue.view.waits(uid)

    def _stored(self, uid: str) -> Claim | None:
        known = self._wanted.get(uid)
        claim = self._claim(known.key, uid) if known is not None else None
        return None if claim is None or claim.spec.release else claim

    # For whoever waits for one.

    def told(self, key: Key, claim: Claim | None) -> None:
        """How a claim stands, for those who wait for it: it has an instance, it is over, or it is gone."""
        if key in self._heard and (claim is None or claim.over() or (claim.status and claim.status.phase == "Bound")):
            for future in self._heard.pop(key):
                if not future.done():
                    future.set_result(claim)

    def is_opening(self, key: Key) -> bool:
        """Whether a claim of this name is just being made."""
        return any(_key(claim) == key for claim in self._unborn.values()) if self._unborn else False

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

    async def awaited(self, key: Key) -> Claim | None:
        """A claim of which somebody has heard before, as it is once it is settled; None: it is gone."""
        return await self.hear(key)

    def wait_estimate(self, pool: WorkerPool) -> float:
        """In how many seconds one that comes now may have an instance, by how often one was had lately."""
        return self._desk.wait_estimate(PoolKey(pool.metadata.namespace, pool.metadata.name), time.monotonic())

    def hear(self, key: Key) -> asyncio.Future[Claim | None]:
        future: asyncio.Future[Claim | None] = asyncio.get_running_loop().create_future()
        self._heard.setdefault(key, []).append(future)
        return future

    async def open(self, claim: Claim, *, may_wait: bool) -> Claim | None:
        """A claim that nobody has heard of, with a uid that its caller made up: as it is once it is settled.

        It is made together with its hold if an instance is free, else as one that waits; then this returns when it has
        one, or is over. None: there is none, and it may not wait. Whoever is cancelled here leaves nothing behind.
        """
        uid, key, pool = claim.metadata.uid, _key(claim), _pool(claim)
        self._wanted[uid], self._unborn[uid] = Wanted(pool, key), claim
        heard = self.hear(key)
        arrival = self._arrivals[uid] = self.arrival()
        binding = self._desk.queue(pool).add(lifecycle.request(claim, arrival))
        if binding is None and not may_wait:
            self._drop(uid)
            return None
        try:
            if binding is not None:
                self._desk.carry_out(pool, [binding])
            else:
                self._desk.told(pool)
                self._desk.start(self._write_down(uid))
            return await heard
        except asyncio.CancelledError:
            self._cancel(uid, key)
            raise

    def _drop(self, uid: str) -> None:
        claim = self._unborn.pop(uid, None)
        self._leave(uid)
        if claim is not None:
            self._heard.pop(_key(claim), None)

    async def _write_down(self, uid: str) -> None:
        """A claim has to wait: it has its place from now on, whatever happens."""
        claim, client = self._unborn[uid], self._desk.client
        assert client is not None
        born = self._births[uid] = asyncio.get_running_loop().create_future()
        arrival = lifecycle.time_of(self._arrivals.pop(uid, time.time()))
        status = lifecycle.waiting(claim.status or ClaimStatus(), arrival)
        try:
            (written,) = await client.batch([creation(msgspec.structs.replace(claim, status=status))], typed=True)
        except ApiError as error:
            self._leave(uid)
            self._fail(_key(claim), error)
            return
        finally:
            self._unborn.pop(uid, None)
            del self._births[uid]
            born.set_result(None)
        if uid in self._unwanted:
            self._unwanted.discard(uid)
            await self._remove(written)

    def _cancel(self, uid: str, key: Key) -> None:
        """Who asked for a claim is gone before it was answered."""
        claim = get(self._objects, Claim, key.name, key.namespace)
        if any(not future.done() for future in self._heard.get(key, ())):
            return  # Somebody else has asked for the same, and waits for it.
        if uid in self._births:
            self._unwanted.add(uid)
            self._leave(uid)
        elif uid in self._unborn:
            # If it is being given an instance, that is given back when it is known.
            self._leave(uid)
        elif claim is not None and claim.metadata.uid == uid and not claim.over():
            self._desk.start(self._remove(claim))

    async def _remove(self, claim: Claim) -> None:
        """A claim that nobody waits for any more: as if it had never been, unless it has got an instance."""
        if self.member_of(claim) is not None:
            await self._abandoned(claim)
            return
        assert self._desk.client is not None
        kind: Any = Claim
        meta = claim.metadata
        try:
            await self._desk.client.delete(kind, meta.name, namespace=meta.namespace, uid=meta.uid)
        except ApiError as error:
            if error.code not in LOST_RACE:
                raise

    def _abandon(self, claim: Claim) -> None:
        """Nobody knows of a hold, or wants it."""
        self._desk.start(self._abandoned(claim))

    async def _abandoned(self, claim: Claim) -> None:
        status = claim.status or ClaimStatus()
        await self.end(claim, lifecycle.over(status, "Released", time.time(), "Cancelled", "who asked for it is gone"))


def _can_give_back(member: Member, id_: str) -> bool:
    """Whether an instance can be taken from its holder: what has to make it as new knows that it was held."""
    return not member.has_runner or (member.report is not None and member.report.holder == id_)


def _pool(claim: Claim) -> PoolKey:
    return PoolKey(claim.metadata.namespace, claim.spec.pool_ref.name)


def _key(claim: Claim) -> Key:
    return Key(claim.metadata.namespace, claim.metadata.name)
