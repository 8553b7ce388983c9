"""The status of a spawner. A problem is in the condition Ready and in `lastError`."""

from __future__ import annotations

import msgspec

from rota.api import Condition, TaskSpawner
from rota.api.meta import with_condition
from rota.api.model import TEXT_LENGTH_MAX
from rota.api.problems import invalid
from rota.api.spawner import TaskSpawnerStatus
from rota.api.templates import SPAWNER_TEMPLATES
from rota.control.gate import READY, RESOLVED, Problem
from rota.registry import ApiError

COUNTS_SECONDS = 10.0
"""Pause between two writes of counts."""
POLL_TIME_SECONDS = 60.0
"""Pause between two writes of the time of the last poll, if nothing else has changed."""

CAUSES_MAX = 5
"""Causes of a refused Task that a message lists."""


def template_problem(spawner: TaskSpawner) -> Problem | None:
    """Check the template of a spawner, as far as that is possible without an item."""
    spec = msgspec.to_builtins(spawner.spec)
    wrong = next(iter(SPAWNER_TEMPLATES.find(spec)), None)
    return None if wrong is None else Problem("TemplateError", _cut(str(invalid(f"spec.{wrong.field}", *wrong[1:]))))


def invalid_task(error: ApiError) -> Problem:
    """Return the problem of a refused Task. It omits the Task's name, because all Tasks of a spawner have it."""
    causes = [f"{cause.get('field')}: {cause.get('message')}" for cause in error.causes[:CAUSES_MAX]]
    return Problem("InvalidTask", _cut("; ".join(causes) or error.message))


def with_ready(
    spawner: TaskSpawner, status: TaskSpawnerStatus, problem: Problem | None, now: float, note: str = ""
) -> TaskSpawnerStatus:
    """Return a status with the condition Ready, False with a problem or True, and `lastError`."""
    generation = spawner.metadata.generation
    error = None if problem is None else _cut(f"{problem.reason}: {problem.message}")
    status = msgspec.structs.replace(status, observed_generation=generation, last_error=error)
    resolved = status.condition(RESOLVED)
    if resolved is not None and resolved.status == "False":
        # A missing reference takes precedence.
        return status
    if problem is not None:
        condition = Condition(type=READY, status="False", reason=problem.reason, message=problem.message)
    else:
        condition = Condition(type=READY, status="True", reason=_doing(spawner, status), message=note)
    condition = msgspec.structs.replace(condition, observed_generation=generation)
    return msgspec.structs.replace(status, conditions=with_condition(status.conditions, condition, now))


def recorded_problem(spawner: TaskSpawner) -> Problem | None:
    """Return the recorded problem, unless the spawner's spec has changed since."""
    status = spawner.status
    if status is None or status.last_error is None or status.observed_generation != spawner.metadata.generation:
        return None
    reason, _, message = status.last_error.partition(": ")
    return Problem(reason, message)


def pause_before(before: TaskSpawnerStatus | None, after: TaskSpawnerStatus, written_ago: float) -> float:
    """Return the seconds before a status is written; 0: now. Only counts and times are delayed."""
    if before is None or _plain(before) != _plain(after):
        return 0.0
    counts = (before.active, before.discovered) != (after.active, after.discovered)
    return max(0.0, (COUNTS_SECONDS if counts else POLL_TIME_SECONDS) - written_ago)


def _plain(status: TaskSpawnerStatus) -> TaskSpawnerStatus:
    return msgspec.structs.replace(status, active=0, discovered=0, last_poll_time=None)


def is_complete(spawner: TaskSpawner, status: TaskSpawnerStatus) -> bool:
    """Report whether a spawner has created `maxTotal` Tasks."""
    return spawner.spec.max_total is not None and status.created >= spawner.spec.max_total


def _doing(spawner: TaskSpawner, status: TaskSpawnerStatus) -> str:
    if spawner.spec.suspend:
        return "Suspended"
    if is_complete(spawner, status):
        return "Complete"
    return "Polling" if spawner.spec.source.github is not None else "Listening"


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_LENGTH_MAX else f"{text[: TEXT_LENGTH_MAX - 1]}…"
