"""What becomes of a schedule now: which ticks turn into Tasks, which are passed over, and when to look again."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from rota.api import Schedule
from rota.api.cron import Cron
from rota.api.function import ACTIVE_MAX
from rota.control.schedules.runs import Run, active
from rota.control.schedules.ticks import due, due_at, is_missed, made_up, since


class Plan(NamedTuple):
    """What to do, and what is to be written down with it."""

    fire: tuple[int, ...] = ()
    """The ticks of which to make Tasks, oldest first."""
    found: tuple[int, ...] = ()
    """The ticks of which there are Tasks that were not written down: it ended in between."""
    cancel: tuple[str, ...] = ()
    """The Tasks that make room."""
    skipped: int = 0
    """Ticks that never become Tasks."""
    next_tick: int | None = None
    """The first tick that is not dealt with by this."""
    wake: float | None = None
    """When there is something to do again; None: not before a run ends, or ever."""

    @property
    def is_due(self) -> bool:
        """Whether there is something to do now."""
        return bool(self.fire or self.found or self.skipped)


def plan(schedule: Schedule, cron: Cron, runs: Collection[Run], now: float) -> Plan:
    """Decide by the schedule, its runs and the time alone."""
    if not schedule.spec.enabled:
        return Plan()
    begin = since(schedule, cron.text, now)
    ticks, coming = due(schedule, cron, begin, now)
    wake = None if coming is None else due_at(schedule, cron, coming)
    if not ticks:
        return Plan(next_tick=coming, wake=wake)
    there = {run.tick for run in runs if not run.manual}
    found = tuple(tick for tick in ticks if tick in there)
    # None fires that is older than one that was fired.
    newer = tuple(tick for tick in ticks if tick > max(there)) if there else ticks
    wanted = made_up(schedule, cron, newer, now)
    fire, waiting, cancel = _without_overlap(schedule, cron, wanted, active(runs), now)
    skipped = len(ticks) - len(found) - len(fire) - len(waiting)
    if waiting:
        return Plan(fire, found, cancel, skipped, waiting[0], None)
    return Plan(fire, found, cancel, skipped, coming, wake)


def _without_overlap(
    schedule: Schedule, cron: Cron, wanted: tuple[int, ...], under_way: list[Run], now: float
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[str, ...]]:
    """Which ticks to fire, which have to wait for a run to end, and what to cancel for them."""
    nothing: tuple[int, ...] = ()
    if not wanted:
        return nothing, nothing, ()
    if schedule.spec.overlap == "Replace":
        return wanted[-1:], nothing, tuple(run.name for run in under_way if not run.leaving)
    if schedule.spec.overlap == "Allow":
        return wanted[: max(0, ACTIVE_MAX - len(under_way))], nothing, ()
    # Each of those that were missed is promised a run of its own: one after the other.
    promised = schedule.spec.catch_up == "All" and (len(wanted) > 1 or is_missed(schedule, cron, wanted[0], now))
    fire = nothing if under_way else wanted[:1]
    return fire, wanted[len(fire) :] if promised else nothing, ()
