"""Limits of what runs as a process and says none itself: no instance may take the host, or the server, with it."""

from __future__ import annotations

import functools
import os

from rota.runtime.interface import Order
from rota.runtime.keeper.client import Limits

PIDS = 4_096
"""Processes and threads of one container."""
OPEN_FILES = 65_536
"""Descriptors of one process."""
MEMORY_SHARE = 0.75
"""Of the memory of the host: the rest is for the server, and for whoever has to put things right."""
RUNNER_PIDS = 16
"""What the runner beside a worker needs for itself."""


def limits_of(order: Order) -> Limits:
    """Return the limits that an order is held to: its own, and the defaults where it says nothing."""
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
