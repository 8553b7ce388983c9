"""Extends leases through the client, for keepers of earlier releases, too.

A keeper of an earlier release runs on after an upgrade and knows fewer verbs. Either it does what is asked, or the
caller gets a KeeperError. Nothing counts as leased without a lease, and a run whose lease was lifted is not ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from rota.runtime.keeper import protocol
from rota.runtime.keeper.messages import Hello, KeeperError

log = logging.getLogger(__name__)

Extend = Callable[[Mapping[str, float | None], bool], Awaitable[None]]
LIFTED_SECONDS = protocol.STOP_GRACE_SECONDS_MAX
"""The longest lease. A keeper that cannot lift a lease is sent this one again and again instead."""
LIFT_AGAIN_SECONDS = LIFTED_SECONDS / 24


class Leases:
    """Sets leases. Keeps lifted leases from expiring on keepers that cannot lift them. Owns a task: call `close`."""

    def __init__(self, extend: Extend, again_seconds: float = LIFT_AGAIN_SECONDS) -> None:
        """`extend` sends the request; its second argument restricts it to keys without a lease."""
        self._extend = extend
        self._again_seconds = again_seconds
        self._lifted: set[str] = set()
        """Keys whose lease was lifted, on a keeper that cannot lift leases."""
        self._lifting: asyncio.Task[None] | None = None

    @staticmethod
    def check(hello: Hello | None) -> None:
        """Raise KeeperError unless the keeper supports leases."""
        if hello is None or not hello.sets_leases:
            raise KeeperError(
                "TooOld",
                "the keeper that runs was started by an earlier Rota, and does not end in time what a cell may run only"
                " while its hub says so: `rota stop`, then `rota start`, starts a new one",
            )

    async def extend(self, hello: Hello | None, leases: Mapping[str, float | None], *, unleased: bool) -> None:
        if hello is not None and hello.sets_leases:
            self._lifted.clear()
            await self._extend(leases, unleased)
            return
        if unleased:
            self.check(hello)
        # Such a keeper can only extend what was started with a lease, and only by a number.
        lifted = {key for key, seconds in leases.items() if seconds is None}
        try:
            await self._extend({key: LIFTED_SECONDS if key in lifted else each for key, each in leases.items()}, False)
        except KeeperError as error:
            if error.reason != "UnknownVerb":
                raise
            if len(lifted) < len(leases):
                self.check(hello)
            return  # It has no leases that could expire.
        self._lifted = (self._lifted - leases.keys()) | lifted
        if self._lifted and self._lifting is None:
            self._lifting = asyncio.create_task(self._lift_again(), name="leases that an earlier keeper cannot lift")

    def forget(self, key: str) -> None:
        """Drop a key that has ended."""
        self._lifted.discard(key)

    async def _lift_again(self) -> None:
        while True:
            await asyncio.sleep(self._again_seconds)
            try:
                await self._extend(dict.fromkeys(self._lifted, LIFTED_SECONDS), False)
            except KeeperError as error:
                log.warning("leases that were lifted could not be extended: %s", error)

    async def close(self) -> None:
        if self._lifting is not None:
            self._lifting.cancel()
            await asyncio.gather(self._lifting, return_exceptions=True)
            self._lifting = None
