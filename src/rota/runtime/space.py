"""The free space of a file system, and the levels of shortage.

Small, because every process that stores the output of others imports it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Literal, NamedTuple

Level = Literal["ok", "low", "full"]

MIB = 1024 * 1024
LOW_SHARE, LOW_BYTES_MIN, LOW_BYTES_MAX = 0.05, 4 * MIB, 256 * MIB
"""Tenants' writes are refused below this free share of the disk, but at least and at most these bytes."""
RESERVE_SHARE, RESERVE_BYTES_MIN, RESERVE_BYTES_MAX = 0.01, 1 * MIB, 16 * MIB
"""The size of the reserve as a share of the disk, with its least and most bytes."""
LOW_INODES_SHARE, LOW_INODES_MAX = 0.01, 1000
RECOVERED_FACTOR = 1.25
"""A level improves only when its bound is exceeded by this factor, so that single files do not change it."""
LOOK_SECONDS = 1.0


class Space(NamedTuple):
    """The space and inodes of a file system."""

    total: int
    free: int
    """The bytes free for users other than root."""
    inodes: int = 0
    """The inodes of the file system; 0 if it does not count them."""
    inodes_free: int = 0


def space_of(path: Path | str) -> Space:
    found = os.statvfs(path)
    return Space(
        found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail, found.f_files, max(0, found.f_favail)
    )


def low_bytes(total: int) -> int:
    return int(min(max(total * LOW_SHARE, LOW_BYTES_MIN), LOW_BYTES_MAX))


def low_inodes(inodes: int, level: Level = "ok") -> float:
    """Return the number of free inodes below which a disk is short of them, if `level` was the last level."""
    return min(inodes * LOW_INODES_SHARE, LOW_INODES_MAX) * (1 if level == "ok" else RECOVERED_FACTOR)


def reserve_bytes(total: int) -> int:
    return int(min(max(total * RESERVE_SHARE, RESERVE_BYTES_MIN), RESERVE_BYTES_MAX))


def level_of(space: Space, before: Level = "ok") -> Level:
    """Return the level for this space, if `before` was the last level."""
    low, full = low_bytes(space.total), reserve_bytes(space.total)
    if space.free < full * (RECOVERED_FACTOR if before == "full" else 1):
        return "full"
    factor = 1 if before == "ok" else RECOVERED_FACTOR
    return "low" if space.free < low * factor or space.inodes_free < low_inodes(space.inodes, before) else "ok"


class Shortage:
    """True while the disk of a path is short of space. Measured at most once per LOOK_SECONDS."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._looked_at = float("-inf")
        self._level: Level = "ok"

    def __bool__(self) -> bool:
        now = time.monotonic()
        if now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            try:
                self._level = level_of(space_of(self._path), self._level)
            except OSError:
                self._level = "ok"  # The writer itself finds out.
        return self._level != "ok"
