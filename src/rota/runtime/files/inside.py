"""The program that does one operation, where the instance is. Standard library only: it is started for each.

    python -I -m rota.runtime.files.inside '{"op": …, "root": …, "start": …, "path": …}'

It answers with lines of JSON on standard output: what there is, or `error` with a reason and a message. After that come
the bytes of what is read. What is written comes on standard input in pieces, each after its length in four bytes, and a
length of zero at the end. An end without that zero is a client that is gone: then nothing is changed.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from typing import Any

from rota.trees.archive import Archive
from rota.trees.bounds import ANSWER_BYTES_MAX, ENTRIES_MAX, ENTRY_BYTES_MAX, FILE_BYTES_MAX, PIECE_BYTES
from rota.trees.failing import FileFailed, explained
from rota.trees.packing import FOLDER, READ, measure, pack
from rota.trees.replacing import Replacing
from rota.trees.unpacking import Unpacking
from rota.trees.walking import NEW_FOLDER_MODE, PASS, Spot, Walk

LENGTH_BYTES = 4
INPUT, OUTPUT, ERRORS = 0, 1, 2
Asked = dict[str, Any]
_TYPES = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}


class Gone(Exception):  # noqa: N818 - says what the client is
    """What was promised cannot be whole any more: nobody is to be told."""


def main(argv: list[str]) -> int:
    asked: Asked = json.loads(argv[0])
    path = asked["path"]
    try:
        with Walk(asked["root"], asked["start"]) as walk:
            OPERATIONS[asked["op"]](walk, asked)
    except FileFailed as error:
        _say({"error": {"reason": error.reason, "message": error.message}})
        return 1
    except BrokenPipeError:
        return 1
    except OSError as error:
        failed = explained(error, path)
        _say({"error": {"reason": failed.reason, "message": failed.message}})
        return 1
    except Gone:
        return 1
    return 0


# Looking.


def _stat(walk: Walk, asked: Asked) -> None:
    spot = walk.to(asked["path"])
    _say(_shown(os.stat(spot.name, dir_fd=spot.folder, follow_symlinks=False)))


def _read(walk: Walk, asked: Asked) -> None:
    """A file's bytes; of a folder, what is in it."""
    spot = walk.to(asked["path"])
    status = os.stat(spot.name, dir_fd=spot.folder, follow_symlinks=False)
    if stat.S_ISDIR(status.st_mode):
        _list_folder(spot)
        return
    descriptor = os.open(spot.name, READ, dir_fd=spot.folder)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise FileFailed("NotAFile", f"{asked['path']}: it is no regular file, and only those are read")
    offset = asked["offset"]
    size = min(max(status.st_size - offset, 0), asked["limit"])
    if size > FILE_BYTES_MAX:
        raise FileFailed(
            "TooLarge", f"{asked['path']}: {size} bytes are more than the {FILE_BYTES_MAX} that are read at once"
        )
    _say({**_shown(status), "length": size})
    os.lseek(descriptor, offset, os.SEEK_SET)
    while size:
        piece = os.read(descriptor, min(size, PIECE_BYTES))
        if not piece:
            raise Gone  # It became shorter: what was promised cannot come any more.
        _write(piece)
        size -= len(piece)


def _list(walk: Walk, asked: Asked) -> None:
    _list_folder(walk.to(asked["path"]))


def _list_folder(spot: Spot) -> None:
    folder = os.open(spot.name, FOLDER, dir_fd=spot.folder)
    entries: list[dict[str, Any]] = []
    truncated, said_bytes = False, 0
    with os.scandir(folder) as found:
        for entry in found:
            if len(entries) == ENTRIES_MAX or said_bytes > ANSWER_BYTES_MAX - ENTRY_BYTES_MAX:
                truncated = True
                break
            try:
                status = os.stat(entry.name, dir_fd=folder, follow_symlinks=False)
                target = os.readlink(entry.name, dir_fd=folder) if stat.S_ISLNK(status.st_mode) else ""
            except FileNotFoundError:
                continue  # It was removed meanwhile.
            except OSError as error:
                if error.errno == errno.EINVAL:
                    continue  # It was a link a moment ago.
                raise
            entries.append({"name": entry.name, **_shown(status), **({"target": target} if target else {})})
            said_bytes += len(json.dumps(entries[-1])) + len(", ")
    entries.sort(key=lambda one: one["name"])
    _say({"entries": entries, "truncated": truncated})


def _shown(status: os.stat_result) -> dict[str, Any]:
    return {
        "type": _TYPES.get(stat.S_IFMT(status.st_mode), "other"),
        "size": status.st_size,
        "mode": stat.S_IMODE(status.st_mode),
        "modified": status.st_mtime,
    }


# Changing.


def _put(walk: Walk, asked: Asked) -> None:
    path = asked["path"]
    if path.endswith("/"):
        raise OSError(errno.EISDIR, "is a folder")
    spot = walk.to(path, follow=False, make=True)
    if spot.name == ".":
        raise OSError(errno.EISDIR, "is a folder")
    file = Replacing(spot.folder, spot.name)
    try:
        _say({"ready": True})
        total = 0
        for piece in _pieces():
            total += len(piece)
            if total > FILE_BYTES_MAX:
                raise FileFailed("TooLarge", f"{path}: a file that is written has at most {FILE_BYTES_MAX} bytes")
            file.write(piece)
        _say(_shown(file.commit(asked["mode"])))
    finally:
        file.drop()


def _remove(walk: Walk, asked: Asked) -> None:
    spot = walk.to(asked["path"], follow=False)
    if spot.name == ".":
        raise FileFailed("BadPath", f"{asked['path']}: that is where everything begins, and it stays")
    status = os.stat(spot.name, dir_fd=spot.folder, follow_symlinks=False)
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(spot.name, dir_fd=spot.folder)
    elif asked["recursive"]:
        try:
            shutil.rmtree(spot.name, dir_fd=spot.folder)
        except RecursionError:
            raise FileFailed("TooLarge", f"{asked['path']}: its folders are too deep to be removed at once") from None
    else:
        os.rmdir(spot.name, dir_fd=spot.folder)
    _say(_shown(status))


# Trees.


def _pack(walk: Walk, asked: Asked) -> None:
    spot = walk.to(asked["path"])
    members, total = measure(spot)
    _say({"members": members, "size": total})
    try:
        pack(spot, _Output())
    except (FileFailed, OSError) as error:
        # The bytes are on their way: an answer would be one of them.
        os.write(ERRORS, f"{error}\n".encode(errors="replace"))
        raise Gone from None


def _unpack(walk: Walk, asked: Asked) -> None:
    spot = walk.to(asked["path"], make=True)
    if spot.name != ".":
        with contextlib.suppress(FileExistsError):
            os.mkdir(spot.name, NEW_FOLDER_MODE, dir_fd=spot.folder)
    folder = os.open(spot.name, PASS, dir_fd=spot.folder)
    unpacking, archive = Unpacking(folder), Archive()
    try:
        _say({"ready": True})
        for piece in _pieces():
            for event in archive.feed(piece):
                unpacking.take(event)
        archive.end()
        unpacking.finish()
        _say({"members": archive.members, "size": archive.bytes})
    finally:
        unpacking.drop()


OPERATIONS: dict[str, Callable[[Walk, Asked], None]] = {
    "stat": _stat,
    "read": _read,
    "list": _list,
    "write": _put,
    "remove": _remove,
    "pack": _pack,
    "unpack": _unpack,
}


# Streams.


class _Output:
    def write(self, data: bytes) -> int:
        _write(data)
        return len(data)


def _say(what: dict[str, Any]) -> None:
    # Names that are no UTF-8 come as lone surrogates, which JSON can escape.
    _write(json.dumps(what).encode("ascii") + b"\n")


def _write(data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(OUTPUT, rest) :]


def _pieces() -> Iterator[bytes]:
    while length := int.from_bytes(_exactly(LENGTH_BYTES), "big"):
        while length:
            piece = os.read(INPUT, min(length, PIECE_BYTES))
            if not piece:
                raise Gone
            length -= len(piece)
            yield piece


def _exactly(size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = os.read(INPUT, size - len(data))
        if not piece:
            raise Gone
        data += piece
    return data


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
