"""The log of a server without a terminal: a file and its predecessor, each of a bounded size."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO

LOG = "server.log"
LOG_BYTES_MAX = 4 << 20
"""A larger log is renamed, and the one renamed before is dropped."""
LOOK_SECONDS = 2.0
"""Time between two checks of the log's size."""
END_LINES = 20
END_BYTES_MAX = 64 * 1024
FOLLOW_SECONDS = 0.1
"""Time between two reads of a followed log."""


def log_of(home: Path) -> Path:
    return home / LOG


def aside_of(log: Path) -> Path:
    return log.with_name(f"{log.name}.1")


def write_to(log: Path) -> None:
    """Write the output of this process to a file from now on, Python's fatal errors included."""
    _take(log)
    threading.Thread(target=_look_after, args=(log,), name="log", daemon=True).start()


def opened(log: Path) -> BinaryIO:
    """Open a log to append to, for its owner only. A log that is too large is renamed first."""
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size > LOG_BYTES_MAX:
            log.replace(aside_of(log))
    return os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab", buffering=0)


def _take(log: Path) -> None:
    with opened(log) as file:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(file.fileno(), stream.fileno())


def _look_after(log: Path) -> None:
    while True:
        time.sleep(LOOK_SECONDS)
        # A full disk or a missing home is reported by what needs it.
        with contextlib.suppress(OSError):
            if os.fstat(sys.stderr.fileno()).st_size > LOG_BYTES_MAX:
                _take(log)


def size_of(log: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return log.stat().st_size
    return 0


def end_of(log: Path, lines: int = END_LINES, since: int = 0) -> list[bytes]:
    """Return the last lines that were written since the log had this size."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(since if since <= size else 0, size - END_BYTES_MAX))
            text = file.read(END_BYTES_MAX)
    except FileNotFoundError:
        return []
    return text.splitlines()[-lines:] if lines else []


def following(log: Path) -> Generator[bytes, None, None]:
    """Yield new output in pieces, and an empty piece after each read without any. Does not end."""
    file: BinaryIO | None = None
    is_first = True
    try:
        while True:
            if file is None:
                with contextlib.suppress(FileNotFoundError):
                    file = log.open("rb")
                    file.seek(0, os.SEEK_END if is_first else os.SEEK_SET)
                is_first = False
            piece = file.read(END_BYTES_MAX) if file is not None else b""
            yield piece
            if not piece and file is not None and _is_replaced(file, log):
                # Read what was written before the log was replaced.
                while rest := file.read(END_BYTES_MAX):
                    yield rest
                file.close()
                file = None
    finally:
        if file is not None:
            file.close()


def _is_replaced(file: BinaryIO, log: Path) -> bool:
    try:
        now = log.stat()
    except FileNotFoundError:
        return True
    own = os.fstat(file.fileno())
    return (own.st_dev, own.st_ino) != (now.st_dev, now.st_ino)
