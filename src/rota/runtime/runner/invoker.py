"""The interface of invokers, which answer the calls of a function in its box, and the log of a call."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple, Protocol

from rota.runtime.runner.messages import Call
from rota.runtime.runner.tasklog import TaskLog

log = logging.getLogger(__name__)

IMPORT_FAILED, TIMED_OUT, COMMAND_NOT_FOUND = "ImportFailed", "TimedOut", "CommandNotFound"
"""Reasons of a LoadFailure, and of the report of its runner."""
LOG_BYTES_MAX = 1024 * 1024
"""The most bytes that the log of one call keeps."""
CUT = b"\n[rota: what follows is not kept]\n"


class LoadFailure(NamedTuple):
    """The code was not loaded."""

    reason: str
    message: str
    said: str = ""
    """The output of the code while it was loaded, with the traceback if there is one."""


class Invoker(Protocol):
    """Answers calls: in one process for all calls, or in one for each."""

    cancels: bool
    """True if a call can be ended without ending the others."""
    lingering: set[str]
    """Calls that may still run although their end is reported."""

    async def load(self) -> LoadFailure | None:
        """Return None once calls can be answered, or the reason why they cannot."""
        ...

    def call(self, call: Call, log: CallLog) -> None: ...

    def cancel(self, id_: str) -> None: ...

    def close(self) -> None:
        """End the invoker's processes and the calls that they run."""
        ...


class CallLog:
    """The log of one call. The first write creates the file, because most calls write nothing."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: TaskLog | None = None
        self._left_bytes = LOG_BYTES_MAX

    def write(self, data: bytes) -> None:
        if self._file is None and self._path:
            try:
                self._file = TaskLog(Path(self._path))
            except OSError as error:
                # A call does not fail because its log cannot be written.
                log.warning("%s cannot be written: %s", self._path, error.strerror)
                self._path = ""
        if self._file is None or self._left_bytes <= 0:
            return
        self._file.write(data[: self._left_bytes])
        self._left_bytes -= len(data)
        if self._left_bytes <= 0:
            self._file.write(CUT)

    def close(self) -> None:
        """Close the file. Later writes are dropped."""
        self._path = ""
        if self._file is not None:
            self._file.close()
            self._file = None
