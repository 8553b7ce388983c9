"""A lock that is waited for without blocking the loop, and that other processes see."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path


@contextlib.asynccontextmanager
async def locked(path: Path) -> AsyncIterator[None]:
    """Holds the file's lock, which goes with the process at the latest."""
    descriptor = await _acquire(path)
    try:
        yield
    finally:
        os.close(descriptor)


async def _acquire(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return descriptor
    except BlockingIOError:
        pass
    loop = asyncio.get_running_loop()
    got: asyncio.Future[int] = loop.create_future()

    def tell() -> None:
        if got.cancelled():
            os.close(descriptor)
        else:
            got.set_result(descriptor)

    def wait() -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            loop.call_soon_threadsafe(tell)
        except RuntimeError:
            # The loop is closed: nobody waits any more.
            os.close(descriptor)

    # Its own thread, which does not keep the process from ending while another one holds the lock.
    threading.Thread(target=wait, name=f"lock {path.name}", daemon=True).start()
    return await got
