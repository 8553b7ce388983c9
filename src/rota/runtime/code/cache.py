"""The code of functions, unpacked once for each digest."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from pathlib import Path
from typing import BinaryIO

from rota.api.field_rules import whole
from rota.runtime.blobs import Blobs
from rota.runtime.code.places import CODE, FOLDER_MODE, cached, is_there, new_folder
from rota.runtime.modes import TooDeep, take_over
from rota.runtime.paths import UnsafeName, below
from rota.trees.archive import Archive
from rota.trees.bounds import PIECE_BYTES
from rota.trees.failing import FileFailed
from rota.trees.unpacking import Unpacking

UNPACKED_BYTES_MAX = 512 * 1024 * 1024
FILES_MAX = 20_000
FILE_MODE, PROGRAM_MODE = 0o644, 0o755
INLINE_COMMAND = "main"
"""The name of the file that holds the inline code of a command."""


class CodeRefused(Exception):  # noqa: N818 - says what became of it
    """Code or packages cannot be provided. The reason is one word for a condition."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(whole(message))
        self.reason = reason


def inline_file(entrypoint: str) -> str:
    """Return the path of inline code: that of the entrypoint's module, or INLINE_COMMAND if there is no entrypoint."""
    module = entrypoint.partition(":")[0]
    return f"{module.replace('.', '/')}.py" if module else INLINE_COMMAND


def inline_place(folder: Path, entrypoint: str) -> Path:
    """Return the path of inline code in a folder. Raises `CodeRefused` for a path that leaves the folder."""
    try:
        return below(folder, *inline_file(entrypoint).split("/"))
    except UnsafeName as error:
        why = f"the entrypoint names no module: {error}"
        raise CodeRefused("NotPrepared", why) from None


def inline_digest(text: str, entrypoint: str) -> str:
    """Return the digest of inline code. It covers the name of the code's file, too."""
    whole = f"{inline_file(entrypoint)}\0{text}".encode()
    return f"sha256:{hashlib.sha256(whole).hexdigest()}"


class CodeCache:
    """The code of all functions of a home."""

    def __init__(self, home: Path) -> None:
        self._home = home.absolute()
        self._blobs = Blobs(home)

    def has(self, digest: str) -> bool:
        return is_there(self._folder(digest))

    def put_inline(self, text: str, entrypoint: str) -> str:
        """Write inline code, unless it is there, and return its digest."""
        digest = inline_digest(text, entrypoint)
        if not self.has(digest):
            with new_folder(self._folder(digest)) as folder:
                file = inline_place(folder, entrypoint)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
                file.chmod(FILE_MODE if entrypoint else PROGRAM_MODE)
                take_over(folder, _mode)
        return digest

    def unpack(self, digest: str) -> None:
        """Unpack the code of a blob, unless it is there. Raises `CodeRefused`."""
        if self.has(digest):
            return
        blob = self._blobs.path(digest)
        try:
            with blob.open("rb") as file:
                # Checked again here: a file may be damaged after months on a disk.
                if f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}" != digest:
                    raise CodeRefused("CodeDamaged", f"the blob {digest} is damaged; deploy it anew")
                file.seek(0)
                with new_folder(self._folder(digest)) as folder:
                    _extract(file, folder)
                    take_over(folder, _mode)
        except FileNotFoundError:
            raise CodeRefused("CodeNotFound", f"there is no blob {digest}; deploy the function's code") from None
        except (FileFailed, TooDeep, OSError) as error:
            raise CodeRefused("CodeDamaged", f"the blob {digest} cannot be unpacked: {error}") from None

    def _folder(self, digest: str) -> Path:
        return cached(self._home, CODE, digest.removeprefix("sha256:"))


def _extract(file: BinaryIO, folder: Path) -> None:
    """Unpack a tar by `rota.trees`: not every Python 3.11 has the filter that refuses members outside the folder."""
    archive = Archive()
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        unpacking = Unpacking(at)
    finally:
        os.close(at)
    with contextlib.ExitStack() as stack:
        stack.callback(unpacking.drop)
        while piece := file.read(PIECE_BYTES):
            for event in archive.feed(piece):
                if archive.members > FILES_MAX or archive.bytes > UNPACKED_BYTES_MAX:
                    what = f"has more than {FILES_MAX} files, or {UNPACKED_BYTES_MAX} bytes"
                    raise CodeRefused("CodeTooLarge", f"unpacked, it {what}; leave out what is not needed")
                unpacking.take(event)
        archive.end()
        unpacking.finish()


def _mode(found: int) -> int:
    """Return the mode of an unpacked file: the uid that runs it can read it, whatever the umask of this process."""
    return FOLDER_MODE if stat.S_ISDIR(found) else PROGRAM_MODE if found & stat.S_IXUSR else FILE_MODE
