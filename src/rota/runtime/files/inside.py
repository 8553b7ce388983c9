"""The program that does one operation inside an instance. Standard library only: it is started for each operation.

    python -I -m rota.runtime.files.inside '{"op": …, "root": …, "start": …, "path": …}'

It answers with a line of JSON on standard output: the result, or `error` with a reason and a message. The bytes of a
read file follow. Content to write comes on standard input in pieces, each after its length in four bytes, and a length
of zero at the end. Without that zero the client is gone, and nothing is changed.
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
Request = dict[str, Any]
_TYPES = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}


class Gone(Exception):  # noqa: N818 - says what the client is
    """The client is gone, or the announced bytes cannot all be sent any more. The program ends without an answer."""


def main(argv: list[str]) -> int:
    request: Request = json.loads(argv[0])
    path = request["path"]
    try:
        with Walk(request["root"], request["start"]) as walk:
            OPERATIONS[request["op"]](walk, request)
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


def _stat(walk: Walk, request: Request) -> None:
    spot = walk.to(request["path"])
    _say(_shown(os.stat(spot.name, dir_fd=spot.folder, follow_symlinks=False)))


def _read(walk: Walk, request: Request) -> None:
    """Answer with a file and its bytes, or with the entries of a folder."""
    spot = walk.to(request["path"])
    status = os.stat(spot.name, dir_fd=spot.folder, follow_symlinks=False)
    if stat.S_ISDIR(status.st_mode):
        _list_folder(spot)
        return
    descriptor = os.open(spot.name, READ, dir_fd=spot.folder)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise FileFailed("NotAFile", f"{request['path']}: it is no regular file, and only those are read")
    offset = request["offset"]
    size = min(max(status.st_size - offset, 0), request["limit"])
    if size > FILE_BYTES_MAX:
        raise FileFailed(
            "TooLarge", f"{request['path']}: {size} bytes are more than the {FILE_BYTES_MAX} that are read at once"
        )
    _say({**_shown(status), "length": size})
    os.lseek(descriptor, offset, os.SEEK_SET)
    while size:
        piece = os.read(descriptor, min(size, PIECE_BYTES))
        if not piece:
            raise Gone  # The file became shorter than announced.
        _write(piece)
        size -= len(piece)


def _list(walk: Walk, request: Request) -> None:
    _list_folder(walk.to(request["path"]))


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


def _put(walk: Walk, request: Request) -> None:
    path = request["path"]
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
        _say(_shown(file.commit(request["mode"])))
    finally:
        file.drop()


def _remove(walk: Walk, request: Request) -> None:
    spot = walk.to(request["path"], follow=False)
    if spot.name == ".":
        raise FileFailed("BadPath", f"{request['path']}: it is the folder where paths begin, which cannot be removed")
    status = os.stat(spot.name, dir_fd=spot.folder, follow_symlinks=False)
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(spot.name, dir_fd=spot.folder)
    elif request["recursive"]:
        try:
            shutil.rmtree(spot.name, dir_fd=spot.folder)
        except RecursionError:
            raise FileFailed("TooLarge", f"{request['path']}: its folders are too deep to be removed at once") from None
    else:
        os.rmdir(spot.name, dir_fd=spot.folder)
    _say(_shown(status))


# Trees.


def _pack(walk: Walk, request: Request) -> None:
    spot = walk.to(request["path"])
    members, total = measure(spot)
    _say({"members": members, "size": total})
    try:
        pack(spot, _StandardOutput())
    except (FileFailed, OSError) as error:
        # Bytes of the tar were sent already: an answer would become part of them.
        os.write(ERRORS, f"{error}\n".encode(errors="replace"))
        raise Gone from None


def _unpack(walk: Walk, request: Request) -> None:
    spot = walk.to(request["path"], make=True)
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


OPERATIONS: dict[str, Callable[[Walk, Request], None]] = {
    "stat": _stat,
    "read": _read,
    "list": _list,
    "write": _put,
    "remove": _remove,
    "pack": _pack,
    "unpack": _unpack,
}


# Streams.


class _StandardOutput:
    def write(self, data: bytes) -> int:
        _write(data)
        return len(data)


def _say(what: dict[str, Any]) -> None:
    # Names that are not UTF-8 have lone surrogates, which JSON can escape.
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
