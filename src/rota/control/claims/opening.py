"""A claim that somebody asks for, and waits to be answered: made, heard of, or given up, with nothing left behind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from rota.api import Claim
from rota.api.pool import ClaimStatus
from rota.client import Key
from rota.control.claims import lifecycle
from rota.control.claims.hearing import Listener
from rota.control.claims.named import Wanted, key_of, pool_of
from rota.control.holds.desk import LOOK_AGAIN_SECONDS, LOST_RACE, RETRY_SECONDS
from rota.control.holds.turns import creation
from rota.engine.objects import get
from rota.registry import ApiError

if TYPE_CHECKING:
    from rota.control.claims.claiming import Claiming

log = logging.getLogger(__name__)

ABANDON_TRIES_MAX = 10
RETURN_SECONDS_MAX = 30.0
"""How long the maker of a claim may stay away after a restart. Clients of Rota look for a server for half as long."""
NOT_FOUND = 404


class Opening:
    """For the callers of a gateway. What becomes of claims that are written down is `Claiming`'s."""

    def __init__(self, claims: Claiming) -> None:
        self._claims = claims
        self._unwanted: set[str] = set()
        """Those that nobody wants any more, and that are just being written down."""
        self.orphans: dict[Key, str] = {}
        """Those whose caller has gone while somebody else waits for the same."""
        self._absent_since: dict[Key, tuple[str, float]] = {}
        """Claims that are not to be bound while nobody waits for them: the uid, and since when nobody does."""

    def is_absent(self, claim: Claim) -> bool:
        """Whether a claim is not to be bound for now: its maker waited for it on a connection that is gone.

        So it is after a restart. A maker that is alive asks again under the same name; until then the claim keeps its
        place, and others are served.
        """
        uid = claim.metadata.uid
        if not lifecycle.is_attended(claim) or uid in self._claims.unborn or uid in self._claims.births:
            return False
        return not self._claims.heard.is_heard(key_of(claim), uid)

    def absent_seconds_left(self, claim: Claim) -> float | None:
        """How long the maker of a claim that waits may stay away; None: they are there."""
        uid, key = claim.metadata.uid, key_of(claim)
        if not self.is_absent(claim):
            self.forget(key)
            return None
        now = self._claims.clock()
        known, since = self._absent_since.get(key, ("", now))
        if known != uid:
            since = now
            self._absent_since[key] = (uid, since)
        return max(0.0, since + RETURN_SECONDS_MAX - now)

    def forget(self, key: Key) -> None:
        """A claim is over, or gone, or somebody waits for it."""
        self._absent_since.pop(key, None)

    async def give_up(self, claim: Claim) -> None:
        """Remove a claim whose maker did not come back."""
        meta = claim.metadata
        log.info("claim %s/%s is given up: who asked for it did not come back", meta.namespace, meta.name)
        self.forget(key_of(claim))
        await self._remove(claim)

    async def awaited(self, claim: Claim) -> Claim | None:
        """A claim of which somebody has heard before, as it is once it is settled; None: it is gone."""
        key = key_of(claim)
        if self.is_absent(claim) and (claim.status is None or claim.status.phase != "Bound"):
            # Whoever asks is its maker from now on: if they leave, nobody wants it.
            self.orphans[key] = claim.metadata.uid
            self._claims.wake(key)
        listener = self._claims.heard.join(key)
        try:
            found = await listener.future
        except asyncio.CancelledError:
            self._claims.heard.leave(key, listener)
            if key in self.orphans and not self._claims.heard.is_heard(key, self.orphans[key]):
                self._let_go(self.orphans.pop(key), key)
            raise
        self.orphans.pop(key, None)
        return found

    async def open(self, claim: Claim, *, may_wait: bool) -> Claim | None:
        """A claim that nobody has heard of, with a uid that its caller made up: as it is once it is settled.

        It is made together with its hold if an instance is free, else as one that waits; then this returns when it has
        one, or is over. None: there is none, and it may not wait. Whoever is cancelled here leaves nothing behind.
        """
        client = self._claims.desk.client
        if client is None or self._claims.has_ended:
            raise not_here()
        if not (client.atomic and client.in_process):
            return await self._open_in_steps(claim, may_wait=may_wait)
        uid, key, pool = claim.metadata.uid, key_of(claim), pool_of(claim)
        arrival = self._claims.arrival()
        binding = self._claims.desk.queue(pool).add(lifecycle.request(claim, arrival))
        if binding is None and not may_wait:
            self._claims.desk.queue(pool).cancel(uid)
            self._claims.desk.told(pool)
            return None
        self._claims.wanted.put(uid, key, Wanted(pool, key))
        self._claims.unborn.put(uid, key, claim)
        self._claims.arrivals.put(uid, key, arrival)
        listener = self._claims.heard.join(key, uid)
        try:
            if binding is not None:
                self._claims.desk.carry_out(pool, [binding])
            else:
                self._claims.desk.told(pool)
                self._claims.desk.start(self.write_down(uid))
            return await listener.future
        except asyncio.CancelledError:
            self._cancelled(uid, key, listener)
            raise

    async def _open_in_steps(self, claim: Claim, *, may_wait: bool) -> Claim | None:
        """Where a claim and its hold cannot be made together, it is made first, and gets its uid there."""
        key, queue, client = key_of(claim), self._claims.desk.queue(pool_of(claim)), self._claims.desk.client
        assert client is not None
        if not may_wait and not queue.view.free:
            self._claims.desk.told(pool_of(claim))
            return None
        listener = self._claims.heard.join(key)
        metadata = msgspec.structs.replace(claim.metadata, uid="")
        making = asyncio.ensure_future(client.create(msgspec.structs.replace(claim, metadata=metadata)))
        try:
            made = await asyncio.shield(making)
        except asyncio.CancelledError:
            self._claims.heard.leave(key, listener)
            self._claims.desk.start(self._unmade(making))
            raise
        except ApiError:
            self._claims.heard.leave(key, listener)
            raise
        try:
            return await listener.future
        except asyncio.CancelledError:
            self._cancelled(made.metadata.uid, key, listener, made)
            raise

    async def _unmade(self, making: asyncio.Future[Claim]) -> None:
        """Who asked for a claim is gone before it was there."""
        try:
            made = await making
        except ApiError:
            return
        await self._remove(made)

    async def write_down(self, uid: str) -> None:
        """A claim has to wait: it has its place from now on, whatever happens."""
        claim, client = self._claims.unborn.get(uid), self._claims.desk.client
        assert client is not None
        if claim is None or uid not in self._claims.wanted:
            self._claims.unborn.pop(uid)
            return
        born = self._claims.births[uid] = asyncio.get_running_loop().create_future()
        arrival = self._claims.arrival_of(claim)
        status = lifecycle.waiting(claim.status or ClaimStatus(), lifecycle.time_of(arrival))
        try:
            (written,) = await client.batch([creation(msgspec.structs.replace(claim, status=status))], typed=True)
        except ApiError as error:
            self._unwanted.discard(uid)
            self._claims.leave(uid)
            self._claims.heard.fail(key_of(claim), uid, error)
            return
        finally:
            self._claims.unborn.pop(uid)
            del self._claims.births[uid]
            born.set_result(None)
        if uid in self._unwanted:
            self._unwanted.discard(uid)
            await self._remove(written)

    def _cancelled(self, uid: str, key: Key, listener: Listener, made: Claim | None = None) -> None:
        """Who asked for a claim is gone before it was answered."""
        heard = listener.future
        if heard.done() and not heard.cancelled() and heard.exception() is None:
            made = heard.result() or made
        self._claims.heard.leave(key, listener)
        if self._claims.has_ended:
            return
        if self._claims.heard.is_heard(key, uid):
            self.orphans[key] = uid  # Somebody else has asked for the same, and waits for it.
        else:
            self._let_go(uid, key, made)

    def _let_go(self, uid: str, key: Key, made: Claim | None = None) -> None:
        """Nobody wants a claim that was asked for."""
        claim = get(self._claims.objects, Claim, key.name, key.namespace)
        if claim is None or claim.metadata.uid != uid:
            claim = made
        if uid in self._claims.births:
            self._unwanted.add(uid)
            self._claims.leave(uid)
        elif uid in self._claims.unborn:
            # If it is being given an instance, that is given back when it is known.
            self._claims.leave(uid)
        elif claim is not None and claim.metadata.uid == uid and not claim.over():
            self._claims.desk.start(self._remove(claim))

    async def _remove(self, claim: Claim) -> None:
        """A claim that nobody waits for any more: as if it had never been, unless it has got an instance."""
        if self._claims.member_of(claim) is not None:
            await self.abandoned(claim)
            return
        kind: Any = Claim
        meta = claim.metadata
        client = self._claims.desk.client
        assert client is not None
        await self._until_done(lambda: client.delete(kind, meta.name, namespace=meta.namespace, uid=meta.uid))

    async def abandoned(self, claim: Claim) -> None:
        """Nobody knows of a hold, or wants it."""
        client, meta = self._claims.desk.client, claim.metadata
        assert client is not None
        kind: Any = Claim
        known = claim

        async def end() -> None:
            nonlocal known
            status = known.status or ClaimStatus()
            over = lifecycle.over(status, "Released", self._claims.clock(), "Cancelled", "who asked for it is gone")
            try:
                await self._claims.end(known, over)
            except ApiError:
                found: Claim = await client.get(kind, meta.name, namespace=meta.namespace)
                if found.metadata.uid == meta.uid and not found.over():
                    known = found
                    raise

        await self._until_done(end)
        # If it was gone already, its instance says so still.
        self._claims.forget(claim)

    @staticmethod
    async def _until_done(act: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Whatever comes between. What is gone is done."""
        for _ in range(ABANDON_TRIES_MAX):
            try:
                await act()
                return
            except ApiError as error:
                if error.code == NOT_FOUND:
                    return
                log.info("a claim that nobody wants is let go of once more: %s", error)
                await asyncio.sleep(LOOK_AGAIN_SECONDS if error.code in LOST_RACE else RETRY_SECONDS)


def not_here() -> ApiError:
    return ApiError(
        503,
        "ServiceUnavailable",
        "nobody hands out instances here now: ask again under the same name",
        details={"retryAfterSeconds": 1},
    )
