"""Writes files of Secrets and ConfigMaps to folders of the host, which an instance sees read-only.

- An instance sees each file in its old or its new version, never a part of one. Temporary files are outside the folder.
- Only the instance's uid can read the files. An instance without a uid of its own has Rota's.
- The folder holds exactly the given files, whatever was there before: links, folders, other files. No link is followed.

Only one writer may run at a time. The next write repairs what a crash left. Nothing is synced, because all files are
compared before an instance starts.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

FILE_MODE = 0o400
FILE_MODE_FOR_ALL, FOLDER_MODE_FOR_ALL = 0o444, 0o755
SHARED_FOLDER_MODE = 0o500
"""The mode of a folder that belongs to the instance's uid. Root can still write to it."""
OWN_FOLDER_MODE = 0o700
"""The mode of a folder that belongs to Rota's own uid, which needs write access to replace and remove files."""
NAME_BYTES_MAX = 255
DIGEST_CHARS = 16

_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_all(
    top: Path, wanted: Mapping[str, Mapping[str, bytes]], *, uid: int | None, for_all: bool = False
) -> dict[str, Path]:
    """Write files to folders below `top`. Return these folders, by their paths in the instance.

    A path keeps its folder, because a running instance has mounted it. The folder of a path that is not wanted any more
    is emptied, and stays.
    """
    folders = {place: top / _folder_name(place) for place in wanted}
    top.mkdir(mode=OWN_FOLDER_MODE, exist_ok=True)
    with os.scandir(top) as entries:
        there = {top / entry.name for entry in entries if entry.is_dir(follow_symlinks=False)}
    for place, held in wanted.items():
        write(folders[place], held, uid=uid, for_all=for_all)
    for left in there - {*folders.values()}:
        write(left, {}, uid=uid, for_all=for_all)
    return folders


def write(folder: Path, files: Mapping[str, bytes], *, uid: int | None, for_all: bool = False) -> bool:
    """Make a folder hold exactly these files. Report whether anything changed; if not, nothing was written.

    uid      the only uid that can read them; None: Rota's own
    for_all  any uid can read them; the folders above keep others out

    The folder is made if it is missing. Raises ValueError, before any change, for a text that is no name of a file.
    """
    for name in files:
        _check(name)
    new = folder.with_name(f".{folder.name}.new")
    new.unlink(missing_ok=True)
    changed = False
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=OWN_FOLDER_MODE)
        changed = True
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        mode = FILE_MODE_FOR_ALL if for_all else FILE_MODE
        own = FOLDER_MODE_FOR_ALL if for_all else OWN_FOLDER_MODE
        changed |= _owned(opened, own if uid is None else SHARED_FOLDER_MODE, uid)
        for name, content in files.items():
            if not _holds(opened, name, content, uid, mode):
                _put(opened, name, content, uid, mode, new)
                changed = True
        for name in set(os.listdir(opened)) - set(files):
            _remove(opened, name)
            changed = True
    finally:
        os.close(opened)
    return changed


def _check(name: str) -> None:
    if name in ("", ".", "..") or "/" in name or "\0" in name or len(name.encode()) > NAME_BYTES_MAX:
        raise ValueError(f"{name!r} cannot be the name of a file")


def _owned(descriptor: int, mode: int, uid: int | None) -> bool:
    """Set the mode and owner of an open file or folder. Report whether they changed."""
    found = os.fstat(descriptor)
    owner = os.geteuid() if uid is None else uid
    changed = False
    if found.st_uid != owner or (uid is not None and found.st_gid != uid):
        os.fchown(descriptor, owner, -1 if uid is None else uid)
        changed = True
    if stat.S_IMODE(found.st_mode) != mode:
        os.fchmod(descriptor, mode)
        changed = True
    return changed


def _holds(folder: int, name: str, content: bytes, uid: int | None, mode: int) -> bool:
    """Report whether a file exists with this content, owner and mode."""
    try:
        opened = os.open(name, _LOOK, dir_fd=folder)
    except OSError:
        return False
    try:
        found = os.fstat(opened)
        owner = os.geteuid() if uid is None else uid
        if not stat.S_ISREG(found.st_mode) or (stat.S_IMODE(found.st_mode), found.st_uid) != (mode, owner):
            return False
        with open(opened, "rb", closefd=False) as file:
            return found.st_size == len(content) and file.read(len(content)) == content
    finally:
        os.close(opened)


def _put(folder: int, name: str, content: bytes, uid: int | None, mode: int, new: Path) -> None:
    # Mode 0 until it is whole.
    with open(os.open(new, _MAKE, 0), "wb") as file:
        file.write(content)
        file.flush()
        _owned(file.fileno(), mode, uid)
    if _is_folder(folder, name):
        shutil.rmtree(name, dir_fd=folder)
    os.rename(new, name, dst_dir_fd=folder)


def _remove(folder: int, name: str) -> None:
    if _is_folder(folder, name):
        shutil.rmtree(name, dir_fd=folder)
    else:
        os.unlink(name, dir_fd=folder)


def _is_folder(folder: int, name: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _folder_name(place: str) -> str:
    return hashlib.sha256(place.encode()).hexdigest()[:DIGEST_CHARS]
