"""Blobs of a home: bytes that are kept by their digest, such as the code of functions.

A blob under a digest has that digest. It is there whole or not at all, whatever is killed meanwhile; the same bytes are
kept once; a blob, and all together, have a bound.

Never: decides who may read or write, or which blobs are in use: the caller of `collect` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import tempfile
import time
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import IO

from rota.runtime.space import low_bytes, space_of

BLOB_BYTES_MAX = 64 * 1024 * 1024
BLOBS_BYTES_MAX = 8 * 1024 * 1024 * 1024
"""The most bytes of all blobs of a home together."""
UNUSED_SECONDS_MIN = 3600.0
"""Seconds that an unused blob stays after its last `put` or `keep`. Its object may be written later."""
ABANDONED_SECONDS = 3600.0
"""The age at which an unfinished file is removed: its writer has ended."""
CHUNK_BYTES = 256 * 1024
COUNTED_BYTES_MIN = 64 * 1024
"""Each blob counts for at least this many bytes, which bounds the number of blobs: every put lists all of them."""
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
INCOMING = "incoming-"


class BlobRefused(ValueError):  # noqa: N818 - says what became of it
    """A blob cannot be kept. The reason is `WrongDigest`, `TooLarge` or `NoSpace`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def is_digest(text: str) -> bool:
    return DIGEST.fullmatch(text) is not None


class Blobs:
    """The blobs of a home."""

    def __init__(
        self, home: Path, *, blob_bytes_max: int = BLOB_BYTES_MAX, blobs_bytes_max: int = BLOBS_BYTES_MAX
    ) -> None:
        self._folder = home / "blobs"
        self.blob_bytes_max = blob_bytes_max
        self._blobs_bytes_max = blobs_bytes_max

    def path(self, digest: str) -> Path:
        """Return the path of a blob, which may not exist. Raises ValueError for text that is no digest."""
        if not is_digest(digest):
            raise ValueError(f"{digest!r} is no digest: it is sha256: and 64 hexadecimal digits")
        return self._folder / digest.removeprefix("sha256:")

    def size(self, digest: str) -> int | None:
        """Return the size of a blob, or None if it is not here."""
        try:
            return self.path(digest).stat().st_size
        except FileNotFoundError:
            return None

    def keep(self, digest: str) -> bool:
        """Report whether a blob is here, and keep it for UNUSED_SECONDS_MIN from now, though no object refers to it."""
        try:
            os.utime(self.path(digest))
        except FileNotFoundError:
            return False
        return True

    def counted(self, digest: str) -> int:
        """Return how many bytes a blob counts for, 0 if it is not here."""
        size = self.size(digest)
        return max(size, COUNTED_BYTES_MIN) if size is not None else 0

    def left(self) -> int:
        """Return how many more bytes can be kept: the bound of all blobs and the free space of the disk limit them."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        disk = space_of(self._folder)
        return max(0, min(self._blobs_bytes_max - self._used(), disk.free - low_bytes(disk.total)))

    async def put(self, digest: str, pieces: AsyncIterator[bytes], share: int | None = None) -> bool:
        """Keep a blob. Returns False, and consumes no piece, if it was here already. Raises `BlobRefused`.

        `share`: the bytes that the caller may still put.
        """
        path = self.path(digest)
        if self.keep(digest):
            return False
        left = await asyncio.to_thread(self.left)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=INCOMING, dir=self._folder)
        incoming = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                found = await self._written(file, pieces, left, left if share is None else share)
                if found != digest:
                    raise BlobRefused(
                        "WrongDigest", f"the received bytes are {found}, not {digest}: they were changed on their way"
                    )
                await asyncio.to_thread(_flush, file)
            await asyncio.to_thread(self._name, incoming, path)
        except ConnectionError:
            raise
        except OSError as error:
            raise BlobRefused("NoSpace", f"it cannot be kept: {(error.strerror or str(error)).lower()}") from error
        finally:
            # At once, also where the request is cancelled.
            incoming.unlink(missing_ok=True)  # noqa: ASYNC240
        return True

    async def _written(self, file: IO[bytes], pieces: AsyncIterator[bytes], left: int, share: int) -> str:
        hashed, total = hashlib.sha256(), 0
        async for piece in pieces:
            total += len(piece)
            if total > self.blob_bytes_max:
                raise BlobRefused("TooLarge", f"a blob has at most {self.blob_bytes_max} bytes")
            if max(total, COUNTED_BYTES_MIN) > left:
                why = f"all blobs together have at most {self._blobs_bytes_max} bytes, and no more than the disk has"
                raise BlobRefused("NoSpace", f"{why}; delete functions that are not used")
            if max(total, COUNTED_BYTES_MIN) > share:
                why = f"of what is left for all blobs you may have {share} bytes more"
                raise BlobRefused("NoSpace", f"{why}; delete functions that are not used, or try again in an hour")
            await asyncio.to_thread(_write, file, hashed, piece)
        return f"sha256:{hashed.hexdigest()}"

    def _name(self, incoming: Path, path: Path) -> None:
        incoming.replace(path)
        _sync_folder(self._folder)

    async def read(self, digest: str) -> AsyncIterator[bytes]:
        """Yield a blob's bytes. Raises FileNotFoundError."""
        with self.path(digest).open("rb") as file:
            while piece := await asyncio.to_thread(file.read, CHUNK_BYTES):
                yield piece

    def collect(self, used: Collection[str]) -> list[str]:
        """Remove unused blobs after UNUSED_SECONDS_MIN, and abandoned files. Return the digests of removed blobs."""
        gone: list[str] = []
        now = time.time()
        for path in self._files():
            age = self._age(path, now)
            digest = f"sha256:{path.name}"
            if path.name.startswith(INCOMING):
                if age > ABANDONED_SECONDS:
                    path.unlink(missing_ok=True)
            elif is_digest(digest) and digest not in used and age > UNUSED_SECONDS_MIN:
                path.unlink(missing_ok=True)
                gone.append(digest)
        return gone

    def _files(self) -> list[Path]:
        return sorted(self._folder.iterdir()) if self._folder.is_dir() else []

    def _used(self) -> int:
        sizes = 0
        for path in self._files():
            with contextlib.suppress(FileNotFoundError):
                sizes += max(path.stat().st_size, COUNTED_BYTES_MIN)
        return sizes

    @staticmethod
    def _age(path: Path, now: float) -> float:
        try:
            return now - path.stat().st_mtime
        except FileNotFoundError:
            return 0.0


def _write(file: IO[bytes], hashed: hashlib._Hash, piece: bytes) -> None:
    hashed.update(piece)
    file.write(piece)


def _flush(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Sync a folder: without this a power failure may lose the name of a synced file."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
