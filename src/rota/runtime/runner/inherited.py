"""Limits and scheduling, which a process hands on to those that it starts, and others of its user may change."""

from __future__ import annotations

import ctypes
import os
import platform
from typing import NamedTuple

_CALLS = {"x86_64": (315, 252), "aarch64": (275, 31)}.get(platform.machine(), (None, None))
"""The numbers of sched_getattr and ioprio_get, where they are known."""
_ATTRIBUTES_BYTES = 56
_PROCESS = 1
_libc = ctypes.CDLL(None, use_errno=True)


class Inherited(NamedTuple):
    """Equal for two processes if what either of them starts is held to the same. What is not known is empty."""

    limits: bytes
    """As /proc shows them."""
    scheduling: bytes
    """Its policy, priority and bounds of utilisation."""
    input_priority: int
    processors: frozenset[int]


def inherited_from(pid: int, limits: bytes) -> Inherited:
    """Read what a process with these limits hands on. None of it needs a right to trace that."""
    getattr_, ioprio_get = _CALLS
    scheduling, priority = b"", -1
    if getattr_ is not None and ioprio_get is not None:
        buffer = ctypes.create_string_buffer(_ATTRIBUTES_BYTES)
        if _libc.syscall(getattr_, pid, buffer, _ATTRIBUTES_BYTES, 0) == 0:
            scheduling = buffer.raw
        priority = int(_libc.syscall(ioprio_get, _PROCESS, pid))
    return Inherited(limits, scheduling, priority, _processors(pid))


def _processors(pid: int) -> frozenset[int]:
    if not hasattr(os, "sched_getaffinity"):
        return frozenset()
    try:
        return frozenset(os.sched_getaffinity(pid))
    except OSError:
        return frozenset()
