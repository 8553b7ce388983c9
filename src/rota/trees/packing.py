"""Packs a tree as tar, sorted by the bytes of the paths, so that the same tree makes the same tar.

It follows no link. Entries that are neither file, folder nor link are left out.
"""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from rota.trees.bounds import ARCHIVE_BYTES_MAX, ARCHIVE_MEMBERS_MAX, DEPTH_MAX, MODE_MASK, PIECE_BYTES
from rota.trees.failing import FileFailed, explained
from rota.trees.walking import Spot

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Flags to open a file: without following a link, and without waiting for the writer of a pipe."""


class Output(Protocol):
    def write(self, data: bytes, /) -> object: ...


class Found(NamedTuple):
    """An entry of a tree."""

    folder: int
    """A descriptor of the folder, which is closed after the iteration of this entry."""
    base: str
    name: str
    """The path in the tree; `base` is its last part."""
    status: os.stat_result
    target: str = ""
    """The target of a link."""


def measure(spot: Spot) -> tuple[int, int]:
    """Return the members and bytes of a tree. Raises FileFailed if it is too large, or a file cannot be read."""
    counted = _Counted()
    for found in tree(spot):
        is_file = stat.S_ISREG(found.status.st_mode)
        counted.add(found.status.st_size if is_file else 0)
        if is_file:
            with _reading(found):
                pass
    return counted.members, counted.bytes


class _Counted:
    """Counts the members and bytes of a tree. Raises FileFailed at a bound."""

    def __init__(self) -> None:
        self.members = self.bytes = 0

    def add(self, size: int) -> None:
        self.members += 1
        self.bytes += size
        if self.members > ARCHIVE_MEMBERS_MAX:
            raise FileFailed("TooLarge", f"a tree has at most {ARCHIVE_MEMBERS_MAX} members, and this one has more")
        if self.bytes > ARCHIVE_BYTES_MAX:
            raise FileFailed(
                "TooLarge", f"the files of a tree have at most {ARCHIVE_BYTES_MAX} bytes together, and these have more"
            )


Keep = Callable[[Found], bool]
"""Called for each entry. Entries for which it returns False are left out, folders with their content. It may raise."""


def keep_all(found: Found) -> bool:
    return True


def member(found: Found) -> tarfile.TarInfo | None:
    """Return the header of an entry. It names no owner: the owner is another one wherever the tar is unpacked."""
    info = tarfile.TarInfo(found.name)
    info.mode = found.status.st_mode & MODE_MASK
    info.mtime = int(found.status.st_mtime)
    if stat.S_ISDIR(found.status.st_mode):
        info.type = tarfile.DIRTYPE
    elif found.target:
        info.type, info.linkname = tarfile.SYMTYPE, found.target
    return info


def pack(
    spot: Spot,
    output: Output,
    keep: Keep = keep_all,
    member: Callable[[Found], tarfile.TarInfo | None] = member,
) -> None:
    """Write the content of a folder, or a single file, as tar. Raises FileFailed if it is too large.

    `member` returns the header of an entry; None leaves the entry out, but not the content of a folder.
    """
    counted = _Counted()
    with tarfile.open(fileobj=output, mode="w|", format=tarfile.PAX_FORMAT, bufsize=PIECE_BYTES) as tar:  # type: ignore[call-overload]
        for found in tree(spot, keep):
            info = member(found)
            if info is None:
                continue
            if not info.isreg():
                counted.add(0)
                tar.addfile(info)
                tar.members.clear()  # tarfile remembers all members.
                continue
            with _reading(found) as descriptor, open(descriptor, "rb", closefd=False) as file:
                info.size = os.fstat(descriptor).st_size
                counted.add(info.size)
                try:
                    tar.addfile(info, file)
                except OSError as error:
                    if str(error) == "unexpected end of data":
                        raise FileFailed("Failed", f"{found.name}: it became shorter while it was read") from None
                    raise
                tar.members.clear()


def tree(spot: Spot, keep: Keep = keep_all) -> Iterator[Found]:
    """Yield the entries of a tree, folders before their content."""
    status = os.stat(spot.name, dir_fd=spot.folder, follow_symlinks=False)
    if not stat.S_ISDIR(status.st_mode):
        if not stat.S_ISREG(status.st_mode):
            raise FileFailed("NotAFile", f"{spot.name}: it is neither a file nor a folder")
        yield Found(spot.folder, spot.name, spot.name, status)
        return
    top = os.open(spot.name, FOLDER, dir_fd=spot.folder)
    try:
        yield from _below(top, "", 0, keep)
    finally:
        os.close(top)


def _below(folder: int, prefix: str, depth: int, keep: Keep) -> Iterator[Found]:
    if depth > DEPTH_MAX:
        raise FileFailed("TooLarge", f"a tree is at most {DEPTH_MAX} folders deep, and this one is deeper")
    for base in _names(folder, prefix):
        name = prefix + base
        try:
            status = os.stat(base, dir_fd=folder, follow_symlinks=False)
            kind = status.st_mode
            target = os.readlink(base, dir_fd=folder) if stat.S_ISLNK(kind) else ""
            found = Found(folder, base, name, status, target)
            if not keep(found):
                continue
            if target or stat.S_ISREG(kind):
                yield found
            elif stat.S_ISDIR(kind):
                yield found
                inner = os.open(base, FOLDER, dir_fd=folder)
                try:
                    yield from _below(inner, f"{name}/", depth + 1, keep)
                finally:
                    os.close(inner)
        except FileNotFoundError:
            continue  # It was removed meanwhile.
        except OSError as error:
            raise explained(error, name) from None


def _names(folder: int, prefix: str) -> list[str]:
    """Return the names in a folder. Folders sort as if they ended with a slash, so that whole paths are in order."""
    with os.scandir(folder) as entries:
        bounded = zip(range(ARCHIVE_MEMBERS_MAX + 1), entries, strict=False)
        found = sorted(
            (os.fsencode(entry.name) + b"/" * entry.is_dir(follow_symlinks=False), entry.name) for _, entry in bounded
        )
    if len(found) > ARCHIVE_MEMBERS_MAX:
        raise FileFailed("TooLarge", f"{prefix or '.'}: a folder has at most {ARCHIVE_MEMBERS_MAX} names")
    return [name for _, name in found]


@contextmanager
def _reading(found: Found) -> Iterator[int]:
    try:
        descriptor = os.open(found.base, READ, dir_fd=found.folder)
    except OSError as error:
        raise explained(error, found.name) from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FileFailed("NotAFile", f"{found.name}: it was exchanged while it was read")
        yield descriptor
    finally:
        os.close(descriptor)
