"""What is said of a spawner. Whatever goes wrong with it is in one condition, and in one line beside its counts."""

from __future__ import annotations

import msgspec

from rota.api import Condition, TaskSpawner
from rota.api.conditions import with_condition
from rota.api.model import TEXT_LENGTH_MAX
from rota.api.problems import invalid
from rota.api.spawner import TaskSpawnerStatus
from rota.api.templates import SPAWNER_TEMPLATES
from rota.control.gate import READY, RESOLVED, Problem
from rota.registry import ApiError

COUNTS_SECONDS = 10.0
"""Counts that changed are written at most this often."""
POLL_TIME_SECONDS = 60.0
"""When nothing but the time of a poll is new, that is written at most this often."""

CAUSES_MAX = 5
"""Of what is wrong with a Task, how much is told."""


def template_problem(spawner: TaskSpawner) -> Problem | None:
    """What is wrong with a template, whatever the item."""
    spec = msgspec.to_builtins(spawner.spec)
    wrong = next(iter(SPAWNER_TEMPLATES.find(spec)), None)
    return None if wrong is None else Problem("TemplateError", _cut(str(invalid(f"spec.{wrong.field}", *wrong[1:]))))


def invalid_task(error: ApiError) -> Problem:
    """A Task that the server does not take. Its name is left out: the next one is refused for the same reason."""
    causes = [f"{cause.get('field')}: {cause.get('message')}" for cause in error.causes[:CAUSES_MAX]]
    return Problem("InvalidTask", _cut("; ".join(causes) or error.message))


def said(
    spawner: TaskSpawner, status: TaskSpawnerStatus, problem: Problem | None, now: float, note: str = ""
) -> TaskSpawnerStatus:
    """A status that tells of a problem, or that there is none."""
    generation = spawner.metadata.generation
    error = None if problem is None else _cut(f"{problem.reason}: {problem.message}")
    status = msgspec.structs.replace(status, observed_generation=generation, last_error=error)
    resolved = status.condition(RESOLVED)
    if resolved is not None and resolved.status == "False":
        # What it refers to is not there: that comes first.
        return status
    if problem is not None:
        condition = Condition(type=READY, status="False", reason=problem.reason, message=problem.message)
    else:
        condition = Condition(type=READY, status="True", reason=_doing(spawner, status), message=note)
    condition = msgspec.structs.replace(condition, observed_generation=generation)
    return msgspec.structs.replace(status, conditions=with_condition(status.conditions, condition, now))


def problem_said(spawner: TaskSpawner) -> Problem | None:
    """The problem that a status tells of, if it speaks of the spawner as it is now."""
    status = spawner.status
    if status is None or status.last_error is None or status.observed_generation != spawner.metadata.generation:
        return None
    reason, _, message = status.last_error.partition(": ")
    return Problem(reason, message)


def pause_before(before: TaskSpawnerStatus | None, after: TaskSpawnerStatus, written_ago: float) -> float:
    """For how many seconds a status need not be written, having been written so long ago; 0: do it now.

    Counts and times may wait. What a person should know may not.
    """
    if before is None or _plain(before) != _plain(after):
        return 0.0
    counts = (before.active, before.discovered) != (after.active, after.discovered)
    return max(0.0, (COUNTS_SECONDS if counts else POLL_TIME_SECONDS) - written_ago)


def _plain(status: TaskSpawnerStatus) -> TaskSpawnerStatus:
    return msgspec.structs.replace(status, active=0, discovered=0, last_poll_time=None)


def is_complete(spawner: TaskSpawner, status: TaskSpawnerStatus) -> bool:
    """Whether a spawner has made all the Tasks that it may ever make."""
    return spawner.spec.max_total is not None and status.created >= spawner.spec.max_total


def _doing(spawner: TaskSpawner, status: TaskSpawnerStatus) -> str:
    if spawner.spec.suspend:
        return "Suspended"
    if is_complete(spawner, status):
        return "Complete"
    return "Polling" if spawner.spec.source.github is not None else "Listening"


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_LENGTH_MAX else f"{text[: TEXT_LENGTH_MAX - 1]}…"
