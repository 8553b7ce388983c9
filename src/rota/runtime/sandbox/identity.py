"""The uid that an instance has if Rota is root, and the ownership of its files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

# Above the uids that distributions, directory services and container tools assign, and below the sign bit.
UID_FIRST = 0x70000000
UID_COUNT = 0x0FFFFFF0


def uid_of(key: str, salt: bytes = b"") -> int:
    """Return the uid (and gid) for a key: with the same salt always the same.

    The key names the owner of a storage (such as namespace, pool and ordinal), not the uid of an object: the storage
    outlives the object. A home with a thousand keys has a probability of 1 in 500 that two of them share a uid; then
    only namespaces separate them. A tenant who does not know the salt cannot choose a name with another's uid.
    """
    return UID_FIRST + int.from_bytes(hashlib.sha256(salt + key.encode()).digest()[:8], "big") % UID_COUNT


def own(folder: Path, uid: int) -> None:
    """Give a folder and everything in it to a uid. Follows no link, opens no file.

    No process may run in the tree: it could exchange files meanwhile. A folder that belongs to the uid already is left
    as it is, with everything in it.
    """
    if os.lstat(folder).st_uid == uid:
        return
    # The folder last: its owner shows that all in it is done, should this be interrupted.
    for directory, names in _walk(folder):
        for name in names:
            os.chown(name, uid, uid, dir_fd=directory, follow_symlinks=False)
    os.chown(folder, uid, uid, follow_symlinks=False)


def _walk(folder: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the descriptor of each folder with its entries. Only the folders above the current one are open."""
    way: list[tuple[int, list[str]]] = []

    def enter(parent: int | None, name: str) -> tuple[int, list[str]]:
        descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        way.append((descriptor, []))
        with os.scandir(descriptor) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        way[-1][1].extend(each for each, is_folder in found if is_folder)
        return descriptor, [each for each, _ in found]

    try:
        yield enter(None, str(folder))
        while way:
            descriptor, folders = way[-1]
            if folders:
                yield enter(descriptor, folders.pop())
            else:
                way.pop()
                os.close(descriptor)
    finally:
        for descriptor, _ in way:
            os.close(descriptor)
