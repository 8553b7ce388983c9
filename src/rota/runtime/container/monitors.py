"""The monitor processes of podman's containers, found in /proc.

Podman gives every container a monitor (conmon), which makes it through the OCI runtime. When podman's client is killed
before the start, podman records a container that was never made. To remove that leaves the monitor, the container's
first process, its cgroup and the record of the OCI runtime. The monitor's arguments name the container, and the OCI
runtime can end it.

Any process can have such arguments. Only processes of the host's own conmon with our uid count.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from rota.runtime.keeper.kernel import is_alive, start_time_of

ID = re.compile("[0-9a-f]{64}")


class Monitor(NamedTuple):
    """The monitor process of a container."""

    pid: int
    pid_start: int
    container_id: str

    @property
    def is_alive(self) -> bool:
        return is_alive(self.pid, self.pid_start)


def monitors_of(name: str, program: str) -> list[Monitor]:
    """Return the monitors of all containers that ever had this name and were left behind."""
    try:
        conmon = os.stat(program)
    except OSError:
        return []
    return [found for pid in _own_processes_of(conmon) if (found := _monitor(pid, name)) is not None]


async def have_ended(monitors: Iterable[Monitor], seconds_max: float) -> bool:
    """Wait for the end of monitors. Report whether all ended within this time."""
    try:
        async with asyncio.timeout(seconds_max):
            for monitor in monitors:
                await _end_of(monitor)
    except TimeoutError:
        return False
    return True


async def _end_of(monitor: Monitor) -> None:
    try:
        descriptor = os.pidfd_open(monitor.pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        if monitor.is_alive:
            await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _own_processes_of(program: os.stat_result) -> list[int]:
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            is_own = os.stat(f"/proc/{entry}").st_uid == os.geteuid()
            if is_own and os.path.samestat(os.stat(f"/proc/{entry}/exe"), program):
                found.append(int(entry))
        except OSError:
            continue
    return found


def _monitor(pid: int, name: str) -> Monitor | None:
    began = start_time_of(pid)
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return None
    # The first option of a name counts: later ones are arguments of the command that it runs at the end.
    options = dict(reversed(list(itertools.pairwise(arguments))))
    if began is None or options.get("-n") != name or not ID.fullmatch(options.get("-c", "")):
        return None
    return Monitor(pid, began, options["-c"])
