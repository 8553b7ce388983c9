"""The log of a server that has no terminal: one file and its predecessor, each of a bounded size."""

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
"""A larger log is put aside, and the one that was aside before is gone."""
LOOK_SECONDS = 2.0
"""How often a server looks how large its log has become."""
END_LINES = 20
END_BYTES_MAX = 64 * 1024
FOLLOW_SECONDS = 0.1
"""How often it is looked whether something was written."""


def log_of(home: Path) -> Path:
    return home / LOG


def aside_of(log: Path) -> Path:
    return log.with_name(f"{log.name}.1")


def write_to(log: Path) -> None:
    """From now on, whatever this process writes is in this file, also what Python says when it dies."""
    _take(log)
    threading.Thread(target=_look_after, args=(log,), name="log", daemon=True).start()


def opened(log: Path) -> BinaryIO:
    """A log to append to, renewed if it is too large by now. Nobody but its user may read it."""
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
        # A disk that is full, or a home that is gone, is told by what needs it.
        with contextlib.suppress(OSError):
            if os.fstat(sys.stderr.fileno()).st_size > LOG_BYTES_MAX:
                _take(log)


def size_of(log: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return log.stat().st_size
    return 0


def end_of(log: Path, lines: int = END_LINES, since: int = 0) -> list[bytes]:
    """The last lines, of what was written since the log had this size."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(since if since <= size else 0, size - END_BYTES_MAX))
            text = file.read(END_BYTES_MAX)
    except FileNotFoundError:
        return []
    return text.splitlines()[-lines:] if lines else []


def following(log: Path) -> Generator[bytes, None, None]:
    """What is written from now on, in pieces; nothing (an empty piece) as often as it is looked. It does not end."""
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
                # What came between the last look and the change is still to be had.
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
