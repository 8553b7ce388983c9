"""Reaching a sandbox that runs, from the host: its main process, signals to it, and further commands in it.

A sandbox is three processes: bubblewrap outside, which is what was started; bubblewrap inside, which is its pid 1; and
the instance's command, the main process. A signal to the first kills the others without grace, and pid 1 takes none.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rota.runtime.sandbox import system
from rota.runtime.sandbox.compose import Command

# The pid of the main process inside: bubblewrap forks it first.
MAIN_INSIDE = "2"
PARENT_FIELD = 1


def main_process(pid: int) -> int | None:
    """The host's pid of the main process of the sandbox that was started as `pid`, or none if it is not there (yet).

    While the sandbox comes up, this is the step that will become it.
    """
    for init in _children(pid):
        for child in _children(init):
            inside = _ids(child)
            if inside is not None and inside[-1] == MAIN_INSIDE:
                return child
    return None


def deliver(pid: int, number: signal.Signals) -> bool:
    """Sends a signal to the main process of the sandbox that was started as `pid`; tells whether there was one.

    Whoever calls this is the parent of `pid`, or holds a descriptor of it, so that the number is not another's by now.
    """
    found = main_process(pid)
    if found is None:
        return False
    try:
        descriptor = os.pidfd_open(found)
    except ProcessLookupError:
        return False
    try:
        # Looked at again: the number could have been another's when the descriptor was opened.
        if main_process(pid) != found:
            return False
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def enter(
    pid: int, argv: Sequence[str], *, env: Mapping[str, str], cwd: str, uid: int | None, home: str = "/"
) -> Command:
    """The command that runs `argv` in the sandbox that was started as `pid`, with no more rights than what runs there.

    It keeps the terminal it is given, ends with the sandbox, and is killed when what runs this command is.
    """
    main = main_process(pid)
    if main is None:
        raise ProcessLookupError(f"the sandbox of process {pid} is not running")
    join = [sys.executable, "-I", "-m", "rota.runtime.sandbox.join", str(main), str(uid or ""), cwd]
    return Command([*join, *system.staged(argv)], system.packed_environment(home, env))


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


def _ids(pid: int) -> list[str] | None:
    """Its number in every PID namespace it is in, from the outermost."""
    try:
        for line in Path("/proc", str(pid), "status").read_text(errors="replace").splitlines():
            if line.startswith("NSpid:"):
                return line.split()[1:]
    except OSError:
        pass
    return None
