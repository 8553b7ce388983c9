"""The limit of file descriptors: raised as far as allowed, and shared out to connections."""

from __future__ import annotations

import contextlib
import resource
from typing import NamedTuple

WANTED = 65_536
"""The limit to aim for. All bounds on connections together are far below it."""
KEPT = 256
"""Descriptors reserved for listeners, the store, logs, transfers and runners; connections share the others."""


class Connections(NamedTuple):
    """The most connections of each sort."""

    remote: int
    local: int
    edge: int
    handshakes: int


MOST = Connections(remote=4096, local=4096, edge=512, handshakes=512)
_PARTS = Connections(remote=4, local=2, edge=1, handshakes=1)
LEAST = 8


_inherited: list[int] = []


def raise_limit() -> int:
    """Raise the soft limit of this process up to WANTED, as far as it may. Return the new limit."""
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
    """Return the soft limit with which this process was started. Instances get the same limit."""
    return _inherited[0] if _inherited else resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def restore(soft: int) -> None:
    """Set the soft limit back, in a child of a process that raised it."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def shared_out(limit: int) -> Connections:
    """Divide the descriptors of a limit among the sorts of connections."""
    left = max(limit - KEPT, 0)
    return Connections(
        *(max(LEAST, min(most, left * part // sum(_PARTS))) for most, part in zip(MOST, _PARTS, strict=True))
    )
