"""Removes everything that a worker left in its storage, whatever it is.

Only folders are opened, no link is followed, no other file system is entered. A folder that is not empty is first moved
to the top, so that no path is too long and no more than two folders are open, however deep they lie.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import secrets
import stat
import struct
import time
from collections.abc import Callable
from pathlib import Path

from rota.runtime.workspace.failures import MustReplace

BATCH = 4096
# A tree without processes is empty after the first round. A few more, for file systems that list removed entries.
ROUNDS_MAX = 5
FOLDER_MODE = 0o755
MOVED = ".rota-discard-"
MOVED_BYTES = 12

_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602
_IMMUTABLE, _APPEND_ONLY = 0x10, 0x20
_OWNERS_FLAGS = 0x000380FF | 0x00800000 | 0x02000000
"""Flags that the owner of a folder may set, such as synchronous writes; new files in it inherit them."""


def discard(folder: Path, *, seconds_max: float) -> None:
    """Empty a folder, and reset its own mode, attributes and owner (to this process's user).

    Raises MustReplace if something stays or comes back: then a process still runs in the folder.
    """
    deadline = time.monotonic() + seconds_max
    top = _opened(None, str(folder))
    try:
        device = os.fstat(top).st_dev
        for _ in range(ROUNDS_MAX):
            if not _empty_once(top, device, deadline):
                break
        else:
            raise MustReplace(f"{folder} fills again while it is emptied: something still runs in it")
        for name in os.listxattr(top):
            os.removexattr(top, name)
        if os.geteuid() == 0:
            os.fchown(top, 0, 0)
        os.fchmod(top, FOLDER_MODE)
        _inherit_flags(top, folder.parent)
        left = os.listxattr(top), os.listdir(top)
        if any(left):
            raise MustReplace(f"{folder} still has {left}")
    except OSError as error:
        raise MustReplace(f"{folder} cannot be emptied: {error.strerror} ({_shown(error.filename)})") from error
    finally:
        os.close(top)


def remove(path: Path, *, seconds_max: float) -> bool:
    """Remove a folder with everything in it, or whatever else has this path. Report whether it is gone."""
    try:
        if stat.S_ISDIR(os.lstat(path).st_mode):
            discard(path, seconds_max=seconds_max)
            path.rmdir()
        else:
            path.unlink()
    except FileNotFoundError:
        return True
    except (MustReplace, OSError):
        return False
    return True


def _empty_once(top: int, device: int, deadline: float) -> bool:
    """Remove the entries of the top folder, and those that this moves up to it. Report whether there were any."""
    found = False
    while batch := _batch(top):
        found = True
        for entry, is_folder in batch:
            if not is_folder:
                _retry_unprotected(lambda name=entry: os.unlink(name, dir_fd=top), top, entry)  # type: ignore[misc]
            else:
                _empty_folder(top, entry, device, deadline)
        _check_time(deadline)
    return found


def _empty_folder(top: int, name: str, device: int, deadline: float) -> None:
    """Remove a folder's files, move its folders to the top, and remove it."""
    if _removed(top, name):
        return
    folder = _opened(top, name)
    try:
        if os.fstat(folder).st_dev != device:
            raise OSError(errno.EXDEV, "another file system is mounted there", name)
        while batch := _batch(folder):
            for entry, is_folder in batch:
                if not is_folder:
                    _retry_unprotected(lambda each=entry: os.unlink(each, dir_fd=folder), folder, entry)  # type: ignore[misc]
                elif not _removed(folder, entry):
                    _move_up(folder, entry, top)
            _check_time(deadline)
    finally:
        os.close(folder)
    _retry_unprotected(lambda: os.rmdir(name, dir_fd=top), top, name)


def _move_up(folder: int, name: str, top: int) -> None:
    # To move a folder its owner needs write access to it.
    os.close(_opened(folder, name))
    # A random name, which no tenant can have made before.
    target = MOVED + secrets.token_hex(MOVED_BYTES)
    _retry_unprotected(lambda: os.rename(name, target, src_dir_fd=folder, dst_dir_fd=top), folder, name)


def _batch(folder: int) -> list[tuple[str, bool]]:
    with os.scandir(folder) as entries:
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in itertools.islice(entries, BATCH)]


def _removed(parent: int, name: str) -> bool:
    """Remove a folder if it is empty. Report whether it is gone."""
    try:
        os.rmdir(name, dir_fd=parent)
    except OSError:
        return False
    return True


def _opened(parent: int | None, name: str) -> int:
    """Open a folder after making it accessible to its owner."""
    path = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        # By way of /proc, for a mode cannot be changed through such a descriptor, nor the folder opened without it.
        handle = f"/proc/self/fd/{path}"
        with contextlib.suppress(PermissionError):
            os.chmod(handle, stat.S_IRWXU)
        opened = os.open(handle, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(path)
    _unprotect(opened)
    with contextlib.suppress(PermissionError):
        os.fchmod(opened, stat.S_IRWXU)
    return opened


def _retry_unprotected(action: Callable[[], None], parent: int, name: str) -> None:
    """Run an action. Repeat it once if a file system flag, such as immutable, forbade it and could be cleared."""
    try:
        action()
    except FileNotFoundError:
        return
    except PermissionError:
        _unprotect(parent)
        with contextlib.suppress(OSError):
            # Only regular files: opening a pipe waits, and opening a device may act.
            if stat.S_ISREG(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
                try:
                    _unprotect(opened)
                finally:
                    os.close(opened)
        action()


def _unprotect(descriptor: int) -> None:
    with contextlib.suppress(OSError):
        flags = _flags(descriptor)
        if flags & (_IMMUTABLE | _APPEND_ONLY):
            fcntl.ioctl(descriptor, _SET_FLAGS, struct.pack("l", flags & ~(_IMMUTABLE | _APPEND_ONLY)))


def _inherit_flags(descriptor: int, above: Path) -> None:
    """Give a folder the flags that a new folder below `above` would have."""
    try:
        found, wanted = _flags(descriptor), _flags_of(above) & _OWNERS_FLAGS
        if found & _OWNERS_FLAGS != wanted:
            fcntl.ioctl(descriptor, _SET_FLAGS, struct.pack("l", found & ~_OWNERS_FLAGS | wanted))
    except OSError as error:
        if error.errno not in (errno.ENOTTY, errno.EOPNOTSUPP, errno.ENOSYS):
            raise


def _flags_of(folder: Path) -> int:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return _flags(descriptor)
    finally:
        os.close(descriptor)


def _flags(descriptor: int) -> int:
    return int(struct.unpack("l", fcntl.ioctl(descriptor, _GET_FLAGS, struct.pack("l", 0)))[0])


def _check_time(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise OSError(errno.ETIMEDOUT, "it takes too long", None)


def _shown(name: object) -> str:
    return ascii(name) if name is not None else "itself"
