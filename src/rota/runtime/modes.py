"""Sets the owner and modes of a whole tree that is not trusted.

Each entry is opened by its name in its open folder; no link is followed, and entries that are neither file nor folder
are left as they are.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

DEPTH_MAX = 200
"""The greatest depth of nested folders: each holds a descriptor."""
MODE_MASK = 0o777
_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class TooDeep(ValueError):  # noqa: N818 - says what the tree is
    """A tree has folders nested deeper than DEPTH_MAX."""


def take_over(top: Path, mode_of: Callable[[int], int]) -> None:
    """Give a tree to this process's user. `mode_of` returns an entry's new mode for its old one.

    Raises TooDeep and OSError.
    """
    way: list[tuple[int, list[str]]] = []
    try:
        _enter(None, str(top), mode_of, way)
        while way:
            folder, names = way[-1]
            if names:
                _enter(folder, names.pop(), mode_of, way)
            else:
                way.pop()
                os.close(folder)
    finally:
        for folder, _ in way:
            os.close(folder)


def _enter(parent: int | None, name: str, mode_of: Callable[[int], int], way: list[tuple[int, list[str]]]) -> None:
    """Take over one entry. If it is a folder, open it, and append it to `way` with the names in it."""
    path = os.open(name, _PATH, dir_fd=parent)
    try:
        # By way of /proc, for neither owner nor mode can be changed through such a descriptor.
        handle, found = f"/proc/self/fd/{path}", os.fstat(path).st_mode
        if not (stat.S_ISDIR(found) or stat.S_ISREG(found)):
            return
        if os.geteuid() == 0:
            os.chown(handle, 0, 0)
        os.chmod(handle, mode_of(found) & MODE_MASK)
        if stat.S_ISDIR(found):
            if len(way) > DEPTH_MAX:
                raise TooDeep(f"its folders are nested more than {DEPTH_MAX} deep")
            folder = os.open(handle, _LIST)
            way.append((folder, []))
            way[-1][1].extend(os.listdir(folder))
    finally:
        os.close(path)
