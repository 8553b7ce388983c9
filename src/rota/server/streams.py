"""The ends of pipes and terminals that a command has, read and written without waiting in the kernel."""

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
"""Whatever a command has written can be read this long after its end; who still holds its output goes on unheard."""
LEFT_BYTES_MAX = 1024 * 1024
"""No pipe holds more than this: what is read beyond it was written after the command's end."""


class Size(NamedTuple):
    """Of a terminal, in characters."""

    width: int
    height: int


class End:
    """Our end of a pipe or a terminal."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._waiting: set[asyncio.Future[None]] = set()
        self._left: int | None = None  # bytes that can still be read, once the command has ended

    async def read(self) -> bytes:
        """What has come; empty at the end."""
        while self._left is None or self._left > 0:
            try:
                data = os.read(self._descriptor, PIECE_BYTES)
            except BlockingIOError:
                if not await self._ready(self._loop.add_reader, self._loop.remove_reader):
                    return b""
                continue
            except OSError as error:
                # So says a terminal that it is closed at the other end.
                if error.errno == errno.EIO:
                    return b""
                raise
            if self._left is not None:
                self._left -= len(data)
            return data
        return b""

    async def write(self, data: bytes) -> None:
        """Returns when all of it is taken. Raises OSError when nobody will."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                if not await self._ready(self._loop.add_writer, self._loop.remove_writer):
                    raise BrokenPipeError from None

    async def _ready(self, watch: Callable[..., None], unwatch: Callable[[int], object]) -> bool:
        """Wait until it can go on. False when it need not: the command has ended, and nothing more comes."""
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
        """The command has ended: only what it has left is still to be read."""
        if self._left is None:
            self._left = LEFT_BYTES_MAX
            for waiting in self._waiting:
                _wake(waiting)

    def resize(self, size: Size) -> None:
        """Of a terminal. What runs in it is told by the kernel."""
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
    """All streams of one command: our ends, and its own. Close both, whatever happens."""

    def __init__(self, stdin: bool, stdout: bool, stderr: bool) -> None:
        self.stdin: End | None = None
        self.outputs: dict[int, End] = {}
        self.terminal: End | None = None
        self._theirs: list[int] = []
        self._has = (stdin, stdout, stderr)

    @property
    def theirs(self) -> tuple[int, int, int]:
        """What the command gets."""
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
        # A terminal has one output; it is read even when nobody wants it, for the command would wait.
        self.outputs = {1: self.terminal}

    def close_theirs(self) -> None:
        """The command has copies of its own."""
        while self._theirs:
            os.close(self._theirs.pop())

    def close(self) -> None:
        self.close_theirs()
        for end in {self.stdin, self.terminal, *self.outputs.values()} - {None}:
            assert end is not None
            end.close()
