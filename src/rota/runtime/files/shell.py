"""Files by the tools of a container's image: a shell, `stat`, `head` and so on, for trees `tar`; busybox has them all.

Scripts report known errors by their exit code, others by the messages of their tools. A killed client of an engine does
not end the command in the container, so every script ends with its input or its output, and a written file is put in
its place by a second command, when all of it has arrived.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
import stat
import tarfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

from rota.runtime.files.commands import InstanceCommand
from rota.runtime.files.model import Bytes, FileEntry, Listing, Opened, Tree
from rota.runtime.interface import HasFiles, Subject
from rota.trees.archive import Archive, Member
from rota.trees.bounds import (
    ANSWER_BYTES_MAX,
    ARCHIVE_STREAM_BYTES_MAX,
    ENTRIES_MAX,
    ENTRY_BYTES_MAX,
    FILE_BYTES_MAX,
    MODE_MASK,
    PATH_BYTES_MAX,
)
from rota.trees.failing import FileFailed
from rota.trees.replacing import TEMPORARY

REASONS = {
    43: ("Forbidden", "permission denied"),
    44: ("NotFound", "no such file or directory"),
    45: ("IsADirectory", "is a directory"),
    46: ("NotADirectory", "not a directory"),
    47: ("NotAFile", "it is no regular file, and only those are read"),
    48: ("NotEmpty", "directory not empty"),
}
"""The reason and message of each exit code of the scripts below."""
MISSING = (126, 127)
"""Exit codes of shells and engines for a missing program."""
READY = b"ready"
CLEAR_SECONDS_MAX = 10.0
_FORM = "'%f %s %Y'"
_TYPES = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
_TAR_TYPES = {
    "file": tarfile.REGTYPE,
    "directory": tarfile.DIRTYPE,
    "link": tarfile.SYMTYPE,
    "hard link": tarfile.LNKTYPE,
}

_THERE = '[ -e "$1" ] || exit 44; '
STAT = f'{_THERE}exec stat -L -c {_FORM} -- "$1"'
READ = (
    f'{_THERE}[ -d "$1" ] && exit 45; [ -f "$1" ] || exit 47; [ -r "$1" ] || exit 43; '
    f'stat -L -c {_FORM} -- "$1" || exit; '
    'if [ "$2" = 1 ]; then exec head -c "$3" -- "$1"; fi; tail -c "+$2" -- "$1" | head -c "$3"'
)
LIST = (
    f'{_THERE}[ -d "$1" ] || exit 46; cd -- "$1" || exit 43; '
    "exec find . -mindepth 1 -maxdepth 1 -exec stat -c '%f %s %Y %n//' -- '{}' +"
)
"""Two slashes separate names: a name can contain any character but a slash."""
WRITE = (
    '[ -d "$1" ] && [ ! -L "$1" ] && exit 45; mkdir -p -- "$2" || exit; umask 077; '
    ': > "$3" || exit; echo ready; exec cat > "$3"'
)
COMMIT = (
    '[ "$(wc -c < "$2")" -eq "$3" ] || { echo "not all of it arrived" >&2; exit 1; }; '
    'chmod "$4" "$2" && { [ ! -L "$1" ] || rm -f -- "$1"; } && mv -f -- "$2" "$1" && exec stat -L -c '
    f'{_FORM} -- "$1"'
)
DROP = 'exec rm -f -- "$1"'
REMOVE = (
    '[ -e "$1" ] || [ -L "$1" ] || exit 44; if [ ! -d "$1" ] || [ -L "$1" ]; then exec rm -f -- "$1"; fi; '
    'if [ "$2" = 1 ]; then exec rm -rf -- "$1"; fi; '
    'for one in "$1"/* "$1"/.[!.]* "$1"/..?*; do { [ -e "$one" ] || [ -L "$one" ]; } && exit 48; done; '
    'exec rmdir -- "$1"'
)
PACK = (
    f'{_THERE}command -v tar > /dev/null || {{ echo "tar: not found" >&2; exit 127; }}; '
    'if [ -d "$1" ]; then cd -- "$1" || exit 43; echo ready; exec tar -cf - .; fi; '
    '[ -f "$1" ] || exit 47; [ -r "$1" ] || exit 43; echo ready; exec tar -cf - -C "$2" -- "$3"'
)
UNPACK = (
    'command -v tar > /dev/null || { echo "tar: not found" >&2; exit 127; }; '
    'mkdir -p -- "$1" || exit; cd -- "$1" || exit 46; echo ready; exec tar -xof -'
)


class ToolFiles:
    """Runs a script for each operation."""

    def __init__(self, runtime: HasFiles, subject: Subject, container: str) -> None:
        self._runtime = runtime
        self._at = (subject, container)

    def _command(self, script: str, *arguments: str) -> InstanceCommand:
        return InstanceCommand(self._runtime, *self._at, ["sh", "-c", script, "sh", *arguments])

    async def stat(self, path: str) -> FileEntry:
        async with self._command(STAT, _plain(path)) as command:
            return _entry(await self._first_line(command, path))

    async def list(self, path: str) -> Listing:
        async with self._command(LIST, _plain(path)) as command:
            entries: list[FileEntry] = []
            held, said_bytes = b"", 0
            while piece := await command.piece():
                *whole, held = (held + piece).split(b"//\n")
                # The tools are the instance's own: their output is not trusted, and needs a bound.
                if len(held) > ENTRY_BYTES_MAX:
                    raise FileFailed("Failed", "the instance gives an answer that makes no sense")
                entries += [_entry(line) for line in whole]
                said_bytes += len(piece)
                if len(entries) > ENTRIES_MAX or said_bytes > ANSWER_BYTES_MAX:
                    return Listing(sorted(entries[:ENTRIES_MAX], key=lambda one: one.name), truncated=True)
            # An entry may have been removed meanwhile: a tool complains, and the others are right.
            code = await command.code()
            if code in REASONS or code in MISSING or (code and not entries):
                raise await _failure(command, code, path)
            return Listing(sorted(entries, key=lambda one: one.name))

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        if posixpath.normpath(path) in (".", "/", "//"):
            raise FileFailed("BadPath", f"{path}: it is the folder where paths begin, which cannot be removed")
        async with self._command(REMOVE, _plain(path).rstrip("/"), str(int(recursive))) as command:
            await self._ended(command, path)

    async def read(self, path: str, offset: int = 0, limit: int = FILE_BYTES_MAX) -> Opened | Listing:
        async with AsyncExitStack() as stack:
            script = self._command(READ, _plain(path), str(offset + 1), str(limit))
            command = await stack.enter_async_context(script)
            line = await command.read_line()
            if not line and await command.code() == 45:
                return await self.list(path)
            entry = _entry(line or await self._first_line(command, path))
            length = min(max(entry.size - offset, 0), limit)
            if length > FILE_BYTES_MAX:
                raise FileFailed(
                    "TooLarge", f"{path}: {length} bytes are more than the {FILE_BYTES_MAX} that are read at once"
                )
            return Opened(entry, length, Bytes(command, stack.pop_all(), length=length, bytes_max=FILE_BYTES_MAX))

    async def pack(self, path: str) -> Bytes:
        plain = _plain(path).rstrip("/") or "/"
        async with AsyncExitStack() as stack:
            arguments = (plain, posixpath.dirname(plain), posixpath.basename(plain))
            command = await stack.enter_async_context(self._command(PACK, *arguments))
            await self._ready(command, path)
            return Bytes(command, stack.pop_all(), length=None, bytes_max=ARCHIVE_STREAM_BYTES_MAX)

    async def write(self, path: str, body: AsyncIterator[bytes], mode: int) -> FileEntry:
        plain = _plain(path)
        if plain.endswith("/"):
            raise FileFailed("IsADirectory", f"{path}: is a directory")
        folder = posixpath.dirname(plain) or "/"
        temporary = posixpath.join(folder, f"{TEMPORARY}{os.urandom(8).hex()}")
        size = 0
        try:
            async with self._command(WRITE, plain, folder, temporary) as command:
                await self._ready(command, path)
                async for piece in body:
                    size += len(piece)
                    if size > FILE_BYTES_MAX:
                        raise FileFailed(
                            "TooLarge", f"{path}: a file that is written has at most {FILE_BYTES_MAX} bytes"
                        )
                    await self._feed(command, piece, path)
                command.close_input()
                await self._ended(command, path)
            async with self._command(COMMIT, plain, temporary, str(size), f"{mode & MODE_MASK:o}") as command:
                return _entry(await self._first_line(command, path))
        except BaseException:
            await self._clear(temporary)
            raise

    async def unpack(self, path: str, body: AsyncIterator[bytes]) -> Tree:
        archive, plain = Archive(), _plain(path)
        last = ""
        try:
            async with self._command(UNPACK, plain) as command:
                await self._ready(command, path)
                left = padding = 0
                async for piece in body:
                    for event in archive.feed(piece):
                        if isinstance(event, Member):
                            last, left = (event.name if event.type == "file" else ""), event.size
                            padding = -left % tarfile.BLOCKSIZE
                            await self._feed(command, _header(event), path)
                        elif isinstance(event, bytes):
                            left -= len(event)
                            await self._feed(command, event if left else event + bytes(padding), path)
                archive.end()
                await self._feed(command, bytes(2 * tarfile.BLOCKSIZE), path)
                command.close_input()
                await self._ended(command, path)
        except BaseException:
            # The tool may have written half of the last file.
            if last:
                await self._clear(posixpath.join(plain, last))
            raise
        return Tree(archive.members, archive.bytes)

    # Answers and exit codes.

    async def _first_line(self, command: InstanceCommand, path: str) -> bytes:
        line = await command.read_line()
        if not line:
            raise await _failure(command, await command.code(), path)
        return line

    async def _ready(self, command: InstanceCommand, path: str) -> None:
        if await self._first_line(command, path) != READY:
            raise FileFailed("Failed", f"{path}: the image's shell gives an answer that makes no sense")

    async def _ended(self, command: InstanceCommand, path: str) -> None:
        code = await command.code()
        if code:
            raise await _failure(command, code, path)

    async def _feed(self, command: InstanceCommand, data: bytes, path: str) -> None:
        try:
            await command.write(data)
        except BrokenPipeError:
            raise await _failure(command, await command.code(), path) from None

    async def _clear(self, path: str) -> None:
        """Remove a file that was written in part, even if the caller is cancelled meanwhile."""

        async def clear() -> None:
            async with self._command(DROP, path) as command:
                await command.code()

        clearing = asyncio.ensure_future(clear())
        await asyncio.wait((clearing,), timeout=CLEAR_SECONDS_MAX)
        if clearing.done():
            clearing.exception()


async def _failure(command: InstanceCommand, code: int, path: str) -> FileFailed:
    if code in REASONS:
        reason, why = REASONS[code]
        return FileFailed(reason, f"{path}: {why}")
    said = await command.complaint()
    if code in MISSING:
        return FileFailed(
            "ToolMissing",
            f"the image lacks a tool that this takes ({said}); it needs sh, stat, head, find, tar and cat",
        )
    if "ermission denied" in said or "ead-only file system" in said:
        return FileFailed("Forbidden", f"{path}: {said}")
    if "No space left" in said:
        return FileFailed("NoSpace", f"{path}: {said}")
    return FileFailed("Failed", f"{path}: {said or f'the command ended with {code}'}")


def _plain(path: str) -> str:
    """Return a path in a form that no tool reads as an option. Raises FileFailed for text that is no path."""
    if not path or "\0" in path:
        raise FileFailed("BadPath", "a path has at least one character, and no zero byte")
    if len(os.fsencode(path)) > PATH_BYTES_MAX:
        raise FileFailed("BadPath", f"a path has at most {PATH_BYTES_MAX} bytes")
    return path if path.startswith("/") else f"./{path}"


def _entry(line: bytes) -> FileEntry:
    """Parse a line of `stat`: mode, size, time, and in a listing the name."""
    try:
        mode, size, modified, *name = line.split(b" ", 3)
        kind = _TYPES.get(stat.S_IFMT(int(mode, 16)), "other")
        shown = os.fsdecode(name[0]).removeprefix("./") if name else ""
        return FileEntry(kind, int(size), stat.S_IMODE(int(mode, 16)), float(modified), shown)
    except (ValueError, OverflowError):
        raise FileFailed("Failed", "the image's stat gives an answer that makes no sense") from None


def _header(member: Member) -> bytes:
    """Make a new header for a member from its checked values: the tool reads nothing else of the client's header."""
    if not member.name:
        return b""
    info = tarfile.TarInfo(member.name)
    info.type, info.size, info.linkname = _TAR_TYPES[member.type], member.size, member.target
    info.mode = member.mode | stat.S_IRWXU if member.type == "directory" else member.mode
    info.mtime = int(member.modified)
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
