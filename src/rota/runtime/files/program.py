"""Files by a program of Rota's that runs inside."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import msgspec

from rota.runtime.files.commands import Command
from rota.runtime.files.inside import LENGTH_BYTES
from rota.runtime.files.model import Bytes, Entry, Listing, Opened, Tree
from rota.runtime.interface import HasFiles, Reach, Subject
from rota.trees.bounds import ARCHIVE_STREAM_BYTES_MAX, FILE_BYTES_MAX, MESSAGE_CHARACTERS_MAX
from rota.trees.failing import FileFailed

PROGRAM = ("-I", "-m", "rota.runtime.files.inside")
T = TypeVar("T")


class Program:
    """One command for each operation: `inside` says how it is spoken to."""

    def __init__(self, runtime: HasFiles, subject: Subject, container: str, reach: Reach) -> None:
        self._runtime = runtime
        self._at = (subject, container)
        self._reach = reach

    def _command(self, op: str, path: str, **more: Any) -> Command:
        asked = {"op": op, "root": self._reach.root, "start": self._reach.start, "path": path, **more}
        return Command(self._runtime, *self._at, [self._reach.python, *PROGRAM, json.dumps(asked)])

    async def stat(self, path: str) -> Entry:
        async with self._command("stat", path) as command:
            return await _answer(command, Entry)

    async def list(self, path: str) -> Listing:
        async with self._command("list", path) as command:
            return await _answer(command, Listing)

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        async with self._command("remove", path, recursive=recursive) as command:
            await _answer(command, Entry)

    async def read(self, path: str, offset: int = 0, limit: int = FILE_BYTES_MAX) -> Opened | Listing:
        async with AsyncExitStack() as stack:
            command = await stack.enter_async_context(self._command("read", path, offset=offset, limit=limit))
            told = await _answer(command, dict[str, Any])
            if "entries" in told:
                return _converted(told, Listing)
            length = _converted(told.get("length"), int)
            entry = _converted(told, Entry)
            bytes_ = Bytes(command, stack.pop_all(), length=length, bytes_max=FILE_BYTES_MAX)
            return Opened(entry, length, bytes_)

    async def pack(self, path: str) -> Bytes:
        async with AsyncExitStack() as stack:
            command = await stack.enter_async_context(self._command("pack", path))
            await _answer(command, Tree)
            return Bytes(command, stack.pop_all(), length=None, bytes_max=ARCHIVE_STREAM_BYTES_MAX)

    async def write(self, path: str, body: AsyncIterator[bytes], mode: int) -> Entry:
        async with self._command("write", path, mode=mode) as command:
            return await self._fed(command, body, Entry)

    async def unpack(self, path: str, body: AsyncIterator[bytes]) -> Tree:
        async with self._command("unpack", path) as command:
            return await self._fed(command, body, Tree)

    @staticmethod
    async def _fed(command: Command, body: AsyncIterator[bytes], type_: type[T]) -> T:
        await _answer(command, dict[str, bool])
        try:
            async for piece in body:
                if piece:
                    await command.write(len(piece).to_bytes(LENGTH_BYTES, "big") + piece)
            await command.write(bytes(LENGTH_BYTES))
        except BrokenPipeError:
            pass  # It says why.
        return await _answer(command, type_)


async def _answer(command: Command, type_: type[T]) -> T:
    line = await command.line()
    try:
        told = json.loads(line) if line else {}
    except (ValueError, RecursionError):
        told = {}
    if not told:
        why = await command.complaint() or "it was ended"
        raise FileFailed("Failed", f"the instance gives no answer: {why}")
    if isinstance(told, dict) and isinstance(error := told.get("error"), dict):
        reason, message = (str(error.get(key))[:MESSAGE_CHARACTERS_MAX] for key in ("reason", "message"))
        raise FileFailed(reason, message)
    return _converted(told, type_)


def _converted(told: Any, type_: type[T]) -> T:
    # What runs there could have said anything.
    try:
        return msgspec.convert(told, type_)
    except msgspec.ValidationError:
        raise FileFailed("Failed", "the instance gives an answer that makes no sense") from None
