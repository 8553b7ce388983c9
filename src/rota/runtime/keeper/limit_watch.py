"""Limits of process trees without a cgroup: trees are checked periodically, and one that exceeds a limit is ended."""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable, Sequence

from rota.runtime.keeper import kernel, open_files
from rota.runtime.keeper.child import Child
from rota.runtime.keeper.loop import Loop

LOOK_SECONDS = 0.5
WATCHED = ("memory", "pids")
"""Limits that are checked. A tree may exceed them for up to `LOOK_SECONDS`."""
TOO_MANY_PROCESSES = "TooManyProcesses"
FILES_SECONDS_MAX = 0.1
"""Seconds of each check spent on open files. Trees are checked in random order, so that each gets its chance."""


def too_much_memory(tree: Sequence[int], resident: int, most: float, *, until: float = math.inf) -> bool:
    """Report whether processes use more memory than `most`.

    `resident`: an estimate of their mapped memory. `until`: the monotonic time at which inspection of memory files
    stops.
    """
    with_files = time.monotonic() < until
    if resident + (kernel.shared_bytes() if with_files else 0) <= most:
        return False
    # Shared pages count for each process in the estimate: measure again, by what is private.
    own = [kernel.own_memory(pid) for pid in tree]
    private, shared = sum(one.private for one in own), sum(one.shared for one in own)
    if private + shared > most:
        return True
    # Memory files may be mapped, and are then counted already: the larger figure counts.
    return with_files and private + max(shared, open_files.memory_bytes(tree, until)) > most


class LimitWatch:
    """Checks the trees of children with limits, as long as there are any."""

    def __init__(self, loop: Loop, end: Callable[[Child], None]) -> None:
        self._loop = loop
        self._end = end
        self._watched: dict[Child, dict[str, float]] = {}
        self._page = os.sysconf("SC_PAGE_SIZE")

    def watch(self, child: Child, limits: dict[str, float]) -> None:
        if limits:
            if not self._watched:
                self._loop.after(LOOK_SECONDS, self._look)
            self._watched[child] = limits

    def _look(self) -> None:
        for child in [child for child in self._watched if child.status is not None]:
            del self._watched[child]
        if not self._watched:
            return
        sizes = kernel.sizes()
        watched = list(self._watched.items())
        random.shuffle(watched)
        deadline = time.monotonic() + FILES_SECONDS_MAX
        for child, limits in watched:
            tops = (child.pid, *(one.pid for one in child.execs))
            tree = child.group.pids() if child.group else [pid for top in tops for pid in kernel.below(top, sizes)]
            found = [sizes[pid] for pid in tree if pid in sizes]
            if "pids" in limits and sum(one.threads for one in found) > limits["pids"]:
                child.record["why"] = TOO_MANY_PROCESSES
            elif "memory" in limits and too_much_memory(
                tree,
                sum(one.pages for one in found) * self._page,
                limits["memory"],
                until=deadline,
            ):
                child.record["oom"] = True
            else:
                continue
            self._end(child)
        self._loop.after(LOOK_SECONDS, self._look)
