"""What the keeper holds of a process while it is there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from rota.runtime.keeper.cgroup import Group
from rota.runtime.keeper.controllers import Held
from rota.runtime.keeper.lease import Lease
from rota.runtime.keeper.logs import Log
from rota.runtime.keeper.program import Plan
from rota.runtime.keeper.records import Record

Reply = Callable[[Any], None]
"""Called once, with what to answer: a value, or the reason why not."""


class Child:
    """One that runs, or is about to, or whose tree is being ended."""

    def __init__(self, record: Record, log: Log, output: int, group: Group | None, limited: Held, plan: Plan) -> None:
        self.record = record
        self.log = log
        self.output: int | None = output
        self.group = group
        self.limited = limited
        self.group_files = plan.group_files
        self.minded = plan.minded
        self.rlimits = plan.rlimits
        self.program_depth = plan.wrappers + plan.minded + plan.new_namespace if plan.wrappers else 0
        """How far below its own process the program is that is asked to end, if not that process itself is."""
        self.pid = 0
        self.pid_start: int | None = None
        self.report: int | None = None
        self.failure = b""
        self.is_started = False
        self.is_stopping = False
        self.status: int | None = None
        self.lease: Lease | None = None
        """How long it may run; None: as long as it likes."""
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
