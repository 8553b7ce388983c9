"""The controllers of one plane, wired together.

A server, an operator, a site of a simulated fleet and a project under test all use this wiring. They differ in the
arguments: the client, the clock, the runtime and the runners.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

from rota.api import Kind, Namespace
from rota.client import Client, Update
from rota.control.cells.contacts import CellContacts
from rota.control.cells.counting import HubCounting, LinkCounting
from rota.control.cells.fence import Fence
from rota.control.cells.intake import Intake
from rota.control.cells.link import Link
from rota.control.cells.reports import Reports
from rota.control.claim import Claims
from rota.control.claims.holds import ClaimHolds
from rota.control.function import Serving
from rota.control.making.interface import InstanceMaker
from rota.control.plane import HERE, Plane
from rota.control.spawner import Spawning
from rota.control.table import controllers
from rota.control.task import uid_of
from rota.engine import ControlLoop, Objects
from rota.engine.clock import Clock
from rota.engine.metrics import Metrics
from rota.engine.recorder import Recorder
from rota.runtime.interface import Runtime
from rota.runtime.runners import Runners

Linking = Callable[[Client, Objects, Recorder, Clock, Fence, LinkCounting], Awaitable[Link]]


class Leading:
    """All controllers while one process leads. `run` it once."""

    def __init__(
        self,
        client: Client,
        objects: Objects,
        clock: Clock,
        *,
        identity: str = "",
        plane: Plane = HERE,
        runtime: Runtime | None = None,
        runners: Runners | None = None,
        serving: Serving | None = None,
        spawning: Spawning | None = None,
        linking: Linking | None = None,
        metrics: Metrics | None = None,
        restored_seconds_ago: float = math.inf,
        leads: Callable[[], bool] = lambda: True,
        claim_ended: Callable[[str], None] = lambda uid: None,
        maker: InstanceMaker | None = None,
    ) -> None:
        """Wire the controllers.

        identity    name of the process, in the Events that it records
        runtime     runs instances; None: no controller that makes or runs instances
        runners     streams of the workers' runners
        serving     answers calls of functions; None: functions are not served
        spawning    serves schedules and spawners; None: neither makes tasks
        linking     connects a cell to its hub; None: this is not a cell of a hub
        leads       reports whether this process still leads
        claim_ended called with the uid of a claim whose hold ends
        maker       makes instances real where there is no runtime
        """
        self._client = client
        self._objects = objects
        self._clock = clock
        self._linking = linking
        self._runtime = runtime
        self._metrics = metrics or Metrics()
        self.recorder = Recorder(client, instance=identity, clock=clock)
        contacts = CellContacts(clock, restored_seconds_ago)
        self.fence = Fence(objects, runtime, clock) if linking is not None else None
        """Limits how long this cell may run what its hub moves when the cell is lost; None: no hub."""
        made = controllers(
            runtime, runners, spawning, self._metrics, serving, plane, contacts, self.fence, claim_ended, maker
        )
        self.claims: ClaimHolds | None = next((one.holds for one in made if isinstance(one, Claims)), None)
        """The holds of claims; None where nothing runs."""
        self.reports: Reports | None = None
        """Writes the reports of cells to the store; None: this plane has no cells."""
        self.intake: Intake | None = None
        """Admits reports, within bounds, to `reports`."""
        if plane.places:
            self.reports = Reports(client, objects, self.recorder, contacts, clock, leads)
            self.intake = Intake(self.reports, objects, clock, HubCounting(self._metrics, objects, contacts, clock))
        self.link: Link | None = None
        """The link of this cell to its hub; None until it is connected."""
        self.loop = ControlLoop(client, objects, made, self.recorder, clock=clock, metrics=metrics)

    async def run(self) -> None:
        """Lead, until cancelled."""
        if self._runtime is not None:
            self._runtime.archive.sweep(lambda namespace, name: uid_of(self._objects, namespace, name))
        parts = [asyncio.create_task(self.recorder.run(), name="events")]
        unsubscribe: Callable[[], None] | None = None
        try:
            if self._linking is not None and self.fence is not None:
                counting = LinkCounting(self._metrics, self._clock)
                self.link = await self._linking(
                    self._client, self._objects, self.recorder, self._clock, self.fence, counting
                )
                parts.append(asyncio.create_task(self.link.run(), name="link to the hub"))
            if self._client.in_process:
                unsubscribe = self._objects.listen((Namespace.api,), self._namespace_changed)
            parts.append(asyncio.create_task(self.loop.serve(), name="control loop"))
            # No TaskGroup: it cancels tasks in any order, and simulations must be reproducible.
            await asyncio.gather(*parts)
        finally:
            if unsubscribe is not None:
                unsubscribe()
            self.end()
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)

    def end(self) -> None:
        """Take no more reports, and renew no leases, from now on."""
        for one in (self.reports, self.intake, self.fence):
            if one is not None:
                one.end()
        self.reports = self.intake = self.link = None

    def _namespace_changed(self, kind: Kind, update: Update[Any]) -> None:
        """Drop the metrics of a deleted namespace. All its objects are gone by then."""
        if update.new is None:
            self._metrics.forget("namespace", update.key.name)
