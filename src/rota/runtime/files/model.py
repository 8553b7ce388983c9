"""What is asked of the files of a container, and what is told of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Annotated, NamedTuple, Protocol

import msgspec

from rota.runtime.files.commands import Command
from rota.trees.bounds import ENTRIES_MAX, FILE_BYTES_MAX
from rota.trees.failing import FileFailed


class Entry(msgspec.Struct, omit_defaults=True):
    """One thing in a folder, or what a path leads to."""

    type: str
    """file, directory, link or other."""
    size: int
    mode: int
    modified: float
    """In seconds since 1970."""
    name: str = ""
    """In a folder. What is no UTF-8 comes as lone surrogates."""
    target: str = ""
    """Of a link in a folder, where it is known."""


class Listing(msgspec.Struct):
    """What is in a folder, by name."""

    entries: Annotated[list[Entry], msgspec.Meta(max_length=ENTRIES_MAX)]
    truncated: bool = False
    """There is more."""


class Tree(msgspec.Struct):
    """What a tree came to."""

    members: int
    size: int


class Bytes:
    """What is read, piece by piece. Close it, whatever happens. One that ends too early raises FileFailed."""

    def __init__(self, command: Command, stack: AsyncExitStack, *, length: int | None, bytes_max: int) -> None:
        """`length`: what was promised; None: it ends with the command."""
        self._command = command
        self._stack = stack
        self._length = length
        self._left = bytes_max if length is None else length

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        piece = await self._command.piece() if self._length is None or self._left else b""
        self._left -= len(piece)
        if self._left < 0:
            raise FileFailed("TooLarge", "more comes than was promised, or than the bound")
        if piece:
            return piece
        if self._length is not None and self._left:
            raise FileFailed("Failed", "what was read ended too early: it was changed meanwhile, or the instance ended")
        if self._length is None and await self._command.code() != 0:
            raise FileFailed("Failed", await self._command.complaint() or "it ended too early")
        await self.aclose()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        await self._stack.aclose()


class Opened(NamedTuple):
    """A file that is read."""

    entry: Entry
    length: int
    bytes: Bytes


class Files(Protocol):
    """All operations. They raise FileFailed, and NotRunning when there is nothing that has files."""

    async def stat(self, path: str) -> Entry:
        """What a path leads to."""
        ...

    async def read(self, path: str, offset: int = 0, limit: int = FILE_BYTES_MAX) -> Opened | Listing:
        """A file's bytes, or what is in a folder."""
        ...

    async def list(self, path: str) -> Listing: ...

    async def write(self, path: str, body: AsyncIterator[bytes], mode: int) -> Entry:
        """Replace a file by what comes. Folders above it are made."""
        ...

    async def remove(self, path: str, *, recursive: bool = False) -> None: ...

    async def pack(self, path: str) -> Bytes:
        """What is in a folder, or a file alone, as tar."""
        ...

    async def unpack(self, path: str, body: AsyncIterator[bytes]) -> Tree:
        """Unpack a tar below a folder, which is made if need be."""
        ...
