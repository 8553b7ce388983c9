"""The runs of schedules: their Tasks, kept up to date from watch events, and what a status says of them."""

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
"""Manual runs that are counted at a time. The others are counted when these have their annotation."""


class Run(NamedTuple):
    """One Task of a schedule."""

    name: str
    uid: str
    tick: int
    """The tick, or the time of a manual run."""
    manual: bool
    phase: str
    """The final phase; empty: the run is not over."""
    leaving: bool = False
    """True if it is being deleted or cancelled."""
    started: datetime | None = None
    completed: datetime | None = None
    error: str | None = None
    is_counted: bool = True
    """True if the schedule's `runCount` includes it, and its Task has the annotation. A tick counts its run."""


def run_of(task: Task) -> Run:
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
    """Return the `identity` of the schedule that owns a Task, in the Task's namespace; empty: no schedule owns it."""
    if task is not None:
        for owner in task.metadata.owner_references:
            if owner.controller and owner.kind == Schedule.api.name:
                return f"{task.metadata.namespace}/{owner.uid}"
    return ""


def identity(schedule: Schedule) -> str:
    """Return namespace and uid. With the namespace, an owner reference from another namespace matches nothing."""
    return f"{schedule.metadata.namespace}/{schedule.metadata.uid}"


def active(runs: Iterable[Run]) -> list[Run]:
    """Return the runs that are not over, oldest first."""
    return sorted((run for run in runs if not run.phase), key=_by_age)


def too_many(runs: Collection[Run], history: History, newest: int | None) -> list[Run]:
    """Return the runs to delete: over, beyond the history, and strictly older than the newest tick that was fired.

    The Task of the newest tick stays: while it exists, nobody can create it a second time.
    """
    over = sorted((run for run in runs if run.phase and not run.leaving), key=_by_age, reverse=True)
    good = [run for run in over if run.phase == "Succeeded"]
    bad = [run for run in over if run.phase != "Succeeded"]
    beyond = [*good[history.succeeded :], *bad[history.failed :]]
    return [run for run in beyond if run.is_counted and (run.manual or newest is None or run.tick < newest)]


def with_runs(status: ScheduleStatus, runs: Collection[Run]) -> ScheduleStatus:
    """Return a status with the state of the runs. Times and errors of runs that are gone stay.

    A manual run is counted when it enters `active`, and stays there until its Task has the annotation: so each is
    counted once, also when the process is killed in between.
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
    """Return manual runs without the annotation, up to ACTIVE_PENDING_MAX; those that are in `active` first."""
    found = [run for run in runs if not run.is_counted]
    if len(found) > ACTIVE_PENDING_MAX:
        counted = set(status.active)
        found.sort(key=lambda run: (run.name not in counted, _by_age(run)))
    return found[:ACTIVE_PENDING_MAX]


def to_note(status: ScheduleStatus, runs: Collection[Run]) -> list[Run]:
    """Return manual runs that a written status has counted, and whose Tasks lack the annotation."""
    counted = set(status.active)
    return [run for run in runs if not run.is_counted and run.name in counted]


def replaced(status: ScheduleStatus, fields: dict[str, object]) -> ScheduleStatus:
    """Return a status with these fields; the same object if none differs."""
    changed = {name: value for name, value in fields.items() if getattr(status, name) != value}
    return msgspec.structs.replace(status, **changed) if changed else status


class ScheduleRuns:
    """The runs of all schedules."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, Run]] = {}
        """The runs of each schedule, by its identity and the Task's name."""

    def of(self, schedule: Schedule) -> Collection[Run]:
        return self._of.get(identity(schedule), {}).values()

    def add(self, schedule: Schedule, run: Run) -> None:
        """Add the run of a Task that was just created, before its watch event arrives."""
        self._of.setdefault(identity(schedule), {}).setdefault(run.name, run)

    def note_task(self, old: Task | None, new: Task | None) -> bool:
        """Take a watch event of a Task. Returns whether the status of its schedule may change."""
        whose, before = schedule_of(new or old), schedule_of(old)
        if before and before != whose and old is not None:
            # Its schedule was deleted, and orphaned it.
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
            # The run of a tick is recorded with the tick; a manual one is not yet.
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
