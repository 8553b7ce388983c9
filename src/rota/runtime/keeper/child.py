"""A process of the keeper, from its start to its verified end, and the commands beside it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from rota.runtime.keeper.cgroup import Cgroup
from rota.runtime.keeper.cgroup_v1 import ControllerGroups
from rota.runtime.keeper.log_file import LogFile
from rota.runtime.keeper.program import ProcessPlan
from rota.runtime.keeper.records import Record

_UPTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock that also advances while the machine is suspended."""
Reply = Callable[[Any], None]
"""Called once with the answer: a value, or a RequestRefused."""


class Lease:
    """A time limit that expires by the machine's clock or by wall time, whichever has advanced more."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began = (time.clock_gettime(_UPTIME), time.time())

    @property
    def has_ended(self) -> bool:
        uptime, wall = self._began
        return max(time.clock_gettime(_UPTIME) - uptime, time.time() - wall) >= self._seconds


class Child:
    """A process that is starting, runs, or whose tree is being ended."""

    def __init__(
        self,
        record: Record,
        log: LogFile,
        output: int,
        group: Cgroup | None,
        limited: ControllerGroups,
        plan: ProcessPlan,
    ) -> None:
        self.record = record
        self.log = log
        self.output: int | None = output
        self.group = group
        self.limited = limited
        self.group_files = plan.group_files
        self.minded = plan.minded
        self.rlimits = plan.rlimits
        self.program_depth = plan.wrappers + plan.minded + plan.new_namespace if plan.wrappers else 0
        """Number of levels below the started process at which the program runs that gets SIGTERM."""
        self.pid = 0
        self.pid_start: int | None = None
        self.report: int | None = None
        self.failure = b""
        self.is_started = False
        self.is_stopping = False
        self.status: int | None = None
        self.lease: Lease | None = None
        """The time that the child may run. None: no limit."""
        self.execs: set[Exec] = set()
        self.starting: list[Reply] = []
        self.waiting: list[Reply] = []


class Exec:
    """A command run beside a child, for one connection."""

    def __init__(self, name: str, child: Child, minded: bool, exited: Callable[[dict[str, Any]], None]) -> None:
        self.name = name
        self.child = child
        self.minded = minded
        self.exited = exited
        self.pid = 0
        self.pid_start: int | None = None
        self.report: int | None = None
        self.failure = b""
        self.is_started = False
        self.reply: Reply | None = None


def exit_of(status: int) -> dict[str, Any]:
    code = os.waitstatus_to_exitcode(status)
    return {
        "code": code if code >= 0 else None,
        "signal": -code if code < 0 else None,
        "time": time.time(),
        "reason": None,
    }
