"""Callers that ask for an instance and wait for the answer. Each gets one claim, or leaves nothing behind."""

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

CANCEL_TRIES_MAX = 10
RETURN_SECONDS_MAX = 30.0
"""The time in which the caller of a waiting claim has to return after a restart. Clients retry for half as long."""
NOT_FOUND = 404


class Callers:
    """Answers the callers that wait for a claim, and removes the claims of those that leave."""

    def __init__(self, holds: ClaimHolds) -> None:
        self._holds = holds
        self._executor = holds.executor
        self._listeners = Listeners()
        self._creations: dict[str, asyncio.Future[None]] = {}
        """The creations of waiting claims that are under way, by uid."""
        self._cancelled_creations: set[str] = set()
        """The uids of claims whose caller left during their creation. They are removed after that."""
        self._orphans: dict[Key, str] = {}
        """Claims whose own caller left while another one waits for them. They are removed if that one leaves, too."""
        self._absent_since: dict[Key, tuple[str, float]] = {}
        """Waiting claims that lack their caller: the uid, and the time since when."""
        self._is_closed = False

    def close(self) -> None:
        # Waiting claims stay: a caller that asks again under the same name finds its claim at its place.
        self._is_closed = True
        self._listeners.close(not_here())

    def __len__(self) -> int:
        return len(self._listeners)

    def __contains__(self, key: Key) -> bool:
        """Report whether a caller waits for a claim of this name."""
        return key in self._listeners

    def fail(self, claim: Claim, error: ApiError) -> None:
        """Answer the callers of a claim with an error."""
        self._listeners.fail(key_of(claim), claim.metadata.uid, error)

    def gone(self, key: Key, but: str) -> None:
        """Answer the callers of a deleted claim, except those of the claim `but`, a new one of the same name."""
        self._absent_since.pop(key, None)
        self._listeners.gone(key, but=but)

    def forget_orphan(self, key: Key, uid: str) -> None:
        """Forget that a claim has lost its own caller, since the claim is dropped."""
        if self._orphans.get(key) == uid:
            del self._orphans[key]

    def forget_absence(self, key: Key) -> None:
        """Forget since when a claim lacks its caller: it is over, or gone."""
        self._absent_since.pop(key, None)

    def creation_under_way(self, uid: str) -> asyncio.Future[None] | None:
        """Return a future for the creation of a waiting claim; None: it is not under way."""
        return self._creations.get(uid)

    def answer(self, key: Key, claim: Claim) -> None:
        """Answer the callers of a claim if it is bound or over."""
        if key in self._listeners and (claim.over() or (claim.status is not None and claim.status.phase == "Bound")):
            self._listeners.answer(key, claim.metadata.uid, claim)

    def unstored_claim(self, key: Key) -> Claim | None:
        """Return the claim of this name that is being created, in the form in which it was requested."""
        return next((self._holds.unstored.get(uid) for uid in self._holds.unstored.of(key)), None)

    def lacks_caller(self, claim: Claim) -> bool:
        """Report whether a claim must not be bound now: its caller must wait on a connection, and does not.

        After a restart that is so for every such claim. A caller that is alive asks again under the same name; until
        then the claim keeps its place, and others are served.
        """
        uid = claim.metadata.uid
        if not lifecycle.is_attended(claim) or uid in self._holds.unstored or uid in self._creations:
            return False
        return not self._listeners.is_awaited(key_of(claim), uid)

    def return_seconds_left(self, claim: Claim) -> float | None:
        """Return the seconds in which the missing caller of a waiting claim has to return; None: it is not missing."""
        uid, key = claim.metadata.uid, key_of(claim)
        if not self.lacks_caller(claim):
            self._absent_since.pop(key, None)
            return None
        now = self._holds.now()
        known, since = self._absent_since.get(key, ("", now))
        if known != uid:
            since = now
            self._absent_since[key] = (uid, since)
        return max(0.0, since + RETURN_SECONDS_MAX - now)

    async def remove_unattended(self, claim: Claim) -> None:
        """Remove a claim whose caller did not return."""
        meta = claim.metadata
        log.info("claim %s/%s is given up: who asked for it did not come back", meta.namespace, meta.name)
        self._absent_since.pop(key_of(claim), None)
        await self._remove(claim)

    async def wait_for(self, claim: Claim) -> Claim | None:
        """Wait until a stored claim is bound or over, and return it; None: it is gone."""
        key = key_of(claim)
        if self.lacks_caller(claim) and (claim.status is None or claim.status.phase != "Bound"):
            # The new caller takes the place of the missing one: if it leaves, the claim is removed.
            self._orphans[key] = claim.metadata.uid
            self._holds.wake(key)
        listener = self._listeners.join(key)
        try:
            found = await listener.future
        except asyncio.CancelledError:
            self._listeners.leave(key, listener)
            if key in self._orphans and not self._listeners.is_awaited(key, self._orphans[key]):
                self._cancel(self._orphans.pop(key), key)
            raise
        self._orphans.pop(key, None)
        return found

    async def open(self, claim: Claim, *, may_wait: bool) -> Claim | None:
        """Create a claim under a uid chosen by the caller, and wait until it is bound or over.

        The claim is created together with its hold if an instance is free, otherwise as waiting. Returns None if no
        instance is free and the claim may not wait. A caller that is cancelled leaves nothing behind.
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
        self._holds.active.put(uid, key, pool)
        self._holds.unstored.put(uid, key, claim)
        self._holds.arrivals.put(uid, key, arrival)
        listener = self._listeners.join(key, uid)
        try:
            self._executor.carry_out(pool)
            if state is State.WAITING:
                self.write_waiting(uid)
            return await listener.future
        except asyncio.CancelledError:
            self._caller_left(uid, key, listener)
            raise

    async def _open_in_steps(self, claim: Claim, *, may_wait: bool) -> Claim | None:
        """Create a claim, which is bound after that: this backend cannot write both together. It chooses the uid."""
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
            self._executor.start(self._remove_created(making))
            raise
        except Exception:
            self._listeners.leave(key, listener)
            raise
        try:
            return await listener.future
        except asyncio.CancelledError:
            self._caller_left(made.metadata.uid, key, listener, made)
            raise

    async def _remove_created(self, making: asyncio.Future[Claim]) -> None:
        """Remove a claim after its creation, since its caller has left."""
        try:
            made = await making
        except (ApiError, OSError):
            return  # If the claim was created all the same, it ends with its lease, which is not renewed.
        await self._remove(made)

    def write_waiting(self, uid: str) -> None:
        """Create a claim that has to wait. From then on it keeps its place, also after a restart."""
        claim = self._holds.unstored.get(uid)
        if claim is None or uid not in self._holds.active:
            self._holds.unstored.pop(uid)
            return
        self._creations[uid] = asyncio.get_running_loop().create_future()
        arrival = self._holds.arrivals.when(claim)
        status = lifecycle.waiting(claim.status or ClaimStatus(), lifecycle.time_of(arrival))
        waits = HandOver(begins=msgspec.structs.replace(claim, status=status), is_new=True)
        self._executor.writes.add(lambda: waits, partial(self._waits, claim))

    def _waits(self, claim: Claim, _: HandOver, result: Result) -> None:
        uid = claim.metadata.uid
        self._holds.unstored.pop(uid)
        self._creations.pop(uid).set_result(None)
        is_unwanted = uid in self._cancelled_creations
        self._cancelled_creations.discard(uid)
        if isinstance(result, ApiError):
            self._holds.drop(uid)
            self._listeners.fail(key_of(claim), uid, result)
        elif is_unwanted:
            self._executor.start(self._remove(result.begun))

    def _caller_left(self, uid: str, key: Key, listener: Listener, made: Claim | None = None) -> None:
        """Cancel the claim of a caller that left before it was answered, unless another caller waits for it."""
        answer = listener.future
        if answer.done() and not answer.cancelled() and answer.exception() is None:
            made = answer.result() or made
        self._listeners.leave(key, listener)
        if self._is_closed:
            return
        if self._listeners.is_awaited(key, uid):
            self._orphans[key] = uid  # Another caller waits for the same claim.
        else:
            self._cancel(uid, key, made)

    def _cancel(self, uid: str, key: Key, made: Claim | None = None) -> None:
        """Cancel a claim that no caller waits for: its creation, the binding under way, or the stored claim."""
        claim = get(self._executor.objects, Claim, key.name, key.namespace)
        if claim is None or claim.metadata.uid != uid:
            claim = made
        if uid in self._creations:
            self._cancelled_creations.add(uid)
            self._holds.drop(uid)
        elif uid in self._holds.unstored:
            # If its hold is being written, the instance is given back after that.
            self._holds.drop(uid)
        elif claim is not None and claim.metadata.uid == uid and not claim.over():
            self._executor.start(self._remove(claim))

    async def _remove(self, claim: Claim) -> None:
        """Delete a stored claim that no caller waits for, or end it if it has an instance."""
        member = self._holds.member_of(claim)
        if member is not None:
            await self.end_unwanted(claim, member.subject.uid)
            return
        meta, client = claim.metadata, self._executor.client
        await self._until_done(lambda: client.delete(Claim, meta.name, namespace=meta.namespace, uid=meta.uid))

    async def end_unwanted(self, claim: Claim, instance: str) -> None:
        """End a claim with an instance that no caller waits for."""
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
        if member is not None and meta.uid not in self._holds.active:
            # It was dropped while its hold was written, and the instance is still assigned to it.
            self._holds.active.put(meta.uid, key_of(claim), member.pool)
        await self._until_done(end)
        # If the claim was gone already, its instance is still assigned to it.
        self._holds.forget(claim)
        if member is not None:
            self._executor.update(member)

    async def _until_done(self, act: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Try until this succeeds or its object is gone, at most CANCEL_TRIES_MAX times."""
        for _ in range(CANCEL_TRIES_MAX):
            try:
                await act()
                return
            except ApiError as error:
                if error.code == NOT_FOUND:
                    return
                log.info("a claim that nobody wants is dropped once more: %s", error)
                seconds = LOOK_AGAIN_SECONDS if error.code in LOST_RACE else RETRY_SECONDS
                await sleep(self._executor.clock, seconds)
