"""The uid an instance has of its own when Rota is root, and the ownership of its files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

# Beyond what distributions, directory services and container tools hand out, and below the sign bit.
UID_FIRST = 0x70000000
UID_COUNT = 0x0FFFFFF0


def uid_of(key: str, salt: bytes = b"") -> int:
    """The uid (and gid) of what has this name, always the same with the same salt.

    The key is what the storage belongs to (namespace, pool and ordinal, say), not the uid of an object that is made
    anew under the same name: the storage outlives it. Two of a thousand share a uid once in 500 homes, and then only
    their namespaces keep them apart. Who does not know the salt cannot choose a name for the uid of another's.
    """
    return UID_FIRST + int.from_bytes(hashlib.sha256(salt + key.encode()).digest()[:8], "big") % UID_COUNT


def own(folder: Path, uid: int) -> None:
    """Gives a folder and all in it to a uid. Follows no link, opens no file.

    For trees that nothing is running in: what an instance may change meanwhile could be exchanged meanwhile. A folder
    that already is the uid's is left as it is, with all in it.
    """
    if os.lstat(folder).st_uid == uid:
        return
    # The folder last: it tells whether all of it is done, should this be cut short.
    for directory, names in _walk(folder):
        for name in names:
            os.chown(name, uid, uid, dir_fd=directory, follow_symlinks=False)
    os.chown(folder, uid, uid, follow_symlinks=False)


def _walk(folder: Path) -> Iterator[tuple[int, list[str]]]:
    """Each folder, open, with what is in it. One of each depth is open at a time, however deep they lie."""
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
