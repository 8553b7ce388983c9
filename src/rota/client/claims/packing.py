"""A folder of this host as tar. It follows no link, and what is neither file, folder nor link is left out."""

from __future__ import annotations

import os
import stat
import tarfile
import threading
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from rota.links import stays_inside

TREE_BYTES_MAX = 1024 * 1024 * 1024
"""Of the files of a tree, together, and of any one of them."""
TREE_MEMBERS_MAX = 100_000
DEPTH_MAX = 200
"""Folders within each other, in a tree."""
MODE_MASK = 0o777
"""Bits of a mode that are taken: nothing runs as somebody else."""
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Who opens a pipe like this does not wait for somebody at its other end."""
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class TreeRefused(ValueError):  # noqa: N818 - says what became of it
    """A tree that is too large, or that is not what a tree may be. Nothing is outside of where it belongs."""


class Stopped(Exception):  # noqa: N818 - says what became of it
    """Nobody wants it any more."""


class Found(NamedTuple):
    """One thing of a tree."""

    folder: int
    base: str
    parts: tuple[str, ...]
    status: os.stat_result


def pack(here: str, output: BinaryIO, stop: threading.Event) -> None:
    """Write what is in a folder."""
    members = total = 0
    with tarfile.open(fileobj=output, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for found in _tree(here):
            if stop.is_set():
                raise Stopped
            info = _info(found)
            if info is None:
                continue
            members += 1
            if members > TREE_MEMBERS_MAX:
                raise TreeRefused(f"{here}: a tree has at most {TREE_MEMBERS_MAX} members, and this one has more")
            if not info.isreg():
                tar.addfile(info)
            else:
                descriptor = os.open(found.base, READ, dir_fd=found.folder)
                with open(descriptor, "rb") as file:
                    status = os.fstat(descriptor)
                    if not stat.S_ISREG(status.st_mode):
                        raise TreeRefused(f"{info.name}: it was exchanged while it was read")
                    info.size = status.st_size
                    total += info.size
                    if total > TREE_BYTES_MAX:
                        raise TreeRefused(f"{here}: the files of a tree have at most {TREE_BYTES_MAX} bytes together")
                    tar.addfile(info, file)
            tar.members.clear()  # type: ignore[attr-defined]  # It would remember them all.


def _tree(here: str) -> Iterator[Found]:
    """All of a tree, folders before what is in them."""

    def fail(error: OSError) -> None:
        raise error

    top = os.open(here, FOLDER)
    try:
        for path, folders, files, folder in os.fwalk(".", dir_fd=top, onerror=fail):
            above = tuple(part for part in path.split("/") if part != ".")
            if len(above) > DEPTH_MAX:
                raise TreeRefused(f"{here}: a tree is at most {DEPTH_MAX} folders deep, and this one is deeper")
            folders.sort()
            for base in (*folders, *sorted(files)):
                yield Found(folder, base, (*above, base), os.stat(base, dir_fd=folder, follow_symlinks=False))
    finally:
        os.close(top)


def _info(found: Found) -> tarfile.TarInfo | None:
    """Without an owner: it is another one wherever it is unpacked."""
    info = tarfile.TarInfo("/".join(found.parts))
    info.mode = found.status.st_mode & MODE_MASK
    info.mtime = int(found.status.st_mtime)
    kind = found.status.st_mode
    if stat.S_ISDIR(kind):
        info.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(kind):
        info.type, info.linkname = tarfile.SYMTYPE, os.readlink(found.base, dir_fd=found.folder)
        if not stays_inside(info.name, info.linkname):
            return None
    elif not stat.S_ISREG(kind):
        return None
    return info
