"""The operations on the files of a container, and their results."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Annotated, NamedTuple, Protocol

import msgspec

from rota.runtime.files.commands import InstanceCommand
from rota.trees.bounds import ENTRIES_MAX, FILE_BYTES_MAX
from rota.trees.failing import FileFailed


class FileEntry(msgspec.Struct, omit_defaults=True):
    """A file, folder or link: in a listing, or at the end of a path."""

    type: str
    """file, directory, link or other."""
    size: int
    mode: int
    modified: float
    """In seconds since 1970."""
    name: str = ""
    """Set in a listing. Bytes that are not UTF-8 are lone surrogates."""
    target: str = ""
    """The target of a link in a listing, if it is known."""


class Listing(msgspec.Struct):
    """The entries of a folder, sorted by name."""

    entries: Annotated[list[FileEntry], msgspec.Meta(max_length=ENTRIES_MAX)]
    truncated: bool = False
    """The folder has more entries."""


class Tree(msgspec.Struct):
    """The size of a tree that was packed or unpacked."""

    members: int
    size: int


class Bytes:
    """The bytes of a read, piece by piece. Raises FileFailed if they end too early. Call `aclose` in any case."""

    def __init__(self, command: InstanceCommand, stack: AsyncExitStack, *, length: int | None, bytes_max: int) -> None:
        """`length`: the announced length, or None if the bytes end with the command."""
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
            raise FileFailed("TooLarge", "the instance sends more bytes than it announced, or than the bound")
        if piece:
            return piece
        if self._length is not None and self._left:
            raise FileFailed(
                "Failed", "the bytes ended too early: the file was changed meanwhile, or the instance ended"
            )
        if self._length is None and await self._command.code() != 0:
            raise FileFailed("Failed", await self._command.complaint() or "it ended too early")
        await self.aclose()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        await self._stack.aclose()


class Opened(NamedTuple):
    """A file that is being read."""

    entry: FileEntry
    length: int
    bytes: Bytes


class Files(Protocol):
    """All operations. They raise FileFailed, and NotRunning if the container does not run."""

    async def stat(self, path: str) -> FileEntry:
        """Return the entry that a path leads to."""
        ...

    async def read(self, path: str, offset: int = 0, limit: int = FILE_BYTES_MAX) -> Opened | Listing:
        """Open a file, or list a folder."""
        ...

    async def list(self, path: str) -> Listing: ...

    async def write(self, path: str, body: AsyncIterator[bytes], mode: int) -> FileEntry:
        """Replace a file by these bytes. Folders above it are made."""
        ...

    async def remove(self, path: str, *, recursive: bool = False) -> None: ...

    async def pack(self, path: str) -> Bytes:
        """Pack the content of a folder, or a single file, as tar."""
        ...

    async def unpack(self, path: str, body: AsyncIterator[bytes]) -> Tree:
        """Unpack a tar below a folder, which is made if it is missing."""
        ...
