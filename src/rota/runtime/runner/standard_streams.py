"""The standard streams of a command: a pipe that captures its output, and a file that is its input."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import os
from collections.abc import Callable, Iterator

READ_BYTES = 64 * 1024
DRAIN_BYTES_MAX = 1024 * 1024
"""The most bytes that a pipe holds. If there is more, a process still writes."""
UID_MAX = 1 << 31


class Capture:
    """A pipe whose content is passed to `take` as it comes. It never waits for an end of file: any process may write.

    The box's uid owns the pipe, so that a job can open /dev/stdout again. A pipe that no other process has open can be
    kept for the next job: `rest`, then `resume`. If something is written to it in between, it is closed.
    """

    def __init__(self, take: Callable[[bytes], None], uid: int | None) -> None:
        self._take = take
        self.is_empty = True
        """True if the last read found the pipe empty."""
        self._loop = asyncio.get_running_loop()
        self._reading, self.writing = os.pipe()
        os.set_blocking(self._reading, False)
        if uid is not None and 0 < uid < UID_MAX and os.geteuid() == 0:
            os.fchown(self.writing, uid, -1)
        self._loop.add_reader(self._reading, self._read)

    def started(self) -> None:
        """Close this process's write end, of which the command has its own copy by now."""
        if self.writing >= 0:
            os.close(self.writing)
            self.writing = -1

    def drain(self) -> None:
        """Read what is in the pipe now. Call it after all writers have ended."""
        taken = 0
        while self._reading >= 0 and taken < DRAIN_BYTES_MAX and (count := self._read()):
            taken += count

    def rest(self) -> None:
        """Keep the pipe for the next job. A write before `resume` closes it."""
        self._take = self._refuse

    def resume(self, take: Callable[[bytes], None]) -> bool:
        """Use a kept pipe again. Returns False if it was closed because something was written to it."""
        if self._reading >= 0:
            self._read()
        if self._reading < 0:
            return False
        self._take = take
        return True

    def _refuse(self, data: bytes) -> None:
        self.close()

    def close(self) -> None:
        self.started()
        if self._reading >= 0:
            self._loop.remove_reader(self._reading)
            os.close(self._reading)
            self._reading = -1

    def _read(self) -> int:
        try:
            data = os.read(self._reading, READ_BYTES)
        except BlockingIOError:
            self.is_empty = True
            return 0
        self.is_empty = False
        if data:
            self._take(data)
        else:
            self.close()
        return len(data)


@functools.cache
def _nothing() -> int:
    """Return a descriptor of /dev/null. It stays open, because most jobs read nothing."""
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


@contextlib.contextmanager
def input_file(content: bytes) -> Iterator[int]:
    """Yield a descriptor of a sealed file in memory with this content. A pipe would need a writer."""
    if not content:
        yield _nothing()
        return
    descriptor = os.memfd_create("stdin", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
        seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
        yield descriptor
    finally:
        os.close(descriptor)
