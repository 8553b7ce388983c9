"""Launches that are prepared shortly before many schedules are due at one moment: then only the commit is left.

Only with the registry in this process. A prepared launch is used as it is or not at all: if the schedule or one of its
runs has changed since, or if the commit is refused, the launch is planned anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from rota.api import Schedule
from rota.control.schedules.firing import Firing, Launch
from rota.control.schedules.heap import Heap
from rota.control.schedules.runs import Run, ScheduleRuns
from rota.control.schedules.ticker import SOON_SECONDS

READY_MIN = 20
"""Fewer launches are not prepared: it would not pay."""
READY_MAX = 2_000
"""Launches that are kept prepared, each some KiB. Others are planned when they are due."""
STEP = 10
"""Launches that are prepared before the event loop serves others."""
LATE_SECONDS_MAX = 1.0
"""Age from which a prepared launch is discarded: another decision may be right by then."""


class _Prepared(NamedTuple):
    launch: Launch
    due: float
    runs: tuple[Run, ...]


class PreparedLaunches:
    def __init__(self, heap: Heap, runs: ScheduleRuns, find: Callable[[str], Schedule | None]) -> None:
        self._heap = heap
        self._runs = runs
        self._find = find
        self._ready: dict[str, _Prepared] = {}

    def __len__(self) -> int:
        return len(self._ready)

    async def prepare(self, firing: Firing, now: float) -> None:
        """Prepare the launches that are due soon."""
        late = now - LATE_SECONDS_MAX
        self._ready = {id_: one for id_, one in self._ready.items() if one.due >= late}
        soon = self._heap.due_by(now + SOON_SECONDS, READY_MAX)
        new = [(due, id_) for due, id_ in soon if id_ not in self._ready]
        if len(new) < READY_MIN:
            return
        for number, (due, id_) in enumerate(sorted(new)[: READY_MAX - len(self._ready)]):
            # The schedule may have fired meanwhile.
            schedule = self._find(id_) if id_ in self._heap else None
            launch = firing.prepared(schedule, due) if schedule is not None else None
            if launch is not None:
                self._ready[id_] = _Prepared(launch, due, self._runs_of(launch.schedule))
            if number % STEP == STEP - 1:
                await asyncio.sleep(0)

    def take(self, id_: str, now: float) -> Launch | None:
        """Remove and return the prepared launch of a schedule that is due; None: there is none, or it is outdated."""
        ready = self._ready.pop(id_, None)
        if ready is None or not 0 <= now - ready.due <= LATE_SECONDS_MAX:
            return None
        schedule = self._find(id_)
        if schedule is None or schedule.metadata.resource_version != ready.launch.schedule.metadata.resource_version:
            return None
        return ready.launch if self._runs_of(schedule) == ready.runs else None

    def _runs_of(self, schedule: Schedule) -> tuple[Run, ...]:
        return tuple(self._runs.of(schedule))
