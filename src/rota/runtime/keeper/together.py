"""The limits of all containers of a home together, and of those of one tenant: each alone may have most of the host.

The rest is for the server, for the keeper, and for whoever has to put things right.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

MEMORY_SHARE, MEMORY_SHARE_OF_ONE = 0.9, 0.75
"""Shares of the host's memory: for all tenants, and for one of them alone."""
PIDS_SHARE, PIDS_SHARE_OF_ONE = 0.75, 0.4
"""The same shares of the processes and threads that the host can have."""
_PIDS_FILES = ("/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max")


@functools.cache
def of_all() -> dict[str, float]:
    """Limits of all tenants together, by their names."""
    return {"memory": _memory() * MEMORY_SHARE, "pids": _pids() * PIDS_SHARE}


@functools.cache
def of_one() -> dict[str, float]:
    """Limits of one tenant, with all that it runs."""
    return {"memory": _memory() * MEMORY_SHARE_OF_ONE, "pids": _pids() * PIDS_SHARE_OF_ONE}


def _memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _pids() -> int:
    return min(int(Path(file).read_text()) for file in _PIDS_FILES)
