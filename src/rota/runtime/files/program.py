"""Files by `inside`, the program of Rota that runs in the instance."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import msgspec

from rota.runtime.files.commands import InstanceCommand
from rota.runtime.files.inside import LENGTH_BYTES
from rota.runtime.files.model import Bytes, FileEntry, Files, Listing, Opened, Tree
from rota.runtime.files.shell import ToolFiles
from rota.runtime.interface import HasFiles, Reach, Subject
from rota.trees.bounds import ARCHIVE_STREAM_BYTES_MAX, FILE_BYTES_MAX, MESSAGE_CHARACTERS_MAX
from rota.trees.failing import FileFailed

PROGRAM = ("-I", "-m", "rota.runtime.files.inside")
T = TypeVar("T")


def files_of(runtime: HasFiles, subject: Subject, container: str) -> Files:
    """Return the files of a container. Raises NotRunning."""
    reach = runtime.reach(subject, container)
    if reach.python:
        return ProgramFiles(runtime, subject, container, reach)
    return ToolFiles(runtime, subject, container)


class ProgramFiles:
    """Starts the program for each operation. `inside` describes its protocol."""

    def __init__(self, runtime: HasFiles, subject: Subject, container: str, reach: Reach) -> None:
        self._runtime = runtime
        self._at = (subject, container)
        self._reach = reach

    def _command(self, op: str, path: str, **more: Any) -> InstanceCommand:
        asked = {"op": op, "root": self._reach.root, "start": self._reach.start, "path": path, **more}
        return InstanceCommand(self._runtime, *self._at, [self._reach.python, *PROGRAM, json.dumps(asked)])

    async def stat(self, path: str) -> FileEntry:
        async with self._command("stat", path) as command:
            return await _answer(command, FileEntry)

    async def list(self, path: str) -> Listing:
        async with self._command("list", path) as command:
            return await _answer(command, Listing)

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        async with self._command("remove", path, recursive=recursive) as command:
            await _answer(command, FileEntry)

    async def read(self, path: str, offset: int = 0, limit: int = FILE_BYTES_MAX) -> Opened | Listing:
        async with AsyncExitStack() as stack:
            command = await stack.enter_async_context(self._command("read", path, offset=offset, limit=limit))
            answer = await _answer(command, dict[str, Any])
            if "entries" in answer:
                return _converted(answer, Listing)
            length = _converted(answer.get("length"), int)
            entry = _converted(answer, FileEntry)
            bytes_ = Bytes(command, stack.pop_all(), length=length, bytes_max=FILE_BYTES_MAX)
            return Opened(entry, length, bytes_)

    async def pack(self, path: str) -> Bytes:
        async with AsyncExitStack() as stack:
            command = await stack.enter_async_context(self._command("pack", path))
            await _answer(command, Tree)
            return Bytes(command, stack.pop_all(), length=None, bytes_max=ARCHIVE_STREAM_BYTES_MAX)

    async def write(self, path: str, body: AsyncIterator[bytes], mode: int) -> FileEntry:
        async with self._command("write", path, mode=mode) as command:
            return await self._fed(command, body, FileEntry)

    async def unpack(self, path: str, body: AsyncIterator[bytes]) -> Tree:
        async with self._command("unpack", path) as command:
            return await self._fed(command, body, Tree)

    @staticmethod
    async def _fed(command: InstanceCommand, body: AsyncIterator[bytes], type_: type[T]) -> T:
        await _answer(command, dict[str, bool])
        try:
            async for piece in body:
                if piece:
                    await command.write(len(piece).to_bytes(LENGTH_BYTES, "big") + piece)
            await command.write(bytes(LENGTH_BYTES))
        except BrokenPipeError:
            pass  # Its answer has the reason.
        return await _answer(command, type_)


async def _answer(command: InstanceCommand, type_: type[T]) -> T:
    line = await command.read_line()
    try:
        answer = json.loads(line) if line else {}
    except (ValueError, RecursionError):
        answer = {}
    if not answer:
        why = await command.complaint() or "it was ended"
        raise FileFailed("Failed", f"the instance gives no answer: {why}")
    if isinstance(answer, dict) and isinstance(error := answer.get("error"), dict):
        reason, message = (str(error.get(key))[:MESSAGE_CHARACTERS_MAX] for key in ("reason", "message"))
        raise FileFailed(reason, message)
    return _converted(answer, type_)


def _converted(answer: Any, type_: type[T]) -> T:
    # The answer is not trusted: the instance may have written it.
    try:
        return msgspec.convert(answer, type_)
    except msgspec.ValidationError:
        raise FileFailed("Failed", "the instance gives an answer that makes no sense") from None
