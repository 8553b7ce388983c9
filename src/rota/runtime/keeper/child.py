"""What the keeper holds of a process while it is there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rota.runtime.keeper import kernel
from rota.runtime.keeper.cgroup import Group
from rota.runtime.keeper.logs import Log
from rota.runtime.keeper.program import Entry, Plan
from rota.runtime.keeper.records import Record

Reply = Callable[[Any], None]
"""Called once, with what to answer: a value, or the reason why not."""


class Child:
    """One that runs, or is about to, or whose tree is being ended."""

    def __init__(self, record: Record, log: Log, output: int, group: Group | None, plan: Plan) -> None:
        self.record = record
        self.log = log
        self.output: int | None = output
        self.group = group
        self.minded = plan.minded
        self.has_namespace = plan.new_namespace
        self.rlimits = plan.rlimits
        self.pid = 0
        self.pid_start: int | None = None
        self.report: int | None = None
        self.failure = b""
        self.is_started = False
        self.is_stopping = False
        self.status: int | None = None
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


def entry_of(child: Child) -> Entry | None:
    """Where a command beside the child should run: in the namespaces of its program, if it has some of its own."""
    own = kernel.namespaces_of("self")
    pids = child.group.pids() if child.group else kernel.descendants_of(child.pid)
    found: dict[tuple[str, str], Entry] = {}
    with_start = [(start, pid) for pid in pids if (start := kernel.start_time_of(pid)) is not None]
    for start, pid in sorted(with_start):
        try:
            its = kernel.namespaces_of(pid)
        except OSError:
            continue
        names = [name for name in kernel.NAMESPACES if its[name] != own[name]]
        if "pid" in names or "mnt" in names:
            found.setdefault((its["pid"], its["mnt"]), Entry(pid, start, names, as_it=True))
    places = list(found.values())
    if child.has_namespace and len(places) == 1:
        return replace(places[0], as_it=False)  # that of our own process 1, which may be more than the program is
    # The oldest is the program's own sandbox; any other was made in it.
    return next(iter(places[1:] if child.has_namespace else places), None)


def exit_of(status: int) -> dict[str, Any]:
    code = os.waitstatus_to_exitcode(status)
    return {
        "code": code if code >= 0 else None,
        "signal": -code if code < 0 else None,
        "time": time.time(),
        "reason": None,
    }
