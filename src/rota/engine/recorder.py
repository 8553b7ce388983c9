"""Events: what a person should notice, said once, counted when it repeats, and never so often that it is noise.

- *Recording is free.* It neither waits nor fails; writing is the business of the owner's task.
- *The same again* is the one Event with a higher count. Its name follows from what it says, so that a restarted or a
  second process finds it. Repeats that come before it was written are one write.
- *Many similar ones*, which differ in their message alone, become one combined Event.
- *An object that is noisy* has a burst of writes, and then one now and then. What it repeats meanwhile is counted with
  the next one.
- *Bounded.* What waits to be written, and what is remembered. What is not said is counted in `dropped`.

To be used on the event loop's thread. A count may be too high where the answer to a write was lost.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import msgspec

from rota.api import Event, Object, ObjectMeta
from rota.api.core import EventSource, ObjectReference
from rota.api.field_rules import whole
from rota.client import Client, ConnectionFailed
from rota.engine.clock import Clock, RealClock, after
from rota.registry import ApiError

log = logging.getLogger(__name__)

COMPONENT = "rota"
"""Reports the Events of Rota's own controllers."""
QUEUE_MAX = 1_000
"""Events that wait to be written. Past it the one that has waited longest is not said."""
REMEMBERED_MAX = 4_096
"""Events, groups of similar ones, and objects that are remembered, each. The least recent are forgotten."""
SIMILAR_MAX = 10
"""Messages of one object, type and reason that have an Event of their own, in a window of time."""
SIMILAR_SECONDS = 600.0
BURST_MAX = 25
"""Writes about one object at once."""
REFILL_SECONDS = 300.0
"""Until there may be one more."""
MESSAGE_LENGTH_MAX = 1_024
REASON_LENGTH_MAX = 128
NAME_LENGTH_MAX = 253
COUNT_MAX = 2**31 - 1
COMBINED = "(combined from similar events): "
CLUSTER_NAMESPACE = "default"
"""Where Events about objects of no namespace are."""
TRIES_MAX = 5
"""Of a write that fails for a while."""
RETRY_SECONDS = 1.0
"""Before the second try; doubled before each further one."""
CONTENTION_MAX = 8
"""Times that others may get in between reading an Event and changing it, in one try."""
FLUSH_SECONDS = 5.0
"""For what is still to be written when it is the end."""
TRANSIENT = frozenset((408, 409, 429, 500, 502, 503, 504))
"""Refusals that may be otherwise a little later."""

EventType = Literal["Normal", "Warning"]
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Recent(Generic[K, V]):
    """Things by a key, made when they are first asked for. Those that were not asked for the longest are forgotten."""

    def __init__(self, make: Callable[[], V]) -> None:
        self._make = make
        self._things: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._things)

    def get(self, key: K) -> V:
        thing = self._things.get(key)
        if thing is None:
            thing = self._things[key] = self._make()
            if len(self._things) > REMEMBERED_MAX:
                self._things.popitem(last=False)
        else:
            self._things.move_to_end(key)
        return thing


class _Allowance:
    """The writes that an object has left."""

    __slots__ = ("left", "since")

    def __init__(self) -> None:
        self.left = float(BURST_MAX)
        self.since: float | None = None

    def take(self, now: float) -> bool:
        passed = 0.0 if self.since is None else now - self.since
        self.left = min(float(BURST_MAX), self.left + passed / REFILL_SECONDS)
        self.since = now
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True


class _Said:
    """One Event: what of it is to be written, and what is known of it."""

    __slots__ = ("event", "first", "held", "known", "last", "message", "queued", "unsaid")

    def __init__(self) -> None:
        self.event: Event | None = None
        """As it is to be made, without counts and times."""
        self.message = ""
        self.unsaid = 0
        """How often it was recorded since it was last written."""
        self.held = 0
        """How often, beside that, while its object had no write left."""
        self.first = self.last = 0.0
        self.queued = False
        self.known: tuple[int, str] | None = None
        """Its count and version on the server when it was last seen there."""


class _Write(NamedTuple):
    """A write that is due."""

    said: _Said
    unsaid: int
    held: int
    first: float

    @property
    def times(self) -> int:
        return self.unsaid + self.held


class Recorder:
    """Says what happened to objects. `run` does the writing, and must be run by the owner."""

    def __init__(
        self, client: Client, *, component: str = COMPONENT, instance: str = "", clock: Clock | None = None
    ) -> None:
        self.dropped = 0
        """Records that were not said when they came: noise, too long a queue, or a server that did not take them."""
        self._client = client
        self._component = component
        self._instance = instance
        self._clock: Clock = clock or RealClock()
        self._events: _Recent[tuple[str, str], _Said] = _Recent(_Said)
        self._similar: _Recent[tuple[str, str, str], dict[str, float]] = _Recent(dict)
        self._allowances: _Recent[str, _Allowance] = _Recent(_Allowance)
        self._queue: deque[_Said] = deque()
        self._awake = asyncio.Event()
        self._ending = False
        self._pause: asyncio.Future[None] | None = None

    def record(self, about: Object, type: EventType, reason: str, message: str) -> None:  # noqa: A002
        """Something happened to an object that a person should notice."""
        now = self._clock.now()
        meta = about.metadata
        reason, message = whole(reason)[:REASON_LENGTH_MAX], whole(message)[:MESSAGE_LENGTH_MAX]
        identity = meta.uid or f"{about.api.bucket}/{meta.namespace}/{meta.name}"
        name = event_name(meta.name, identity, type, reason, message)
        if self._too_similar(name, self._similar.get((identity, type, reason)), now):
            name = event_name(meta.name, identity, type, reason, COMBINED)
            message = f"{COMBINED}{message}"[:MESSAGE_LENGTH_MAX]
        said = self._events.get((meta.namespace, name))
        if said.event is None:
            said.event = self._event(about, name, type, reason)
        if not said.unsaid and not said.held:
            said.first = self._clock.time()
        said.last = self._clock.time()
        said.message = message
        if said.queued:
            said.unsaid += 1
        elif self._allowances.get(identity).take(now):
            said.unsaid += 1
            self._enqueue(said)
        else:
            said.held += 1
            self.dropped += 1

    def _too_similar(self, name: str, others: dict[str, float], now: float) -> bool:
        for old in [other for other, seen in others.items() if now - seen > SIMILAR_SECONDS]:
            del others[old]
        if name not in others and len(others) >= SIMILAR_MAX:
            return True
        others[name] = now
        return False

    def _enqueue(self, said: _Said) -> None:
        if len(self._queue) >= QUEUE_MAX:
            self._drop(self._take())
        said.queued = True
        self._queue.append(said)
        self._awake.set()

    # Writing.

    async def run(self) -> None:
        """Write what is recorded. When cancelled, what is left is written first, if that is quick."""
        self._ending = False
        writing = asyncio.create_task(self._write_all())
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            self._ending = True
            self._awake.set()
            if self._pause is not None:
                _resolve(self._pause)
            late = after(self._clock, FLUSH_SECONDS)
            try:
                await asyncio.wait((writing, late), return_when=asyncio.FIRST_COMPLETED)
            finally:
                late.cancel()
            raise
        finally:
            writing.cancel()
            await asyncio.wait((writing,))
            while self._queue:
                self._drop(self._take())

    async def _write_all(self) -> None:
        while True:
            await self._awake.wait()
            self._awake.clear()
            while self._queue:
                await self._write(self._take())
            if self._ending:
                return

    def _take(self) -> _Write:
        said = self._queue.popleft()
        write = _Write(said, said.unsaid, said.held, said.first)
        said.unsaid = said.held = 0
        said.queued = False
        return write

    def _drop(self, write: _Write) -> None:
        # Those that were held back are counted already.
        self.dropped += write.unsaid

    async def _write(self, write: _Write) -> None:
        tries = 0
        try:
            while True:
                tries += 1
                try:
                    await self._say(write)
                    return
                except (ApiError, ConnectionFailed) as error:
                    lasting = isinstance(error, ApiError) and error.code not in TRANSIENT
                    if lasting or tries == TRIES_MAX or self._ending:
                        raise
                self._pause = after(self._clock, RETRY_SECONDS * 2 ** (tries - 1))
                await self._pause
        except asyncio.CancelledError:
            self._drop(write)
            raise
        except Exception as error:
            self._drop(write)
            level = logging.DEBUG if isinstance(error, (ApiError, ConnectionFailed)) else logging.ERROR
            log.log(level, "an Event was not written: %s", error)

    async def _say(self, write: _Write) -> None:
        """Make the Event, or have it say that it happened so many times more."""
        said, event = write.said, write.said.event
        assert event is not None
        name, namespace = event.metadata.name, event.metadata.namespace
        for contention in range(CONTENTION_MAX + 1):
            known = said.known
            try:
                if known is None:
                    answer = await self._client.create(_made(event, write), namespace=namespace)
                else:
                    answer = await self._client.patch(Event, name, _more(write, *known), namespace=namespace)
                said.known = _known(answer)
                return
            except ApiError as error:
                if contention == CONTENTION_MAX:
                    raise
                if error.reason in ("AlreadyExists", "Conflict"):
                    said.known = await self._read(name, namespace)
                elif error.code == 404 and known is not None:
                    said.known = None
                else:
                    raise

    async def _read(self, name: str, namespace: str) -> tuple[int, str] | None:
        try:
            return _known(await self._client.get(Event, name, namespace=namespace))
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    def _event(self, about: Object, name: str, type_: EventType, reason: str) -> Event:
        meta = about.metadata
        reference = ObjectReference(
            api_version=about.api.api_version,
            kind=about.api.name,
            namespace=meta.namespace or None,
            name=meta.name,
            uid=meta.uid or None,
            resource_version=meta.resource_version or None,
        )
        return Event(
            metadata=ObjectMeta(name=name, namespace=meta.namespace or CLUSTER_NAMESPACE),
            involved_object=reference,
            type=type_,
            reason=reason,
            source=EventSource(component=self._component),
            reporting_component=self._component,
            reporting_instance=self._instance or None,
        )


def event_name(about: str, identity: str, type_: str, reason: str, message: str) -> str:
    """The name of the Event that says this of an object of that name: always the same, and always a valid one."""
    digest = blake2b(
        "\0".join((identity, type_, reason, message)).encode("utf-8", "replace"), digest_size=8
    ).hexdigest()
    allowed = re.sub(r"[^a-z0-9.-]", "-", about.lower())[: NAME_LENGTH_MAX - len(digest) - 1]
    parts = [part.strip("-") for part in allowed.split(".")]
    return ".".join([*filter(None, parts), digest])


def _made(event: Event, write: _Write) -> Event:
    return msgspec.structs.replace(
        event,
        message=write.said.message,
        count=min(write.times, COUNT_MAX),
        first_timestamp=_second(write.first),
        last_timestamp=_second(write.said.last),
    )


def _more(write: _Write, count: int, version: str) -> dict[str, Any]:
    return {
        # Refused if another process has counted meanwhile.
        "metadata": {"resourceVersion": version},
        "message": write.said.message,
        "count": min(count + write.times, COUNT_MAX),
        "lastTimestamp": _second(write.said.last),
    }


def _known(event: Event) -> tuple[int, str]:
    return event.count or 1, event.metadata.resource_version


def _second(seconds: float) -> datetime:
    return datetime.fromtimestamp(int(seconds), UTC)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
