"""Keeps the tasks' logs of a namespace within a bound, and removes more while the disk is short: the oldest first."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from pathlib import Path
from typing import NamedTuple

from rota.runtime.disk import Disk
from rota.runtime.space import low_bytes

log = logging.getLogger(__name__)

LOGS_BYTES_MAX, LOGS_SHARE_MAX = 8 * 1024 * 1024 * 1024, 0.1
"""The bound of one namespace: the smaller of these bytes and this share of the disk."""
KEPT_SHARE = 0.75
"""The share that a trimmed namespace keeps: of its bound, or, while the disk is short, of its size."""
BLOCK_BYTES = 512
LOOK_SECONDS, LOOK_SHORT_SECONDS = 60.0, 2.0


class _Log(NamedTuple):
    written: float
    bytes: int
    path: str


async def keep_bounded(folder: Path, disk: Disk) -> None:
    """Trim the logs periodically, until cancelled."""
    while True:
        is_short = disk.level != "ok"
        try:
            await asyncio.to_thread(trim, folder, disk.space.total, is_short=is_short)
        except OSError as error:
            log.warning("old logs of tasks are not removed: %s", error)
        waited = 0.0
        while waited < LOOK_SECONDS and (is_short or disk.level == "ok"):
            await asyncio.sleep(LOOK_SHORT_SECONDS)
            waited += LOOK_SECONDS if is_short else LOOK_SHORT_SECONDS


def trim(folder: Path, disk_bytes: int, *, is_short: bool) -> None:
    """Remove the oldest logs of namespaces above their bound. If the disk is short, also of the largest namespace."""
    most = min(LOGS_BYTES_MAX, int(disk_bytes * LOGS_SHARE_MAX))
    found = {place: _logs(place) for place in _folders(folder)}
    sizes = {place: sum(one.bytes for one in logs) for place, logs in found.items()}
    for place, size in sizes.items():
        if size > most:
            sizes[place] = _remove(found[place], size, most * KEPT_SHARE)
            log.warning("logs of tasks in %s had %d bytes: the oldest are removed", place.name, size)
    first = max(sizes, key=lambda place: sizes[place], default=None)
    if is_short and first is not None and sizes[first] >= low_bytes(disk_bytes):
        _remove(_logs(first), sizes[first], sizes[first] * KEPT_SHARE)
        log.warning("the disk is short of space: the oldest logs of tasks in %s are removed", first.name)


def _remove(logs: list[_Log], size: int, wanted: float) -> int:
    for one in sorted(logs):
        if size <= wanted:
            break
        with contextlib.suppress(FileNotFoundError):
            os.unlink(one.path)
        size -= one.bytes
    return size


def _folders(folder: Path) -> list[Path]:
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as found:
        return [Path(entry.path) for entry in found if entry.is_dir(follow_symlinks=False)]
    return []


def _logs(folder: Path) -> list[_Log]:
    logs = []
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as found:
        for entry in found:
            with contextlib.suppress(FileNotFoundError):
                if entry.name.endswith(".log"):
                    status = entry.stat(follow_symlinks=False)
                    logs.append(_Log(status.st_mtime, status.st_blocks * BLOCK_BYTES, entry.path))
    return logs
