"""File locks between processes, which are awaited without blocking the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path


@contextlib.asynccontextmanager
async def locked(path: Path) -> AsyncIterator[None]:
    """Hold the lock of a file. The kernel releases it when the process ends."""
    descriptor = await _acquire(path)
    try:
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked_now(path: Path) -> Iterator[bool]:
    """Hold the lock of a file if it is free. Yields whether it is held. If so, the file may be removed."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield _is_of(descriptor, path)
    finally:
        os.close(descriptor)


def _is_of(descriptor: int, path: Path) -> bool:
    """Report whether an open file still has its name. The last holder of its lock may have removed it."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(found, os.fstat(descriptor))


async def _acquire(path: Path) -> int:
    while not _is_of(descriptor := await _acquire_once(path), path):
        os.close(descriptor)
    return descriptor


async def _acquire_once(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return descriptor
    except BlockingIOError:
        pass
    loop = asyncio.get_running_loop()
    got: asyncio.Future[int] = loop.create_future()

    def deliver() -> None:
        if got.cancelled():
            os.close(descriptor)
        else:
            got.set_result(descriptor)

    def wait() -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            loop.call_soon_threadsafe(deliver)
        except RuntimeError:
            # The loop is closed.
            os.close(descriptor)

    # In a daemon thread: the process can end while another one holds the lock.
    threading.Thread(target=wait, name=f"lock {path.name}", daemon=True).start()
    return await got
