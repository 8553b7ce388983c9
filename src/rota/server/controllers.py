"""The controllers of a server. They run in the process that leads: the server, or an operator."""

from __future__ import annotations

import hashlib
import math
import os
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

from rota.client import Client
from rota.control.cells.intake import Intake
from rota.control.cells.link import Link
from rota.control.cells.reports import Reports
from rota.control.claims.holds import ClaimHolds
from rota.control.function import Serving
from rota.control.functions.preparing import CodePreparer
from rota.control.leading import Leading, Linking
from rota.control.making.interface import InstanceMaker
from rota.control.plane import HERE, Plane
from rota.control.spawner import Spawning
from rota.control.spawners.apis import Apis
from rota.engine import ControlLoop, Objects
from rota.engine.clock import Clock, RealClock
from rota.engine.fence import Fenced
from rota.engine.leadership import Leadership
from rota.engine.metrics import Metrics
from rota.runtime.interface import Runtime
from rota.runtime.runners import Runners

RESTORED = "restored"
"""A file of a home whose modification time is that of the last restore from a backup."""
MANAGER = "rota-controllers"
"""The field manager of controllers."""
UP_LEASE_SECONDS = 30.0
UP_RENEW_SECONDS = 10.0
"""Lease of a server with its own controllers, renewed rarely: nobody takes over while the server is down."""


Making = Callable[[Client], AbstractAsyncContextManager[InstanceMaker]]


class Controllers:
    """All controllers, as long as this process leads. `run` it as a task, and cancel that to stop."""

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
        edge: str = "",
        claim_ended: Callable[[str], None] = lambda uid: None,
        making: Making | None = None,
    ) -> None:
        """`linking` makes the link of a cell to its hub. `edge` is the URL of functions.

        `claim_ended` gets the uid of a claim that has lost its instance. `making` opens what makes instances real
        elsewhere than on this machine, as long as this process leads.
        """
        self.objects = objects
        self._clock: Clock = RealClock()
        self._leading: Leading | None = None
        self._home = home
        self._plane = plane
        self._linking = linking
        self.runtime = runtime
        """The runtime of instances on this machine; None if none run here."""
        self.runners = Runners(self._clock.now)
        """The workers that are connected here."""
        self._claim_ended = claim_ended
        self._making = making
        self.metrics = Metrics()
        self.terms = 0
        """The number of times that this process has led."""
        self._leadership = leadership
        self._client = Client(
            objects.seeing(Fenced(client.backend, lambda: leadership.held, lambda: leadership.holder)),
            manager=MANAGER,
            namespace="default",
        )
        self.spawning = Spawning(self._client, self.objects, self._clock, apis)
        """Webhooks and polls of spawners."""
        self.serving: Serving | None = None
        """Calls of functions; None if functions are not served here."""
        if runtime is not None and home is not None:
            preparing = CodePreparer(home, self._clock, runtime.policy)
            self.serving = Serving(self._client, objects, self.runners, runtime, preparing, self._clock, lambda: edge)
        self._identity = identity

    @property
    def trouble(self) -> Exception | None:
        """The last error of the connection to the server; None while it works."""
        return self.objects.error

    @property
    def leader(self) -> str:
        """The holder of the lease, as last read."""
        return self._leadership.holder

    async def run(self) -> None:
        async with self.objects:
            await self._leadership.run(self._lead)

    async def _lead(self) -> None:
        self.terms += 1
        self.metrics = Metrics()
        async with AsyncExitStack() as opening:
            maker = await opening.enter_async_context(self._making(self._client)) if self._making is not None else None
            await self._lead_with(maker)

    async def _lead_with(self, maker: InstanceMaker | None) -> None:
        self._leading = Leading(
            self._client,
            self.objects,
            self._clock,
            identity=self._identity,
            plane=self._plane,
            runtime=self.runtime,
            runners=self.runners,
            serving=self.serving,
            spawning=self.spawning,
            linking=self._linking,
            metrics=self.metrics,
            restored_seconds_ago=self._restored_seconds_ago(),
            leads=lambda: self._leadership.held,
            claim_ended=self._claim_ended,
            maker=maker,
        )
        try:
            await self._leading.run()
        finally:
            self._leading = None

    def _restored_seconds_ago(self) -> float:
        return restored_seconds_ago(self._home, self._clock.time()) if self._home is not None else math.inf

    # Parts that exist while this process leads.

    @property
    def loop(self) -> ControlLoop | None:
        """The running loop; None while another process leads."""
        return self._leading.loop if self._leading is not None else None

    @property
    def claims(self) -> ClaimHolds | None:
        """The holds of claims; None while another process leads, or if nothing runs here."""
        return self._leading.claims if self._leading is not None else None

    @property
    def reports(self) -> Reports | None:
        """Takes the reports of cells; None while another process leads, or this is a cell."""
        return self._leading.reports if self._leading is not None else None

    @property
    def intake(self) -> Intake | None:
        """Queues reports; None while nothing takes them."""
        return self._leading.intake if self._leading is not None else None

    @property
    def link(self) -> Link | None:
        """The link of this cell to its hub, if it is a cell."""
        return self._leading.link if self._leading is not None else None


Running = Callable[[], Controllers | None]
"""Returns the controllers of this process; None while it has none."""


def restored_seconds_ago(home: Path, now: float) -> float:
    """Return the time since the store of a home was restored from a backup; infinite if it never was."""
    try:
        return max(0.0, now - (home / RESTORED).stat().st_mtime)
    except FileNotFoundError:
        return math.inf


def identity_of_home(home: Path) -> str:
    """Return an identity that all servers of a home share.

    Only one of them can live, and after a crash the next one need not wait for the lease of the crashed one.
    """
    place = hashlib.sha256(os.fsencode(home.resolve())).hexdigest()[:12]
    return f"{socket.gethostname()}-{place}"


def identity_of_process() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{os.urandom(4).hex()}"
