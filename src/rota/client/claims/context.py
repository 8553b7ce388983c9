"""Open a claim, and release it in any case.

Its name is chosen before anything is sent, so that it can be released whatever becomes of the request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Coroutine
from types import TracebackType
from typing import Any

import msgspec

from rota.client.claims.box import Box
from rota.client.claims.gateway import (
    AGAIN_SECONDS_FIRST,
    AGAIN_SECONDS_MAX,
    AWAY_SECONDS_MAX,
    ClaimAnswer,
    ClaimRequest,
    Gateway,
    retry_while_away,
)
from rota.client.claims.lease import Lease
from rota.client.failures import ConnectionCut, ConnectionFailed, NotConnected
from rota.registry import ApiError

RELEASE_SECONDS_MAX = AWAY_SECONDS_MAX
"""Bound on the seconds spent on a release. After that the lease expires by itself: the server may be restarting."""
LEFT_ALONE = frozenset((401, 403, 404, 409))
"""Status codes for a claim that does not exist, or that this client may not release."""

log = logging.getLogger(__name__)


class ClaimContext:
    """The context manager that `Client.claim` returns. It can be entered once, and yields the instance."""

    def __init__(self, gateway: Gateway, pool: str, wanted: ClaimRequest) -> None:
        """A claim without a name gets one. The gateway's connection is closed at the end."""
        self._gateway = gateway
        self._pool = pool
        self._is_ours = not wanted.name
        self._wanted = wanted if wanted.name else msgspec.structs.replace(wanted, name=new_name())
        self._lease: Lease | None = None
        self._box: Box | None = None
        self._entered = False
        self._leaving = False
        self._unanswered = False
        """True if a request was sent and its answer was lost."""

    @property
    def name(self) -> str:
        """The claim's name, which is known before it is requested."""
        return self._wanted.name

    @property
    def is_held(self) -> bool:
        """True while the instance is held."""
        return self._box is not None

    async def __aenter__(self) -> Box:
        if self._entered:
            raise RuntimeError("a claim is entered once: ask for another one")
        self._entered = True
        opening = asyncio.ensure_future(self._open())
        try:
            answer = await asyncio.shield(opening)
        except BaseException:
            await _finish_although_cancelled(self._undo(opening))
            raise
        self._lease = Lease(self._gateway, answer.claim, is_new=answer.is_new)
        self._box = Box(self._gateway, answer, self._lease)
        return self._box

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await _finish_although_cancelled(self._leave())

    # Asking.

    async def _open(self) -> ClaimAnswer:
        while True:
            try:
                return await self._request()
            except ApiError as error:
                # A server that shuts down releases the claims of connections that it cut.
                if error.reason != "ClaimOver" or not (self._unanswered and self._is_ours) or self._leaving:
                    raise
                self._unanswered = False
                self._wanted = msgspec.structs.replace(self._wanted, name=new_name())

    async def _request(self) -> ClaimAnswer:
        try:
            return await self._ask()
        except ConnectionCut:
            pass
        except ApiError as error:
            if error.code != 503:
                raise
        # The server was reached.
        return await retry_while_away(self._ask)

    async def _ask(self) -> ClaimAnswer:
        try:
            return await self._gateway.open(self._pool, self._wanted)
        except NotConnected:
            raise
        except ConnectionFailed:
            self._unanswered = True
            raise

    async def _undo(self, opening: asyncio.Future[ClaimAnswer]) -> None:
        """Release the claim if it was granted, or may yet be."""
        self._leaving = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RELEASE_SECONDS_MAX):
                pause = AGAIN_SECONDS_FIRST
                while not opening.done():
                    # The request stays open: only its answer shows that it will not be granted later.
                    await self._try_release()
                    await asyncio.wait((opening,), timeout=pause)
                    pause = min(2 * pause, AGAIN_SECONDS_MAX)
        opening.cancel()
        (outcome,) = await asyncio.gather(opening, return_exceptions=True)
        if self._may_be_held(outcome):
            await self._release()
        await self._gateway.backend.close()

    def _may_be_held(self, outcome: object) -> bool:
        if isinstance(outcome, ApiError):
            # After a final answer there is no claim of ours. One of the same name would be somebody else's.
            return self._unanswered and outcome.code >= 500
        return self._unanswered or not isinstance(outcome, NotConnected)

    # Giving back.

    async def _leave(self) -> None:
        box, lease = self._box, self._lease
        assert box is not None and lease is not None
        self._box = None
        await lease.end()
        try:
            if not (box.is_kept or lease.is_lost):
                await self._release()
            elif lease.is_lost:
                # The server may not know yet that it is lost, or may be gone for good.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RELEASE_SECONDS_MAX):
                        await self._try_release()
        finally:
            await box.close()
            await self._gateway.backend.close()

    async def _release(self) -> None:
        pause = AGAIN_SECONDS_FIRST
        try:
            async with asyncio.timeout(RELEASE_SECONDS_MAX):
                while not await self._try_release():
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, AGAIN_SECONDS_MAX)
        except TimeoutError:
            log.warning("%s", self._left_message())

    def _left_message(self) -> str:
        lease = f", at most {self._lease.claim.spec.lease_seconds} s from now" if self._lease is not None else ""
        place = f" -n {self._gateway.namespace}" if self._gateway.namespace != "default" else ""
        return (
            f"the claim {self.name} could not be given back within {RELEASE_SECONDS_MAX:g} s: it ends with its lease"
            f"{lease}; `rota release{place} {self.name}` gives it back sooner"
        )

    async def _try_release(self) -> bool:
        """Send one request. Returns True if nothing is left to do."""
        try:
            await self._gateway.release(self.name)
        except ApiError as error:
            return error.code in LEFT_ALONE
        except ConnectionFailed:
            return False
        return True


def new_name() -> str:
    return f"claim-{secrets.token_hex(8)}"


async def _finish_although_cancelled(work: Coroutine[Any, Any, None]) -> None:
    """Finish work of a bounded duration even if this task is cancelled. The cancellation is raised afterwards."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
    if cancelled is not None:
        task.exception()
        raise cancelled
    task.result()
