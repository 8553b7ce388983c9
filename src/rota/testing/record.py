"""The record of a project: the runs of its schedules, and the calls of its handlers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from rota.api import Kind, Task
from rota.api.task import TaskStatus
from rota.client import Update
from rota.control.schedules.making import MANUAL, SCHEDULE_NAME, SCHEDULED_TIME, TRIGGER
from rota.control.tasks.lifecycle import is_large


@dataclass(slots=True)
class Call:
    """A call of a handler, or of its stand-in."""

    target: str
    """The function, or the pool of the worker; empty for a worker of the task's own."""
    at: datetime
    task: str = ""
    """The name of the Task; empty for `Project.call`."""
    schedule: str = ""
    """The Schedule of the Task; empty if there is none."""
    attempt: int = 1
    """The number of the attempt at the Task."""
    event: Any = None
    """The event of a function."""
    command: tuple[str, ...] = ()
    """The command of a worker, with all templates filled in."""
    stdin: str = ""
    """The standard input of the command; for a prompt, the prompt."""
    env: Mapping[str, str] = field(default_factory=dict)
    """The environment variables of its function or task."""
    result: Any = None
    """The result."""
    error: BaseException | None = None
    """The exception that it raised."""

    def is_of(self, name: str) -> bool:
        """Report whether a name is that of its Task, Schedule, function or pool."""
        return name in (self.task, self.schedule, self.target)


class Run(NamedTuple):
    """A run of a schedule."""

    schedule: str
    at: datetime
    """The tick of the run; for a run by hand, the time of the request."""
    task: str
    """The name of its Task."""
    phase: str
    """Waiting, Queued, Running, Succeeded, Failed or Cancelled."""
    message: str = ""
    """The reason for the phase, if there is one."""
    started: datetime | None = None
    ended: datetime | None = None
    result: Any = None
    manual: bool = False
    """True if it was started by hand."""

    @property
    def succeeded(self) -> bool:
        return self.phase == "Succeeded"


class Record:
    """Keeps runs and calls, also those that the history of a schedule no longer has."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._runs: dict[str, Run] = {}
        """The last state of each run, by the uid of its Task. The Tasks themselves would take too much memory."""
        self._results: dict[str, Any] = {}
        """Results that are too large for a Task, by its name."""
        self._open: dict[str, Task] = {}
        """Unfinished Tasks by uid."""

    def update(self, kind: Kind, event: Update[Task]) -> None:
        """Take an event of a Task."""
        task = event.new or event.old
        assert task is not None
        uid = task.metadata.uid
        if event.new is None or task.over():
            self._open.pop(uid, None)
        else:
            self._open[uid] = task
        if event.new is not None and SCHEDULE_NAME in task.metadata.annotations:
            self._runs[uid] = self._run(task)

    def under_way(self) -> list[Task]:
        """Return the unfinished Tasks."""
        return list(self._open.values())

    def called(self, call: Call, result: str) -> None:
        """Note the result of a call, as JSON."""
        if call.task and is_large(result):
            self._results[call.task] = call.result

    def runs(self, schedule: str | None) -> list[Run]:
        found = [run for run in self._runs.values() if schedule is None or run.schedule == schedule]
        return sorted(found, key=lambda run: (run.at, run.schedule, run.task))

    def _run(self, task: Task) -> Run:
        meta, status = task.metadata, task.status or TaskStatus()
        message = ": ".join(part for part in (status.reason, status.message) if part)
        return Run(
            meta.annotations[SCHEDULE_NAME],
            datetime.fromisoformat(meta.annotations[SCHEDULED_TIME]).astimezone(UTC),
            meta.name,
            status.phase or "Waiting",
            message,
            status.start_time,
            status.completion_time if task.over() else None,
            self._results.get(meta.name, status.result),
            meta.annotations.get(TRIGGER) == MANUAL,
        )
