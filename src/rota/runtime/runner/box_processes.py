"""The processes of a box as the host sees them. Nothing in the box can falsify this."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import signal
from collections.abc import Collection, Iterable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from rota.runtime.runner import agent
from rota.runtime.runner.agent import FIRST, READ_BYTES, children, is_running

DEPTH_MAX = 8
"""The most levels below the started process in which the agent is searched."""
NO_THREAD, ONE_THREAD = 2, 3
"""The number of links of /proc/PID/task without and with one thread: 2, and one more for each thread."""
ENDED, STOPPED = (b"Z", b"X", b""), (b"T", b"t")
"""States of processes in /proc/PID/stat; empty when the process is gone."""
_CALLS = {"x86_64": (315, 252), "aarch64": (275, 31)}.get(platform.machine(), (None, None))
"""The numbers of sched_getattr and ioprio_get, where they are known."""
_ATTRIBUTES_BYTES = 56
_PROCESS = 1
_libc = ctypes.CDLL(None, use_errno=True)
_FLAGS = os.O_RDONLY | os.O_CLOEXEC
_HARMLESS = 1 << (signal.SIGCHLD - 1) | 1 << (signal.SIGCONT - 1)
"""Pending signals of an agent that neither stop nor end it, as a mask."""


class Inherited(NamedTuple):
    """The limits and scheduling attributes that children of a process inherit. Unreadable attributes are empty."""

    limits: bytes
    """The content of /proc/PID/limits."""
    scheduling: bytes
    """The policy, priority and utilisation bounds of the process."""
    input_priority: int
    processors: frozenset[int]


class WatchedProcess:
    """One process, with its files of /proc kept open, because opening them costs more than reading them.

    The files stay those of this process, even if its pid is used again.
    """

    def __init__(self, pid: int) -> None:
        """Raises OSError when the process is gone."""
        self.pid = pid
        self._files: list[int] = []
        try:
            for name in (
                "task",
                "stat",
                "status",
                "limits",
                *([f"task/{pid}/children"] if agent.LISTS_CHILDREN else ()),
            ):
                self._files.append(os.open(f"/proc/{pid}/{name}", _FLAGS))
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        for file in self._files:
            os.close(file)
        self._files.clear()

    def children(self) -> list[int]:
        """Return the children of all threads of the process."""
        links = os.fstat(self._files[0]).st_nlink
        if links <= NO_THREAD:
            return []  # It is gone, and its children were reparented.
        if links > ONE_THREAD or not agent.LISTS_CHILDREN:
            return children(self.pid)
        return [int(number) for number in os.pread(self._files[4], READ_BYTES, 0).split()]

    def is_alive(self) -> bool:
        return self._state() not in ENDED

    def is_stopped(self) -> bool:
        """Report whether a signal or a tracer has stopped it."""
        return self._state() in STOPPED

    def can_run(self) -> bool:
        """Report whether it is alive and not stopped."""
        return self._state() not in ENDED + STOPPED

    def has_pending(self) -> bool:
        """Report whether a signal is pending that may stop or end the process."""
        try:
            lines = os.pread(self._files[2], READ_BYTES, 0).splitlines()
        except OSError:
            return False
        waiting = [line.split()[1] for line in lines if line.startswith((b"SigPnd:", b"ShdPnd:"))]
        return any(int(mask, 16) & ~_HARMLESS for mask in waiting)

    def handed_on(self) -> Inherited:
        """Return the attributes that children of the process inherit."""
        try:
            return inherited_from(self.pid, os.pread(self._files[3], READ_BYTES, 0))
        except OSError:
            return inherited_from(self.pid, b"")

    def _state(self) -> bytes:
        try:
            return os.pread(self._files[1], READ_BYTES, 0).rpartition(b") ")[2][:1]
        except OSError:
            return b""


class BoxProcesses:
    """The processes of one box. Their pids in the box differ from those on the host."""

    def __init__(self, top: int, number: int) -> None:
        """`top`: the host's pid of the started process. `number`: the agent's pid in the box."""
        path = _find(top, number)
        self._agent: WatchedProcess | None = None
        self._above: list[tuple[WatchedProcess, int]] = []
        """The processes above the agent in its namespace, each with its child on the path to the agent.

        An orphan that does not descend from the agent is reparented to one of them.
        """
        self._known: dict[int, WatchedProcess] = {}
        """Children of the agent, by their pid in the box."""
        with contextlib.suppress(OSError):
            self._agent = WatchedProcess(path[-1]) if path else None
            for pid, below in pairwise(path):
                if len(_numbers(pid)) == len(_numbers(path[-1])):
                    self._above.append((WatchedProcess(pid), below))
        self._handed_on = self._agent.handed_on() if self._agent is not None else None
        """The attributes that commands inherited from the agent before the first command ran."""
        self._number = number
        self._proc: int | None = None
        """A descriptor of the box's own /proc, which lists the processes of its PID namespace."""
        self.is_apart = bool(path) and len(_numbers(path[-1])) > len(_numbers(os.getpid()))
        """True if the box has a PID namespace of its own."""
        if self.is_apart:
            # Without it `is_alone` is never certain, and the box is replaced after each task.
            with contextlib.suppress(OSError):
                self._proc = os.open(f"/proc/{path[-1]}/root/proc", os.O_RDONLY | os.O_DIRECTORY)

    def close(self) -> None:
        for one in (*self._known.values(), *(one for one, _ in self._above), *([self._agent] if self._agent else ())):
            one.close()
        self._agent, self._above, self._known = None, [], {}
        if self._proc is not None:
            os.close(self._proc)
            self._proc = None

    def is_clear(self, kept: Iterable[int]) -> bool:
        """Report whether only the agent and the kept processes run. If False, this is not certain.

        `kept`: pids in the box. Orphans are reparented to the agent. The children of kept processes are listed first:
        one that is orphaned in between is then found as a child of the agent.
        """
        if self._agent is None:
            return False
        found: set[int] = set()
        for number in kept:
            one = self._here(number)
            if one is None or any(map(is_running, one.children())):
                return False
            found.add(one.pid)
        if any(is_running(other) for one, below in self._above for other in one.children() if other != below):
            return False
        if not found.issuperset(self._agent.children()):
            return False
        # In this order: a signal that is not pending any more has had its effect.
        return not self._agent.has_pending() and self._agent.can_run()

    def is_as_started(self) -> bool:
        """Report whether new commands would inherit the same attributes from the agent as the first command did.

        Commands have the agent's uid, so they can change its limits, its priority and its processors.
        """
        return self._agent is not None and self._agent.handed_on() == self._handed_on

    def is_stopped(self) -> bool:
        """Report whether the agent is stopped. Commands have its uid, so they can send it SIGSTOP."""
        return self._agent is not None and self._agent.is_stopped()

    def is_alone(self, kept: Collection[int]) -> bool:
        """Report whether the box's PID namespace holds only its first process, the agent and `kept`.

        True if it has no namespace of its own.
        """
        if self._proc is None:
            return not self.is_apart
        but, proc = {FIRST, self._number, *kept}, f"/proc/self/fd/{self._proc}"
        try:
            numbers = [int(name) for name in os.listdir(self._proc) if name.isdigit()]
        except OSError:
            return False
        return not any(is_running(number, proc) for number in numbers if number not in but)

    def _here(self, number: int) -> WatchedProcess | None:
        if number not in self._known:
            assert self._agent is not None
            before = {one.pid: one for one in self._known.values()}
            self._known = {}
            for pid in self._agent.children():
                with contextlib.suppress(OSError):
                    if numbers := _numbers(pid):
                        same = pid in before and before[pid].is_alive()
                        self._known[numbers[-1]] = before.pop(pid) if same else WatchedProcess(pid)
            for gone in before.values():
                gone.close()
        return self._known.get(number)


def _find(top: int, number: int) -> list[int]:
    """Return the pids from `top` down to the process whose innermost pid is `number`; none if there is no such one."""
    ways = [[top]]
    for _ in range(DEPTH_MAX):
        for way in ways:
            if _numbers(way[-1])[-1:] == [number]:
                return way
        ways = [[*way, below] for way in ways for below in children(way[-1])]
    return []


def _numbers(pid: int) -> list[int]:
    """Return the pids of a process in all its namespaces, the innermost last; none if it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return []
    for line in status.splitlines():
        if line.startswith("NSpid:"):
            return [int(number) for number in line.split()[1:]]
    return []


def inherited_from(pid: int, limits: bytes) -> Inherited:
    """Read the attributes that children of a process inherit. Needs no right to trace it.

    `limits`: the path of its /proc/PID/limits.
    """
    getattr_, ioprio_get = _CALLS
    scheduling, priority = b"", -1
    if getattr_ is not None and ioprio_get is not None:
        buffer = ctypes.create_string_buffer(_ATTRIBUTES_BYTES)
        if _libc.syscall(getattr_, pid, buffer, _ATTRIBUTES_BYTES, 0) == 0:
            scheduling = buffer.raw
        priority = int(_libc.syscall(ioprio_get, _PROCESS, pid))
    return Inherited(limits, scheduling, priority, _processors(pid))


def _processors(pid: int) -> frozenset[int]:
    if not hasattr(os, "sched_getaffinity"):
        return frozenset()
    try:
        return frozenset(os.sched_getaffinity(pid))
    except OSError:
        return frozenset()
