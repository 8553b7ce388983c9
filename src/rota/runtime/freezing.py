"""Having the processes of an instance stand still for a moment.

Only what is in a PID namespace of its own is stopped: neither a runner nor anything of the host. Parents are stopped
before what is below them and go on after it, so that no shell takes its jobs for stopped.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Sequence

from rota.runtime.keeper import kernel

STOP_SECONDS_MAX = 1.0
"""What a process is waited for that is in the kernel, and cannot be stopped there."""
PAUSE_SECONDS = 0.001
STILL = (b"T", b"t", b"Z", b"X")
"""What threads do that are stopped or over."""


@contextlib.contextmanager
def frozen(roots: Sequence[int]) -> Iterator[bool]:
    """Stop what runs below these processes, and in their namespaces. Yields whether all of it stands still."""
    stopped: list[int] = []
    """Descriptors, for a number may become another process's."""
    seen: set[int] = set()
    try:
        yield _stop(roots, seen, stopped)
    finally:
        for descriptor in reversed(stopped):
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(descriptor, signal.SIGCONT)
            os.close(descriptor)


def thaw(roots: Sequence[int]) -> None:
    """Have go on what somebody stopped who is no more."""
    for pid in reversed(_tree(roots, _space("self"))):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGCONT)


def _stop(roots: Sequence[int], seen: set[int], stopped: list[int]) -> bool:
    deadline = time.monotonic() + STOP_SECONDS_MAX
    host = _space("self")
    while True:
        running = 0
        found = _tree(roots, host)
        for pid in found:
            if all(state in STILL for state in kernel.thread_states(pid)):
                continue
            running += 1
            if pid not in seen:
                with contextlib.suppress(OSError):
                    descriptor = os.pidfd_open(pid)
                    stopped.append(descriptor)
                    if _space(pid) != host:
                        seen.add(pid)
                        signal.pidfd_send_signal(descriptor, signal.SIGSTOP)
        if not running:
            return bool(found)
        if time.monotonic() > deadline:
            return False
        time.sleep(PAUSE_SECONDS)


def _tree(roots: Sequence[int], host: str) -> list[int]:
    """What runs in the namespaces of what is below these processes, parents first."""
    sizes = kernel.sizes()
    below = [pid for root in roots for pid in kernel.below(root, sizes)]
    spaces = {space for pid in below if (space := _space(pid)) not in ("", host)}
    known = dict.fromkeys(below)
    found = [*known, *(pid for pid in sizes if pid not in known)]
    return [pid for pid in found if _space(pid) in spaces]


def _space(pid: int | str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""
