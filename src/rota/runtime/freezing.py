"""Stops the processes of an instance for a moment, by SIGSTOP.

Only processes in a PID namespace of their own are stopped: neither a runner nor any of the host. Parents are stopped
before their children and continued after them, so that no shell considers its jobs as stopped.

Processes may continue each other (SIGCONT). So all of them are stopped repeatedly, faster than they can do that. Those
that go on all the same are distinguished from those that stop slowly, in the kernel or on a busy machine.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rota.runtime.keeper import kernel

STOP_SECONDS_MAX = 1.0
"""Seconds to wait for a process that is in the kernel, where it cannot be stopped."""
PAUSE_SECONDS = 0.001
STOPS = 8
"""Signals sent to each process in a row."""
STILL = (b"T", b"t", b"Z", b"X")
"""States of threads that are stopped or have ended."""
COMERS_MAX = 20
"""The most processes that may appear during a stop. With more, the instance forks faster than it can be stopped."""
RESTLESS_MAX = 3
"""An instance whose processes evaded being stopped so many times in a row has to end."""
RESTLESS_WHY = "its processes cannot be stopped: they continue each other (SIGCONT), or fork all the time"


class Stillness(NamedTuple):
    """The result of stopping processes."""

    is_whole: bool
    """True if all processes are stopped."""
    is_restless: bool = False
    """True if some evade being stopped."""


class Frozen:
    """Stopped processes. `release` continues them."""

    def __init__(self, roots: Sequence[int]) -> None:
        self._roots = roots
        self._host = _space("self")
        self._stopped: dict[int, int] = {}
        """Pidfds by pid. A pid alone could name another process later."""
        try:
            self._began = self._stop()
        except BaseException:
            self.release()
            raise

    def check(self) -> Stillness:
        """Report whether the processes are stopped still: they may have continued each other after the stop."""
        running = [pid for pid in _tree(self._roots, self._host) if _is_moving(pid)]
        is_woken = self._began.is_whole and any(pid in self._stopped for pid in running)
        return Stillness(self._began.is_whole and not running, self._began.is_restless or is_woken)

    def release(self) -> None:
        for descriptor in reversed(self._stopped.values()):
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(descriptor, signal.SIGCONT)
            os.close(descriptor)

    def _stop(self) -> Stillness:
        deadline = time.monotonic() + STOP_SECONDS_MAX
        stopped, host, first = self._stopped, self._host, set[int]()
        stood, woken, comers = set[int](), set[int](), set[int]()
        while True:
            found = _tree(self._roots, host)
            running = [pid for pid in found if _is_moving(pid)]
            if not running:
                return Stillness(bool(found))
            first = first or {*found}
            woken |= stood.intersection(running)
            comers |= {*found} - first
            stood |= {*found}.difference(running)
            if time.monotonic() > deadline:
                return Stillness(False, is_restless=bool(woken) or len(comers) > COMERS_MAX)
            for pid in running:
                if pid not in stopped:
                    with contextlib.suppress(OSError):
                        descriptor = os.pidfd_open(pid)
                        if _space(pid) in ("", host):
                            os.close(descriptor)
                        else:
                            stopped[pid] = descriptor
            for _ in range(STOPS):
                for pid, descriptor in list(stopped.items()):
                    try:
                        signal.pidfd_send_signal(descriptor, signal.SIGSTOP)
                    except OSError:
                        os.close(stopped.pop(pid))
            time.sleep(PAUSE_SECONDS)


@contextlib.contextmanager
def frozen(roots: Sequence[int]) -> Iterator[Frozen]:
    """Stop all processes below `roots`, and in their PID namespaces, for the duration of the block."""
    stopped = Frozen(roots)
    try:
        yield stopped
    finally:
        stopped.release()


def thaw(roots: Sequence[int]) -> None:
    """Continue the processes that a server had stopped when it was killed."""
    for pid in reversed(_tree(roots, _space("self"))):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGCONT)


def _tree(roots: Sequence[int], host: str) -> list[int]:
    """Return all processes in the PID namespaces below these processes, parents first."""
    sizes = kernel.sizes()
    below = [pid for root in roots for pid in kernel.below(root, sizes)]
    spaces = {space for pid in below if (space := _space(pid)) not in ("", host)}
    known = dict.fromkeys(below)
    found = [*known, *(pid for pid in sizes if pid not in known)]
    return [pid for pid in found if _space(pid) in spaces]


def _is_moving(pid: int) -> bool:
    return any(state not in STILL for state in kernel.thread_states(pid))


def _space(pid: int | str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""
