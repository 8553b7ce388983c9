"""The runs of schedules: what their Tasks come to, kept as they are told of."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import NamedTuple

import msgspec

from rota.api import Schedule, Task
from rota.api.function import ACTIVE_MAX, History, ScheduleStatus
from rota.api.model import TEXT_LENGTH_MAX
from rota.control.schedules.making import COUNTED, MANUAL, SCHEDULED_TIME, TRIGGER

ACTIVE_PENDING_MAX = ACTIVE_MAX // 2
"""Runs by hand that are counted at a time: the others are when these are noted."""


class Run(NamedTuple):
    """One Task of a schedule."""

    name: str
    uid: str
    tick: int
    """The moment that it is for."""
    manual: bool
    phase: str
    """Empty while it is not over."""
    leaving: bool = False
    """Whether it is being deleted or cancelled already."""
    started: datetime | None = None
    completed: datetime | None = None
    error: str | None = None
    is_counted: bool = True
    """Whether it is among the runs that the schedule has counted for good. That of a tick is, with the tick."""


def run_of(task: Task) -> Run:
    """A Task as a run of the schedule that it is of."""
    meta, status = task.metadata, task.status
    notes = meta.annotations
    over = task.over()
    failed = over and status is not None and status.phase == "Failed"
    return Run(
        meta.name,
        meta.uid,
        _moment(notes.get(SCHEDULED_TIME, "")),
        notes.get(TRIGGER) == MANUAL,
        (status.phase or "") if over and status is not None else "",
        meta.deletion_timestamp is not None or task.spec.cancel,
        status.start_time if status is not None else None,
        status.completion_time if over and status is not None else None,
        _why(status.reason, status.message) if failed and status is not None else None,
        notes.get(TRIGGER) != MANUAL or COUNTED in notes,
    )


def schedule_of(task: Task | None) -> str:
    """The schedule that a Task is of, as `identity` has it; empty if of none. It is one of the Task's own namespace."""
    if task is not None:
        for owner in task.metadata.owner_references:
            if owner.controller and owner.kind == Schedule.api.name:
                return f"{task.metadata.namespace}/{owner.uid}"
    return ""


def identity(schedule: Schedule) -> str:
    """Tell a schedule apart. With its namespace: what others write in theirs is not of it, whatever it says."""
    return f"{schedule.metadata.namespace}/{schedule.metadata.uid}"


def active(runs: Iterable[Run]) -> list[Run]:
    """Those that are not over, oldest first."""
    return sorted((run for run in runs if not run.phase), key=_by_age)


def too_many(runs: Collection[Run], history: History, newest: int | None) -> list[Run]:
    """Those that are over and beyond what is kept, and strictly older than the newest tick that was fired.

    The Task of that one stays: as long as it is there, nobody can make it a second time.
    """
    over = sorted((run for run in runs if run.phase and not run.leaving), key=_by_age, reverse=True)
    good = [run for run in over if run.phase == "Succeeded"]
    bad = [run for run in over if run.phase != "Succeeded"]
    beyond = [*good[history.succeeded :], *bad[history.failed :]]
    return [run for run in beyond if run.is_counted and (run.manual or newest is None or run.tick < newest)]


def told(status: ScheduleStatus, runs: Collection[Run]) -> ScheduleStatus:
    """A status with what came of the runs. What came of those that are gone stays.

    A run by hand is counted when it comes into `active`, and stays there until that is noted on its Task: so each is
    counted once, whatever is killed in between.
    """
    begun = (run.started or run.completed for run in runs)
    started = max((time for time in begun if time is not None), default=None)
    ended = max(((run.completed, run.error or "") for run in runs if run.completed is not None), default=None)
    pending = _pending(status, runs)
    others = [run for run in active(runs) if run.is_counted][len(pending) - ACTIVE_MAX :]
    names = [run.name for run in sorted([*pending, *others], key=_by_age)] if pending else [run.name for run in others]
    new = sum(run.name not in status.active for run in pending)
    fields: dict[str, object] = {"run_count": status.run_count + new} if new else {}
    if started is not None and (status.last_started_time is None or started > status.last_started_time):
        fields["last_started_time"] = started
    if ended is not None and (status.last_completed_time is None or ended[0] > status.last_completed_time):
        fields |= {"last_completed_time": ended[0], "last_error": ended[1] or None}
    if names != status.active:
        fields["active"] = names
    return replaced(status, fields)


def _pending(status: ScheduleStatus, runs: Collection[Run]) -> list[Run]:
    """Runs by hand that are not counted for good, as many as there is room for; those that are counted first."""
    found = [run for run in runs if not run.is_counted]
    if len(found) > ACTIVE_PENDING_MAX:
        counted = set(status.active)
        found.sort(key=lambda run: (run.name not in counted, _by_age(run)))
    return found[:ACTIVE_PENDING_MAX]


def to_note(status: ScheduleStatus, runs: Collection[Run]) -> list[Run]:
    """Runs by hand that a status that is written down has counted, and whose Tasks do not say so yet."""
    counted = set(status.active)
    return [run for run in runs if not run.is_counted and run.name in counted]


def replaced(status: ScheduleStatus, fields: dict[str, object]) -> ScheduleStatus:
    """A status with some fields changed; the same one where none is."""
    changed = {name: value for name, value in fields.items() if getattr(status, name) != value}
    return msgspec.structs.replace(status, **changed) if changed else status


class Runs:
    """The runs of all schedules."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, Run]] = {}
        """By the identity of the schedule, and the name of the Task."""

    def of(self, schedule: Schedule) -> Collection[Run]:
        return self._of.get(identity(schedule), {}).values()

    def note(self, schedule: Schedule, run: Run) -> None:
        """What was made counts at once, also where the news of it takes a while."""
        self._of.setdefault(identity(schedule), {}).setdefault(run.name, run)

    def hear(self, old: Task | None, new: Task | None) -> bool:
        """News of a Task. Whether it matters to the schedule that it is of."""
        whose, before = schedule_of(new or old), schedule_of(old)
        if before and before != whose and old is not None:
            # It was let go of by a schedule that was deleted without it.
            self._leave(before, old.metadata.name)
        if not whose:
            return False
        if new is None:
            assert old is not None
            gone = self._leave(whose, old.metadata.name)
            return gone is not None and (not gone.phase or not gone.is_counted)
        runs = self._of.setdefault(whose, {})
        run = run_of(new)
        known = runs.get(run.name)
        runs[run.name] = run
        if known is None:
            # One that a person has made is not known yet; one of a tick is written down with the tick.
            return run.manual or bool(run.phase)
        return (known.phase, known.started, known.is_counted) != (run.phase, run.started, run.is_counted)

    def _leave(self, whose: str, name: str) -> Run | None:
        runs = self._of.get(whose, {})
        gone = runs.pop(name, None)
        if not runs:
            self._of.pop(whose, None)
        return gone

    def clear(self) -> None:
        self._of.clear()


def _by_age(run: Run) -> tuple[int, str]:
    return run.tick, run.name


def _moment(text: str) -> int:
    try:
        return int(datetime.fromisoformat(text).timestamp())
    except ValueError:
        return 0


def _why(reason: str | None, message: str | None) -> str:
    first = (message or "").strip().partition("\n")[0]
    text = ": ".join(part for part in (reason or "Failed", first) if part)
    return text if len(text) <= TEXT_LENGTH_MAX else f"{text[: TEXT_LENGTH_MAX - 1]}…"
