"""Pack the code of a function into one blob: a tar with the same bytes on every machine at every time.

It holds files and links as git keeps them: content and the executable bit, without times, owners and empty folders. It
is not compressed, because compressors differ between machines. `rota.trees` walks the folder and writes the tar; this
module decides what goes into it and what is refused.
"""

from __future__ import annotations

import io
import os
import stat
import tarfile
from pathlib import Path
from typing import Any, NamedTuple

from rota.manifest.packing_excludes import IGNORE_FILE, Excludes
from rota.runtime.blobs import BLOB_BYTES_MAX, digest_of
from rota.trees import packing as trees
from rota.trees.failing import FileFailed
from rota.trees.links import stays_inside
from rota.trees.packing import Found, Output
from rota.trees.walking import Spot

FILES_MAX = 10_000
DEPTH_MAX = 64
"""Bound on nested folders."""
LOOKED_AT_MAX = 200_000
"""Names that are examined, excluded ones included."""


class Unpackable(ValueError):  # noqa: N818 - says what the folder is
    """A path that cannot be packed. The message says what to do."""


class Packed(NamedTuple):
    """A blob with its digest and its number of files."""

    digest: str
    content: bytes
    files: int


def pack(path: Path, *, project: Path | None = None, bytes_max: int = BLOB_BYTES_MAX) -> Packed:
    """Pack a folder or a single file. `project` is the folder of its project, if any. Raises `Unpackable`."""
    try:
        info = path.stat()
    except OSError as error:
        raise Unpackable(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except ValueError as error:
        raise Unpackable(f"no path: {error}") from None
    if not stat.S_ISREG(info.st_mode) and not stat.S_ISDIR(info.st_mode):
        raise Unpackable(f"{path}: neither a folder nor a file")
    packing = _Packing(path, project, is_folder=stat.S_ISDIR(info.st_mode))
    out = _Bounded(path, bytes_max)
    try:
        packing.into(out)
    except FileFailed as failed:
        raise Unpackable(f"{path}: {failed.message}") from None
    except OSError as error:
        raise Unpackable(f"{path}: {(error.strerror or str(error)).lower()}") from None
    if not packing.count:
        raise Unpackable(f"{path}: there is nothing in it to pack")
    content = out.getvalue()
    return Packed(digest_of(content), content, packing.count)


class _Bounded(io.BytesIO):
    """A buffer with a size limit."""

    def __init__(self, path: Path, bytes_max: int) -> None:
        super().__init__()
        self._path = path
        self._bytes_max = bytes_max

    def write(self, data: Any, /) -> int:
        if self.tell() + len(data) > self._bytes_max:
            raise _too_large(self._path, self._bytes_max)
        return super().write(data)


class _Packing:
    """Selects and writes the members of one blob."""

    def __init__(self, path: Path, project: Path | None, *, is_folder: bool) -> None:
        self._path = path
        self._is_folder = is_folder
        self._excludes = Excludes.read(path, project) if is_folder else Excludes([])
        self._looked_at = 0
        self.count = 0

    def into(self, output: Output) -> None:
        # Follows a link that the project file names, but no link within the tree.
        real = self._path.resolve()
        folder = os.open(real if self._is_folder else real.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            trees.pack(Spot(folder, "." if self._is_folder else real.name), output, self._keep, self._member)
        finally:
            os.close(folder)

    def _keep(self, found: Found) -> bool:
        self._looked_at += 1
        if self._looked_at > LOOKED_AT_MAX:
            raise Unpackable(f"{self._path}: more than {LOOKED_AT_MAX} files; leave folders out in {IGNORE_FILE}")
        is_folder = stat.S_ISDIR(found.status.st_mode)
        if self._excludes.is_excluded(found.name, is_folder=is_folder):
            return False
        if is_folder:
            if found.name.count("/") >= DEPTH_MAX:
                raise Unpackable(f"{self._path / found.name}: folders are nested more than {DEPTH_MAX} deep")
        elif not found.target and not stat.S_ISREG(found.status.st_mode):
            path = self._path / found.name
            raise Unpackable(f"{path}: neither a file nor a link; leave it out in {IGNORE_FILE}")
        return True

    def _member(self, found: Found) -> tarfile.TarInfo | None:
        if stat.S_ISDIR(found.status.st_mode):
            return None
        self.count += 1
        if self.count > FILES_MAX:
            raise Unpackable(f"{self._path}: more than {FILES_MAX} files to pack; leave some out in {IGNORE_FILE}")
        name, path = (found.name, self._path / found.name) if self._is_folder else (self._path.name, self._path)
        if not name.isprintable():
            raise Unpackable(f"{path}: its name holds characters that cannot be printed; rename it")
        if found.status.st_size > BLOB_BYTES_MAX:
            raise _too_large(path, BLOB_BYTES_MAX)
        member = tarfile.TarInfo(name)
        if found.target:
            _check_target(name, found.target, path)
            member.type, member.linkname, member.mode = tarfile.SYMTYPE, found.target, 0o777
        else:
            member.mode = 0o755 if found.status.st_mode & stat.S_IXUSR else 0o644
        return member


def _check_target(name: str, target: str, link: Path) -> None:
    """Raise `Unpackable` for a link to something that is not packed with it."""
    if not stays_inside(name, target):
        why = "which is not packed, or by a way that goes up after it went down"
        raise Unpackable(f"{link}: it leads to {target}, {why}; copy it here, link it directly, or leave it out")


def _too_large(path: Path, bytes_max: int) -> Unpackable:
    return Unpackable(
        f"{path}: packed, it has more than {bytes_max} bytes; leave files out in {IGNORE_FILE}, "
        "or list what is installed under requirements"
    )
