"""What happened in a project: the runs of its schedules, and the calls of its handlers."""

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
    """One call of a handler, or of what stands in for it."""

    target: str
    """The function that is called, or the pool whose worker runs it; empty: a worker of the task's own."""
    at: datetime
    task: str = ""
    """The Task, by its name; empty for `Project.call`."""
    schedule: str = ""
    """The Schedule that the Task is of; empty: of none."""
    attempt: int = 1
    """Which try of the Task it is."""
    event: Any = None
    """What a function is given."""
    command: tuple[str, ...] = ()
    """What a worker is to run, with all templates filled in."""
    stdin: str = ""
    """What that reads: of a prompt, the prompt."""
    env: Mapping[str, str] = field(default_factory=dict)
    """The variables that it has beside its own: those of its function, or those of its task."""
    result: Any = None
    """What came of it."""
    error: BaseException | None = None
    """What it raised."""

    def is_of(self, name: str) -> bool:
        """Whether this is the name of its Task, its Schedule, its function or its pool."""
        return name in (self.task, self.schedule, self.target)


class Run(NamedTuple):
    """One run of a schedule."""

    schedule: str
    at: datetime
    """The tick that it is for; of a run by hand, when it was asked for."""
    task: str
    """Its Task, by name."""
    phase: str
    """Waiting, Queued, Running, Succeeded, Failed or Cancelled."""
    message: str = ""
    """Why it is so, where there is something to say."""
    started: datetime | None = None
    ended: datetime | None = None
    result: Any = None
    manual: bool = False
    """Whether it was asked for, beside the ticks."""

    @property
    def succeeded(self) -> bool:
        return self.phase == "Succeeded"


class Record:
    """Keeps both, also when the history of a schedule does not."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._runs: dict[str, Run] = {}
        """Each as it was last seen, by the uid of its Task. The Tasks themselves would be too much to keep."""
        self._results: dict[str, Any] = {}
        """Those that are too large to be in a Task, by its name."""
        self._open: dict[str, Task] = {}
        """Those that are not over, by their uid."""

    def hear(self, kind: Kind, update: Update[Task]) -> None:
        """News of a Task."""
        task = update.new or update.old
        assert task is not None
        uid = task.metadata.uid
        if update.new is None or task.over():
            self._open.pop(uid, None)
        else:
            self._open[uid] = task
        if update.new is not None and SCHEDULE_NAME in task.metadata.annotations:
            self._runs[uid] = self._run(task)

    def under_way(self) -> list[Task]:
        """The Tasks that are not over."""
        return list(self._open.values())

    def called(self, call: Call, result: str) -> None:
        """A call has ended with this, as JSON."""
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
