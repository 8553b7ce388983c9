"""One leader among several processes, by a Lease.

- *One at a time.* A leader gives up before the others take over: it counts from before it sent
  its last renewal, they count from after they saw it. Wall clocks do not matter, only how fast clocks go.
- *A pause is a loss.* A process that was suspended finds `held` false at once when it resumes.
- *In seconds.* A released lease is taken at once; that of a dead process when it has expired.
- *By precondition.* Every write replaces exactly what was read: of two concurrent ones, one gets a conflict.

A candidate may take a lease of its own identity at once: no two live processes may share one. A lease that somebody
deletes is created again by its holder, and candidates that knew it wait; one that never saw it would take it at once.

Never: decides what the leader does, or stops a write on its way (its precondition does).
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
"""Seconds without a renewal after which others take the lease."""
RENEW_SECONDS = 2.0
RETRY_SECONDS = 1.0
"""Maximum pause after an error; it is jittered."""
MARGIN_SECONDS = 1.0
"""Seconds by which a leader gives up before others take over: clocks differ in speed, and stopping takes time."""
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
        """The holder as last observed; empty if nobody holds the lease."""
        self._client = client
        self._clock: Clock = clock or RealClock()
        self._term = lease_seconds - MARGIN_SECONDS
        self._lease_seconds = lease_seconds
        self._renew_seconds = renew_seconds
        self._retry_seconds = retry_seconds
        self._until = NEVER
        self._lease: Lease | None = None
        """The lease as last observed; None if it did not exist."""
        self._record: LeaseSpec | None = None
        """The last observed spec of the lease. It is kept when the lease is deleted."""
        self._changed_at = NEVER
        """The time at which a change or the deletion of the lease was observed."""
        self._unsure = False
        """True while nobody knows whether a write of this process was carried out."""
        self._news = asyncio.Event()
        self._watched = False
        self._trouble = ""

    @property
    def held(self) -> bool:
        """Report whether this process leads. No other one can while this is True."""
        return self._clock.now() < self._until

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Campaign, and run `lead` whenever the lease is held, until it ends by itself.

        When leadership is lost, `lead` is cancelled and awaited; an error that it raises then is only logged. At the
        end the lease is released in every case.
        """
        try:
            while True:
                await self._campaign()
                if await self._leading(lead):
                    return
        finally:
            await self._release()

    # Acquiring the lease.

    async def _campaign(self) -> None:
        """Wait until the lease is held."""
        watching = asyncio.create_task(self._watch(), name=f"watch of the lease {self.name}")
        is_news = False
        try:
            while True:
                self._news.clear()
                try:
                    # A later answer would be useless.
                    async with self._bounded(self._clock.now() + self._term):
                        if not is_news:
                            self._observe(await self._read())
                        if self._free_at() <= self._clock.now() and await self._write() and self.held:
                            return
                    self._trouble = ""
                except (ApiError, OSError) as error:
                    self._log_transient(error)
                # News that came during the read may be newer or older than its answer: then read again.
                is_news = not self._news.is_set() and await self._pause(self._next_look_at()) and self._watched
        finally:
            await _stop(watching)

    async def _watch(self) -> None:
        """Watch for changes of the lease. While the watch is broken, the campaign polls."""
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
            await self._sleep(self._next_try_at())

    def _free_at(self) -> float:
        """Return the time from which the lease may be taken."""
        if self._record is None:
            return NEVER
        if self._lease is None:
            # Somebody has deleted it: its holder will notice, and create it again.
            return self._changed_at + self._lease_seconds
        if self._record.holder_identity in (None, "", self.identity):
            return NEVER
        return self._changed_at + (self._record.lease_duration_seconds or self._lease_seconds)

    def _next_look_at(self) -> float:
        free_at, again = self._free_at(), self._next_try_at()
        if free_at <= self._clock.now():
            return again
        return free_at if self._watched else min(free_at, again)

    # Keeping the lease.

    async def _leading(self, lead: Callable[[], Awaitable[None]]) -> bool:
        """Run `lead` while the lease is held. Return whether it ended by itself."""
        log.info("%s leads: it holds the lease %s/%s", self.identity, self.namespace, self.name)
        leading = asyncio.ensure_future(lead())
        keeping = asyncio.create_task(self._renew_until_lost(), name=f"renewal of the lease {self.name}")
        own_end = False
        try:
            await asyncio.wait((leading, keeping), return_when=asyncio.FIRST_COMPLETED)
            # An error after the loss of leadership is a consequence of it, not a failure.
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

    async def _renew_until_lost(self) -> None:
        """Renew until leadership is lost."""
        due = self._clock.now() + self._renew_seconds
        while True:
            until = self._until
            await self._sleep(min(due, until))
            began = self._clock.now()
            if began >= until:
                break
            due = began + self._renew_seconds
            again = self._next_try_at()
            try:
                # A hanging renewal must leave time for another.
                async with self._bounded(max(until - self._retry_seconds, min(again, until))):
                    if not await self._renew():
                        due = again
                self._trouble = ""
            except (ApiError, OSError) as error:
                self._log_transient(error)
                due = again
            # A lapse is a loss, even if nobody took the lease: `held` may have returned False meanwhile.
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
        """Release the lease, so that others can take it at once. If that fails, it expires."""
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
        """Write this process as the holder. Returns False if the lease has changed since it was last observed."""
        there, sent_at = self._lease is not None, self._clock.now()
        ours = self._written(self.identity)
        self._unsure = True
        try:
            written = await (self._client.update(ours) if there else self._client.create(ours))
        except ApiError as error:
            self._unsure = error.code >= 500
            if error.code == 409:
                return False
            # Servers report a missing object in more than one way.
            if there and error.code < 500 and await self._read() is None:
                return False
            raise
        self._unsure = False
        self._observe(written)
        self._until = sent_at + self._term
        return True

    def _written(self, holder: str) -> Lease:
        """Return the lease to write, with a holder."""
        now = datetime.fromtimestamp(self._clock.time(), UTC)
        was = self._record or LeaseSpec(lease_transitions=-1)
        if now == was.renew_time:
            # A renewal must change something for others to observe it.
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
            self._changed_at = self._clock.now()
        self._lease = lease
        self._record = record or self._record
        self.holder = (record and record.holder_identity) or ""

    # Waiting.

    def _next_try_at(self) -> float:
        """Return the time of the next try, jittered so that candidates do not collide."""
        return self._clock.now() + self._retry_seconds * random.uniform(0.5, 1.0)

    def _log_transient(self, error: ApiError | OSError) -> None:
        """Log a transient error; raise any other."""
        if isinstance(error, ApiError) and error.code not in (409, 429) and error.code < 500:
            raise error
        trouble = str(error) or "no answer in time"
        level = logging.DEBUG if trouble == self._trouble else logging.WARNING
        log.log(level, "the lease %s/%s cannot be had: %s", self.namespace, self.name, trouble)
        self._trouble = trouble

    @asynccontextmanager
    async def _bounded(self, until: float) -> AsyncIterator[None]:
        """End the body with a TimeoutError at a time of the clock."""
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
        """Wait for news of the lease, or until a time. Return whether there is news."""
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
