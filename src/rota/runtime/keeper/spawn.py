"""From a plan to a process."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

from rota.runtime.keeper.cgroup import write
from rota.runtime.keeper.minder import mind
from rota.runtime.keeper.program import REPORT, Plan, become, guarded


def spawn(plan: Plan) -> tuple[int, int]:
    """The pid, and a descriptor that ends when the program runs, or says before why it cannot."""
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


def _child(plan: Plan, report: int, is_orphan: Callable[[], bool]) -> None:
    for target, source in enumerate(plan.streams):
        os.dup2(source, target)
    if report != REPORT:
        os.dup2(report, REPORT, inheritable=False)
    # Above all the keeper's lock, which a copy would hold beyond the keeper's death.
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
