"""A hub and its cells in memory, with real controllers, simulated runtimes and a virtual clock."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from rota.api import Cell, Instance, Location, ObjectMeta
from rota.api.cell import CellSpec, LocationSpec
from rota.control.cells.names import cell_namespace
from rota.control.plane import Plane
from rota.engine import VirtualClock
from rota.registry import metadata
from rota.testing.connections import Connection, SimulatedHub
from rota.testing.loop import IdleLoop
from rota.testing.sites import Backup, Lag, Site

__all__ = ["Backup", "Connection", "Fleet", "Site"]

R = TypeVar("R")

START = 1_700_000_000.0


class Fleet:
    """A hub and its cells. For one thread at a time; time passes only when it is advanced."""

    def __init__(self, cells: Mapping[str, str], seed: int = 0, lags: Mapping[str, float] | None = None) -> None:
        """Create a fleet.

        cells   the city of each cell
        seed    of all random choices, so that runs are repeatable
        lags    the maximum seconds by which the controllers of a cell, or of the hub under "", are behind
        """
        self._seed = seed
        self.clock = VirtualClock(START)
        self._loop = IdleLoop()
        self.hub = Site(self.clock, Plane(cell=None))
        self.cells = {name: Site(self.clock, Plane(name, city, places=False)) for name, city in cells.items()}
        self.lines = {name: Connection(self.clock) for name in cells}
        self.hub.on_down = self._drop_all
        self._until = 0.0
        for name, seconds in (lags or {}).items():
            self.site(name).lag = Lag(seconds, f"{seed} {name}")

    def _drop_all(self) -> None:
        for connection in self.lines.values():
            connection.drop()

    def __enter__(self) -> Fleet:
        self._chance, self._bytes = random.getstate(), metadata.random_bytes
        random.seed(self._seed)
        metadata.random_bytes = random.Random(self._seed).randbytes
        self.do(self._open())
        return self

    async def _open(self) -> None:
        await self.hub.open()
        for city in dict.fromkeys(site.plane.city for site in self.cells.values()):
            await self.hub.client.create(Location(metadata=ObjectMeta(name=city), spec=LocationSpec(city_code=city)))
        for name, site in self.cells.items():
            await self.hub.client.create(Cell(metadata=ObjectMeta(name=name), spec=CellSpec(city_code=site.plane.city)))
            await self.hub.registry.ensure_namespace(cell_namespace(name))
        self.hub.up()
        for name, site in self.cells.items():
            await site.open()
            site.up(self.to_hub(name))

    def to_hub(self, cell: str) -> SimulatedHub:
        return SimulatedHub(self.hub, self.cells[cell], self.lines[cell])

    def __exit__(self, *_: object) -> None:
        try:
            self.do(self._close())
        finally:
            self._loop.close()
            random.setstate(self._chance)
            metadata.random_bytes = self._bytes

    async def _close(self) -> None:
        for site in (*self.cells.values(), self.hub):
            await site.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    # Faults of sites.

    def down(self, cell: str = "") -> None:
        """Kill a cell, or the hub. Its instances keep running."""
        self.do(self.site(cell).down())

    def up(self, cell: str = "") -> None:
        """Start a cell again, or the hub."""

        async def up() -> None:
            self.site(cell).up(self.to_hub(cell) if cell else None)

        self.do(up())

    def lead_again(self, cell: str = "") -> None:
        """Have the process of a cell, or of the hub, lose its leadership and regain it."""

        async def again() -> None:
            site = self.site(cell)
            await site.down()
            site.lead(self.to_hub(cell) if cell else None)

        self.do(again())

    def kill_amid(self, turns: int, cell: str = "") -> None:
        """Kill a cell, or the hub, after some iterations of the loop, in the middle of its work."""

        def step(left: int) -> None:
            if left:
                self._loop.call_soon(step, left - 1)
            elif self.site(cell).is_up:
                self.site(cell).kill()

        self._loop.call_soon(step, turns)

    def suspend(self, cell: str = "") -> None:
        """Suspend the machine of a cell, or of the hub, until it is resumed."""
        self.site(cell).clock.suspend()

    def resume(self, cell: str = "") -> None:
        async def resume() -> None:
            self.site(cell).clock.resume()

        self.do(resume())

    def step_clock(self, seconds: float, cell: str = "") -> None:
        """Set the wall clock of a cell, or of the hub, forward or back."""

        async def step() -> None:
            self.site(cell).step_clock(seconds)

        self.do(step())

    def restore(self, backup: Backup, cell: str = "") -> None:
        """Restore a cell, or the hub, from a backup, and start it."""
        self.do(self.site(cell).restore(backup))
        self.up(cell)

    def site(self, cell: str) -> Site:
        """Return a cell; without a name, the hub."""
        return self.cells[cell] if cell else self.hub

    # Steps.

    def do(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine and return its result. Time advances as far as it waits."""
        task = self._loop.create_task(work)
        task.add_done_callback(lambda _: self._loop.stop())
        self._until = float("inf")
        while not task.done():
            self._loop.run_idle(self._idle)
        return task.result()

    def go(self, seconds: float) -> None:
        """Advance time. Everything due meanwhile is done."""
        self._until = self.clock.now() + seconds
        self._loop.run_idle(self._idle)
        for site in (self.hub, *self.cells.values()):
            site.check()

    def _idle(self) -> None:
        due = self.clock.next_due()
        if due is not None and due <= self._until:
            self.clock.advance_to(due)
        elif self._until != float("inf"):
            self.clock.advance_to(self._until)
            self._loop.stop()
        else:
            raise AssertionError("nothing is left that could happen, and it is still waited for")

    # Reading.

    def instances(self, site: Site) -> list[Instance]:
        found: Any = site.objects.list(Instance.api)
        return sorted(found, key=lambda one: one.metadata.name)
