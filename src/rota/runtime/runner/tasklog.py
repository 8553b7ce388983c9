"""The log of a task: a file of bounded size, to which output is appended as it comes.

It always holds the first `HEAD_BYTES` that were written. When it has reached `LOG_BYTES_MAX` it is replaced by a
shorter one: the same beginning, a line that states how many bytes are missing, and the last `TAIL_BYTES` or a little
less, from the beginning of a line. So it has at most 10 MiB, and at least about the last 3 MiB.

It is replaced as a whole, under the same name: a reader that has the old file open reads it to its end, and goes on in
the new one. `LogReader` does so, and returns nothing twice.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

from rota.runtime.space import Shortage

log = logging.getLogger(__name__)

LOG_BYTES_MAX = 10 * 1024 * 1024
HEAD_BYTES = 4 * 1024 * 1024
TAIL_BYTES = 3 * 1024 * 1024
LINE_BYTES_MAX = 64 * 1024
"""Bytes in which the beginning of a line is searched, to cut the log there."""
COPY_BYTES = 1024 * 1024
CUT = "\n[rota: %d bytes are missing here]\n"
CUT_BYTES_MAX = 64
DROPPED = "\n[rota: %d bytes were not stored here: the disk was short of space]\n"
_cut = re.compile(rb"\n\[rota: (\d{1,18}) bytes are missing here\]\n")
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class TaskLog:
    """Writes a log. Output that cannot be stored is dropped: a full disk must not stop a task.

    Output is also dropped while the disk is short of space. In its place, a line states how many bytes were dropped.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = os.open(path, _FLAGS, 0o600)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = os.open(path, _FLAGS, 0o600)
        self._size = os.fstat(self._file).st_size
        self._is_short = Shortage(str(path.parent))
        self._dropped = 0

    def write(self, data: bytes) -> None:
        if self._is_short:
            self._drop(len(data), "the disk is short of space")
            return
        said = (DROPPED % self._dropped).encode() if self._dropped else b""
        rest = memoryview(said + data)
        try:
            while rest:
                if self._size >= LOG_BYTES_MAX:
                    self._shorten()
                written = os.write(self._file, rest[: LOG_BYTES_MAX - self._size])
                self._size += written
                rest = rest[written:]
        except OSError as error:
            self._drop(min(len(rest), len(data)), str(error.strerror))
        else:
            self._dropped = 0

    def _drop(self, count: int, why: str) -> None:
        if not self._dropped:
            log.warning("%s: %d bytes are not stored: %s", self._path, count, why)
        self._dropped += count

    def close(self) -> None:
        os.close(self._file)

    def _shorten(self) -> None:
        line_bytes, missing = _gap(self._file)
        begin = self._size - TAIL_BYTES
        newline = os.pread(self._file, LINE_BYTES_MAX, begin).find(b"\n")
        begin += newline + 1
        missing += begin - HEAD_BYTES - line_bytes
        new_path = self._path.with_name(f"{self._path.name}.new")
        new = os.open(new_path, _FLAGS | os.O_TRUNC, 0o600)
        try:
            _copy(self._file, new, 0, HEAD_BYTES)
            os.write(new, (CUT % missing).encode())
            _copy(self._file, new, begin, self._size)
            new_path.replace(self._path)
        except BaseException:
            os.close(new)
            new_path.unlink(missing_ok=True)
            raise
        os.close(self._file)
        self._file, self._size = new, os.fstat(new).st_size


class LogReader:
    """Reads a log from its beginning or from a position, which counts all bytes ever written, including those cut.

    If the next bytes were cut from the log, it reads the line that states this, and goes on after it.
    """

    def __init__(self, path: Path, at: int = 0) -> None:
        self._path = path
        self._file = -1
        self._at = at

    def read(self, size: int) -> bytes:
        """Return the next bytes, at most `size`, or none if there are none yet."""
        if self._file < 0 and not self._open_current():
            return b""
        data = os.pread(self._file, size, self._at)
        if not data and self._was_replaced():
            # Nothing is written to the old file after it was replaced: read the rest of it first.
            data = os.pread(self._file, size, self._at)
            if not data and self._open_current():
                data = os.pread(self._file, size, self._at)
        self._at += len(data)
        return data

    def position(self, behind: int = 0) -> int:
        """Return the position that is `behind` bytes before the next byte to read, counted in all bytes written."""
        at = max(0, self._at - behind)
        if self._file < 0 or at <= HEAD_BYTES:
            return at
        line_bytes, missing = _gap(self._file)
        return max(HEAD_BYTES, at + missing - line_bytes)

    def close(self) -> None:
        """Close the file. A later `read` continues at the same position."""
        if self._file >= 0:
            self._at = self.position()
            os.close(self._file)
            self._file = -1

    def _was_replaced(self) -> bool:
        try:
            now = os.stat(self._path, follow_symlinks=False)
        except OSError:
            return False
        mine = os.fstat(self._file)
        return (now.st_dev, now.st_ino) != (mine.st_dev, mine.st_ino)

    def _open_current(self) -> bool:
        """Open the current file at the same position. Returns False if there is no file."""
        try:
            new = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return False
        self.close()
        self._file = new
        if self._at > HEAD_BYTES:
            line_bytes, missing = _gap(new)
            self._at += line_bytes - missing
            if self._at < HEAD_BYTES + line_bytes:
                self._at = HEAD_BYTES
        return True


def written_bytes(path: Path) -> int:
    """Return how many bytes were ever written to a log."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        line_bytes, missing = _gap(file)
        return os.fstat(file).st_size + missing - line_bytes
    finally:
        os.close(file)


def _gap(file: int) -> tuple[int, int]:
    """Return the length of the line that states the missing bytes, and their number; (0, 0) for an uncut log."""
    found = _cut.match(os.pread(file, CUT_BYTES_MAX, HEAD_BYTES))
    return (0, 0) if found is None else (found.end(), int(found[1]))


def _copy(source: int, target: int, begin: int, end: int) -> None:
    while begin < end:
        data = os.pread(source, min(COPY_BYTES, end - begin), begin)
        if not data:
            return
        begin += os.write(target, data)
