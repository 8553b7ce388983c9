"""Watches the free space of the disk of a home, and keeps a reserve file for the store.

- `ok`: all writes are allowed.
- `low`: the space left is for the server's own writes. Tenants' writes are refused, their output is dropped.
- `full`: the reserve is removed, so that the store can use its space.

The level improves by itself once there is space again. The watchdog ends instances that use too much, not this module.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

from rota.runtime.space import (
    LOOK_SECONDS,
    MIB,
    RECOVERED_FACTOR,
    Level,
    Space,
    level_of,
    low_bytes,
    reserve_bytes,
    space_of,
)

log = logging.getLogger(__name__)

RESERVE = "reserve"


class Disk:
    """The disk of a home. `look` and `relieve` may be called from any thread."""

    def __init__(self, home: Path, *, measure: Callable[[Path], Space] = space_of) -> None:
        self.home = home
        self._measure = measure
        self._reserve = home / RESERVE
        self._lock = threading.Lock()
        self.device = home.stat().st_dev
        self.space = Space(0, 0)
        self.level: Level = "ok"
        self.look()

    def look(self) -> Level:
        """Measure the free space, and make or remove the reserve accordingly. Return the level."""
        with self._lock:
            self._refresh()
            if self.level == "full":
                self._give_up()
            elif self.level == "ok":
                self._keep()
            return self.level

    def relieve(self) -> bool:
        """Remove the reserve. Report whether this freed space."""
        with self._lock:
            return self._give_up()

    def why_low(self) -> str:
        """Return why tenants' writes are refused now, or an empty string if they are allowed."""
        with self._lock:
            self._refresh()
        return self._why()

    def _refresh(self) -> None:
        try:
            self.space = self._measure(self.home)
        except OSError:
            return  # Writers notice a home that cannot be read.
        before, self.level = self.level, level_of(self.space, self.level)
        if self.level != before:
            log.log(logging.INFO if self.level == "ok" else logging.WARNING, "%s", self._why() or self._recovered())

    def _why(self) -> str:
        if self.level == "ok":
            return ""
        space = self.space
        if space.free >= low_bytes(space.total) * RECOVERED_FACTOR:
            return f"the disk of the server has only {space.inodes_free} files left of {space.inodes}"
        left = f"{space.free // MIB} MiB left of {space.total // MIB} MiB"
        return f"the disk of the server has only {left}, which is kept for the server itself"

    def _recovered(self) -> str:
        return f"the disk of {self.home} has space again: {self.space.free // MIB} MiB"

    async def run(self) -> None:
        """Look periodically, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await asyncio.to_thread(self.look)

    def _keep(self) -> None:
        wanted = reserve_bytes(self.space.total)
        try:
            if self._reserve.stat().st_blocks * 512 >= wanted:
                return
        except OSError:
            pass
        if self.space.free < low_bytes(self.space.total) + wanted:
            return
        try:
            file = os.open(self._reserve, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                _allocate(file, wanted)
            finally:
                os.close(file)
        except OSError:
            self._give_up()

    def _give_up(self) -> bool:
        try:
            freed = self._reserve.stat().st_blocks > 0
        except OSError:
            return False
        with contextlib.suppress(OSError):
            self._reserve.unlink()
            return freed
        return False


def _allocate(file: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
        return
    for _ in range(size // MIB):
        os.write(file, bytes(MIB))
