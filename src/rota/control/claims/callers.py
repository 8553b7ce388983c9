"""Callers that ask for an instance and wait for the answer: each gets one claim, or leaves nothing behind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from rota.api import Claim
from rota.api.pool import ClaimStatus
from rota.client import Key
from rota.control.claims import lifecycle
from rota.control.claims.lifecycle import key_of, pool_of
from rota.control.claims.listeners import Listener, Listeners
from rota.control.holds.binder import LOOK_AGAIN_SECONDS, LOST_RACE, RETRY_SECONDS
from rota.control.holds.handover import HandOver, Result
from rota.control.holds.writes import not_here
from rota.engine.clock import sleep
from rota.engine.objects import get
from rota.pools import State
from rota.registry import ApiError

if TYPE_CHECKING:
    from rota.control.claims.holds import ClaimHolds

log = logging.getLogger(__name__)

ABANDON_TRIES_MAX = 10
RETURN_SECONDS_MAX = 30.0
"""The maker of a claim may stay away for so long after a restart. Clients look for a server for half as long."""
NOT_FOUND = 404


class Callers:
    """The callers that wait for the answer about a claim."""

    def __init__(self, holds: ClaimHolds) -> None:
        self._holds = holds
        self._executor = holds.executor
        self._listeners = Listeners()
        self._births: dict[str, asyncio.Future[None]] = {}
        """Claims that have to wait, and are just being created."""
        self._unwanted: set[str] = set()
        """Claims that nobody wants any more, and that are just being created."""
        self._orphans: dict[Key, str] = {}
        """Claims whose caller has gone while somebody else waits for the same."""
        self._absent_since: dict[Key, tuple[str, float]] = {}
        """Claims that are not to be bound while nobody waits for them: the uid, and since when nobody does."""
        self._is_closed = False

    def close(self) -> None:
        # What waits goes on waiting: whoever asks again under its name finds it at its place.
        self._is_closed = True
        self._listeners.close(not_here())

    def __len__(self) -> int:
        return len(self._listeners)

    def __contains__(self, key: Key) -> bool:
        """Report whether somebody waits for a claim of this name."""
        return key in self._listeners

    def fail(self, claim: Claim, error: ApiError) -> None:
        """Answer those that wait for a claim that it cannot be."""
        self._listeners.fail(key_of(claim), claim.metadata.uid, error)

    def gone(self, key: Key, but: str) -> None:
        """Answer that there is no claim of this name, but not to who has just asked for the one of this uid."""
        self._absent_since.pop(key, None)
        self._listeners.gone(key, but=but)

    def dropped(self, key: Key, uid: str) -> None:
        """A claim wants nothing any more."""
        if self._orphans.get(key) == uid:
            del self._orphans[key]

    def over(self, key: Key) -> None:
        """A claim is over, or gone."""
        self._absent_since.pop(key, None)

    def being_stored(self, uid: str) -> asyncio.Future[None] | None:
        """Return the future of the creation of a claim that has to wait, if it is just being created."""
        return self._births.get(uid)

    def answer(self, key: Key, claim: Claim) -> None:
        """Answer those that wait for a claim, if it has an instance or is over."""
        if key in self._listeners and (claim.over() or (claim.status is not None and claim.status.phase == "Bound")):
            self._listeners.answer(key, claim.metadata.uid, claim)

    def being_made(self, key: Key) -> Claim | None:
        """Return the claim of this name that is just being created, as it was asked for."""
        return next((self._holds.unborn.get(uid) for uid in self._holds.unborn.of(key)), None)

    def is_absent(self, claim: Claim) -> bool:
        """Report whether a claim is not to be bound for now: its maker waited for it on a connection that is gone.

        So it is after a restart. A maker that is alive asks again under the same name; until then the claim keeps its
        place, and others are served.
        """
        uid = claim.metadata.uid
        if not lifecycle.is_attended(claim) or uid in self._holds.unborn or uid in self._births:
            return False
        return not self._listeners.is_awaited(key_of(claim), uid)

    def absent_seconds_left(self, claim: Claim) -> float | None:
        """Return how long the maker of a waiting claim may stay away; None: they are there."""
        uid, key = claim.metadata.uid, key_of(claim)
        if not self.is_absent(claim):
            self._absent_since.pop(key, None)
            return None
        now = self._holds.now()
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
            self._orphans[key] = claim.metadata.uid
            self._holds.wake(key)
        listener = self._listeners.join(key)
        try:
            found = await listener.future
        except asyncio.CancelledError:
            self._listeners.leave(key, listener)
            if key in self._orphans and not self._listeners.is_awaited(key, self._orphans[key]):
                self._let_go(self._orphans.pop(key), key)
            raise
        self._orphans.pop(key, None)
        return found

    async def open(self, claim: Claim, *, may_wait: bool) -> Claim | None:
        """Create a claim, with a uid that its caller made up, and wait until it has an instance or is over.

        It is created together with its hold if an instance is free, else as waiting. None: nothing is free, and it may
        not wait. A caller that is cancelled here leaves nothing behind.
        """
        if not self._executor.is_prepared or self._is_closed:
            raise not_here()
        client = self._executor.client
        if not (client.atomic and client.in_process):
            return await self._open_in_steps(claim, may_wait=may_wait)
        uid, key, pool = claim.metadata.uid, key_of(claim), pool_of(claim)
        arrival, ledger = self._holds.arrivals.next(), self._executor.ledger(pool)
        state = ledger.request(lifecycle.request(claim, arrival))
        if state is State.WAITING and not may_wait:
            ledger.cancel(uid)
            self._executor.carry_out(pool)
            return None
        self._holds.wanted.put(uid, key, pool)
        self._holds.unborn.put(uid, key, claim)
        self._holds.arrivals.put(uid, key, arrival)
        listener = self._listeners.join(key, uid)
        try:
            self._executor.carry_out(pool)
            if state is State.WAITING:
                self.write_waiting(uid)
            return await listener.future
        except asyncio.CancelledError:
            self._cancelled(uid, key, listener)
            raise

    async def _open_in_steps(self, claim: Claim, *, may_wait: bool) -> Claim | None:
        """Create a claim first, where it and its hold cannot be written together; it gets its uid there."""
        key, client = key_of(claim), self._executor.client
        if not may_wait and not self._executor.ledger(pool_of(claim)).free:
            self._executor.carry_out(pool_of(claim))
            return None
        listener = self._listeners.join(key)
        metadata = msgspec.structs.replace(claim.metadata, uid="")
        making = asyncio.ensure_future(client.create(msgspec.structs.replace(claim, metadata=metadata)))
        try:
            made = await asyncio.shield(making)
        except asyncio.CancelledError:
            self._listeners.leave(key, listener)
            self._executor.start(self._unmade(making))
            raise
        except Exception:
            self._listeners.leave(key, listener)
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
        except (ApiError, OSError):
            return  # If it is there all the same, nobody waits for it, and its lease is not renewed.
        await self._remove(made)

    def write_waiting(self, uid: str) -> None:
        """Create a claim that has to wait: it keeps its place from now on, whatever happens."""
        claim = self._holds.unborn.get(uid)
        if claim is None or uid not in self._holds.wanted:
            self._holds.unborn.pop(uid)
            return
        self._births[uid] = asyncio.get_running_loop().create_future()
        arrival = self._holds.arrivals.when(claim)
        status = lifecycle.waiting(claim.status or ClaimStatus(), lifecycle.time_of(arrival))
        waits = HandOver(begins=msgspec.structs.replace(claim, status=status), is_new=True)
        self._executor.writes.add(lambda: waits, partial(self._waits, claim))

    def _waits(self, claim: Claim, _: HandOver, result: Result) -> None:
        uid = claim.metadata.uid
        self._holds.unborn.pop(uid)
        self._births.pop(uid).set_result(None)
        is_unwanted = uid in self._unwanted
        self._unwanted.discard(uid)
        if isinstance(result, ApiError):
            self._holds.drop(uid)
            self._listeners.fail(key_of(claim), uid, result)
        elif is_unwanted:
            self._executor.start(self._remove(result.begun))

    def _cancelled(self, uid: str, key: Key, listener: Listener, made: Claim | None = None) -> None:
        """The caller of a claim left before it was answered."""
        answer = listener.future
        if answer.done() and not answer.cancelled() and answer.exception() is None:
            made = answer.result() or made
        self._listeners.leave(key, listener)
        if self._is_closed:
            return
        if self._listeners.is_awaited(key, uid):
            self._orphans[key] = uid  # Somebody else has asked for the same, and waits for it.
        else:
            self._let_go(uid, key, made)

    def _let_go(self, uid: str, key: Key, made: Claim | None = None) -> None:
        """Drop a claim that was asked for and that nobody wants."""
        claim = get(self._executor.objects, Claim, key.name, key.namespace)
        if claim is None or claim.metadata.uid != uid:
            claim = made
        if uid in self._births:
            self._unwanted.add(uid)
            self._holds.drop(uid)
        elif uid in self._holds.unborn:
            # If it is being given an instance, that is given back when it is written.
            self._holds.drop(uid)
        elif claim is not None and claim.metadata.uid == uid and not claim.over():
            self._executor.start(self._remove(claim))

    async def _remove(self, claim: Claim) -> None:
        """Delete a claim that nobody waits for; if it has got an instance, end it."""
        member = self._holds.member_of(claim)
        if member is not None:
            await self.abandon(claim, member.subject.uid)
            return
        meta, client = claim.metadata, self._executor.client
        await self._until_done(lambda: client.delete(Claim, meta.name, namespace=meta.namespace, uid=meta.uid))

    async def abandon(self, claim: Claim, instance: str) -> None:
        """End a hold that nobody knows of, or wants."""
        client, meta = self._executor.client, claim.metadata
        known = claim

        async def end() -> None:
            nonlocal known
            status = known.status or ClaimStatus()
            over = lifecycle.over(status, "Released", self._holds.now(), "Cancelled", "who asked for it is gone")
            try:
                await self._holds.end(known, over)
            except ApiError:
                found: Claim = await client.get(Claim, meta.name, namespace=meta.namespace)
                if found.metadata.uid == meta.uid and not found.over():
                    known = found
                    raise

        member = self._executor.members.get(instance)
        if member is not None and meta.uid not in self._holds.wanted:
            # It was dropped while its hold was written; by the instance it is still this claim's.
            self._holds.wanted.put(meta.uid, key_of(claim), member.pool)
        await self._until_done(end)
        # If it was gone already, its instance says so still.
        self._holds.forget(claim)
        if member is not None:
            self._executor.update(member)

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
                await sleep(self._executor.clock, seconds)
