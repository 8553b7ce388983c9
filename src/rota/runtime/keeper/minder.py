"""Minders, which hold a process tree together where no cgroup does.

A minder is a fork of the keeper between it and the program. It inherits the orphans of its tree, forwards signals, and
exits with the program's status when nothing of the tree is left. On `END_SIGNAL`, or when the keeper dies, it kills the
tree at once. With a PID namespace, a second minder is its process 1, because the kernel drops most signals to a process
1 that has no handlers for them.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NoReturn

from rota.runtime.keeper import kernel
from rota.runtime.keeper.program import REPORT, ProcessPlan, become, guarded

# Tells a minder to end its tree. Clients cannot send it.
END_SIGNAL = signal.SIGALRM
FORWARDED = tuple(
    getattr(signal, f"SIG{name}") for name in ("HUP", "INT", "QUIT", "USR1", "USR2", "TERM", "CONT", "WINCH")
)
NAME = "rota-minder"
_SWEEP_PAUSE_SECONDS = 0.002


def send(pid: int, number: int, minded: bool) -> None:
    """Send a signal to a child's process group. A child with a minder gets it through the minder."""
    with contextlib.suppress(ProcessLookupError):
        if not minded:
            with contextlib.suppress(ProcessLookupError):  # it does not lead its group yet
                os.killpg(pid, number)
                return
        os.kill(pid, number)


def kill_descendants_of(pid: int, but: Collection[int] = ()) -> bool:
    """Kill all descendants except `but` and their descendants. Report whether there were any."""
    found = kernel.descendants_of(pid, but)
    for below in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(below, signal.SIGKILL)
    return bool(found)


def can_unshare_pids() -> bool:
    pid = os.fork()
    if pid == 0:
        try:
            _unshare_pids()
            inner = os.fork()
            os._exit(0 if inner == 0 else os.waitpid(inner, 0)[1])
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


class _EndNow(BaseException):
    pass


def mind(plan: ProcessPlan, is_orphan: Callable[[], bool]) -> None:
    """Become the outer minder. The keeper knows its pid and its exit status."""
    os.setsid()
    kernel.set_name(NAME)
    # Otherwise each minder would look like another keeper of this home.
    kernel.set_arguments((NAME, *plan.minder_arguments))
    kernel.adopt_orphans()
    signal.signal(END_SIGNAL, _end_now)
    if plan.new_namespace:
        _unshare_pids()
    kernel.die_with_parent(END_SIGNAL)
    if is_orphan():
        os._exit(1)
    status_read, status_write = os.pipe()
    inner = os.fork()
    if inner == 0:
        os.close(status_read)
        if plan.new_namespace:
            guarded(lambda: _be_process_one(plan, status_write))
        guarded(lambda: become(plan, lambda: _has_no_reader(status_write)))
    os.close(status_write)
    _release_streams()
    status: int | None = None
    try:
        _forward_to(inner, group=not plan.new_namespace)
        status = _wait_for(inner)
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    except _EndNow:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    swept = _sweep(inner)
    status = swept if status is None else status
    reported = os.read(status_read, 32) if plan.new_namespace else b""
    _end_like(int(reported) if reported else status)


def _end_now(*_: object) -> NoReturn:
    # Once is enough: a second signal would interrupt the sweep.
    signal.signal(END_SIGNAL, signal.SIG_IGN)
    raise _EndNow


def _be_process_one(plan: ProcessPlan, status_write: int) -> None:
    kernel.set_name("rota-init")
    kernel.die_with_parent(signal.SIGKILL)
    if _has_no_reader(status_write):
        os._exit(1)
    program = os.fork()
    if program == 0:
        os.close(status_write)
        guarded(lambda: become(plan, lambda: False))  # the kernel kills it with process 1
    _release_streams()
    _forward_to(program, group=True)
    os.write(status_write, str(_wait_for(program)).encode())
    os._exit(0)


def _has_no_reader(pipe: int) -> bool:
    """Report whether the outer minder is gone. Its pid does not show that in another PID namespace."""
    poll = select.poll()
    poll.register(pipe, 0)
    return bool(poll.poll(0))


def _unshare_pids() -> None:
    uid, gid = os.getuid(), os.getgid()
    if uid == 0:
        kernel.unshare(kernel.CLONE_NEWPID)
        return
    kernel.set_readable(True)  # otherwise the files below belong to root
    kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWPID)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    kernel.set_readable(False)


def _release_streams() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.close(REPORT)
    os.close(null)


def _forward_to(pid: int, group: bool) -> None:
    for number in FORWARDED:
        signal.signal(number, lambda received, _: send(pid, received, minded=not group))
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _wait_for(pid: int) -> int:
    """Return the status of a process, reaping orphans of the tree meanwhile."""
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == pid:
            return status


def _sweep(inner: int) -> int:
    """Kill all descendants until none is left. Returns the status of `inner` if it ended here."""
    found = 0
    while True:
        kill_descendants_of(os.getpid())
        try:
            while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                found = ended[1] if ended[0] == inner else found
        except ChildProcessError:
            return found
        time.sleep(_SWEEP_PAUSE_SECONDS)


def _end_like(status: int) -> NoReturn:
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.kill(os.getpid(), -code)
    os._exit(code & 0xFF)
