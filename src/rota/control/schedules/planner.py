"""Plan a schedule: the ticks that become Tasks now, those that are skipped, and the next time to plan."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from rota.api import Schedule
from rota.api.cron import Cron
from rota.api.function import ACTIVE_MAX
from rota.control.schedules.runs import Run, active
from rota.control.schedules.ticks import due, due_at, is_missed, since, to_fire


class TickPlan(NamedTuple):
    fire: tuple[int, ...] = ()
    """The ticks to fire, oldest first."""
    found: tuple[int, ...] = ()
    """The ticks whose Tasks exist, but are not in the status: a process ended between the two writes."""
    cancel: tuple[str, ...] = ()
    """The Tasks to cancel, for overlap Replace."""
    skipped: int = 0
    """The number of ticks that never become Tasks."""
    next_tick: int | None = None
    """The first tick after those of this plan."""
    wake: float | None = None
    """The time of the next plan; None: not before a run ends, or never."""

    @property
    def is_due(self) -> bool:
        """True if the plan changes the status. It may also create Tasks."""
        return bool(self.fire or self.found or self.skipped)


def plan(schedule: Schedule, cron: Cron, runs: Collection[Run], now: float) -> TickPlan:
    if not schedule.spec.enabled:
        return TickPlan()
    begin = since(schedule, cron.text, now)
    ticks, coming = due(schedule, cron, begin, now)
    wake = None if coming is None else due_at(schedule, cron, coming)
    if not ticks:
        return TickPlan(next_tick=coming, wake=wake)
    there = {run.tick for run in runs if not run.manual}
    found = tuple(tick for tick in ticks if tick in there)
    # No tick fires that is older than one that was fired.
    newer = tuple(tick for tick in ticks if tick > max(there)) if there else ticks
    wanted = to_fire(schedule, cron, newer, now)
    fire, waiting, cancel = _without_overlap(schedule, cron, wanted, active(runs), now)
    skipped = len(ticks) - len(found) - len(fire) - len(waiting)
    if waiting:
        return TickPlan(fire, found, cancel, skipped, waiting[0], None)
    return TickPlan(fire, found, cancel, skipped, coming, wake)


def _without_overlap(
    schedule: Schedule, cron: Cron, wanted: tuple[int, ...], under_way: list[Run], now: float
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[str, ...]]:
    """Return the ticks to fire, the ticks that wait for a run to end, and the Tasks to cancel."""
    nothing: tuple[int, ...] = ()
    if not wanted:
        return nothing, nothing, ()
    if schedule.spec.overlap == "Replace":
        return wanted[-1:], nothing, tuple(run.name for run in under_way if not run.leaving)
    if schedule.spec.overlap == "Allow":
        return wanted[: max(0, ACTIVE_MAX - len(under_way))], nothing, ()
    # With catchUp All each missed tick gets a run of its own, one after the other.
    promised = schedule.spec.catch_up == "All" and (len(wanted) > 1 or is_missed(schedule, cron, wanted[0], now))
    fire = nothing if under_way else wanted[:1]
    return fire, wanted[len(fire) :] if promised else nothing, ()
