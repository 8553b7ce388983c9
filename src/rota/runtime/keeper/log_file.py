"""A child's output in files of bounded size."""

from __future__ import annotations

import os

from rota.runtime.space import Shortage


class LogFile:
    """`PREFIX.log`, and older output in `PREFIX.log.1` and so on: at most `files_max` files of `bytes_max` each."""

    def __init__(self, prefix: str, bytes_max: int, files_max: int) -> None:
        self._path = f"{prefix}.log"
        self._bytes_max = bytes_max
        self._files_max = files_max
        self.bytes_lost = 0
        self._is_short = Shortage(os.path.dirname(self._path) or ".")
        self._open()

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.open(self._path, flags, 0o600)
        self._size = os.fstat(self._file).st_size

    def write(self, data: bytes) -> None:
        """Append output. Output that cannot be stored is counted and dropped: a full disk must not block a child.

        Output is also dropped while the disk is short of space, because the rest is reserved for the server.
        """
        if self._is_short:
            self.bytes_lost += len(data)
            return
        rest = memoryview(data)
        while rest:
            try:
                if self._size >= self._bytes_max:
                    self._rotate()
                written = os.write(self._file, rest[: self._bytes_max - self._size])
            except OSError:
                self.bytes_lost += len(rest)
                return
            self._size += written
            rest = rest[written:]

    def _rotate(self) -> None:
        for number in range(self._files_max - 1, 0, -1):
            older = f"{self._path}.{number}"
            newer = f"{self._path}.{number - 1}" if number > 1 else self._path
            if os.path.exists(newer):
                os.replace(newer, older)
        if self._files_max == 1:
            os.unlink(self._path)
        full = self._file
        self._open()
        os.close(full)

    def close(self) -> None:
        os.close(self._file)
