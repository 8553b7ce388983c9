"""How a task of a peer says that it runs: it writes its number and the time to a pipe. No result could come sooner."""

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
"""Where a peer keeps its tasks: the address of a server, or a folder."""
PATIENCE_SECONDS = 60.0
READ_BYTES = 1 << 16

_RECORD = struct.Struct("<qd")
"""Shorter than what a pipe takes in one piece, so two that write at once do no harm."""


class Told(NamedTuple):
    number: int
    at: float
    """By the clock that all processes share."""


def tell(number: int) -> None:
    """What every task of a peer does."""
    os.write(_open(os.environ[PIPE]), _RECORD.pack(number, time.perf_counter()))


@functools.cache
def _open(path: str) -> int:
    return os.open(path, os.O_WRONLY)


class Pipe:
    """The end that is read."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        # Open for both, it does not end when nobody writes.
        self._descriptor = os.open(path, os.O_RDWR)

    def read(self) -> Iterator[Told]:
        """What has been told meanwhile; waits for the first."""
        ready, _, _ = select.select([self._descriptor], [], [], PATIENCE_SECONDS)
        if not ready:
            raise TimeoutError(f"nothing was told within {PATIENCE_SECONDS:.0f} s: {self.path}")
        return map(
            Told._make, _RECORD.iter_unpack(os.read(self._descriptor, READ_BYTES // _RECORD.size * _RECORD.size))
        )

    def close(self) -> None:
        os.close(self._descriptor)
