"""Having the processes of an instance stand still for a moment.

Only what is in a PID namespace of its own is stopped: neither a runner nor anything of the host. Parents are stopped
before what is below them and go on after it, so that no shell takes its jobs for stopped.

Processes may wake each other up (SIGCONT). So all of them are stopped again and again, faster than they can. Those that
go on all the same are told from those that take long to stop: in the kernel, or on a busy machine.
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
"""What a process is waited for that is in the kernel, and cannot be stopped there."""
PAUSE_SECONDS = 0.001
STOPS = 8
"""How often all are stopped in a row."""
STILL = (b"T", b"t", b"Z", b"X")
"""What threads do that are stopped or over."""
COMERS_MAX = 20
"""Processes that begin after all others have been stopped. Who has more makes them faster than they are stopped."""
RESTLESS_MAX = 3
"""What was restless so many times in a row is to be ended."""
RESTLESS_WHY = "its processes cannot be made to stand still: they wake each other up (SIGCONT), or others come"


class Stillness(NamedTuple):
    """What became of having processes stand still."""

    is_whole: bool
    """All of them do."""
    is_restless: bool = False
    """Some cannot be stopped, and it is their own doing."""


class Frozen:
    """Processes that have been stopped."""

    def __init__(self, roots: Sequence[int]) -> None:
        self._roots = roots
        self._host = _space("self")
        self._stopped: dict[int, int] = {}
        """Descriptors, for a number may become another process's."""
        try:
            self._began = self._stop()
        except BaseException:
            self.release()
            raise

    def so_far(self) -> Stillness:
        """Whether they have stood still up to now: those that take turns may have seemed to, for a moment."""
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
    """Stop what runs below these processes, and in their namespaces."""
    stopped = Frozen(roots)
    try:
        yield stopped
    finally:
        stopped.release()


def thaw(roots: Sequence[int]) -> None:
    """Have go on what somebody stopped who is no more."""
    for pid in reversed(_tree(roots, _space("self"))):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGCONT)


def _tree(roots: Sequence[int], host: str) -> list[int]:
    """What runs in the namespaces of what is below these processes, parents first."""
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
