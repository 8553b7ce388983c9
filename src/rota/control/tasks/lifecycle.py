"""The status of a task after each event. Pure: no clock, no I/O."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from rota.api import Task
from rota.api.problems import NOT_JSON
from rota.api.structure import too_deep
from rota.api.task import ATTEMPTS_MAX, RETRY_OF, Attempt, Dependency, Retry, TaskStatus
from rota.runtime.runner.jobs import MESSAGE_BYTES_MAX, Outcome, shortened

LOSSES_MAX = 10
"""Tries of a task after its worker was lost. They do not count against `retry.limit`."""
BACKOFF_SECONDS_MAX = 3600.0
RESULT_BYTES_MAX = 4096
"""The most bytes of a result in the status. A larger one is kept outside of the Task."""

DEPENDENCY_OUTPUTS_CHARACTERS_MAX = 512 * 1024
"""Characters of the outputs of all dependencies together, since their task has a copy."""


class TooMuchOutput(Exception):  # noqa: N818
    """The dependencies of a task have more outputs than its status can hold."""


def assignment_id(task: Task) -> str:
    """Return the id of the current attempt, which is unique. It changes when the end of the attempt is written."""
    return f"{task.metadata.uid}.{tries(task)}"


def tries(task: Task) -> int:
    """Return the number of ended attempts."""
    return task.status.tries if task.status is not None else 0


def running(
    status: TaskStatus, instance: str, instance_uid: str | None, since: datetime, arrival: float | None = None
) -> TaskStatus:
    """Return the status of a task that has a worker. It keeps the arrival, for the case that the worker is lost."""
    return msgspec.structs.replace(
        status,
        phase="Running",
        reason=None,
        message=None,
        instance_name=instance,
        instance_uid=instance_uid,
        arrival=status.arrival or (time_of(arrival) if arrival else None),
        start_time=status.start_time or since,
    )


def waiting(status: TaskStatus, reason: str, message: str) -> TaskStatus:
    """Return the status of a task that cannot have a worker yet."""
    return msgspec.structs.replace(
        status, phase="Waiting", reason=reason, message=message, instance_name=None, instance_uid=None
    )


def queued(status: TaskStatus, arrival: datetime, reason: str | None = None, message: str | None = None) -> TaskStatus:
    """Return the status of a task that waits for a worker; the reason, if that waits for something itself."""
    return msgspec.structs.replace(
        status,
        phase="Queued",
        reason=reason,
        message=message,
        instance_name=None,
        instance_uid=None,
        arrival=status.arrival or arrival,
    )


def over(status: TaskStatus, phase: str, reason: str, message: str, now: datetime) -> TaskStatus:
    """Return the status of a task that ends without an attempt."""
    return msgspec.structs.replace(
        status,
        phase=phase,
        reason=reason,
        message=message or None,
        completion_time=now,
        instance_name=status.instance_name,
    )


def after(task: Task, status: TaskStatus, instance: str, outcome: Outcome) -> TaskStatus:
    """Return the status of a task after an attempt: ended, or waiting for the next try."""
    ended = time_of(outcome.ended)
    attempt = Attempt(
        instance=instance,
        start=time_of(outcome.started),
        end=ended,
        exit_code=outcome.exit_code,
        reason=outcome.reason,
        commit=outcome.commit or None,
        note=outcome.note or None,
    )
    lost = outcome.reason == "WorkerLost"
    status = msgspec.structs.replace(
        status,
        attempts=[*status.attempts, attempt][-ATTEMPTS_MAX:],
        tries=status.tries + 1,
        losses=status.losses + lost,
        exit_code=outcome.exit_code,
        commit=outcome.commit or None,
        start_time=status.start_time or attempt.start,
        instance_name=instance,
    )
    if is_retried(task, status, outcome.reason):
        message = f"{outcome.reason}: {outcome.message}" if outcome.message else outcome.reason
        return msgspec.structs.replace(
            status, phase="Waiting", reason="Retrying", message=message, instance_name=None, instance_uid=None
        )
    phase = {"Succeeded": "Succeeded", "Cancelled": "Cancelled"}.get(outcome.reason, "Failed")
    return msgspec.structs.replace(
        status,
        phase=phase,
        reason=None if phase == "Succeeded" else outcome.reason,
        message=outcome.message or None,
        completion_time=ended,
        result=result_of(outcome.result),
        outputs=dict(outcome.outputs),
        usage=dict(outcome.usage) or None,
    )


def is_retried(task: Task, status: TaskStatus, reason: str) -> bool:
    if task.spec.cancel or reason in ("Succeeded", "Cancelled"):
        return False
    retry = task.spec.retry or Retry()
    if reason not in retry.reasons:
        return False
    if reason == "WorkerLost":
        return status.losses <= LOSSES_MAX
    return status.tries - status.losses <= retry.limit


def retried_at(task: Task) -> float:
    """Return the time from which a task may be tried again. After the loss of a worker that is at once."""
    status = task.status
    if status is None or not status.attempts:
        return 0.0
    last = status.attempts[-1]
    if last.reason == "WorkerLost" or last.end is None:
        return 0.0
    retry = task.spec.retry or Retry()
    doublings = max(0, min(status.tries - status.losses - 1, 20))
    return last.end.timestamp() + min(BACKOFF_SECONDS_MAX, retry.backoff_seconds * 2.0**doublings)


def is_large(result: str) -> bool:
    """Report whether a result is too large for the status."""
    return len(result.encode()) > RESULT_BYTES_MAX


def result_of(text: str) -> Any:
    """Return a result as it is in the status: as JSON if possible, else as text; for a large one, its digest."""
    if not text:
        return None
    if is_large(text):
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    try:
        result = msgspec.json.decode(text)
    except NOT_JSON:
        return text
    return text if too_deep(result) else result


def without_findings(outcome: Outcome, why: str) -> Outcome:
    """Return an outcome without its output, which cannot be stored. A success becomes a failure."""
    return Outcome(
        outcome.id,
        "Failed" if outcome.reason == "Succeeded" else outcome.reason,
        outcome.started,
        outcome.ended,
        exit_code=outcome.exit_code,
        message=shortened(f"what it said cannot be stored: {why}", MESSAGE_BYTES_MAX),
    )


def copied(status: TaskStatus, ended: Sequence[Task]) -> TaskStatus:
    """Return a status with copies of the outputs of ended dependencies. Raises TooMuchOutput."""
    known = {one.name: one for one in status.dependencies}
    for task in ended:
        found = task.status
        if found is not None and task.metadata.name not in known:
            known[task.metadata.name] = Dependency(
                name=task.metadata.name,
                uid=task.metadata.uid,
                phase=found.phase or "",
                outputs=found.outputs,
                retry_of=task.metadata.labels.get(RETRY_OF),
            )
    if len(known) == len(status.dependencies):
        return status
    size = sum(len(name) + len(value) for one in known.values() for name, value in one.outputs.items())
    if size > DEPENDENCY_OUTPUTS_CHARACTERS_MAX:
        most = DEPENDENCY_OUTPUTS_CHARACTERS_MAX
        raise TooMuchOutput(f"the outputs of its dependencies have {size} characters; a task is given at most {most}")
    return msgspec.structs.replace(status, dependencies=list(known.values()))


def time_of(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
