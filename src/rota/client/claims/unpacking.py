"""A tar that came from an instance, made below a folder of this host. Whoever wrote it may mean ill.

- Names are taken apart here. One that is absolute, or has `..`, ends it all.
- Each folder on the way to a member is opened by its name in the one above, and never through a link: so nothing is
  made anywhere else, whatever is exchanged meanwhile.
- Links are made if they lead into the tree, and left out if they lead out. Of hard links only those to a file that was
  made just before. Devices, pipes and whatever else there is end it all.
- Nothing is begun unless the whole of it is here, and no header is read that is larger than one needs to be.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import tarfile
import threading
from typing import IO

from rota.client.claims.packing import (
    DEPTH_MAX,
    FOLDER,
    MODE_MASK,
    TREE_BYTES_MAX,
    TREE_MEMBERS_MAX,
    Stopped,
    TreeRefused,
)
from rota.links import stays_inside

STREAM_BYTES_MAX = TREE_BYTES_MAX + TREE_MEMBERS_MAX * 2048
"""What a tree that keeps the bounds can take as tar: its bytes, and what is around each member."""
HEADER_BYTES_MAX = 64 * 1024
"""Of what a tar says of one member beyond its header: long names."""
PATH_BYTES_MAX = 4096
PIECE_BYTES = 256 * 1024
OWN_FOLDER, PRIVATE = 0o700, 0o600
INTO = FOLDER | os.O_NOFOLLOW
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
Parts = tuple[str, ...]


class _Headers:
    """A file of which no more is read at once than a header has."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.tell, self.seek = file.tell, file.seek

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= HEADER_BYTES_MAX:
            raise TreeRefused(f"a header of the tar has more than {HEADER_BYTES_MAX} bytes")
        return self._file.read(size)


def unpack(file: IO[bytes], here: str, stop: threading.Event) -> None:
    """Make what is in a tar below a folder, which is made too. Raises TreeRefused and OSError."""
    os.makedirs(here, exist_ok=True)
    top = os.open(here, FOLDER)
    try:
        _Unpacking(file, top, stop).run()
    except tarfile.TarError as error:
        raise TreeRefused(f"that is no tar: {error}") from None
    finally:
        os.close(top)


class _Unpacking:
    def __init__(self, file: IO[bytes], top: int, stop: threading.Event) -> None:
        self._file = file
        self._descriptor = file.fileno()
        self._size = os.fstat(self._descriptor).st_size
        self._top = top
        self._stop = stop
        self._made: set[Parts] = set()
        self._modes: dict[Parts, int] = {}

    def run(self) -> None:
        members = total = end = 0
        self._file.seek(0)
        with tarfile.open(fileobj=_Headers(self._file), mode="r:") as tar:  # type: ignore[call-overload]
            while (member := tar.next()) is not None:
                members += 1
                total += member.size
                if members > TREE_MEMBERS_MAX or total > TREE_BYTES_MAX:
                    bounds = f"{TREE_MEMBERS_MAX} members and {TREE_BYTES_MAX} bytes"
                    raise TreeRefused(f"a tree has at most {bounds}, and this one has more")
                has_bytes = member.isreg()
                end = member.offset_data + (
                    -(-member.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE if has_bytes else 0
                )
                if member.size < 0 or end > self._size:
                    raise TreeRefused(f"{member.name}: the tar ends too early")
                self._make(member)
                tar.members.clear()
        # A header that is none looks like the end to the parser.
        if any(os.pread(self._descriptor, tarfile.BLOCKSIZE, end)):
            raise TreeRefused("the tar is damaged")
        for parts, mode in reversed(self._modes.items()):
            self._set_mode(parts, mode)

    def _make(self, member: tarfile.TarInfo) -> None:
        parts = _parts(member.name)
        if member.issparse() or any(key.startswith("GNU.sparse") for key in member.pax_headers):
            raise TreeRefused(f"{member.name}: sparse files are not taken")
        if member.isdir():
            os.close(self._into(parts))
            if parts:
                self._modes[parts] = (member.mode & MODE_MASK) | OWN_FOLDER
            return
        if not parts:
            raise TreeRefused("a member of the tar has no name")
        if member.issym() and not stays_inside("/".join(parts), member.linkname):
            return
        if member.islnk() and _parts(member.linkname) not in self._made:
            raise TreeRefused(f"{member.name}: it is a hard link to what the tar does not hold")
        if not (member.isreg() or member.issym() or member.islnk()):
            raise TreeRefused(f"{member.name}: it is neither file, folder nor link")
        parent = self._into(parts[:-1])
        try:
            self._put(member, parent, parts)
        finally:
            os.close(parent)

    def _put(self, member: tarfile.TarInfo, parent: int, parts: Parts) -> None:
        """Made under another name, and put in its place at once."""
        temporary = f".rota-{secrets.token_hex(8)}"
        try:
            if member.issym():
                os.symlink(member.linkname, temporary, dir_fd=parent)
            elif member.islnk():
                self._link(_parts(member.linkname), temporary, parent)
            else:
                self._write(member, temporary, parent)
                self._made.add(parts)
            os.rename(temporary, parts[-1], src_dir_fd=parent, dst_dir_fd=parent)
        finally:
            # Also where two names of one file were to be exchanged, which the kernel takes for done.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=parent)

    def _write(self, member: tarfile.TarInfo, name: str, parent: int) -> None:
        descriptor = os.open(name, NEW_FILE, PRIVATE, dir_fd=parent)
        with open(descriptor, "wb", buffering=0) as file:
            at, left = member.offset_data, member.size
            while left:
                if self._stop.is_set():
                    raise Stopped
                piece = os.pread(self._descriptor, min(left, PIECE_BYTES), at)
                if not piece:
                    raise TreeRefused(f"{member.name}: the tar ends too early")
                written = file.write(piece)
                at, left = at + written, left - written
            os.fchmod(descriptor, member.mode & MODE_MASK)
            with contextlib.suppress(OverflowError, ValueError, OSError):  # A time that nobody can have meant.
                os.utime(descriptor, (member.mtime, member.mtime))

    def _link(self, source: Parts, name: str, parent: int) -> None:
        folder = self._into(source[:-1])
        try:
            os.link(source[-1], name, src_dir_fd=folder, dst_dir_fd=parent, follow_symlinks=False)
        finally:
            os.close(folder)

    def _into(self, parts: Parts) -> int:
        """A folder below ours, open; made where it is not there."""
        if self._stop.is_set():
            raise Stopped
        at = os.dup(self._top)
        for part in parts:
            above = at
            try:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, OWN_FOLDER | 0o055, dir_fd=above)
                at = os.open(part, INTO, dir_fd=above)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENOTDIR):
                    why = f"{'/'.join(parts)}: {part} is no folder, and nothing is unpacked through a link"
                    raise TreeRefused(why) from None
                raise
            finally:
                os.close(above)
        return at

    def _set_mode(self, parts: Parts, mode: int) -> None:
        """Modes of folders come last: one may not be writable."""
        descriptor = self._into(parts)
        try:
            os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)


def _parts(name: str) -> Parts:
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise TreeRefused(f"{name}: a member's name is relative, and has no '..'")
    if len(parts) > DEPTH_MAX or len(os.fsencode(name)) > PATH_BYTES_MAX:
        raise TreeRefused(f"a member is at most {DEPTH_MAX} folders deep, and its name {PATH_BYTES_MAX} bytes long")
    return parts
