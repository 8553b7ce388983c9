"""File descriptors: as many as the system grants, and a bound on connections that leaves some for everything else."""

from __future__ import annotations

import contextlib
import resource
from typing import NamedTuple

WANTED = 65_536
"""More are of no use: all bounds together are far below."""
KEPT = 256
"""For listeners, the store, logs, files on their way, and runners."""


class Connections(NamedTuple):
    """How many connections there may be of each sort."""

    remote: int
    local: int
    edge: int
    handshakes: int


MOST = Connections(remote=4096, local=4096, edge=512, handshakes=512)
_PARTS = Connections(remote=4, local=2, edge=1, handshakes=1)
LEAST = 8


_inherited: list[int] = []


def raise_limit() -> int:
    """Raise the soft limit of this process as far as it may. Returns what it is then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if not _inherited:
        _inherited.append(soft)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return WANTED if soft == resource.RLIM_INFINITY else soft


def inherited() -> int:
    """The soft limit that this process was started with: what is run here gets that one."""
    return _inherited[0] if _inherited else resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def restore(soft: int) -> None:
    """Lower the soft limit again, in a process that was started by one that raised it."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def shared_out(limit: int) -> Connections:
    """Divide what a limit of descriptors leaves."""
    left = max(limit - KEPT, 0)
    return Connections(
        *(max(LEAST, min(most, left * part // sum(_PARTS))) for most, part in zip(MOST, _PARTS, strict=True))
    )
