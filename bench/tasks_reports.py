"""The report of a peer's task that it runs: its number and the time, through a pipe. No result could be sooner."""

from __future__ import annotations

import functools
import os
import select
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PIPE = "BENCH_TASKS_PIPE"
PLACE = "BENCH_TASKS_PLACE"
"""The variable with the place of a peer's tasks: the address of a server, or a folder."""
PATIENCE_SECONDS = 60.0
READ_BYTES = 1 << 16

_RECORD = struct.Struct("<qd")
"""A number and a time. Shorter than PIPE_BUF, so that concurrent writes stay apart."""


class Started(NamedTuple):
    number: int
    at: float
    """By the monotonic clock, which all processes share."""


def report_start(number: int) -> None:
    """Report that a task runs. This is all that a peer's task does."""
    os.write(_open(os.environ[PIPE]), _RECORD.pack(number, time.perf_counter()))


@functools.cache
def _open(path: str) -> int:
    return os.open(path, os.O_WRONLY)


class Pipe:
    """The reading end of the pipe."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        # Opened for writing, too: reading then does not end while no task writes.
        self._descriptor = os.open(path, os.O_RDWR)

    def read(self) -> Iterator[Started]:
        """Return the reports that have arrived, after waiting for the first."""
        ready, _, _ = select.select([self._descriptor], [], [], PATIENCE_SECONDS)
        if not ready:
            raise TimeoutError(f"no task has reported within {PATIENCE_SECONDS:.0f} s: {self.path}")
        return map(
            Started._make, _RECORD.iter_unpack(os.read(self._descriptor, READ_BYTES // _RECORD.size * _RECORD.size))
        )

    def close(self) -> None:
        os.close(self._descriptor)
