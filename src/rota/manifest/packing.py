"""The code of a function as one blob: a tar that is the same bytes wherever and whenever it is packed.

It holds files and links, sorted by name, as git would keep them: with their content and whether they may be executed;
without times, owners and empty folders. It is not compressed, because compressors differ from machine to machine.
"""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rota.manifest.packing_excludes import IGNORE_FILE, Excludes
from rota.runtime.blobs import BLOB_BYTES_MAX, digest_of
from rota.trees.links import stays_inside

FILES_MAX = 10_000
DEPTH_MAX = 64
"""Folders within folders."""
LOOKED_AT_MAX = 200_000
"""Names that are looked at, those that are left out included."""


class Unpackable(ValueError):  # noqa: N818 - says what the folder is
    """What cannot be packed, and what to do about it."""


class Packed(NamedTuple):
    """A blob, and what went into it."""

    digest: str
    content: bytes
    files: int


class _Entry(NamedTuple):
    name: str
    path: Path
    info: os.stat_result


def pack(path: Path, *, project: Path | None = None, bytes_max: int = BLOB_BYTES_MAX) -> Packed:
    """A folder, or one file alone. `project`: the folder that it is of, if there is one. Raises `Unpackable`."""
    try:
        info = path.stat()
    except OSError as error:
        raise Unpackable(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except ValueError as error:
        raise Unpackable(f"no path: {error}") from None
    if stat.S_ISREG(info.st_mode):
        entries = [_Entry(path.name, path, info)]
    elif stat.S_ISDIR(info.st_mode):
        entries = sorted(_entries(path, project), key=lambda entry: entry.name.encode("utf-8", "surrogateescape"))
    else:
        raise Unpackable(f"{path}: neither a folder nor a file")
    if not entries:
        raise Unpackable(f"{path}: there is nothing in it to pack")
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for entry in entries:
            _add(tar, entry)
            if out.tell() > bytes_max:
                raise _too_large(path, bytes_max)
    content = out.getvalue()
    if len(content) > bytes_max:
        raise _too_large(path, bytes_max)
    return Packed(digest_of(content), content, len(entries))


def _entries(top: Path, project: Path | None) -> Iterator[_Entry]:
    excludes = Excludes.read(top, project)
    looked_at = count = 0
    folders: list[tuple[str, int]] = [("", 0)]
    while folders:
        below, depth = folders.pop()
        if depth > DEPTH_MAX:
            raise Unpackable(f"{top / below}: folders are nested more than {DEPTH_MAX} deep")
        for found in _scanned(top / below):
            looked_at += 1
            if looked_at > LOOKED_AT_MAX:
                raise Unpackable(f"{top}: more than {LOOKED_AT_MAX} files; leave folders out in {IGNORE_FILE}")
            name = f"{below}{found.name}"
            is_folder = found.is_dir(follow_symlinks=False)
            if excludes.leaves_out(name, is_folder=is_folder):
                continue
            if is_folder:
                folders.append((f"{name}/", depth + 1))
                continue
            count += 1
            if count > FILES_MAX:
                raise Unpackable(f"{top}: more than {FILES_MAX} files to pack; leave some out in {IGNORE_FILE}")
            yield _Entry(name, Path(found.path), found.stat(follow_symlinks=False))


def _scanned(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError as error:
        raise Unpackable(f"{folder}: {(error.strerror or str(error)).lower()}") from None


def _add(tar: tarfile.TarFile, entry: _Entry) -> None:
    name, path, info = entry
    if not name.isprintable():
        raise Unpackable(f"{path}: its name holds characters that cannot be printed; rename it")
    member = tarfile.TarInfo(name)
    if stat.S_ISLNK(info.st_mode):
        member.type, member.linkname, member.mode = tarfile.SYMTYPE, _target(name, path), 0o777
        tar.addfile(member)
        return
    if not stat.S_ISREG(info.st_mode):
        raise Unpackable(f"{path}: neither a file nor a link; leave it out in {IGNORE_FILE}")
    if info.st_size > BLOB_BYTES_MAX:
        raise _too_large(path, BLOB_BYTES_MAX)
    member.mode = 0o755 if info.st_mode & stat.S_IXUSR else 0o644
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Unpackable(f"{path}: {(error.strerror or str(error)).lower()}") from None
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def _target(name: str, link: Path) -> str:
    """Where a link leads to. Only what is packed with it will be there."""
    target = str(link.readlink())
    if not stays_inside(name, target):
        why = "which is not packed, or by a way that goes up after it went down"
        raise Unpackable(f"{link}: it leads to {target}, {why}; copy it here, link it directly, or leave it out")
    return target


def _too_large(path: Path, bytes_max: int) -> Unpackable:
    return Unpackable(
        f"{path}: packed, it has more than {bytes_max} bytes; leave files out in {IGNORE_FILE}, "
        "or list what is installed under requirements"
    )
