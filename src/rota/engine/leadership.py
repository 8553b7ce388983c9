"""One leader among several processes, by a Lease.

- *One at a time.* A leader believes in itself for less long than the others wait for it: it counts from before it asked
  for its last renewal, they count from after they saw it. Nobody's wall clock matters, only how fast clocks go.
- *A pause is a loss.* A process that was stopped and goes on finds `held` false at once, before it has done anything.
- *In seconds.* A released lease is taken at once; that of a dead process, when it has expired.
- *By turns.* Every write replaces exactly what was read: of two that are as fast, one gets a conflict.

What an identity left behind, it may take up at once: no two processes that live may share one. A lease that somebody
deletes is made again by its holder, and those who knew of it wait; only one who never saw it would take it at once.

Never: decides what the leader does, or stops a write that is on its way (each write's precondition does).
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from rota.api import Lease, ObjectMeta
from rota.api.core import LeaseSpec
from rota.client import Client
from rota.engine.clock import Clock, RealClock
from rota.registry import ApiError

log = logging.getLogger(__name__)

LEASE_SECONDS = 6.0
"""How long the others wait for a leader of whom they hear nothing."""
RENEW_SECONDS = 2.0
RETRY_SECONDS = 1.0
"""After something went wrong; at most, since it is jittered."""
MARGIN_SECONDS = 1.0
"""How much earlier than the others a leader gives up: clocks do not go equally fast, and to stop takes a moment."""
RELEASE_SECONDS_MAX = 2.0
RELEASE_TRIES_MAX = 3

NEVER = -math.inf


class Leadership:
    """A candidate for one lease."""

    def __init__(
        self,
        client: Client,
        identity: str,
        *,
        name: str = "rota-controllers",
        namespace: str = "default",
        clock: Clock | None = None,
        lease_seconds: float = LEASE_SECONDS,
        renew_seconds: float = RENEW_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        assert identity, "a candidate has a name"
        assert renew_seconds + MARGIN_SECONDS < lease_seconds, "a lease must outlast its renewal"
        self.identity = identity
        self.name = name
        self.namespace = namespace
        self.holder = ""
        """Who holds it, as last seen; empty when nobody does."""
        self._client = client
        self._clock: Clock = clock or RealClock()
        self._term = lease_seconds - MARGIN_SECONDS
        self._lease_seconds = lease_seconds
        self._renew_seconds = renew_seconds
        self._retry_seconds = retry_seconds
        self._until = NEVER
        self._lease: Lease | None = None
        """What was last seen; none when it was not there."""
        self._record: LeaseSpec | None = None
        """What was last seen in it. It outlives the lease."""
        self._seen_at = NEVER
        """When it was seen to change, or to be gone."""
        self._unsure = False
        """Whether a write of ours may have been carried out without our knowing."""
        self._news = asyncio.Event()
        self._watched = False
        self._trouble = ""

    @property
    def held(self) -> bool:
        """Whether this process leads, and nobody else can."""
        return self._clock.now() < self._until

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Campaign, and run `lead` whenever the lease is held, until it ends by itself.

        When leadership is lost, `lead` is cancelled and waited for; what it raises then is only logged. In the end,
        whatever that was, the lease is released.
        """
        try:
            while True:
                await self._campaign()
                if await self._leading(lead):
                    return
        finally:
            await self._release()

    # Getting it.

    async def _campaign(self) -> None:
        """Returns when the lease is held."""
        watching = asyncio.create_task(self._watch(), name=f"watch of the lease {self.name}")
        heard = False
        try:
            while True:
                self._news.clear()
                try:
                    # Later, an answer would be of no use.
                    async with self._bounded(self._clock.now() + self._term):
                        if not heard:
                            self._observe(await self._read())
                        if self._free_at() <= self._clock.now() and await self._write() and self.held:
                            return
                    self._trouble = ""
                except (ApiError, OSError) as error:
                    self._endure(error)
                # Of what came while we asked, nobody can say which is newer: then ask again.
                heard = not self._news.is_set() and await self._pause(self._next_look_at()) and self._watched
        finally:
            await _stop(watching)

    async def _watch(self) -> None:
        """See changes at once. Without it, a campaign goes on by asking now and then."""
        while True:
            changes = self._client.watch(Lease, namespace=self.namespace, fields=f"metadata.name={self.name}")
            try:
                async for change in changes:
                    if change.object is not None:
                        self._watched = True
                        self._observe(None if change.type == "DELETED" else change.object)
                        self._news.set()
            except (ApiError, OSError) as error:
                log.debug("the watch of the lease %s ended: %s", self.name, error)
            finally:
                if self._watched:
                    self._watched = False
                    self._news.set()
                await changes.aclose()  # type: ignore[attr-defined]
            await self._sleep(self._again())

    def _free_at(self) -> float:
        """When the lease may be taken."""
        if self._record is None:
            return NEVER
        if self._lease is None:
            # Somebody has deleted it: who held it is still to find out, and makes it again.
            return self._seen_at + self._lease_seconds
        if self._record.holder_identity in (None, "", self.identity):
            return NEVER
        return self._seen_at + (self._record.lease_duration_seconds or self._lease_seconds)

    def _next_look_at(self) -> float:
        free_at, again = self._free_at(), self._again()
        if free_at <= self._clock.now():
            return again
        return free_at if self._watched else min(free_at, again)

    # Keeping it.

    async def _leading(self, lead: Callable[[], Awaitable[None]]) -> bool:
        """Run `lead` while the lease is held. Returns whether it ended by itself."""
        log.info("%s leads: it holds the lease %s/%s", self.identity, self.namespace, self.name)
        leading = asyncio.ensure_future(lead())
        keeping = asyncio.create_task(self._keep(), name=f"renewal of the lease {self.name}")
        own_end = False
        try:
            await asyncio.wait((leading, keeping), return_when=asyncio.FIRST_COMPLETED)
            # What goes wrong in one that leads no longer is a consequence, not a failure.
            own_end = leading.done() and (self.held or _error_of(leading) is None)
        finally:
            await _stop(leading, keeping)
            if not own_end and (error := _error_of(leading)) is not None:
                log.warning("what %s led ended with an error as it led no longer: %r", self.identity, error)
        if own_end:
            leading.result()
            return True
        if keeping.done() and not keeping.cancelled():
            keeping.result()
        log.warning("%s leads no longer; last seen with the lease: %s", self.identity, self.holder or "nobody")
        return False

    async def _keep(self) -> None:
        """Renew until leadership is lost."""
        due = self._clock.now() + self._renew_seconds
        while True:
            until = self._until
            await self._sleep(min(due, until))
            began = self._clock.now()
            if began >= until:
                break
            due = began + self._renew_seconds
            again = self._again()
            try:
                # One that hangs leaves time for another.
                async with self._bounded(max(until - self._retry_seconds, min(again, until))):
                    if not await self._renew():
                        due = again
                self._trouble = ""
            except (ApiError, OSError) as error:
                self._endure(error)
                due = again
            # A lapse is a loss, also where nobody has used it: somebody may have been told that we do not lead.
            if self._clock.now() >= until:
                break
        self._until = NEVER

    async def _renew(self) -> bool:
        if await self._write():
            return True
        self._observe(await self._read())
        if self.holder in ("", self.identity):
            return await self._write()
        self._until = NEVER
        return False

    async def _release(self) -> None:
        """Let the next one in at once. If that fails it comes in later, when the lease has expired."""
        self._until = NEVER
        try:
            async with self._bounded(self._clock.now() + RELEASE_SECONDS_MAX):
                for _ in range(RELEASE_TRIES_MAX):
                    if self._unsure:
                        self._observe(await self._read())
                    if self._lease is None or self.holder != self.identity:
                        return
                    try:
                        self._observe(await self._client.update(self._written("")))
                        return
                    except ApiError as error:
                        if error.code != 409:
                            raise
                        self._unsure = True
        except (ApiError, OSError) as error:
            log.warning("the lease %s/%s could not be released: %r", self.namespace, self.name, error)

    # The lease itself.

    async def _read(self) -> Lease | None:
        try:
            return await self._client.get(Lease, self.name, namespace=self.namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    async def _write(self) -> bool:
        """Be the holder, from what was last seen. False: it has changed since."""
        there, sent_at = self._lease is not None, self._clock.now()
        ours = self._written(self.identity)
        self._unsure = True
        try:
            written = await (self._client.update(ours) if there else self._client.create(ours))
        except ApiError as error:
            self._unsure = error.code >= 500
            if error.code == 409:
                return False
            # Servers say in more than one way that what is to be replaced is gone.
            if there and error.code < 500 and await self._read() is None:
                return False
            raise
        self._unsure = False
        self._observe(written)
        self._until = sent_at + self._term
        return True

    def _written(self, holder: str) -> Lease:
        """The lease with this holder, as it is to be written."""
        now = datetime.fromtimestamp(self._clock.time(), UTC)
        was = self._record or LeaseSpec(lease_transitions=-1)
        if now == was.renew_time:
            # A renewal that changes nothing is none: the others would not see it.
            now += timedelta(microseconds=1)
        said: dict[str, Any] = {"holder_identity": holder, "renew_time": now}
        if holder:
            said["lease_duration_seconds"] = math.ceil(self._lease_seconds)
        if holder and holder != was.holder_identity:
            said |= {"acquire_time": now, "lease_transitions": (was.lease_transitions or 0) + 1}
        spec = msgspec.structs.replace(was, **said)
        if self._lease is None:
            return Lease(metadata=ObjectMeta(name=self.name, namespace=self.namespace), spec=spec)
        return msgspec.structs.replace(self._lease, spec=spec)

    def _observe(self, lease: Lease | None) -> None:
        record = None if lease is None else lease.spec or LeaseSpec()
        if (lease is None) != (self._lease is None) or (record is not None and record != self._record):
            self._seen_at = self._clock.now()
        self._lease = lease
        self._record = record or self._record
        self.holder = (record and record.holder_identity) or ""

    # Waiting.

    def _again(self) -> float:
        """When to try again, jittered so that candidates do not go in step."""
        return self._clock.now() + self._retry_seconds * random.uniform(0.5, 1.0)

    def _endure(self, error: ApiError | OSError) -> None:
        """Go on after what may pass; raise what will not."""
        if isinstance(error, ApiError) and error.code not in (409, 429) and error.code < 500:
            raise error
        trouble = str(error) or "no answer in time"
        level = logging.DEBUG if trouble == self._trouble else logging.WARNING
        log.log(level, "the lease %s/%s cannot be had: %s", self.namespace, self.name, trouble)
        self._trouble = trouble

    @asynccontextmanager
    async def _bounded(self, until: float) -> AsyncIterator[None]:
        """Ends what is in it with a TimeoutError when that time has come."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(None) as bound:
            if until <= self._clock.now():
                bound.reschedule(loop.time())
                yield
                return
            timer = self._clock.call_at(until, lambda: bound.reschedule(loop.time()))
            try:
                yield
            finally:
                timer.cancel()

    async def _pause(self, until: float) -> bool:
        """Wait for news, or until then. Returns whether there are news."""
        with suppress(TimeoutError):
            async with self._bounded(until):
                return await self._news.wait()
        return False

    async def _sleep(self, until: float) -> None:
        with suppress(TimeoutError):
            async with self._bounded(until):
                await asyncio.get_running_loop().create_future()


def _error_of(task: asyncio.Future[None]) -> BaseException | None:
    return task.exception() if task.done() and not task.cancelled() else None


async def _stop(*tasks: asyncio.Future[None]) -> None:
    """Cancel tasks, and wait until they are gone, even when cancelled meanwhile."""
    for task in tasks:
        task.cancel()
    interrupted: asyncio.CancelledError | None = None
    while pending := [task for task in tasks if not task.done()]:
        try:
            await asyncio.wait(pending)
        except asyncio.CancelledError as cancel:
            interrupted = cancel
            for task in pending:
                task.cancel()
    if interrupted is not None:
        raise interrupted
