"""What runs in a box, as the host sees it: nobody in the box has a say in that."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection, Iterable
from itertools import pairwise
from pathlib import Path

from rota.runtime.runner import agent
from rota.runtime.runner.agent import FIRST, READ_BYTES, children, is_running
from rota.runtime.runner.inherited import Inherited, inherited_from

DEPTH_MAX = 8
"""How far below what was started an agent is."""


NO_THREAD, ONE_THREAD = 2, 3
"""The links of a folder of threads: its own two, and one for each thread."""
ENDED, STOPPED = (b"Z", b"X", b""), (b"T", b"t")
"""States of processes, as /proc has them; empty where it has none any more."""
_FLAGS = os.O_RDONLY | os.O_CLOEXEC
_HARMLESS = 1 << (signal.SIGCHLD - 1) | 1 << (signal.SIGCONT - 1)
"""Signals that an agent may have yet to take, as a mask."""


class Watched:
    """One process. The files that the kernel has of it are kept open: to open them costs more than to read them.

    They are of this process alone, also when its number is used again.
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
        """The processes right below it. Each thread has its own."""
        links = os.fstat(self._files[0]).st_nlink
        if links <= NO_THREAD:
            return []  # It is gone, and its children are another's.
        if links > ONE_THREAD or not agent.LISTS_CHILDREN:
            return children(self.pid)
        return [int(number) for number in os.pread(self._files[4], READ_BYTES, 0).split()]

    def is_alive(self) -> bool:
        return self._state() not in ENDED

    def is_stopped(self) -> bool:
        """Report whether a signal or a tracer has made it stand still."""
        return self._state() in STOPPED

    def can_run(self) -> bool:
        """Report whether it is alive and not stopped."""
        return self._state() not in ENDED + STOPPED

    def has_pending(self) -> bool:
        """Report whether a signal is under way to it that may stop or end it."""
        try:
            lines = os.pread(self._files[2], READ_BYTES, 0).splitlines()
        except OSError:
            return False
        waiting = [line.split()[1] for line in lines if line.startswith((b"SigPnd:", b"ShdPnd:"))]
        return any(int(mask, 16) & ~_HARMLESS for mask in waiting)

    def handed_on(self) -> Inherited:
        """Return what those that it starts inherit of it."""
        try:
            return inherited_from(self.pid, os.pread(self._files[3], READ_BYTES, 0))
        except OSError:
            return inherited_from(self.pid, b"")

    def _state(self) -> bytes:
        try:
            return os.pread(self._files[1], READ_BYTES, 0).rpartition(b") ")[2][:1]
        except OSError:
            return b""


class Outside:
    """The processes of one box. They have numbers of their own in there, and others here."""

    def __init__(self, top: int, number: int) -> None:
        """What was started, and the number that its agent has for itself."""
        path = _find(top, number)
        self._agent: Watched | None = None
        self._above: list[tuple[Watched, int]] = []
        """An orphan that does not descend from the agent comes to the first process of its namespace."""
        self._known: dict[int, Watched] = {}
        """Children of the agent, by the number that the box has for them."""
        with contextlib.suppress(OSError):
            self._agent = Watched(path[-1]) if path else None
            for pid, below in pairwise(path):
                if len(_numbers(pid)) == len(_numbers(path[-1])):
                    self._above.append((Watched(pid), below))
        self._handed_on = self._agent.handed_on() if self._agent is not None else None
        """The attributes that commands inherit of the agent, as they were before the first command."""
        self._number = number
        self._proc: int | None = None
        """The processes of its namespace, as the box numbers them."""
        self.is_apart = bool(path) and len(_numbers(path[-1])) > len(_numbers(os.getpid()))
        """Whether it is in a namespace of its own."""
        if self.is_apart:
            # Where it cannot be had, nothing is certain, and the box is replaced after each task.
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
        """Whether nothing runs but the agent and some processes, as the box numbers them. False: it is not certain.

        Orphans come to the agent. Those that are kept are looked at first: what leaves them is with the agent then.
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
        """Report whether commands inherit the same of the agent as the first one did.

        Whatever runs in the box has its uid, and can change its limits, its priority and its processors.
        """
        return self._agent is not None and self._agent.handed_on() == self._handed_on

    def is_stopped(self) -> bool:
        """Report whether the agent stands still. Whatever runs in the box has its uid, and can send it SIGSTOP."""
        return self._agent is not None and self._agent.is_stopped()

    def is_alone(self, kept: Collection[int]) -> bool:
        """Whether nothing has come into its namespace from outside, but some processes. True where it has none."""
        if self._proc is None:
            return not self.is_apart
        but, proc = {FIRST, self._number, *kept}, f"/proc/self/fd/{self._proc}"
        try:
            numbers = [int(name) for name in os.listdir(self._proc) if name.isdigit()]
        except OSError:
            return False
        return not any(is_running(number, proc) for number in numbers if number not in but)

    def _here(self, number: int) -> Watched | None:
        if number not in self._known:
            assert self._agent is not None
            before = {one.pid: one for one in self._known.values()}
            self._known = {}
            for pid in self._agent.children():
                with contextlib.suppress(OSError):
                    if numbers := _numbers(pid):
                        same = pid in before and before[pid].is_alive()
                        self._known[numbers[-1]] = before.pop(pid) if same else Watched(pid)
            for gone in before.values():
                gone.close()
        return self._known.get(number)


def _find(top: int, number: int) -> list[int]:
    """Return the way from a process down to the one that has this number for itself; empty: there is none."""
    ways = [[top]]
    for _ in range(DEPTH_MAX):
        for way in ways:
            if _numbers(way[-1])[-1:] == [number]:
                return way
        ways = [[*way, below] for way in ways for below in children(way[-1])]
    return []


def _numbers(pid: int) -> list[int]:
    """Return the numbers that a process has in its namespaces, that in the innermost last; empty: it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return []
    for line in status.splitlines():
        if line.startswith("NSpid:"):
            return [int(number) for number in line.split()[1:]]
    return []
