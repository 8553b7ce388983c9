"""Default limits of process instances, so that no instance can bring down the host or the server."""

from __future__ import annotations

import functools
import os

from rota.runtime.interface import Order
from rota.runtime.keeper.client import Limits

PIDS = 4_096
"""The most processes and threads of one container."""
OPEN_FILES = 65_536
"""The most descriptors of one process."""
MEMORY_SHARE = 0.75
"""The largest share of the host's memory for one instance. The rest is for the server and for administrators."""
RUNNER_PIDS = 16
"""Processes and threads that a worker's runner needs for itself."""


def limits_of(order: Order) -> Limits:
    """Return the limits of an order, with defaults for those that it does not set."""
    pids = order.pids or PIDS
    return Limits(
        memory=order.memory_bytes or default_memory(),
        cpu=order.cpus,
        pids=pids + RUNNER_PIDS if order.has_runner else pids,
        nofile=OPEN_FILES,
    )


@functools.cache
def default_memory() -> int:
    return int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * MEMORY_SHARE)
