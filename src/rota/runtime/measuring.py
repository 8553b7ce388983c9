"""Measures how much of the disk a folder takes, while a tenant may fill it and try to hide files.

No link is followed and no other file system is entered. Files with several names are counted once. A folder that its
owner may not read is opened all the same, and gets its mode back afterwards.

Each name counts for at least `FILE_BYTES_MIN`: a link or an empty file takes no space, but one of the disk's inodes.
Files that are moved during the measurement may be missed. The result reports that: to be certain, the caller stops all
processes meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

BLOCK_BYTES = 512
FILE_BYTES_MIN = 4096
CLOCK_SECONDS = 0.05
"""The most seconds by which the times of files may lag behind the clock."""
DEPTH_OPEN_MAX = 64
"""Above this depth, the folders on the way to the current one are all open."""
LINKED_MAX = 1_000_000
BREATH_ENTRIES = 2_000
_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class NotMeasurable(Exception):  # noqa: N818
    """A folder cannot be measured, because its tenant has made it unreadable or too complex."""


class Used(NamedTuple):
    """The space and files that a folder takes on the disk."""

    bytes: int
    files: int = 0
    """Files, folders and links."""
    is_whole: bool = True
    """False if files may have been moved during the measurement, and missed."""


def used(folder: Path, *, breathe: Callable[[float], None] = lambda seconds: None) -> Used:
    """Measure a folder with everything in it; a missing folder takes nothing. Raises NotMeasurable.

    `breathe` is called from time to time with the seconds of work since the last call. It may pause.
    """
    if not folder.exists():
        return Used(0)
    with _opened(None, str(folder)) as (top, changed):
        walk = _Walk(os.fstat(top).st_dev, breathe)
        walk.look(changed)
        total = walk.measure(top, 0)
    return Used(total, walk.files, walk.is_whole)


class _Walk:
    def __init__(self, device: int, breathe: Callable[[float], None]) -> None:
        self._device = device
        self._breathe = breathe
        self._linked: set[int] = set()
        self._began = time.time() - CLOCK_SECONDS
        self.files = 0
        self.is_whole = True
        self._since = time.monotonic()

    def measure(self, folder: int, depth: int) -> int:
        total, folders = self._content(folder)
        for name in folders:
            try:
                with _opened(folder, name) as (inner, changed):
                    self.look(changed)
                    if os.fstat(inner).st_dev != self._device:
                        continue
                    total += self.measure(inner, depth + 1) if depth < DEPTH_OPEN_MAX else self._measure_deep(inner)
            except (FileNotFoundError, NotADirectoryError):
                self.is_whole = False  # It was removed, replaced or moved meanwhile.
            except PermissionError as error:
                raise NotMeasurable(f"one of its folders cannot be read: {error.strerror}") from None
        return total

    def _measure_deep(self, top: int) -> int:
        """Measure a folder with at most two folders open."""
        total, folders = self._content(top)
        way: list[tuple[list[str], tuple[int, int], int]] = [(folders, _identity(top), 0)]
        current = os.dup(top)
        try:
            while True:
                if way[-1][0]:
                    name = way[-1][0].pop()
                    try:
                        below, mode, changed = _open(current, name)
                    except (FileNotFoundError, NotADirectoryError):
                        self.is_whole = False
                        continue
                    if os.fstat(below).st_dev != self._device:
                        os.close(below)
                        continue
                    self.look(changed)
                    os.close(current)
                    current = below
                    size, folders = self._content(current)
                    total += size
                    way.append((folders, _identity(current), -1 if mode is None else mode))
                    continue
                _, _, mode_before = way.pop()
                if not way:
                    return total
                above = os.open("..", os.O_RDONLY | _FOLDER, dir_fd=current)
                if mode_before >= 0:
                    os.fchmod(current, mode_before)
                os.close(current)
                current = above
                if _identity(current) != way[-1][1]:
                    self.is_whole = False
                    return total
        finally:
            os.close(current)

    def _content(self, folder: int) -> tuple[int, list[str]]:
        """Return the bytes of a folder and its files, and the names of the folders in it."""
        before = os.fstat(folder)
        total, folders = _bytes_of(before), []
        with os.scandir(folder) as entries:
            for entry in entries:
                self._count()
                try:
                    found = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    self.is_whole = False
                    continue
                if stat.S_ISDIR(found.st_mode):
                    folders.append(entry.name)
                elif found.st_nlink == 1 or self._is_new(found.st_ino):
                    total += _bytes_of(found)
        if os.fstat(folder).st_ctime_ns != before.st_ctime_ns:
            self.is_whole = False  # A file that is renamed during the listing may not be in it.
        return total, folders

    def look(self, changed: float) -> None:
        """Note when a folder was last changed: entries may have moved from it into one that was measured before."""
        if changed >= self._began:
            self.is_whole = False

    def _is_new(self, inode: int) -> bool:
        if inode in self._linked:
            return False
        if len(self._linked) >= LINKED_MAX:
            raise NotMeasurable(f"more than {LINKED_MAX} of its files have several names")
        self._linked.add(inode)
        return True

    def _count(self) -> None:
        self.files += 1
        if self.files % BREATH_ENTRIES == 0:
            self._breathe(time.monotonic() - self._since)
            self._since = time.monotonic()


def _bytes_of(found: os.stat_result) -> int:
    return max(found.st_blocks * BLOCK_BYTES, FILE_BYTES_MIN)


def _identity(folder: int) -> tuple[int, int]:
    found = os.fstat(folder)
    return found.st_dev, found.st_ino


@contextlib.contextmanager
def _opened(parent: int | None, name: str) -> Iterator[tuple[int, float]]:
    folder, mode, changed = _open(parent, name)
    try:
        yield folder, changed
    finally:
        if mode is not None:
            os.fchmod(folder, mode)
        os.close(folder)


def _open(parent: int | None, name: str) -> tuple[int, int | None, float]:
    """Open a folder. Return its descriptor, the mode to restore (None if unchanged), and when it was last changed."""
    try:
        folder = os.open(name, os.O_RDONLY | _FOLDER, dir_fd=parent)
    except PermissionError:
        path = os.open(name, os.O_PATH | _FOLDER, dir_fd=parent)
        try:
            # By way of /proc, for a mode cannot be changed through such a descriptor.
            handle, found = f"/proc/self/fd/{path}", os.fstat(path)
            mode = stat.S_IMODE(found.st_mode)
            os.chmod(handle, mode | stat.S_IRWXU)
            return os.open(handle, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), mode, found.st_ctime
        finally:
            os.close(path)
    found = os.fstat(folder)
    if os.geteuid() != 0 and not os.access(f"/proc/self/fd/{folder}", os.X_OK):
        # It can be listed, but its entries cannot be read.
        mode = stat.S_IMODE(found.st_mode)
        os.fchmod(folder, mode | stat.S_IRWXU)
        return folder, mode, found.st_ctime
    return folder, None, found.st_ctime
