"""Replaces a file as a whole: it is written under no name or a temporary one, and then renamed."""

from __future__ import annotations

import errno
import os
import stat

from rota.trees.bounds import MODE_MASK

PRIVATE = 0o600
TEMPORARY = ".rota-"
UNNAMED = getattr(os, "O_TMPFILE", 0)
NOT_UNNAMED = frozenset((errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT))
"""Error numbers of file systems without O_TMPFILE."""


class Replacing:
    """A file that is being written. Call `commit` or `drop`."""

    def __init__(self, folder: int, name: str) -> None:
        """Raises OSError if the name is that of a folder. A link is replaced, wherever it leads."""
        if is_folder(folder, name):
            raise IsADirectoryError(errno.EISDIR, "is a folder")
        self._folder = folder
        self._name = name
        self._temporary = f"{TEMPORARY}{os.urandom(8).hex()}"
        self._is_named = False
        self._descriptor = self._open()

    def _open(self) -> int:
        # The kernel removes a file without a name when the process ends.
        if UNNAMED:
            try:
                return os.open(".", UNNAMED | os.O_WRONLY | os.O_CLOEXEC, PRIVATE, dir_fd=self._folder)
            except OSError as error:
                if error.errno not in NOT_UNNAMED:
                    raise
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        made = os.open(self._temporary, flags, PRIVATE, dir_fd=self._folder)
        self._is_named = True
        return made

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def commit(self, mode: int, modified: float | None = None) -> os.stat_result:
        """Put the file in its place, instead of any file or link there."""
        try:
            os.fchmod(self._descriptor, mode & MODE_MASK)
            if modified is not None:
                os.utime(self._descriptor, (modified, modified))
            if not self._is_named:
                os.link(f"/proc/self/fd/{self._descriptor}", self._temporary, dst_dir_fd=self._folder)
                self._is_named = True
            os.rename(self._temporary, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
            self._is_named = False
            return os.fstat(self._descriptor)
        finally:
            self.drop()

    def drop(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        if self._is_named:
            os.unlink(self._temporary, dir_fd=self._folder)
            self._is_named = False


def is_folder(folder: int, name: str) -> bool:
    """Report whether a name is that of a folder. A link is none, wherever it leads."""
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False
