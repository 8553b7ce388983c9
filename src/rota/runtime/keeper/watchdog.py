"""Limits of trees of processes where no cgroup holds them: looked at again and again, and the tree is ended."""

from __future__ import annotations

import os
from collections.abc import Callable

from rota.runtime.keeper import kernel
from rota.runtime.keeper.child import Child
from rota.runtime.keeper.loop import Loop

LOOK_SECONDS = 0.5
WATCHED = ("memory", "pids")
"""Limits that can be held in this way. For half a second a tree may have more."""
TOO_MANY_PROCESSES = "TooManyProcesses"


class Watchdog:
    """Looks at the trees of children while there are any with limits to hold."""

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
        for child, limits in list(self._watched.items()):
            tree = child.group.pids() if child.group else kernel.below(child.pid, sizes)
            found = [sizes[pid] for pid in tree if pid in sizes]
            if "pids" in limits and sum(one.threads for one in found) > limits["pids"]:
                child.record["why"] = TOO_MANY_PROCESSES
            elif "memory" in limits and sum(one.pages for one in found) * self._page > limits["memory"]:
                # What several share is counted for each: look again, at what is a process's own.
                if sum(map(kernel.own_bytes, tree)) <= limits["memory"]:
                    continue
                child.record["oom"] = True
            else:
                continue
            self._end(child)
        self._loop.after(LOOK_SECONDS, self._look)
