"""The lines between the sites of a simulated fleet: messages that take time, are lost, come again, or come late."""

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
"""Seconds that a message takes from a site to another."""
PATIENCE_SECONDS = 30.0
"""Seconds that a site waits for an answer."""
LATE_SECONDS_MAX = 40.0
"""The most seconds that a message is under way."""


class Line:
    """The line between a cell and its hub."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.is_cut = False
        self.loss = 0.0
        """The share of messages that do not arrive."""
        self.repeated = 0.0
        """The share of reports that arrive once more, some time later."""
        self.late = 0.0
        """The share of reports that arrive when they are not waited for any more."""
        self.latency_seconds = LATENCY_SECONDS
        """The most seconds that a message takes, where that differs; at least it takes what all take."""
        self.lag_seconds = 0.0
        """The most seconds by which the news of a watch come later."""
        self.listed_max: int | None = None
        """The most objects that a list brings; None: all, as it should be."""
        self.following: dict[asyncio.Task[Any], None] = {}
        """Requests under way over it, in order."""

    async def carry(self, to: SiteClock) -> None:
        """Take one message over. Raises `ConnectionError` if it does not arrive."""
        if self.is_cut:
            raise ConnectionError("cut off")
        await sleep(self._clock, random.uniform(LATENCY_SECONDS, self.latency_seconds))
        sent = self._clock.now()
        await to.awake()
        if self.is_cut or random.random() < self.loss or self._clock.now() - sent > PATIENCE_SECONDS:
            raise ConnectionError("cut off")

    async def lag(self) -> None:
        """Wait as long as a watch is behind."""
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
        """Carry everything, once and soon."""
        self.heal()
        self.loss = self.repeated = self.late = self.lag_seconds = 0.0
        self.latency_seconds = LATENCY_SECONDS


class _Remote(LocalBackend):
    """The registry of another site: everything goes over a line, and watches end with it."""

    registry = None

    def __init__(self, site: Site, line: Line, reader: Site) -> None:
        self._site = site
        self._line = line
        self._reader = reader

    @property
    def _registry(self) -> Registry:  # type: ignore[override]
        # Another one after a restore.
        if not self._site.is_up:
            raise ConnectionRefusedError("it is down")
        return self._site.registry

    async def list(self, *arguments: Any) -> Any:
        try:
            await self._line.carry(self._site.clock)
            found = await super().list(*arguments)
            await self._line.carry(self._reader.clock)
        except OSError:
            await self._reader.clock.awake()
            raise
        return msgspec.structs.replace(found, items=found.items[: self._line.listed_max])

    async def _watched(self, kind: Any, namespace: str, options: WatchOptions) -> Any:
        """Bring what a watch brings, until the line is cut."""
        await self._line.carry(self._site.clock)
        batches = super().watch(kind, namespace, options)
        following = batches.__aiter__()
        try:
            while True:
                next_: asyncio.Task[Any] = asyncio.ensure_future(_next(following))
                self._line.following[next_] = None
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
                    self._line.following.pop(next_, None)
                await self._line.lag()
                await self._line.carry(self._reader.clock)
                yield batch
        finally:
            await batches.aclose()  # type: ignore[attr-defined]

    def watch(self, kind: Any, namespace: str, options: WatchOptions) -> Batches:
        batches: Batches = self._watched(kind, namespace, options)
        return batches


async def _next(iterator: Any) -> Any:
    return await iterator.__anext__()


class SimulatedHub:
    """The hub, as one cell sees it."""

    def __init__(self, hub: Site, cell: Site, line: Line) -> None:
        assert cell.plane.cell is not None
        self._hub = hub
        self._site = cell
        self._cell = cell.plane.cell
        self._line = line

    async def report(self, report: Report) -> Answer:
        sent = msgspec.json.encode(report)
        try:
            await self._line.carry(self._hub.clock)
            if random.random() < self._line.repeated:
                self._later(sent)
            if random.random() < self._line.late:
                self._later(sent)
                raise ConnectionError("no answer in time")
            answer = await self._received(sent)
            await self._line.carry(self._site.clock)
        except (OSError, ApiError):
            await self._site.clock.awake()
            raise
        return msgspec.json.decode(msgspec.json.encode(answer), type=Answer)

    async def _received(self, sent: bytes) -> Answer:
        if len(sent) > REPORT_BYTES_MAX:
            raise ApiError(413, "RequestEntityTooLarge", f"the report has {len(sent)} bytes")
        if self._hub.reports is None:
            raise ConnectionRefusedError("the hub is down")
        receiving = self._hub.request(self._hub.reports.receive(self._cell, msgspec.json.decode(sent, type=Report)))
        try:
            return await asyncio.shield(receiving)
        except asyncio.CancelledError:
            if receiving.cancelled():
                raise ConnectionError("the hub is gone") from None
            raise
        except Deposed as error:
            raise ConnectionError(str(error)) from None

    def _later(self, sent: bytes) -> None:
        """Have a report come when nobody waits for the answer."""
        delay = random.uniform(0, LATE_SECONDS_MAX)

        async def come() -> None:
            await sleep(self._hub.clock, delay)
            with suppress(OSError, ApiError):
                await self._received(sent)

        under_way = asyncio.ensure_future(come())
        self._line.following[under_way] = None
        under_way.add_done_callback(lambda done: self._line.following.pop(done, None))

    def objects(self, wait: Sleep) -> Objects:
        client = Client(_Remote(self._hub, self._line, self._site))
        kinds = [kind.api for kind in MIRRORED]
        return CachedObjects(
            client,
            kinds,
            namespace=cell_namespace(self._cell),
            sleep=wait,
        )
