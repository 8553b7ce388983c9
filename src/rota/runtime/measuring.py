"""How much of the disk a folder takes, whoever fills it meanwhile and whatever they try to hide.

No link is followed and no other file system is entered. Files with several names are counted once. A folder that its
owner may not read is opened all the same, and has its mode back afterwards.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

BLOCK_BYTES = 512
DEPTH_OPEN_MAX = 64
"""Down to here one folder of each depth is open at a time."""
LINKED_MAX = 1_000_000
BREATH_ENTRIES = 2_000
_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class NotMeasurable(Exception):  # noqa: N818
    """The content of a folder is made so that nobody can tell how much it is."""


def used_bytes(folder: Path, *, breathe: Callable[[float], None] = lambda seconds: None) -> int:
    """The bytes of the disk that a folder and all in it take. 0: it is not there.

    `breathe` is told now and then how long the work took since the last time, and may make a pause.
    """
    if not folder.exists():
        return 0
    with _opened(None, str(folder)) as top:
        return _Walk(os.fstat(top).st_dev, breathe).measure(top, 0)


class _Walk:
    def __init__(self, device: int, breathe: Callable[[float], None]) -> None:
        self._device = device
        self._breathe = breathe
        self._linked: set[int] = set()
        self._entries = 0
        self._since = time.monotonic()

    def measure(self, folder: int, depth: int) -> int:
        total, folders = self._content(folder)
        for name in folders:
            try:
                with _opened(folder, name) as inner:
                    if os.fstat(inner).st_dev != self._device:
                        continue
                    total += self.measure(inner, depth + 1) if depth < DEPTH_OPEN_MAX else self._measure_deep(inner)
            except (FileNotFoundError, NotADirectoryError):
                continue  # It was removed or replaced meanwhile.
            except PermissionError as error:
                raise NotMeasurable(f"one of its folders cannot be read: {error.strerror}") from None
        return total

    def _measure_deep(self, top: int) -> int:
        """The same with two folders open at most. What is moved elsewhere meanwhile is measured the next time."""
        total, folders = self._content(top)
        way: list[tuple[list[str], tuple[int, int], int]] = [(folders, _identity(top), 0)]
        current = os.dup(top)
        try:
            while True:
                if way[-1][0]:
                    name = way[-1][0].pop()
                    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                        below, mode = _open(current, name)
                        found = os.fstat(below)
                        if found.st_dev != self._device:
                            os.close(below)
                            continue
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
                    return total
        finally:
            os.close(current)

    def _content(self, folder: int) -> tuple[int, list[str]]:
        """What a folder and the files in it take, and the folders in it."""
        total, folders = os.fstat(folder).st_blocks * BLOCK_BYTES, []
        with os.scandir(folder) as entries:
            for entry in entries:
                self._count()
                with contextlib.suppress(FileNotFoundError):
                    found = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(found.st_mode):
                        folders.append(entry.name)
                    elif found.st_nlink == 1 or self._is_new(found.st_ino):
                        total += found.st_blocks * BLOCK_BYTES
        return total, folders

    def _is_new(self, inode: int) -> bool:
        if inode in self._linked:
            return False
        if len(self._linked) >= LINKED_MAX:
            raise NotMeasurable(f"more than {LINKED_MAX} of its files have several names")
        self._linked.add(inode)
        return True

    def _count(self) -> None:
        self._entries += 1
        if self._entries % BREATH_ENTRIES == 0:
            self._breathe(time.monotonic() - self._since)
            self._since = time.monotonic()


def _identity(folder: int) -> tuple[int, int]:
    found = os.fstat(folder)
    return found.st_dev, found.st_ino


@contextlib.contextmanager
def _opened(parent: int | None, name: str) -> Iterator[int]:
    folder, mode = _open(parent, name)
    try:
        yield folder
    finally:
        if mode is not None:
            os.fchmod(folder, mode)
        os.close(folder)


def _open(parent: int | None, name: str) -> tuple[int, int | None]:
    """A folder, and the mode to give it back; None: it was not changed."""
    try:
        folder = os.open(name, os.O_RDONLY | _FOLDER, dir_fd=parent)
    except PermissionError:
        path = os.open(name, os.O_PATH | _FOLDER, dir_fd=parent)
        try:
            # By way of /proc, for a mode cannot be changed through such a descriptor.
            handle, mode = f"/proc/self/fd/{path}", stat.S_IMODE(os.fstat(path).st_mode)
            os.chmod(handle, mode | stat.S_IRWXU)
            return os.open(handle, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), mode
        finally:
            os.close(path)
    if os.geteuid() != 0 and not os.access(f"/proc/self/fd/{folder}", os.X_OK):
        # It may be listed, but what is in it may not be looked at.
        mode = stat.S_IMODE(os.fstat(folder).st_mode)
        os.fchmod(folder, mode | stat.S_IRWXU)
        return folder, mode
    return folder, None
