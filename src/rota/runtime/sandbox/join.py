"""Joins a sandbox from the host, and runs a command in it. `enter` makes its arguments.

    python -I -m rota.runtime.sandbox.join PID UID CWD ARGV…

nsenter does not suffice. An ordinary user's sandbox has two user namespaces, one within the other; namespaces that
belong to the outer one have to be joined from there. And the filter of system calls has to be installed, too.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import signal
import sys

from rota.runtime.sandbox import filter as calls
from rota.runtime.sandbox import stage

NS_GET_USERNS = 0xB701
PR_SET_PDEATHSIG = 1
# The mounts last: from then on every path is the sandbox's.
NAMESPACES = ("ipc", "uts", "net", "cgroup", "pid", "mnt")

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> int:
    pid, uid, cwd, *argv = sys.argv[1:]
    filtered = calls.program(platform.machine())
    # Processes in there have the same uid: none may trace this one before it is confined.
    stage.hide()
    _join(int(pid))
    child = os.fork()
    if child == 0:
        _take_terminal()
        if uid:
            stage.become(int(uid))
            stage.hide()  # A change of uid may have undone it.
        _must(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "the end with its parent")
        stage.give_up(filtered)
        os.chdir(cwd)
        os.execv(argv[0], argv)
    # Signals of the terminal reach the command by themselves.
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _: os.kill(child, received))
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _take_terminal() -> None:
    """Make this process group own the terminal. It cannot be given back: the group before has no number in here."""
    if os.isatty(0):
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpgrp())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)


def _join(pid: int) -> None:
    opened = {name: os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in (*NAMESPACES, "user")}
    wanted = {name: descriptor for name, descriptor in opened.items() if not _is_own(name, descriptor)}
    inner = wanted.pop("user", None)
    if inner is not None:
        outer = fcntl.ioctl(opened["mnt"], NS_GET_USERNS)
        # If Rota is root, all namespaces but the innermost belong to the host's user namespace.
        if not _is_own("user", outer):
            _must(_libc.setns(outer, 0), "the user namespace")
            # An ordinary user cannot join the host's cgroup namespace, and bubblewrap does not always make one.
            wanted.pop("cgroup", None)
        if os.path.sameopenfile(outer, inner):
            inner = None
        os.close(outer)
    for name, descriptor in wanted.items():
        _must(_libc.setns(descriptor, 0), f"the {name} namespace")
    if inner is not None:
        _must(_libc.setns(inner, 0), "the inner user namespace")
    for descriptor in opened.values():
        os.close(descriptor)


def _is_own(name: str, descriptor: int) -> bool:
    own, other = os.stat(f"/proc/self/ns/{name}"), os.fstat(descriptor)
    return (own.st_dev, own.st_ino) == (other.st_dev, other.st_ino)


def _must(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what} cannot be set: {os.strerror(number)}")


if __name__ == "__main__":
    sys.exit(main())
