"""The controllers of a server: they run in the process that leads, in this one or in an operator of its own."""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from rota.api import Kind, Namespace
from rota.client import Client, Update
from rota.control.cells.counting import HubCounting, LinkCounting
from rota.control.cells.fence import Fence
from rota.control.cells.heard import Heard
from rota.control.cells.intake import Intake
from rota.control.cells.link import Link
from rota.control.cells.reports import Reports
from rota.control.claim import Claims
from rota.control.claims.holds import ClaimHolds
from rota.control.function import Serving
from rota.control.plane import HERE, Plane
from rota.control.spawner import Spawning
from rota.control.spawners.apis import Apis
from rota.control.table import controllers
from rota.control.task import uid_of
from rota.engine import ControlLoop, Objects
from rota.engine.clock import Clock, RealClock
from rota.engine.fence import Fenced
from rota.engine.leadership import Leadership
from rota.engine.metrics import Metrics
from rota.engine.recorder import Recorder
from rota.runtime.interface import Runtime
from rota.runtime.runners import Runners

RESTORED = "restored"
"""A file of a home that is as old as its last restore from a backup."""
MANAGER = "rota-controllers"
"""Under which name controllers own fields."""
UP_LEASE_SECONDS = 30.0
UP_RENEW_SECONDS = 10.0
"""A server with its own controllers: nobody can take over from it while it is down, so it need not write often."""


Linking = Callable[[Client, Objects, Recorder, Clock, Fence, LinkCounting], Awaitable[Link]]


class Controllers:
    """All controllers, for as long as this process leads. `run` it as a task; cancel that to stop."""

    def __init__(
        self,
        client: Client,
        objects: Objects,
        leadership: Leadership,
        identity: str,
        runtime: Runtime | None = None,
        apis: Apis | None = None,
        home: Path | None = None,
        plane: Plane = HERE,
        linking: Linking | None = None,
    ) -> None:
        """`linking`: how a cell reaches its hub."""
        self.objects = objects
        self._home = home
        self._plane = plane
        self._linking = linking
        self.reports: Reports | None = None
        """Who takes the reports of cells; None while another process leads, or this is a cell."""
        self.intake: Intake | None = None
        """The way in for reports, as long as there is who takes them."""
        self.link: Link | None = None
        """The link of this cell to its hub, if it is one."""
        self.runtime = runtime
        """What makes instances real here, if anything does."""
        self.runners = Runners()
        """The workers that are connected here."""
        self.loop: ControlLoop | None = None
        """The running loop; None while another process leads."""
        self.claims: ClaimHolds | None = None
        """Who hands out instances here; None while another process leads, or nothing runs here."""
        self.on_claim_ended: Callable[[str], None] = lambda uid: None
        """Told of a claim that has no instance any more, by its uid."""
        self.metrics = Metrics()
        self.terms = 0
        """How often this process has led."""
        self._leadership = leadership
        self._client = Client(
            objects.seeing(Fenced(client.backend, lambda: leadership.held, lambda: leadership.holder)),
            manager=MANAGER,
            namespace="default",
        )
        self.spawning = Spawning(self._client, self.objects, apis)
        """What becomes of webhooks and of polls."""
        self.edge = ""
        """Where functions are called, once that is known."""
        self.serving: Serving | None = None
        """What answers calls of functions here, if anything does."""
        if runtime is not None and home is not None:
            self.serving = Serving(self._client, objects, self.runners, runtime, home, lambda: self.edge)
        self._identity = identity

    @property
    def trouble(self) -> Exception | None:
        """What is wrong with the connection to the server, if anything is."""
        return self.objects.error

    @property
    def leader(self) -> str:
        """Who leads, as last seen."""
        return self._leadership.holder

    async def run(self) -> None:
        async with self.objects:
            await self._leadership.run(self._lead)

    async def _lead(self) -> None:
        self.terms += 1
        self.metrics = Metrics()
        recorder = Recorder(self._client, instance=self._identity)
        recording = asyncio.create_task(recorder.run(), name="events")
        if self.runtime is not None:
            self.runtime.sweep_task_logs(lambda namespace, name: uid_of(self.objects, namespace, name))
        clock = RealClock()
        heard = Heard(clock, restored_seconds_ago(self._home, clock.time()) if self._home is not None else math.inf)
        fence = Fence(self.objects, self.runtime, clock) if self._linking is not None else None
        reconcilers = controllers(
            self.runtime,
            self.runners,
            self.spawning,
            self.metrics,
            self.serving,
            self._plane,
            heard,
            fence,
            lambda uid: self.on_claim_ended(uid),
        )
        if self._plane.places:
            self.reports = Reports(self._client, self.objects, recorder, heard, clock, lambda: self._leadership.held)
            counting = HubCounting(self.metrics, self.objects, heard, clock)
            self.intake = Intake(self.reports, self.objects, clock, counting)
        linked: asyncio.Task[None] | None = None
        if self._linking is not None and fence is not None:
            self.link = await self._linking(
                self._client, self.objects, recorder, clock, fence, LinkCounting(self.metrics, clock)
            )
            linked = asyncio.create_task(self.link.run(), name="link to the hub")
        self.claims = next((one.holds for one in reconcilers if isinstance(one, Claims)), None)
        self.loop = ControlLoop(self._client, self.objects, reconcilers, recorder, metrics=self.metrics)
        deaf = self.objects.listen((Namespace.api,), self._hear_namespace) if self._client.in_process else None
        try:
            await self.loop.serve()
        finally:
            if deaf is not None:
                deaf()
            if self.reports is not None:
                self.reports.end()
            if self.intake is not None:
                self.intake.end()
            self.loop = self.claims = self.reports = self.intake = self.link = None
            if fence is not None:
                fence.end()
            ending = [task for task in (recording, linked) if task is not None]
            for task in ending:
                task.cancel()
            await asyncio.gather(*ending, return_exceptions=True)

    def _hear_namespace(self, kind: Kind, update: Update[Any]) -> None:
        """Have a namespace that is gone counted no longer. It goes last: nothing of it will be counted again."""
        if update.new is None:
            self.metrics.forget("namespace", update.key.name)


def restored_seconds_ago(home: Path, now: float) -> float:
    """Return how long ago the store of a home was restored from a backup; endless: never."""
    try:
        return max(0.0, now - (home / RESTORED).stat().st_mtime)
    except FileNotFoundError:
        return math.inf


def identity_of_home(home: Path) -> str:
    """The same for every server in a home, of which only one can live: after a crash it need not wait for itself."""
    place = hashlib.sha256(os.fsencode(home.resolve())).hexdigest()[:12]
    return f"{socket.gethostname()}-{place}"


def identity_of_process() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{os.urandom(4).hex()}"
