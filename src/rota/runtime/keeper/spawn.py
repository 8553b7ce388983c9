"""Forks the process of a plan, and computes the limits that the kernel enforces from its start."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

from rota.runtime.keeper.cgroup import write
from rota.runtime.keeper.minder import mind
from rota.runtime.keeper.program import REPORT, ProcessPlan, become, guarded

RLIMITS = {"nofile": resource.RLIMIT_NOFILE, "memory": resource.RLIMIT_DATA, "pids": resource.RLIMIT_NPROC}


def spawn(plan: ProcessPlan) -> tuple[int, int]:
    """Fork a process. Return its pid and a descriptor that reports an error, or ends once the program runs."""
    report, report_write = os.pipe()
    keeper = os.getpid()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = os.fork()
        if pid == 0:
            guarded(lambda: _child(plan, report_write, is_orphan=lambda: os.getppid() != keeper))
    except OSError:
        os.close(report)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(report_write)
    os.set_blocking(report, False)
    return pid, report


def _child(plan: ProcessPlan, report: int, is_orphan: Callable[[], bool]) -> None:
    for target, source in enumerate(plan.streams):
        os.dup2(source, target)
    if report != REPORT:
        os.dup2(report, REPORT, inheritable=False)
    # Above all the keeper's lock, which a copy would hold after the keeper has died.
    os.closerange(REPORT + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    signal.set_wakeup_fd(-1)
    for number in range(1, signal.NSIG):
        if signal.getsignal(number) not in (signal.SIG_DFL, None):
            signal.signal(number, signal.SIG_DFL)
    if plan.oom_score is not None:
        Path("/proc/self/oom_score_adj").write_text(plan.oom_score)
    for file in plan.group_files:
        write(file, "0")
    if plan.minded:
        mind(plan, is_orphan)
    else:
        become(plan, is_orphan)


def rlimits_for(limits: dict[str, int], uid: int | None, nofile: tuple[int, int]) -> dict[str, tuple[int, int]]:
    """Return the limits that the kernel enforces without a cgroup: for each process, not for the tree."""
    # The kernel counts processes by user: that helps only where the user is the child's own, and not root.
    held = {name: (value, value) for name, value in limits.items() if name in RLIMITS and (name != "pids" or uid)}
    if "nofile" in held:
        # Never more than the keeper itself has.
        held["nofile"] = (min(nofile[0], limits["nofile"]), min(nofile[1], limits["nofile"]))
    return held


def protect_from_oom_killer() -> str | None:
    """Make the kernel kill other processes before the keeper. Returns the score to give to children instead."""
    file = Path("/proc/self/oom_score_adj")
    try:
        before = file.read_text()
        file.write_text("-900")
    except OSError:
        return None
    return before
