"""Code, unpacked once for each digest."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from pathlib import Path
from typing import BinaryIO

from rota.api.field_rules import whole
from rota.runtime.blobs import Blobs
from rota.runtime.code.places import CODE, FOLDER_MODE, cached, coming, is_there
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
"""The file that inline code is in, of a function that is a command."""


class CodeRefused(Exception):  # noqa: N818 - says what became of it
    """Code that cannot be had: the reason is one word for a condition."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(whole(message))
        self.reason = reason


def inline_file(entrypoint: str) -> str:
    """Where inline code is: the module that the entrypoint names, else one program."""
    module = entrypoint.partition(":")[0]
    return f"{module.replace('.', '/')}.py" if module else INLINE_COMMAND


def inline_place(folder: Path, entrypoint: str) -> Path:
    """Where inline code is in its folder. Raises `CodeRefused`: the object may come from a less strict version."""
    try:
        return below(folder, *inline_file(entrypoint).split("/"))
    except UnsafeName as error:
        why = f"the entrypoint names no module: {error}"
        raise CodeRefused("NotPrepared", why) from None


def inline_digest(text: str, entrypoint: str) -> str:
    """The name of inline code: other text, or another file, is other code."""
    whole = f"{inline_file(entrypoint)}\0{text}".encode()
    return f"sha256:{hashlib.sha256(whole).hexdigest()}"


class CodeCache:
    """The code of all functions of a home. Nothing of it is run here."""

    def __init__(self, home: Path) -> None:
        self._home = home.absolute()
        self._blobs = Blobs(home)

    def has(self, digest: str) -> bool:
        return is_there(self._folder(digest))

    def put_inline(self, text: str, entrypoint: str) -> str:
        """Have inline code there; its digest."""
        digest = inline_digest(text, entrypoint)
        if not self.has(digest):
            with coming(self._folder(digest)) as folder:
                file = inline_place(folder, entrypoint)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
                file.chmod(FILE_MODE if entrypoint else PROGRAM_MODE)
                take_over(folder, _mode)
        return digest

    def unpack(self, digest: str) -> None:
        """Have the code of a blob there. Raises `CodeRefused`."""
        if self.has(digest):
            return
        blob = self._blobs.path(digest)
        try:
            with blob.open("rb") as file:
                # Checked where it is used: what lies on a disk for months may change.
                if f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}" != digest:
                    raise CodeRefused("CodeDamaged", f"the blob {digest} is damaged; deploy it anew")
                file.seek(0)
                with coming(self._folder(digest)) as folder:
                    _extract(file, folder)
                    take_over(folder, _mode)
        except FileNotFoundError:
            raise CodeRefused("CodeNotFound", f"there is no blob {digest}; deploy the function's code") from None
        except (FileFailed, TooDeep, OSError) as error:
            raise CodeRefused("CodeDamaged", f"the blob {digest} cannot be unpacked: {error}") from None

    def _folder(self, digest: str) -> Path:
        return cached(self._home, CODE, digest.removeprefix("sha256:"))


def _extract(file: BinaryIO, folder: Path) -> None:
    """Nothing that leads out of the folder, no device. Python's own filter for this is not in every 3.11."""
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
    """Whoever runs it can read it, whatever this process's umask is."""
    return FOLDER_MODE if stat.S_ISDIR(found) else PROGRAM_MODE if found & stat.S_IXUSR else FILE_MODE
