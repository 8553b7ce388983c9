"""What is said of a schedule."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from rota.api import Condition, Schedule
from rota.api.function import ScheduleStatus
from rota.api.meta import with_condition
from rota.api.model import TEXT_LENGTH_MAX
from rota.api.problems import invalid
from rota.api.templates import SCHEDULE_TEMPLATES
from rota.control.gate import READY
from rota.control.schedules.planner import Plan
from rota.control.schedules.runs import replaced
from rota.registry import ApiError

RUNS_SECONDS = 2.0
"""What came of runs is written at most this often; with a tick it is written anyway."""
CLOCK_BEHIND_SECONDS = 60.0
"""By how much the clock may be behind the newest tick that was fired before that is said."""
CAUSES_MAX = 5
"""Of what is wrong with a Task, how much is told."""
INVALID_TASK = "InvalidTask"
INVALID_SCHEDULE = "InvalidSchedule"


class Problem(NamedTuple):
    """Why a schedule does not tick."""

    reason: str
    message: str


def invalid_task(error: ApiError) -> Problem:
    """A Task that the server does not take."""
    causes = [f"{cause.get('field')}: {cause.get('message')}" for cause in error.causes[:CAUSES_MAX]]
    return Problem(INVALID_TASK, _cut("; ".join(causes) or error.message))


def template_problem(schedule: Schedule) -> Problem | None:
    """What is wrong with the template of its Tasks, as far as that can be told before there is one."""
    wrong = next(iter(SCHEDULE_TEMPLATES.find(msgspec.to_builtins(schedule.spec))), None)
    if wrong is None:
        return None
    return Problem(INVALID_SCHEDULE, _cut(str(invalid(f"spec.{wrong.field}", wrong.value, wrong.why))))


def problem_said(schedule: Schedule) -> Problem | None:
    """What was wrong with the last Task that was to be made, if the schedule is as it was then."""
    found = schedule.status.condition(READY) if schedule.status is not None else None
    if found is None or found.reason != INVALID_TASK or found.observed_generation != schedule.metadata.generation:
        return None
    return Problem(found.reason, found.message)


def clock_behind(schedule: Schedule, now: float) -> Problem | None:
    """Whether the clock has gone back so far that a schedule is silent for a while: no tick fires twice."""
    last = schedule.status.last_scheduled_time if schedule.status is not None else None
    if last is None or not schedule.spec.enabled or last.timestamp() - now <= CLOCK_BEHIND_SECONDS:
        return None
    return Problem(
        "ClockBehind",
        f"the clock is behind the last tick that was fired, of {last:%Y-%m-%d %H:%M:%S} UTC: none fires until then;"
        " set the clock, or make the schedule anew",
    )


def planned(status: ScheduleStatus, plan: Plan, text: str) -> ScheduleStatus:
    """A status in which a plan has been carried out. `text` is what the cron is known by."""
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


def said(
    schedule: Schedule, status: ScheduleStatus, problem: Problem | None, region: str | None, now: float
) -> ScheduleStatus:
    """A status that tells of a problem, or that there is none."""
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


def refused(status: ScheduleStatus, problem: Problem) -> ScheduleStatus:
    """A status that tells why the Task of a tick was not made."""
    return replaced(status, {"last_error": _cut(f"{problem.reason}: {problem.message}")})


def pause_before(before: ScheduleStatus | None, after: ScheduleStatus, written_ago: float) -> float:
    """For how many seconds a status need not be written, having been written so long ago; 0: do it now."""
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
