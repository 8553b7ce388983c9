"""Makes the members of a tar below a folder, without following any link, whoever made it."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

from rota.trees.archive import Event, Member, Skipped
from rota.trees.failing import FileFailed, explained
from rota.trees.replacing import Replacing, is_folder
from rota.trees.walking import NEW_FOLDER_MODE, PASS

OWN = 0o700
"""Mode bits that every unpacked folder has, so that its owner can enter it."""


class Unpacking:
    """Makes one member after the other. Call `finish` at the end of the tar, or `drop`, which removes half a file."""

    def __init__(self, folder: int) -> None:
        """`folder`: a descriptor, which is duplicated."""
        self._folder = os.dup(folder)
        self._file: Replacing | None = None
        self._member: Member | None = None
        self._left = 0
        self._parent = -1
        self._folders: dict[str, int] = {}
        self.skipped: list[Skipped] = []
        self.made = 0

    def take(self, event: Event) -> None:
        """Make a member, or write a piece of the last file. Raises FileFailed."""
        if isinstance(event, bytes):
            if self._file is not None and self._member is not None:
                with _explaining(self._member.name):
                    self._file.write(event)
                self._left -= len(event)
                if not self._left:
                    self._commit()
        elif isinstance(event, Skipped):
            self.skipped.append(event)
        else:
            self.made += 1
            with _explaining(event.name):
                self._begin(event)

    def finish(self) -> None:
        """Set the modes of folders, which come last since some may not be writable, and release everything."""
        try:
            for name, mode in reversed(self._folders.items()):
                with _explaining(name):
                    self._set_mode(name, mode)
        finally:
            self.drop()

    def drop(self) -> None:
        if self._file is not None:
            self._file.drop()
            self._file = None
        for descriptor in (self._parent, self._folder):
            if descriptor >= 0:
                os.close(descriptor)
        self._parent = self._folder = -1

    def _begin(self, member: Member) -> None:
        if member.type == "directory":
            os.close(self._into(member.name))
            if member.name:
                self._folders[member.name] = member.mode | OWN
            return
        above, _, base = member.name.rpartition("/")
        parent = self._into(above)
        try:
            if member.type == "file":
                self._file, self._member, self._left = Replacing(parent, base), member, member.size
                self._parent, parent = parent, -1
                if not member.size:
                    self._commit()
            else:
                self._link(member, parent, base)
        finally:
            if parent >= 0:
                os.close(parent)

    def _commit(self) -> None:
        assert self._file is not None and self._member is not None
        file, self._file = self._file, None
        with _explaining(self._member.name):
            file.commit(self._member.mode, self._member.modified)
        os.close(self._parent)
        self._parent = -1

    def _link(self, member: Member, parent: int, base: str) -> None:
        if is_folder(parent, base):
            raise IsADirectoryError(errno.EISDIR, "is a folder")
        if member.type == "link":
            with contextlib.suppress(FileNotFoundError):
                os.unlink(base, dir_fd=parent)
            os.symlink(member.target, base, dir_fd=parent)
            return
        if member.target == member.name:
            return
        above, _, source = member.target.rpartition("/")
        folder = self._into(above, make=False)
        try:
            if not stat.S_ISREG(os.stat(source, dir_fd=folder, follow_symlinks=False).st_mode):
                # A hard link to a symbolic link would lead elsewhere from another folder.
                raise FileFailed("BadArchive", f"{member.name}: it is a hard link to what is no file")
            with contextlib.suppress(FileNotFoundError):
                os.unlink(base, dir_fd=parent)
            os.link(source, base, src_dir_fd=folder, dst_dir_fd=parent, follow_symlinks=False)
        finally:
            os.close(folder)

    def _into(self, name: str, *, make: bool = True) -> int:
        """Open the folder of a path below the top; with `make`, make missing folders."""
        at = os.dup(self._folder)
        for part in filter(None, name.split("/")):
            above = at
            try:
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, NEW_FOLDER_MODE, dir_fd=above)
                at = os.open(part, PASS, dir_fd=above)
            except OSError as error:
                if error.errno == errno.ENOTDIR and _is_link(part, above):
                    raise FileFailed(
                        "BadArchive", f"{name}: {part} is a link, and nothing is unpacked through one"
                    ) from None
                raise
            finally:
                os.close(above)
        return at

    def _set_mode(self, name: str, mode: int) -> None:
        above, _, base = name.rpartition("/")
        parent = self._into(above, make=False)
        try:
            descriptor = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
            try:
                os.fchmod(descriptor, mode)
            finally:
                os.close(descriptor)
        finally:
            os.close(parent)


def _is_link(name: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


@contextlib.contextmanager
def _explaining(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise explained(error, name) from None
