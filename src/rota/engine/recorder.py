"""The recorder of Events: each is written once, counted when it repeats, and limited in rate.

- *Recording is free.* It neither waits nor fails; the task of the owner writes.
- *A repeat* is the same Event with a higher count. Its name follows from its content, so that a restarted or a
  second process finds it. Repeats before it is written are one write.
- *Similar ones*, which differ only in their message, become one combined Event.
- *A noisy object* has a burst of writes, and then one now and then. Repeats meanwhile are counted with
  the next write.
- *Bounded.* The queue and the memory are bounded. Events that are not written are counted in `dropped`.

For use on the event loop's thread. A count may be too high if the answer to a write was lost.
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
"""The reporting component of Rota's own controllers."""
QUEUE_MAX = 1_000
"""Bound on the queued Events. Beyond it the oldest is dropped."""
REMEMBERED_MAX = 4_096
"""Bound on each of the caches of Events, groups of similar ones, and objects."""
SIMILAR_MAX = 10
"""Bound on the separate Events of one object, type and reason within `SIMILAR_SECONDS`."""
SIMILAR_SECONDS = 600.0
BURST_MAX = 25
"""Bound on the burst of writes about one object."""
REFILL_SECONDS = 300.0
"""Seconds after which one more write is allowed."""
MESSAGE_LENGTH_MAX = 1_024
REASON_LENGTH_MAX = 128
NAME_LENGTH_MAX = 253
COUNT_MAX = 2**31 - 1
COMBINED = "(combined from similar events): "
CLUSTER_NAMESPACE = "default"
"""Namespace of Events about cluster-scoped objects."""
TRIES_MAX = 5
"""Bound on the tries of one write."""
RETRY_SECONDS = 1.0
"""Pause before the second try; doubled before each further one."""
CONTENTION_MAX = 8
"""Bound on the conflicts in one try."""
FLUSH_SECONDS = 5.0
"""Time-out for writing the queue at the end."""
TRANSIENT = frozenset((408, 409, 429, 500, 502, 503, 504))
"""Status codes that are retried."""

EventType = Literal["Normal", "Warning"]
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Recent(Generic[K, V]):
    """An LRU cache of values that are made on first access."""

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
    """The remaining writes of an object."""

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


class _Recorded:
    """An Event: its unwritten repeats, and its state on the server."""

    __slots__ = ("event", "first", "held", "known", "last", "message", "queued", "unwritten")

    def __init__(self) -> None:
        self.event: Event | None = None
        """The Event to create, without counts and times."""
        self.message = ""
        self.unwritten = 0
        """Number of records since the last write."""
        self.held = 0
        """Number of records, beside those, while its object had no writes left."""
        self.first = self.last = 0.0
        self.queued = False
        self.known: tuple[int, str] | None = None
        """Its count and resourceVersion on the server, as last read."""


class _Write(NamedTuple):
    """A queued write."""

    recorded: _Recorded
    unwritten: int
    held: int
    first: float

    @property
    def times(self) -> int:
        return self.unwritten + self.held


class Recorder:
    """Records Events about objects. `run` writes them, and must be run by the owner."""

    def __init__(
        self, client: Client, *, component: str = COMPONENT, instance: str = "", clock: Clock | None = None
    ) -> None:
        self.dropped = 0
        """Number of records not written: by the rate limit, a full queue, or a server that refused them."""
        self._client = client
        self._component = component
        self._instance = instance
        self._clock: Clock = clock or RealClock()
        self._events: _Recent[tuple[str, str], _Recorded] = _Recent(_Recorded)
        self._similar: _Recent[tuple[str, str, str], dict[str, float]] = _Recent(dict)
        self._allowances: _Recent[str, _Allowance] = _Recent(_Allowance)
        self._queue: deque[_Recorded] = deque()
        self._awake = asyncio.Event()
        self._ending = False
        self._pause: asyncio.Future[None] | None = None

    def record(self, about: Object, type: EventType, reason: str, message: str) -> None:  # noqa: A002
        """Record an Event about an object."""
        now = self._clock.now()
        meta = about.metadata
        reason, message = whole(reason)[:REASON_LENGTH_MAX], whole(message)[:MESSAGE_LENGTH_MAX]
        identity = meta.uid or f"{about.api.bucket}/{meta.namespace}/{meta.name}"
        name = event_name(meta.name, identity, type, reason, message)
        if self._too_similar(name, self._similar.get((identity, type, reason)), now):
            name = event_name(meta.name, identity, type, reason, COMBINED)
            message = f"{COMBINED}{message}"[:MESSAGE_LENGTH_MAX]
        recorded = self._events.get((meta.namespace, name))
        if recorded.event is None:
            recorded.event = self._event(about, name, type, reason)
        if not recorded.unwritten and not recorded.held:
            recorded.first = self._clock.time()
        recorded.last = self._clock.time()
        recorded.message = message
        if recorded.queued:
            recorded.unwritten += 1
        elif self._allowances.get(identity).take(now):
            recorded.unwritten += 1
            self._enqueue(recorded)
        else:
            recorded.held += 1
            self.dropped += 1

    def _too_similar(self, name: str, others: dict[str, float], now: float) -> bool:
        for old in [other for other, time in others.items() if now - time > SIMILAR_SECONDS]:
            del others[old]
        if name not in others and len(others) >= SIMILAR_MAX:
            return True
        others[name] = now
        return False

    def _enqueue(self, recorded: _Recorded) -> None:
        if len(self._queue) >= QUEUE_MAX:
            self._drop(self._take())
        recorded.queued = True
        self._queue.append(recorded)
        self._awake.set()

    # Writing.

    async def run(self) -> None:
        """Write recorded Events. When cancelled, the queue is written first, within `FLUSH_SECONDS`."""
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
        recorded = self._queue.popleft()
        write = _Write(recorded, recorded.unwritten, recorded.held, recorded.first)
        recorded.unwritten = recorded.held = 0
        recorded.queued = False
        return write

    def _drop(self, write: _Write) -> None:
        # Rate-limited ones are counted already.
        self.dropped += write.unwritten

    async def _write(self, write: _Write) -> None:
        tries = 0
        try:
            while True:
                tries += 1
                try:
                    await self._write_event(write)
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

    async def _write_event(self, write: _Write) -> None:
        """Create the Event, or increase its count."""
        recorded, event = write.recorded, write.recorded.event
        assert event is not None
        name, namespace = event.metadata.name, event.metadata.namespace
        for contention in range(CONTENTION_MAX + 1):
            known = recorded.known
            try:
                if known is None:
                    answer = await self._client.create(_made(event, write), namespace=namespace)
                else:
                    answer = await self._client.patch(Event, name, _more(write, *known), namespace=namespace)
                recorded.known = _known(answer)
                return
            except ApiError as error:
                if contention == CONTENTION_MAX:
                    raise
                if error.reason in ("AlreadyExists", "Conflict"):
                    recorded.known = await self._read(name, namespace)
                elif error.code == 404 and known is not None:
                    recorded.known = None
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
    """Return the name of an Event. It follows from the content, and is a valid name."""
    digest = blake2b(
        "\0".join((identity, type_, reason, message)).encode("utf-8", "replace"), digest_size=8
    ).hexdigest()
    allowed = re.sub(r"[^a-z0-9.-]", "-", about.lower())[: NAME_LENGTH_MAX - len(digest) - 1]
    parts = [part.strip("-") for part in allowed.split(".")]
    return ".".join([*filter(None, parts), digest])


def _made(event: Event, write: _Write) -> Event:
    return msgspec.structs.replace(
        event,
        message=write.recorded.message,
        count=min(write.times, COUNT_MAX),
        first_timestamp=_second(write.first),
        last_timestamp=_second(write.recorded.last),
    )


def _more(write: _Write, count: int, version: str) -> dict[str, Any]:
    return {
        # Refused if another process has counted meanwhile.
        "metadata": {"resourceVersion": version},
        "message": write.recorded.message,
        "count": min(count + write.times, COUNT_MAX),
        "lastTimestamp": _second(write.recorded.last),
    }


def _known(event: Event) -> tuple[int, str]:
    return event.count or 1, event.metadata.resource_version


def _second(seconds: float) -> datetime:
    return datetime.fromtimestamp(int(seconds), UTC)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
