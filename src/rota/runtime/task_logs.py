"""Removes the files of deleted tasks in the background, many at once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rota.runtime.paths import below

log = logging.getLogger(__name__)

NAMES_MAX = 100_000
"""The most tasks whose files wait for removal. The next start of the server removes those of others."""
RETRY_SECONDS = 5.0
END_SECONDS_MAX = 1.0
"""The most seconds for which the end of a server waits for removals."""
LOOKED_AT_TOGETHER = 500

UidOf = Callable[[str, str], str]
"""Returns the uid of the Task that has this namespace and name now; empty if there is none."""


class TaskFile(NamedTuple):
    """A file of a task."""

    name: str
    uid: str
    path: str


class TaskLogs:
    """The files below one folder, each named `NAMESPACE/TASK@UID.…`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._gone: dict[str, set[str]] = {}
        """The names of deleted tasks, by namespace."""
        self._uid_of: UidOf = lambda namespace, name: ""
        self._removing: asyncio.Task[None] | None = None
        self._sweeping: asyncio.Task[None] | None = None

    def drop(self, namespace: str, name: str, uid_of: UidOf) -> None:
        """Remove the files of a deleted Task. Files of a newer Task with its name stay."""
        self._uid_of = uid_of
        if sum(map(len, self._gone.values())) >= NAMES_MAX:
            log.warning("the files of the task %s/%s are not removed before the server starts again", namespace, name)
            return
        self._gone.setdefault(namespace, set()).add(name)
        if self._removing is None:
            self._removing = asyncio.create_task(self._remove(), name="files of tasks that are gone")

    def sweep(self, uid_of: UidOf) -> None:
        """Remove the files of all Tasks that were deleted while no server ran."""
        if self._sweeping is None or self._sweeping.done():
            self._sweeping = asyncio.create_task(self._sweep(uid_of, time.time()), name="files of tasks left behind")

    async def close(self) -> None:
        """Wait for the removals up to END_SECONDS_MAX, then cancel them."""
        working = [task for task in (self._removing, self._sweeping) if task is not None and not task.done()]
        if working:
            await asyncio.wait(working, timeout=END_SECONDS_MAX)
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)

    async def _remove(self) -> None:
        try:
            while self._gone:
                namespace, names = self._gone.popitem()
                try:
                    await self._removed(namespace, names)
                except OSError as error:
                    log.warning("the files of tasks in %s are not removed yet: %s", namespace, error)
                    self._gone.setdefault(namespace, set()).update(names)
                    await asyncio.sleep(RETRY_SECONDS)
        finally:
            self._removing = None

    async def _removed(self, namespace: str, names: Collection[str]) -> None:
        # A folder may have many thousands of files: one listing serves all tasks that were deleted meanwhile.
        found = await asyncio.to_thread(lambda: [one for one in self._files(namespace) if one.name in names])
        left = [one.path for one in found if self._uid_of(namespace, one.name) != one.uid]
        await asyncio.to_thread(_unlink, left)

    async def _sweep(self, uid_of: UidOf, before: float) -> None:
        try:
            for namespace in await asyncio.to_thread(self._namespaces):
                # A running call has a log before it has a Task: new files are left.
                found = await asyncio.to_thread(lambda at=namespace: [*self._files(at, before)])  # type: ignore[misc]
                for at in range(0, len(found), LOOKED_AT_TOGETHER):
                    some = found[at : at + LOOKED_AT_TOGETHER]
                    left = [one.path for one in some if uid_of(namespace, one.name) != one.uid]
                    await asyncio.to_thread(_unlink, left)
        except OSError as error:
            log.warning("the files of tasks that are gone are not all removed: %s", error)

    def _namespaces(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError), os.scandir(self._folder) as found:
            return [entry.name for entry in found if entry.is_dir(follow_symlinks=False)]
        return []

    def _files(self, namespace: str, before: float | None = None) -> Iterator[TaskFile]:
        with contextlib.suppress(FileNotFoundError), os.scandir(below(self._folder, namespace)) as found:
            for entry in found:
                name, at, rest = entry.name.partition("@")
                if at and (before is None or _is_older(entry, before)):
                    yield TaskFile(name, rest.partition(".")[0], entry.path)


def _is_older(entry: os.DirEntry[str], than: float) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return entry.stat(follow_symlinks=False).st_mtime < than
    return False


def _unlink(paths: Sequence[str]) -> None:
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
