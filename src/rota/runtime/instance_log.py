"""Reads the log of a container: a file, and the older ones that it was rotated to."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import BinaryIO, NamedTuple
from zlib import crc32

from rota.registry.errors import bad_request

TAIL_BYTES_MAX = 4 * 1024 * 1024
"""The most bytes of existing output that are read."""
LOOKED_BACK_BYTES = 16 * 1024
"""Bytes at the end of a text in which its last lines are looked for first."""
MARK_BYTES = 64
"""Bytes before a position that its checksum covers. The inode alone could be that of a newer file."""
MISSING = b"[rota: what was written in between is not kept]\n"
LISTINGS_MAX = 10
"""The most times that the files are listed again because the log was rotated meanwhile. Rotations are rare."""

_POSITION = re.compile(r"([0-9]{1,20})-([0-9]{1,15})-([0-9a-f]{8})")


class Place(NamedTuple):
    """A position in a log: the inode of the file, the offset, and a checksum of the bytes before it."""

    file: int
    offset: int
    mark: int


BEGINNING = Place(0, 0, 0)
"""The position before all existing output."""


def place_in(text: str) -> Place | None:
    """Parse a position; empty text gives None. Raises a bad request for text that is no position."""
    if not text:
        return None
    found = _POSITION.fullmatch(text)
    if found is None:
        raise bad_request(f"from: {text!r} is no position in a log: take what came with its last frame")
    return Place(int(found[1]), int(found[2]), int(found[3], 16))


class InstanceLog:
    """Reads the last lines of a container's log, or all from a position on, and then follows it."""

    def __init__(self, path: Path, lines: int, since: tuple[int, int] = (0, 0), begin: Place | None = None) -> None:
        """`since`: the inode of a file and an offset in it. Nothing before it is read."""
        self._path = path
        self._lines = lines
        self._since = since
        self._begin = begin
        self._has_begun = False
        self._file: BinaryIO | None = None
        self._rest = b""
        """Bytes to return before those of the file."""
        self._note = b""
        """A note to return before all other bytes. It is in no file."""

    def read(self, size: int) -> bytes:
        """Return the next bytes, or none if there are none yet."""
        self._start()
        if self._note:
            note, self._note = self._note, b""
            return note
        if self._rest:
            piece, self._rest = self._rest[:size], self._rest[size:]
            return piece
        piece = self._file.read(size) if self._file is not None else b""
        if piece or not self._was_put_aside():
            return piece
        # Once more: it may have been written to until the rotation.
        if self._file is not None and (piece := self._file.read(size)):
            return piece
        self._open_next()
        return self._file.read(size) if self._file is not None else b""

    def position(self, behind: int = 0) -> str:
        """Return the position that is `behind` bytes before the next one to be read."""
        self._start()
        file = self._file
        if file is None:
            return _text(BEGINNING)
        offset = max(0, file.tell() - len(self._rest) - behind)
        number = os.fstat(file.fileno()).st_ino
        return _text(Place(number, offset, _mark(file, offset, self._floor(number))))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    # The beginning.

    def _start(self) -> None:
        if self._has_begun:
            return
        self._has_begun = True
        if self._begin is None:
            self._file = _opened(self._path)
            self._rest = b"" if self._file is None else _tail(self._file, self._lines, self._since)
        elif not self._go_to(self._begin):
            self._file = self._oldest()
            # Nothing is missing for a reader that has received nothing before.
            self._note = MISSING if self._begin != BEGINNING else b""

    def _go_to(self, place: Place) -> bool:
        """Continue at a position. Returns False if the bytes before it have changed, or its file is gone."""
        for path, number in self._files():
            file = _opened(path) if number == place.file else None
            if file is None:
                continue
            size, floor = os.fstat(file.fileno()).st_size, self._floor(number)
            # No checksum reaches below the floor: a tenant could test guesses of bytes that it may not read.
            if place.offset < floor or (place.offset <= size and _mark(file, place.offset, floor) == place.mark):
                self._file = file
                file.seek(max(place.offset, floor))
                return True
            file.close()
        return False

    def _oldest(self) -> BinaryIO | None:
        for path, number in self._files():
            if (file := _opened(path)) is not None:
                file.seek(self._floor(number))
                return file
        return None

    def _floor(self, number: int) -> int:
        return self._since[1] if number == self._since[0] else 0

    # Rotation.

    def _was_put_aside(self) -> bool:
        """Report whether the log was rotated: another file has its name now."""
        try:
            now = self._path.stat().st_ino
        except FileNotFoundError:
            return False
        return self._file is None or os.fstat(self._file.fileno()).st_ino != now

    def _open_next(self) -> None:
        """Open the next newer file; if the current one was removed, the oldest."""
        own = os.fstat(self._file.fileno()).st_ino if self._file is not None else 0
        files = self._files()
        after = next((at + 1 for at, (_, number) in enumerate(files) if number == own), 0)
        file = _opened(files[after][0]) if after < len(files) else None
        if file is not None:
            self.close()
            self._file = file

    def _files(self) -> list[tuple[Path, int]]:
        """Return the files that may be read, with their inodes, the oldest first."""
        found = self._listed()
        for _ in range(LISTINGS_MAX):
            again = self._listed()
            if again == found:
                break
            found = again
        first = next((at for at, (_, number) in enumerate(found) if number == self._since[0]), 0)
        return found[first:]

    def _listed(self) -> list[tuple[Path, int]]:
        aside = [path for path in self._path.parent.glob(f"{self._path.name}.*") if path.suffix[1:].isdigit()]
        found = []
        for path in (*sorted(aside, key=lambda path: -int(path.suffix[1:])), self._path):
            try:
                found.append((path, path.stat().st_ino))
            except FileNotFoundError:
                continue
        return found


def _text(place: Place) -> str:
    return f"{place.file}-{place.offset}-{place.mark:08x}"


def _mark(file: BinaryIO, offset: int, floor: int) -> int:
    """Return the checksum of the bytes before an offset, down to the floor."""
    begin = max(floor, offset - MARK_BYTES)
    return crc32(os.pread(file.fileno(), offset - begin, begin))


def _opened(path: Path) -> BinaryIO | None:
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None


def _tail(file: BinaryIO, lines: int, since: tuple[int, int]) -> bytes:
    """Return the last lines of a file, and leave it at its end."""
    size = file.seek(0, os.SEEK_END)
    floor = since[1] if os.fstat(file.fileno()).st_ino == since[0] else 0
    file.seek(max(floor, size - TAIL_BYTES_MAX))
    return last_lines(file.read(TAIL_BYTES_MAX), lines)


def last_lines(text: bytes, count: int) -> bytes:
    """Return the last lines of a text. An incomplete last line counts.

    Bisects by counting newlines: a search for each line takes seconds in a log with millions of them.
    """
    if count <= 0:
        return b""
    end = high = len(text) - text.endswith(b"\n")
    reach = LOOKED_BACK_BYTES
    while reach < end and newlines(text[end - reach : end]) < count:
        reach *= 4
    low, later = max(0, end - reach), 0
    while low < high:
        middle = (low + high) // 2
        here = newlines(text[middle:high])
        if later + here < count:
            later, high = later + here, middle
        else:
            low = middle + 1
    return text[low:]


def newlines(text: bytes) -> int:
    """Count newlines. Ten times as fast as `bytes.count` where there are many."""
    return len(text) - len(text.translate(None, b"\n"))
