"""The connections between the sites of a simulated fleet: messages are delayed, lost, repeated, or late."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Any

import msgspec

from rota.client import Client
from rota.client.backend import Batches
from rota.client.local import LocalBackend
from rota.client.requests import Sleep
from rota.control.cells.link import MIRRORED
from rota.control.cells.messages import REPORT_BYTES_MAX, Answer, Report
from rota.control.cells.names import cell_namespace
from rota.engine import CachedObjects
from rota.engine.clock import Clock, sleep
from rota.engine.fence import Deposed
from rota.engine.objects import Objects
from rota.registry import ApiError, Registry, WatchOptions
from rota.testing.sites import Site, SiteClock

LATENCY_SECONDS = 0.005
"""Minimum seconds that a message takes."""
PATIENCE_SECONDS = 30.0
"""Seconds that a site waits for an answer."""
LATE_SECONDS_MAX = 40.0
"""Maximum seconds that a late message takes."""


class Connection:
    """The connection between a cell and its hub."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.is_cut = False
        self.loss = 0.0
        """The share of lost messages."""
        self.repeated = 0.0
        """The share of reports that arrive twice."""
        self.late = 0.0
        """The share of reports that arrive after the sender has stopped waiting."""
        self.latency_seconds = LATENCY_SECONDS
        """Maximum seconds that a message takes."""
        self.lag_seconds = 0.0
        """Maximum additional delay of watch events in seconds."""
        self.listed_max: int | None = None
        """Bound on the objects of a list; None for all."""
        self.following: dict[asyncio.Task[Any], None] = {}
        """Requests in progress, in order."""

    async def carry(self, to: SiteClock) -> None:
        """Transmit one message. Raises `ConnectionError` if it does not arrive."""
        if self.is_cut:
            raise ConnectionError("cut off")
        await sleep(self._clock, random.uniform(LATENCY_SECONDS, self.latency_seconds))
        sent = self._clock.now()
        await to.awake()
        if self.is_cut or random.random() < self.loss or self._clock.now() - sent > PATIENCE_SECONDS:
            raise ConnectionError("cut off")

    async def lag(self) -> None:
        """Wait for the additional delay of a watch event."""
        if self.lag_seconds:
            await sleep(self._clock, random.uniform(0, self.lag_seconds))

    def cut(self) -> None:
        self.is_cut = True
        self.drop()

    def drop(self) -> None:
        """End every connection."""
        for task in [*self.following]:
            task.cancel("cut off")

    def heal(self) -> None:
        self.is_cut = False

    def calm(self) -> None:
        """Transmit every message, once and without additional delay."""
        self.heal()
        self.loss = self.repeated = self.late = self.lag_seconds = 0.0
        self.latency_seconds = LATENCY_SECONDS


class _Remote(LocalBackend):
    """The registry of another site, over a connection, with which its watches end."""

    registry = None

    def __init__(self, site: Site, connection: Connection, reader: Site) -> None:
        self._site = site
        self._connection = connection
        self._reader = reader

    @property
    def _registry(self) -> Registry:  # type: ignore[override]
        # A restore replaces it.
        if not self._site.is_up:
            raise ConnectionRefusedError("it is down")
        return self._site.registry

    async def list(self, *arguments: Any) -> Any:
        try:
            await self._connection.carry(self._site.clock)
            found = await super().list(*arguments)
            await self._connection.carry(self._reader.clock)
        except OSError:
            await self._reader.clock.awake()
            raise
        return msgspec.structs.replace(found, items=found.items[: self._connection.listed_max])

    async def _watched(self, kind: Any, namespace: str, options: WatchOptions) -> Any:
        """Yield the batches of a watch, until the connection is cut."""
        await self._connection.carry(self._site.clock)
        batches = super().watch(kind, namespace, options)
        following = batches.__aiter__()
        try:
            while True:
                next_: asyncio.Task[Any] = asyncio.ensure_future(_next(following))
                self._connection.following[next_] = None
                try:
                    batch = await next_
                except asyncio.CancelledError:
                    current = asyncio.current_task()
                    if current is None or current.cancelling():
                        raise
                    raise ConnectionError("cut off") from None
                except StopAsyncIteration:
                    return
                finally:
                    self._connection.following.pop(next_, None)
                await self._connection.lag()
                await self._connection.carry(self._reader.clock)
                yield batch
        finally:
            await batches.aclose()  # type: ignore[attr-defined]

    def watch(self, kind: Any, namespace: str, options: WatchOptions) -> Batches:
        batches: Batches = self._watched(kind, namespace, options)
        return batches


async def _next(iterator: Any) -> Any:
    return await iterator.__anext__()


class SimulatedHub:
    """The hub, as one cell reaches it."""

    def __init__(self, hub: Site, cell: Site, connection: Connection) -> None:
        assert cell.plane.cell is not None
        self._hub = hub
        self._site = cell
        self._cell = cell.plane.cell
        self._connection = connection

    async def report(self, report: Report) -> Answer:
        sent = msgspec.json.encode(report)
        try:
            await self._connection.carry(self._hub.clock)
            if random.random() < self._connection.repeated:
                self._deliver_late(sent)
            if random.random() < self._connection.late:
                self._deliver_late(sent)
                raise ConnectionError("no answer in time")
            answer = await self._received(sent)
            await self._connection.carry(self._site.clock)
        except (OSError, ApiError):
            await self._site.clock.awake()
            raise
        return msgspec.json.decode(msgspec.json.encode(answer), type=Answer)

    async def _received(self, sent: bytes) -> Answer:
        if len(sent) > REPORT_BYTES_MAX:
            raise ApiError(413, "RequestEntityTooLarge", f"the report has {len(sent)} bytes")
        if self._hub.reports is None:
            raise ConnectionRefusedError("the hub is down")
        try:
            report = msgspec.json.decode(sent, type=Report)
        except msgspec.MsgspecError as error:
            raise ApiError(400, "BadRequest", f"this is no report of a cell: {error}") from None
        receiving = self._hub.request(self._hub.reports.receive(self._cell, report))
        try:
            return await asyncio.shield(receiving)
        except asyncio.CancelledError:
            if receiving.cancelled():
                raise ConnectionError("the hub is gone") from None
            raise
        except Deposed as error:
            raise ConnectionError(str(error)) from None

    def _deliver_late(self, sent: bytes) -> None:
        """Deliver a report late, when nobody waits for the answer."""
        delay = random.uniform(0, LATE_SECONDS_MAX)

        async def come() -> None:
            await sleep(self._hub.clock, delay)
            with suppress(OSError, ApiError):
                await self._received(sent)

        under_way = asyncio.ensure_future(come())
        self._connection.following[under_way] = None
        under_way.add_done_callback(lambda done: self._connection.following.pop(done, None))

    def objects(self, wait: Sleep) -> Objects:
        client = Client(_Remote(self._hub, self._connection, self._site))
        kinds = [kind.api for kind in MIRRORED]
        return CachedObjects(
            client,
            kinds,
            namespace=cell_namespace(self._cell),
            sleep=wait,
        )
