"""The ends of a command's pipes and terminal, read and written without blocking the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import struct
import termios
from collections.abc import Callable
from typing import NamedTuple

PIECE_BYTES = 64 * 1024
LINGER_SECONDS = 0.25
"""Time to read the output after a command has ended. Processes that it left behind are not read any longer."""
LEFT_BYTES_MAX = 1024 * 1024
"""Bound on the output that is read after a command has ended. No pipe holds more: anything beyond was written later."""


class Size(NamedTuple):
    """The size of a terminal, in characters."""

    width: int
    height: int


class End:
    """This side of a pipe or a terminal."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._waiting: set[asyncio.Future[None]] = set()
        self._left: int | None = None  # bytes that can still be read, once the command has ended

    async def read(self) -> bytes:
        """Read what has arrived; empty at the end."""
        while self._left is None or self._left > 0:
            try:
                data = os.read(self._descriptor, PIECE_BYTES)
            except BlockingIOError:
                if not await self._ready(self._loop.add_reader, self._loop.remove_reader):
                    return b""
                continue
            except OSError as error:
                # A terminal reports so that its other end is closed.
                if error.errno == errno.EIO:
                    return b""
                raise
            if self._left is not None:
                self._left -= len(data)
            return data
        return b""

    async def write(self, data: bytes) -> None:
        """Return when all of it is written. Raises OSError."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                if not await self._ready(self._loop.add_writer, self._loop.remove_writer):
                    raise BrokenPipeError from None

    async def _ready(self, watch: Callable[..., None], unwatch: Callable[[int], object]) -> bool:
        """Wait until the descriptor is ready. Returns False if the command has ended and nothing more comes."""
        waiting: asyncio.Future[None] = self._loop.create_future()
        self._waiting.add(waiting)
        watch(self._descriptor, _wake, waiting)
        try:
            async with asyncio.timeout(None if self._left is None else LINGER_SECONDS):
                await waiting
        except TimeoutError:
            return False
        finally:
            self._waiting.discard(waiting)
            unwatch(self._descriptor)
        return True

    def end_soon(self) -> None:
        """Record the end of the command: only its remaining output is still read."""
        if self._left is None:
            self._left = LEFT_BYTES_MAX
            for waiting in self._waiting:
                _wake(waiting)

    def resize(self, size: Size) -> None:
        """Resize a terminal. The kernel notifies the processes in it."""
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", size.height, size.width, 0, 0))

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


class Streams:
    """All streams of one command: this side's and the command's. Close both in any case."""

    def __init__(self, stdin: bool, stdout: bool, stderr: bool) -> None:
        self.stdin: End | None = None
        self.outputs: dict[int, End] = {}
        self.terminal: End | None = None
        self._theirs: list[int] = []
        self._has = (stdin, stdout, stderr)

    @property
    def theirs(self) -> tuple[int, int, int]:
        """The descriptors for the command."""
        one, two, three = self._theirs
        return one, two, three

    def open_pipes(self) -> None:
        for number, wanted in enumerate(self._has):
            if not wanted:
                self._theirs.append(os.open(os.devnull, os.O_RDWR))
                continue
            reads, writes = os.pipe()
            if number == 0:
                self._theirs.append(reads)
                self.stdin = End(writes)
            else:
                self._theirs.append(writes)
                self.outputs[number] = End(reads)

    def open_terminal(self, size: Size) -> None:
        near, far = os.openpty()
        self.terminal = End(near)
        self._theirs = [far, os.dup(far), os.dup(far)]
        self.terminal.resize(size)
        if self._has[0]:
            self.stdin = self.terminal
        # A terminal has one output. It is read even if it is not wanted, because the command would block.
        self.outputs = {1: self.terminal}

    def close_theirs(self) -> None:
        """Close the command's descriptors, of which it has copies."""
        while self._theirs:
            os.close(self._theirs.pop())

    def close(self) -> None:
        self.close_theirs()
        for end in {self.stdin, self.terminal, *self.outputs.values()} - {None}:
            assert end is not None
            end.close()
