"""Copy files and folders of this host to an instance and back, for `rota cp` and the files of a claim.

A download is kept in an unnamed file until it is complete and checked, so a refused tree leaves nothing behind.
`rota.trees` decides what a sender may do.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import IO, TypeVar

from rota.client.claims.failures import TreeRefused
from rota.client.connection import header
from rota.client.http import HttpBackend
from rota.client.pipes import Pipe
from rota.client.pool import Stream
from rota.trees.archive import Archive, Event, Skipped
from rota.trees.bounds import ARCHIVE_STREAM_BYTES_MAX, FILE_BYTES_MAX, PIECE_BYTES
from rota.trees.failing import FileFailed
from rota.trees.links import stays_inside
from rota.trees.packing import Found, pack
from rota.trees.replacing import Replacing
from rota.trees.unpacking import Unpacking
from rota.trees.walking import Spot

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Opening a pipe would block until somebody opens its other end.
READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
MODE = "644"
"""The mode of a file that the sender gave none."""

R = TypeVar("R")
Count = Callable[[int], None]
"""Called with the number of bytes that were sent or received."""


class Stopped(Exception):  # noqa: N818 - says what became of it
    """The caller was cancelled."""


def _uncounted(size: int) -> None:
    """Count nothing."""


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """Raise TreeRefused, or the error of the operating system."""
    try:
        yield
    except FileFailed as failed:
        raise failed.error or TreeRefused(failed.message) from None


# To an instance.


async def upload_file(backend: HttpBackend, url: str, here: str, count: Count = _uncounted) -> None:
    descriptor = os.open(here, READ)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise TreeRefused(f"{here} is neither a file nor a folder")
        if status.st_size > FILE_BYTES_MAX:
            raise TreeRefused(f"{here} has {status.st_size} bytes; at most {FILE_BYTES_MAX} are copied")

        async def pieces() -> AsyncIterator[bytes]:
            while piece := os.read(descriptor, PIECE_BYTES):
                count(len(piece))
                yield piece

        await backend.upload(url, pieces(), "application/octet-stream")
    finally:
        os.close(descriptor)


async def upload_folder(backend: HttpBackend, url: str, here: str, count: Count = _uncounted) -> list[Skipped]:
    """Copy the content of a folder. Returns the links that lead out of it, which are left out."""
    top = os.open(here, FOLDER)
    reading, writing = os.pipe()
    packed = Pipe(reading)
    skipped: list[Skipped] = []

    def keep(found: Found) -> bool:
        if not found.target or stays_inside(found.name, found.target):
            return True
        skipped.append(Skipped(found.name, found.target))
        return False

    def write() -> None:
        with open(writing, "wb", buffering=0) as output, _refusing():
            pack(Spot(top, "."), _All(output.fileno()), keep)

    packing = asyncio.ensure_future(asyncio.to_thread(write))

    async def pieces() -> AsyncIterator[bytes]:
        while piece := await packed.read():
            count(len(piece))
            yield piece
        # A failed packing must not look like the end of the archive.
        await packing

    try:
        await backend.upload(url, pieces(), "application/x-tar")
    finally:
        packed.close()  # The other end then stops, too.
        await asyncio.gather(packing, return_exceptions=True)
        os.close(top)
    return skipped


class _All:
    """Writes everything to a pipe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]


# From an instance.


async def download_file(backend: HttpBackend, url: str, here: str, count: Count = _uncounted) -> None:
    """Copy a file. It appears as a whole. A link in its place is replaced, and never followed."""
    folder = os.open(os.path.dirname(here) or ".", FOLDER)
    try:
        async with backend.stream("GET", url) as stream:
            file = Replacing(folder, os.path.basename(here))
            try:
                await _taken(stream, file.write, FILE_BYTES_MAX, count)
                file.commit(int(header(stream.headers, "rota-mode") or MODE, 8))
            finally:
                file.drop()
    finally:
        os.close(folder)


async def download_folder(backend: HttpBackend, url: str, here: str, count: Count = _uncounted) -> list[Skipped]:
    """Copy the content of a folder into a local one, which is created. Returns the links that lead out, which are left
    out."""
    with _unnamed(here) as file:
        async with backend.stream("GET", url) as stream:
            await _taken(stream, file.write, ARCHIVE_STREAM_BYTES_MAX, count)
        return await _in_a_thread(lambda stop: unpack(file, here, stop))


def _unnamed(here: str) -> IO[bytes]:
    """Return a file without a name, on the file system of the target where possible."""
    above = os.path.dirname(os.path.abspath(here))
    return tempfile.TemporaryFile(dir=above if os.access(above, os.W_OK) else None)


async def _taken(stream: Stream, write: Callable[[bytes], object], bytes_max: int, count: Count) -> None:
    total = 0
    async for piece in stream:
        total += len(piece)
        if total > bytes_max:
            raise TreeRefused(f"what comes has more than {bytes_max} bytes")
        count(len(piece))
        write(piece)


def unpack(file: IO[bytes], here: str, stop: threading.Event) -> list[Skipped]:
    """Create the content of a tar below a folder, which is created, too, after all of it was checked.

    Returns the links that lead out, which are left out. Raises TreeRefused and OSError.
    """
    with _refusing():
        for _ in _events(file, stop):
            pass
        os.makedirs(here, exist_ok=True)
        top = os.open(here, FOLDER)
        unpacking = Unpacking(top)
        try:
            for event in _events(file, stop):
                unpacking.take(event)
            unpacking.finish()
        finally:
            unpacking.drop()
            os.close(top)
        return unpacking.skipped


def _events(file: IO[bytes], stop: threading.Event) -> Iterator[Event]:
    archive = Archive(skips_leaving_links=True)
    file.seek(0)
    while piece := file.read(PIECE_BYTES):
        if stop.is_set():
            raise Stopped
        yield from archive.feed(piece)
    archive.end()


async def _in_a_thread(work: Callable[[threading.Event], R]) -> R:
    """Run work in a thread. A cancellation is raised once the thread has stopped."""
    stop = threading.Event()
    working = asyncio.ensure_future(asyncio.to_thread(work, stop))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.gather(working, return_exceptions=True)
        raise
