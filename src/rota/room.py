"""Reserved disk space of a file. Standard library only."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from pathlib import Path

_KEEP_SIZE = 1
BLOCK_BYTES = 512


def keep_room(path: Path, size: int) -> bool:
    """Reserve disk space for a file, without changing its length: later writes within it find space.

    Returns False if the file system cannot do that: others may take the space first.
    """
    try:
        file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if os.fstat(file).st_blocks * BLOCK_BYTES >= size:
            return True
        return (fallocate := _fallocate()) is not None and fallocate(file, _KEEP_SIZE, 0, size) == 0
    finally:
        os.close(file)


@functools.cache
def _fallocate() -> Callable[[int, int, int, int], int] | None:
    found = getattr(ctypes.CDLL(None), "fallocate64", None) or getattr(ctypes.CDLL(None), "fallocate", None)
    if found is not None:
        found.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return found
