"""What podman's own record does not tell: the monitors of containers, and what hangs on them.

Podman gives every container a monitor (conmon), which makes it through the OCI runtime. When podman's client is killed
between that and the start, podman's record has a container that was never made: to remove it leaves the monitor, the
container's first process, waiting to be started, its cgroup and the OCI runtime's record. The monitor's arguments say
which container it is, and the OCI runtime can end it.

Anybody can run something with such arguments. Only what is the host's own conmon, and ours, is believed.
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
    """A process that holds a container."""

    pid: int
    pid_start: int
    container_id: str

    @property
    def is_alive(self) -> bool:
        return is_alive(self.pid, self.pid_start)


def monitors_of(name: str, program: str) -> list[Monitor]:
    """Those of the container of this name: there may be one for each time that a container had it."""
    try:
        conmon = os.stat(program)
    except OSError:
        return []
    return [found for pid in _own_processes_of(conmon) if (found := _monitor(pid, name)) is not None]


async def have_ended(monitors: Iterable[Monitor], seconds_max: float) -> bool:
    """Whether all of them end within this time."""
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
    # The first of a name: further on are the arguments of what it runs at the end.
    options = dict(reversed(list(itertools.pairwise(arguments))))
    if began is None or options.get("-n") != name or not ID.fullmatch(options.get("-c", "")):
        return None
    return Monitor(pid, began, options["-c"])
