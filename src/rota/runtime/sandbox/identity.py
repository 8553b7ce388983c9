"""The uid an instance has of its own when Rota is root, and the ownership of its files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

# Beyond what distributions, directory services and container tools hand out, and below the sign bit.
UID_FIRST = 0x70000000
UID_COUNT = 0x0FFFFFF0


def uid_of(key: str) -> int:
    """The uid (and gid) of what has this name, always the same.

    The key is what the storage belongs to (namespace, pool and ordinal, say), not the uid of an object that is made
    anew under the same name: the storage outlives it. Two of a thousand share a uid once in 500 homes, and then only
    their namespaces keep them apart.
    """
    return UID_FIRST + int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") % UID_COUNT


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
    for _, directories, files, descriptor in os.fwalk(folder, follow_symlinks=False):
        yield descriptor, directories + files
