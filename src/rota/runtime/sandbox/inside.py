"""Enters a running sandbox from the host: finds its main process, and makes commands that run in it.

A sandbox has three processes: bubblewrap outside, which was started; bubblewrap inside, which is its pid 1; and the
instance's command, the main process. A signal to the first kills the others without grace, and pid 1 ignores signals.
A main process that can be pid 1 itself is that if Rota is not root.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rota.runtime.sandbox import system
from rota.runtime.sandbox.compose import Command

# The pid of the main process inside: bubblewrap forks it first, or becomes it.
MAIN_INSIDE = ("1", "2")
PARENT_FIELD = 1
BUBBLEWRAP = "bwrap"
WRAPPERS = 2
"""Levels of processes above the main process."""
DEPTH_MAX = 5
"""The most levels below the started process in which the main process is searched. Minders count as levels."""


def main_process(pid: int) -> int | None:
    """Return the host's pid of the main process of the sandbox that is, or is below, `pid`. None: there is no sandbox.

    While the sandbox starts, this is the process that will execute the command.
    """
    above = [pid]
    for _ in range(DEPTH_MAX):
        for init in above:
            if _name(init) == BUBBLEWRAP:
                for child in _children(init):
                    inside = _ids(child)
                    if inside is not None and inside[-1] in MAIN_INSIDE and _name(child) != BUBBLEWRAP:
                        return child
        above = [child for each in above for child in _children(each)]
    return None


def enter(
    pid: int, argv: Sequence[str], *, env: Mapping[str, str], cwd: str, uid: int | None, home: str = "/"
) -> Command:
    """Return the command that runs `argv` in the sandbox that was started as `pid`, with the rights of its processes.

    The command keeps its terminal, ends with the sandbox, and is killed when its parent ends.
    """
    main = main_process(pid)
    if main is None:
        raise ProcessLookupError(f"the sandbox of process {pid} is not running")
    join = [sys.executable, "-I", "-m", "rota.runtime.sandbox.join", str(main), str(uid or ""), cwd]
    inside = system.staged(argv, os.geteuid() if uid is None else uid)
    return Command([*join, *inside], system.packed_environment(home, env))


def _children(pid: int) -> list[int]:
    try:
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except FileNotFoundError:
        # A kernel without such lists, or no such process.
        return _children_by_search(pid)
    except OSError:
        return []
    return [int(number) for number in listed.split()]


def _children_by_search(pid: int) -> list[int]:
    numbers = filter(str.isdigit, os.listdir("/proc"))
    return sorted(int(number) for number in numbers if _parent(number) == pid)


def _parent(pid: str) -> int | None:
    try:
        return int(Path("/proc", pid, "stat").read_text(errors="replace").rpartition(")")[2].split()[PARENT_FIELD])
    except (OSError, IndexError, ValueError):
        return None


def _name(pid: int) -> str:
    try:
        return Path("/proc", str(pid), "comm").read_text(errors="replace").strip()
    except OSError:
        return ""


def _ids(pid: int) -> list[str] | None:
    """Return the pids of a process in its namespaces, the outermost first."""
    try:
        for line in Path("/proc", str(pid), "status").read_text(errors="replace").splitlines():
            if line.startswith("NSpid:"):
                return line.split()[1:]
    except OSError:
        pass
    return None
