"""The CPU time of instances."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rota.runtime.interface import Subject

TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")
_PARENT = 1
_TIMES = slice(11, 15)
"""The fields, after the name in /proc/PID/stat, of a process's CPU time and that of children it has waited for."""


class _Process(NamedTuple):
    parent: int
    ticks: int


def cpu_seconds(running: Mapping[Subject, Sequence[int]]) -> dict[Subject, float]:
    """Return the CPU seconds of each instance since it began.

    `running`: the processes that were started for each. An instance is left out if one of them has ended, because its
    time is no longer known.
    """
    processes = _processes()
    children: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    found = {}
    for subject, tops in running.items():
        if tops and all(pid in processes for pid in tops):
            tree = list(tops)
            for pid in tree:  # It grows while it is walked.
                tree += children.get(pid, ())
            found[subject] = sum(processes[pid].ticks for pid in tree) * TICK_SECONDS
    return found


def _processes() -> dict[int, _Process]:
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                # The name in brackets may hold anything: what follows comes after the last bracket.
                fields = file.read().rpartition(b")")[2].split()
            found[int(name)] = _Process(int(fields[_PARENT]), sum(map(int, fields[_TIMES])))
        except (OSError, ValueError, IndexError):
            continue  # The process is gone.
    return found
