"""Files and folders of this host, on their way to an instance and from it. Trees go through a file that has no name."""

from __future__ import annotations

import asyncio
import os
import secrets
import stat
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from typing import IO

from rota.client.claims.packing import FOLDER, TREE_BYTES_MAX, TreeRefused, pack
from rota.client.claims.unpacking import PIECE_BYTES, STREAM_BYTES_MAX, unpack
from rota.client.connection import header
from rota.client.http import HttpBackend
from rota.client.pool import Stream
from rota.client.target import Target
from rota.client.uploading import upload

FILE_BYTES_MAX = TREE_BYTES_MAX
MODE = "644"
"""Of a file whose mode is not told."""
MODE_MASK, PRIVATE = 0o777, 0o600


async def upload_file(target: Target, url: str, here: str) -> None:
    with open(here, "rb", buffering=0, opener=_without_waiting) as file:  # noqa: ASYNC230 - it does not wait
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise TreeRefused(f"{here} is neither a file nor a folder")
        if status.st_size > FILE_BYTES_MAX:
            raise TreeRefused(f"{here} has {status.st_size} bytes; at most {FILE_BYTES_MAX} are copied")
        await upload(target, url, _pieces(file), {"Content-Type": "application/octet-stream"})


def _without_waiting(path: str, flags: int) -> int:
    # A pipe would keep one waiting for somebody at its other end.
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


async def upload_folder(target: Target, url: str, here: str) -> None:
    with tempfile.TemporaryFile() as file:
        await _in_a_thread(lambda stop: pack(here, file, stop))
        file.seek(0)
        await upload(target, url, _pieces(file), {"Content-Type": "application/x-tar"})


async def _pieces(file: IO[bytes]) -> AsyncIterator[bytes]:
    while piece := file.read(PIECE_BYTES):
        yield piece


async def download_file(backend: HttpBackend, url: str, here: str) -> None:
    """The file appears whole. A link at its place is replaced, and never written through."""
    folder = os.open(os.path.dirname(here) or ".", FOLDER)
    temporary = f".rota-{secrets.token_hex(8)}"
    try:
        async with backend.stream("GET", url) as stream:
            mode = int(header(stream.headers, "rota-mode") or MODE, 8) & MODE_MASK
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(temporary, flags, PRIVATE, dir_fd=folder)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    await _taken(stream, file, FILE_BYTES_MAX)
                    os.fchmod(descriptor, mode)
                os.rename(temporary, os.path.basename(here), src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                os.unlink(temporary, dir_fd=folder)
                raise
    finally:
        os.close(folder)


async def download_folder(backend: HttpBackend, url: str, here: str) -> None:
    with tempfile.TemporaryFile() as file:
        async with backend.stream("GET", url) as stream:
            await _taken(stream, file, STREAM_BYTES_MAX)
        file.flush()
        await _in_a_thread(lambda stop: unpack(file, here, stop))


async def _taken(stream: Stream, file: IO[bytes], bytes_max: int) -> None:
    total = 0
    async for piece in stream:
        total += len(piece)
        if total > bytes_max:
            raise TreeRefused(f"what comes has more than {bytes_max} bytes")
        file.write(piece)


async def _in_a_thread(work: Callable[[threading.Event], None]) -> None:
    """Whoever is cancelled meanwhile is told when it has stopped."""
    stop = threading.Event()
    working = asyncio.ensure_future(asyncio.to_thread(work, stop))
    try:
        await asyncio.shield(working)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.gather(working, return_exceptions=True)
        raise
