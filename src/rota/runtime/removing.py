"""Removal of what may be large, in threads of its own: nothing else waits for it.

What is to be removed is out of the way already. What is left when the process ends is found by the next one.
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
"""For one of them."""
WAIT_SECONDS_MAX = 2.0
"""What somebody waits who would like it to be gone."""


class Removals:
    """A queue of folders, first come, first served. Its threads end when it is empty."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Path, Future[bool]]] = deque()
        self._threads = 0

    def add(self, path: Path) -> Future[bool]:
        """Have something removed, whatever it is. The result: whether it is gone."""
        done: Future[bool] = Future()
        with self._lock:
            self._waiting.append((path, done))
            if self._threads < THREADS_MAX:
                self._threads += 1
                # Neither the end of a server waits for it, nor does it for a server.
                threading.Thread(target=self._work, name="removing", daemon=True).start()
        return done

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads -= 1
                    return
                path, done = self._waiting.popleft()
            # It is removed also if nobody waits for that any more.
            is_awaited = done.set_running_or_notify_cancel()
            gone = False
            try:
                gone = remove(path, seconds_max=SECONDS_MAX)
            finally:
                if is_awaited:
                    done.set_result(gone)


async def waited_for(*removals: Future[bool] | None) -> None:
    """Wait for removals, but no longer than `WAIT_SECONDS_MAX`: they go on by themselves."""
    waiting = [asyncio.wrap_future(one) for one in removals if one is not None]
    if waiting:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                await asyncio.gather(*waiting)
