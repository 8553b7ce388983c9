"""The status of a schedule: problems, conditions, counts."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from rota.api import Condition, Schedule
from rota.api.function import ScheduleStatus
from rota.api.meta import with_condition
from rota.api.model import TEXT_LENGTH_MAX
from rota.api.problems import invalid
from rota.api.templates import SCHEDULE_TEMPLATES
from rota.control.gate import READY, Problem
from rota.control.schedules.planner import TickPlan
from rota.control.schedules.runs import replaced
from rota.registry import ApiError

RUNS_SECONDS = 2.0
"""Pause between two writes of the results of runs. A tick writes them at once."""
CLOCK_BEHIND_SECONDS = 60.0
"""The most by which the clock may be behind the newest fired tick before that counts as a problem."""
CAUSES_MAX = 5
"""Causes of a refused Task that a message lists."""
INVALID_TASK = "InvalidTask"
INVALID_SCHEDULE = "InvalidSchedule"


def invalid_task(error: ApiError) -> Problem:
    """Return the problem of a Task that the server refuses."""
    causes = [f"{cause.get('field')}: {cause.get('message')}" for cause in error.causes[:CAUSES_MAX]]
    return Problem(INVALID_TASK, _cut("; ".join(causes) or error.message))


def template_problem(schedule: Schedule) -> Problem | None:
    """Check the templates of a schedule, as far as that is possible before a tick."""
    wrong = next(iter(SCHEDULE_TEMPLATES.find(msgspec.to_builtins(schedule.spec))), None)
    if wrong is None:
        return None
    return Problem(INVALID_SCHEDULE, _cut(str(invalid(f"spec.{wrong.field}", wrong.value, wrong.why))))


def recorded_problem(schedule: Schedule) -> Problem | None:
    """Return the recorded problem of the last tick's Task, unless the schedule's spec has changed since."""
    found = schedule.status.condition(READY) if schedule.status is not None else None
    if found is None or found.reason != INVALID_TASK or found.observed_generation != schedule.metadata.generation:
        return None
    return Problem(found.reason, found.message)


def clock_behind(schedule: Schedule, now: float) -> Problem | None:
    """Return a problem if the clock was set back so far that a schedule does not fire for a while."""
    last = schedule.status.last_scheduled_time if schedule.status is not None else None
    if last is None or not schedule.spec.enabled or last.timestamp() - now <= CLOCK_BEHIND_SECONDS:
        return None
    return Problem(
        "ClockBehind",
        f"the clock is behind the last tick that was fired, of {last:%Y-%m-%d %H:%M:%S} UTC: none fires until then;"
        " set the clock, or delete the schedule and create it anew",
    )


def with_plan(status: ScheduleStatus, plan: TickPlan, text: str) -> ScheduleStatus:
    """Return the status after a plan was carried out. `text` identifies the cron."""
    fields: dict[str, object] = {
        "observed_cron": text,
        "next_run_time": time_of(plan.next_tick),
        "run_count": status.run_count + len(plan.fire) + len(plan.found),
        "skipped_count": status.skipped_count + plan.skipped,
    }
    fired = [*plan.found, *plan.fire]
    if fired:
        fields["last_scheduled_time"] = time_of(fired[-1])
    return replaced(status, fields)


def with_ready(
    schedule: Schedule, status: ScheduleStatus, problem: Problem | None, region: str | None, now: float
) -> ScheduleStatus:
    """Return a status with the condition Ready: False with a problem, or True."""
    generation = schedule.metadata.generation
    if problem is not None:
        ready = Condition(type=READY, status="False", reason=problem.reason, message=problem.message)
    else:
        ready = Condition(type=READY, status="True", reason="Scheduled" if schedule.spec.enabled else "Paused")
    known = status.condition(READY)
    if known is None or _plain(known) != (ready.status, ready.reason, ready.message, generation):
        placed = Condition(
            type=READY, status=ready.status, reason=ready.reason, message=ready.message, observed_generation=generation
        )
        status = replaced(status, {"conditions": with_condition(status.conditions, placed, now)})
    return replaced(status, {"observed_generation": generation, "region": region})


def with_error(status: ScheduleStatus, problem: Problem) -> ScheduleStatus:
    """Return a status with the reason why the Task of a tick was not created."""
    return replaced(status, {"last_error": _cut(f"{problem.reason}: {problem.message}")})


def pause_before(before: ScheduleStatus | None, after: ScheduleStatus, written_ago: float) -> float:
    """Return the seconds before a status is written; 0: now. Only results of runs are delayed."""
    if before is None or _without_runs(before) != _without_runs(after):
        return 0.0
    return max(0.0, RUNS_SECONDS - written_ago)


def time_of(moment: float | None) -> datetime | None:
    return None if moment is None else datetime.fromtimestamp(moment, UTC)


def _without_runs(status: ScheduleStatus) -> ScheduleStatus:
    none: dict[str, object] = {"last_started_time": None, "last_completed_time": None, "last_error": None, "active": []}
    return replaced(status, none)


def _plain(condition: Condition) -> tuple[str, str, str, int | None]:
    return condition.status, condition.reason, condition.message, condition.observed_generation


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_LENGTH_MAX else f"{text[: TEXT_LENGTH_MAX - 1]}…"
