"""How much of the disk a folder takes, whoever fills it meanwhile and whatever they try to hide.

No link is followed and no other file system is entered. Files with several names are counted once. A folder that its
owner may not read is opened all the same, and has its mode back afterwards.

Whatever has a name counts for at least `FILE_BYTES_MIN`: a link or an empty file takes no space, and yet one of the
files that a disk can have. What is moved while it is measured may be missed. That is noticed, and said: who wants to
be sure has everything stand still meanwhile.
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
"""By so much the times of files may be behind the clock."""
DEPTH_OPEN_MAX = 64
"""Down to here one folder of each depth is open at a time."""
LINKED_MAX = 1_000_000
BREATH_ENTRIES = 2_000
_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class NotMeasurable(Exception):  # noqa: N818
    """The content of a folder is made so that nobody can tell how much it is."""


class Used(NamedTuple):
    """What of the disk something takes."""

    bytes: int
    files: int = 0
    """Files, folders and links."""
    is_whole: bool = True
    """Whether nothing was moved meanwhile that may have been missed."""


def used(folder: Path, *, breathe: Callable[[float], None] = lambda seconds: None) -> Used:
    """Measure what of the disk a folder and all in it take; nothing: it is not there.

    `breathe` is told now and then how long the work took since the last time, and may make a pause.
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
                self.is_whole = False  # It was removed or replaced meanwhile, or it is somewhere else now.
            except PermissionError as error:
                raise NotMeasurable(f"one of its folders cannot be read: {error.strerror}") from None
        return total

    def _measure_deep(self, top: int) -> int:
        """The same with two folders open at most."""
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
        """What a folder and the files in it take, and the folders in it."""
        before = os.fstat(folder)
        total, folders = _taken(before), []
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
                    total += _taken(found)
        if os.fstat(folder).st_ctime_ns != before.st_ctime_ns:
            self.is_whole = False  # What is renamed while a folder is listed may not be in the list.
        return total, folders

    def look(self, changed: float) -> None:
        """Something that was in a folder before may be where it was looked for already."""
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


def _taken(found: os.stat_result) -> int:
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
    """Open a folder. Returns also the mode to give it back (None: it was not changed) and when it last changed."""
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
        # It may be listed, but what is in it may not be looked at.
        mode = stat.S_IMODE(found.st_mode)
        os.fchmod(folder, mode | stat.S_IRWXU)
        return folder, mode, found.st_ctime
    return folder, None, found.st_ctime
