"""The log of one call: a file that is there when something was written to it."""

from __future__ import annotations

import logging
from pathlib import Path

from rota.runtime.runner.tasklog import TaskLog

log = logging.getLogger(__name__)

LOG_BYTES_MAX = 1024 * 1024
"""Of what one call writes: there are many calls."""
CUT = b"\n[rota: what follows is not kept]\n"


class CallLog:
    """Most calls write nothing, and have no file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: TaskLog | None = None
        self._left_bytes = LOG_BYTES_MAX

    def write(self, data: bytes) -> None:
        if self._file is None and self._path:
            try:
                self._file = TaskLog(Path(self._path))
            except OSError as error:
                # Not the fault of the call, and no reason to lose what it does.
                log.warning("%s cannot be written: %s", self._path, error.strerror)
                self._path = ""
        if self._file is None or self._left_bytes <= 0:
            return
        self._file.write(data[: self._left_bytes])
        self._left_bytes -= len(data)
        if self._left_bytes <= 0:
            self._file.write(CUT)

    def close(self) -> None:
        """What comes after that is nobody's."""
        self._path = ""
        if self._file is not None:
            self._file.close()
            self._file = None
