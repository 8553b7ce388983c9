"""Many that are due at one moment are made ready before it: what is left to do then is to commit.

Only where the registry is in this process. What is ready is used as it is or not at all: if the schedule or one of its
runs has changed since, it is aimed anew; if something else has, the commit is refused, and it is aimed anew, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from rota.api import Schedule
from rota.control.schedules.firing import Firing, Shot
from rota.control.schedules.heap import Heap
from rota.control.schedules.runs import Run, Runs
from rota.control.schedules.ticker import SOON_SECONDS

READY_MIN = 20
"""Fewer at one time are not worth it."""
READY_MAX = 2_000
"""So many are kept ready, each some KiB. The others that are due are aimed when they are."""
STEP = 10
"""Made ready at a time, before others have their turn."""
LATE_SECONDS_MAX = 1.0
"""What is ready for a moment is used no later than this after it: then other decisions may be right."""


class _Ready(NamedTuple):
    shot: Shot
    due: float
    runs: tuple[Run, ...]


class Ahead:
    """What is ready to be fired."""

    def __init__(self, heap: Heap, runs: Runs, find: Callable[[str], Schedule | None]) -> None:
        self._heap = heap
        self._runs = runs
        self._find = find
        self._ready: dict[str, _Ready] = {}

    def __len__(self) -> int:
        return len(self._ready)

    async def prepare(self, firing: Firing, now: float) -> None:
        """Make ready what is due soon."""
        late = now - LATE_SECONDS_MAX
        self._ready = {id_: one for id_, one in self._ready.items() if one.due >= late}
        soon = self._heap.due_by(now + SOON_SECONDS, READY_MAX)
        new = [(due, id_) for due, id_ in soon if id_ not in self._ready]
        if len(new) < READY_MIN:
            return
        for number, (due, id_) in enumerate(sorted(new)[: READY_MAX - len(self._ready)]):
            # It may have been fired meanwhile.
            schedule = self._find(id_) if id_ in self._heap else None
            shot = firing.prepared(schedule, due) if schedule is not None else None
            if shot is not None:
                self._ready[id_] = _Ready(shot, due, self._runs_of(shot.schedule))
            if number % STEP == STEP - 1:
                await asyncio.sleep(0)

    def take(self, id_: str, now: float) -> Shot | None:
        """What was made ready for one that is due now, if that is still right."""
        ready = self._ready.pop(id_, None)
        if ready is None or not 0 <= now - ready.due <= LATE_SECONDS_MAX:
            return None
        schedule = self._find(id_)
        if schedule is None or schedule.metadata.resource_version != ready.shot.schedule.metadata.resource_version:
            return None
        return ready.shot if self._runs_of(schedule) == ready.runs else None

    def _runs_of(self, schedule: Schedule) -> tuple[Run, ...]:
        return tuple(self._runs.of(schedule))
