"""Removes large folders in threads of its own, so that nothing else waits for it.

The caller has moved the folders aside before. The next server removes those that are left when this process ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from concurrent.futures import Future
from pathlib import Path

from rota.runtime.workspace.discard import remove

THREADS_MAX = 2
SECONDS_MAX = 3600.0
"""The most that the removal of one folder takes."""
WAIT_SECONDS_MAX = 2.0
"""The most that a caller of `waited_for` waits."""


class Removals:
    """A queue of folders, first come, first served. Its threads end when it is empty."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Path, Future[bool]]] = deque()
        self._threads = 0

    def add(self, path: Path) -> Future[bool]:
        """Queue a file or folder for removal. The future gets whether it is gone."""
        done: Future[bool] = Future()
        with self._lock:
            self._waiting.append((path, done))
            if self._threads < THREADS_MAX:
                self._threads += 1
                # A daemon thread: the end of the server does not wait for it.
                threading.Thread(target=self._work, name="removing", daemon=True).start()
        return done

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads -= 1
                    return
                path, done = self._waiting.popleft()
            # Removed also if the future was cancelled.
            is_awaited = done.set_running_or_notify_cancel()
            gone = False
            try:
                gone = remove(path, seconds_max=SECONDS_MAX)
            finally:
                if is_awaited:
                    done.set_result(gone)


async def waited_for(*removals: Future[bool] | None) -> None:
    """Wait for removals, at most `WAIT_SECONDS_MAX`. They go on in the background."""
    waiting = [asyncio.wrap_future(one) for one in removals if one is not None]
    if waiting:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                await asyncio.gather(*waiting)
