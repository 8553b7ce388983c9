"""Detect saves of a project's files: the folder is scanned now and then, at a bounded share of the time."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from rota.cli.session import CommandError
from rota.manifest.packing_excludes import Excludes

LOOK_SECONDS = 0.25
SHARE_MAX = 0.1
"""The share of the time that scans may take. A large folder is scanned less often."""
QUIET_SECONDS = 0.15
"""Quiet time that ends a save: files are often saved together."""
QUIET_SECONDS_MAX = 3.0
FILES_MAX = 50_000

Files = dict[str, tuple[int, int, int]]
"""The modification time, size and inode of each file."""


class Folder:
    """The folder of a project file, without what is never packed, and without a home in it."""

    def __init__(self, file: Path, leaving_out: Path) -> None:
        self.top = file.parent
        self._file = file.name
        self._home = os.path.realpath(leaving_out)
        self._known: Files = {}

    async def look(self) -> None:
        """Take the present files as known."""
        self._known = await asyncio.to_thread(self._scanned)

    async def saved(self, seconds_max: float | None) -> bool:
        """Wait until files have changed and come to rest. Returns False when the time is up."""
        until = None if seconds_max is None else time.monotonic() + seconds_max
        pause = LOOK_SECONDS
        while until is None or time.monotonic() < until:
            await asyncio.sleep(pause)
            began = time.monotonic()
            now = await asyncio.to_thread(self._scanned)
            if now != self._known:
                await self._rest(now)
                return True
            pause = max(LOOK_SECONDS, (time.monotonic() - began) / SHARE_MAX)
        return False

    async def _rest(self, now: Files) -> None:
        until = time.monotonic() + QUIET_SECONDS_MAX
        while time.monotonic() < until:
            await asyncio.sleep(QUIET_SECONDS)
            before, now = now, await asyncio.to_thread(self._scanned)
            if before == now:
                return

    def _scanned(self) -> Files:
        excludes = Excludes.read(self.top)
        found: Files = {}
        folders = [""]
        while folders:
            below = folders.pop()
            try:
                entries = list(os.scandir(self.top / below))
            except OSError:
                continue  # it is gone again, or not ours to read: then it is not packed either
            for entry in entries:
                name = f"{below}/{entry.name}" if below else entry.name
                is_folder = entry.is_dir(follow_symlinks=False)
                if excludes.is_excluded(name, is_folder=is_folder) and name != self._file:
                    continue
                if is_folder:
                    if os.path.realpath(entry.path) != self._home:
                        folders.append(name)
                    continue
                try:
                    info = entry.stat()
                except OSError:
                    continue
                found[name] = (info.st_mtime_ns, info.st_size, info.st_ino)
                if len(found) > FILES_MAX:
                    raise CommandError(
                        f"{self.top}: more than {FILES_MAX} files to watch; name what does not matter in .rotaignore"
                    )
        return found
