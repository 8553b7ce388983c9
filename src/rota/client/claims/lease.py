"""Renew the lease of a claim, and detect its loss."""

from __future__ import annotations

import asyncio
import contextlib
import datetime

from rota.api import Claim
from rota.client.claims.failures import ClaimLost
from rota.client.claims.gateway import AGAIN_SECONDS_FIRST, Gateway
from rota.client.failures import ConnectionFailed
from rota.registry import ApiError

RENEWALS_A_LEASE = 3
"""Renewals per lease. Two may fail before the lease ends."""
DOUBLINGS_MAX = 10
OVER = frozenset((401, 403, 404, 409))
"""Status codes of a server for a claim that is over."""


class Lease:
    """The lease of one claim. It is renewed from the start until `end`."""

    def __init__(self, gateway: Gateway, claim: Claim, *, is_new: bool) -> None:
        """`is_new`: the lease has just begun, so that the first renewal can wait."""
        self._gateway = gateway
        self._name = claim.metadata.name
        self._seconds = float(claim.spec.lease_seconds)
        self._clock = asyncio.get_running_loop().time
        self._lost: tuple[str, str] | None = None
        self.claim = claim
        """The claim in the last answer."""
        self._until = self._clock() + self._seconds
        self._renewing = asyncio.ensure_future(self._renew_on(self._seconds / RENEWALS_A_LEASE if is_new else 0.0))

    @property
    def expires_at(self) -> datetime.datetime | None:
        return self.claim.status.expires_at if self.claim.status is not None else None

    @property
    def is_lost(self) -> bool:
        return self._lost is not None

    def check(self) -> None:
        """Raise ClaimLost if the claim is lost."""
        if self._lost is not None:
            raise ClaimLost(self._name, *self._lost)

    async def look(self) -> None:
        """Ask the server whether the claim is lost. Raises ClaimLost."""
        self.check()
        try:
            self._take(await self._gateway.get(self._name))
        except ApiError as error:
            if error.code == 404:
                self._lose("Gone", "nothing is known of it any more")
        except ConnectionFailed:
            pass  # The caller has an error of its own to raise.
        self.check()

    async def end(self) -> None:
        """Stop renewing."""
        self._renewing.cancel()
        await asyncio.gather(self._renewing, return_exceptions=True)

    async def _renew_on(self, first_seconds: float) -> None:
        often = self._seconds / RENEWALS_A_LEASE
        pause, failures = first_seconds, 0
        while self._lost is None:
            await asyncio.sleep(min(pause, max(0.0, self._until - self._clock())))
            failures = 0 if await self._renewed() else failures + 1
            pause = min(AGAIN_SECONDS_FIRST * 2 ** min(failures, DOUBLINGS_MAX), often) if failures else often

    async def _renewed(self) -> bool:
        asked_at = self._clock()
        if asked_at >= self._until:
            self._lose("Expired", "it could not be renewed in time: the server is out of reach")
            return False
        try:
            async with asyncio.timeout(self._until - asked_at):
                claim = await self._gateway.renew(self._name)
        except ApiError as error:
            if error.code in OVER:
                await self._find_out(error)
            return False
        except (ConnectionFailed, TimeoutError):
            return False
        self._until = asked_at + self._seconds
        self._take(claim)
        return True

    async def _find_out(self, refusal: ApiError) -> None:
        """Determine the reason why the server did not renew the lease."""
        with contextlib.suppress(ClaimLost):
            await self.look()
        if refusal.reason == "ClaimOver" and self._lost is None:
            self._lose("Over", refusal.message)

    def _take(self, claim: Claim) -> None:
        self.claim = claim
        if claim.over():
            status = claim.status
            assert status is not None and status.phase is not None
            self._lose(status.reason or status.phase, status.message or "")

    def _lose(self, why: str, message: str) -> None:
        if self._lost is None:
            self._lost = (why, message)
