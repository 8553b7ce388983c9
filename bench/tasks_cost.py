"""Processor time of a task by process: the server, its client, and the runners with all that they started."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

TICKS = os.sysconf("SC_CLK_TCK")


class Spent(NamedTuple):
    """Seconds of processor time."""

    server: float
    client: float
    runners: float

    def since(self, before: Spent) -> Spent:
        return Spent(*(now - then for now, then in zip(self, before, strict=True)))


def spent(server: int, keeper: int) -> Spent:
    """Return the processor time so far of a server, of this process, and of a keeper with its descendants."""
    parents, used = {}, {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(name)] = int(fields[1])
        used[int(name)] = [int(one) / TICKS for one in fields[11:15]]
    below = {pid for pid in parents if _descends(pid, keeper, parents)}
    # The time of an ended process is counted by the parent that has waited for it.
    runners = sum(sum(used[pid]) for pid in below)
    return Spent(sum(used.get(server, [0.0])[:2]), sum(used[os.getpid()][:2]), runners)


def _descends(pid: int, root: int, parents: dict[int, int]) -> bool:
    while pid > 1:
        if pid == root:
            return True
        pid = parents.get(pid, 0)
    return False
