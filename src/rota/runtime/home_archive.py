"""The archive of a home: files `tasks/NAMESPACE/TASK@UID.log` and `….result`, beside those that runners write.

Items are written and synced in threads of its own, at most PUTS_AT_ONCE_MAX at once, so that neither the event loop nor
other users of threads wait for the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rota.runtime.archive import ITEM_BYTES_MAX, SORTS, Item, TooLarge
from rota.runtime.instance_log import InstanceLog, Place
from rota.runtime.interface import Subject
from rota.runtime.paths import text_below
from rota.runtime.places import PRIVATE, Places
from rota.runtime.runner.tasklog import LogReader, written_bytes
from rota.runtime.task_logs import TaskLogs, UidOf

PUTS_AT_ONCE_MAX = 4
NEW_MAX = 1000
"""The number of names for temporary files, more than are ever in use at once. A leftover is removed with its owner."""


class HomeArchive:
    """The archive of a home. Owns threads and tasks: call `close`."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._task_logs = TaskLogs(places.tasks)
        self._threads = ThreadPoolExecutor(PUTS_AT_ONCE_MAX, "rota-archive")
        self._numbers = itertools.count()

    async def close(self) -> None:
        await self._task_logs.close()
        self._threads.shutdown(wait=False)

    async def put(self, item: Item, content: bytes) -> None:
        path = self._path(item)
        if len(content) > ITEM_BYTES_MAX:
            raise TooLarge(f"{item.owner}: a {item.sort} has at most {ITEM_BYTES_MAX} bytes, not {len(content)}")
        new = path.with_suffix(f".{next(self._numbers) % NEW_MAX}")
        await asyncio.get_running_loop().run_in_executor(self._threads, _replace, path, new, content)

    async def get(self, item: Item) -> bytes | None:
        return await asyncio.to_thread(_read, self._path(item))

    async def kept(self, namespace: str, name: str, uid: str) -> Sequence[Item]:
        items = [Item(namespace, name, uid, sort) for sort in SORTS]
        paths = {item: self._path(item) for item in items}
        return await asyncio.to_thread(lambda: [item for item, path in paths.items() if path.is_file()])

    async def remove(self, namespace: str, name: str, uid: str) -> None:
        paths = [self._path(Item(namespace, name, uid, sort)) for sort in SORTS]
        await asyncio.to_thread(_unlink, paths)

    def drop(self, namespace: str, name: str, uid_of: UidOf) -> None:
        self._task_logs.drop(namespace, name, uid_of)

    def sweep(self, uid_of: UidOf) -> None:
        self._task_logs.sweep(uid_of)

    # Logs.

    def place(self, item: Item) -> str:
        return text_below(self._places.tasks, item.namespace, f"{item.owner}.{item.sort}")

    def stream(self, item: Item, begin: int = 0) -> LogReader:
        return LogReader(self._path(item), begin)

    def written_bytes(self, item: Item) -> int:
        return written_bytes(self._path(item))

    def instance_log(
        self,
        subject: Subject,
        container: str,
        lines: int,
        since: tuple[int, int] = (0, 0),
        begin: Place | None = None,
    ) -> InstanceLog:
        return InstanceLog(self._instance_log(subject, container), lines, since, begin)

    def instance_mark(self, subject: Subject, container: str) -> tuple[int, int] | None:
        with contextlib.suppress(OSError):
            now = os.stat(f"{self._places.log_text(subject, container)}.log")
            return now.st_ino, now.st_size
        return None

    def _instance_log(self, subject: Subject, container: str) -> Path:
        return Path(f"{self._places.log(subject, container)}.log")

    def _path(self, item: Item) -> Path:
        return Path(self.place(item))


def _unlink(paths: Sequence[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _read(path: Path) -> bytes | None:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(file, "rb") as opened:
        return opened.read(ITEM_BYTES_MAX)


def _replace(path: Path, new: Path, content: bytes) -> None:
    is_new = not path.parent.is_dir()
    path.parent.mkdir(parents=True, exist_ok=True, mode=PRIVATE)
    try:
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(file, "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    # Without this a power failure may lose the name of a synced file.
    for folder in (path.parent, path.parent.parent) if is_new else (path.parent,):
        _sync(folder)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
