"""The log of a container: a file, and before it those that it was put aside as when it was full."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import BinaryIO, NamedTuple
from zlib import crc32

from rota.registry.errors import bad_request

TAIL_BYTES_MAX = 4 * 1024 * 1024
"""Of what was written before, at most."""
LOOKED_BACK_BYTES = 16 * 1024
"""The end of a text, in which its last lines are looked for first."""
MARK_BYTES = 64
"""So much before a position is compared: the number of a file that is gone may be another file's by now."""
MISSING = b"[rota: what was written in between is not kept]\n"
LISTINGS_MAX = 10
"""Files are listed again when they were put aside meanwhile. That is seldom: each is several megabytes."""

_POSITION = re.compile(r"([0-9]{1,20})-([0-9]{1,15})-([0-9a-f]{8})")


class Place(NamedTuple):
    """A byte of a log: the number of the file, how far in it, and a checksum of what is before."""

    file: int
    offset: int
    mark: int


BEGINNING = Place(0, 0, 0)
"""Of all that is there."""


def place_in(text: str) -> Place | None:
    """What a position stands for; None: there is none."""
    if not text:
        return None
    found = _POSITION.fullmatch(text)
    if found is None:
        raise bad_request(f"from: {text!r} is no position in a log: take what came with its last frame")
    return Place(int(found[1]), int(found[2]), int(found[3], 16))


class InstanceLog:
    """Reads the log of a container: its last lines, or all from a place on; and then what comes."""

    def __init__(self, path: Path, lines: int, since: tuple[int, int] = (0, 0), begin: Place | None = None) -> None:
        """`since` is a file's number and a size: of that file and those before, nothing earlier is read."""
        self._path = path
        self._lines = lines
        self._since = since
        self._begin = begin
        self._has_begun = False
        self._file: BinaryIO | None = None
        self._rest = b""
        """What is read next, before what comes in the file."""
        self._note = b""
        """What is said before that, and is in no file."""

    def read(self, size: int) -> bytes:
        """What comes next; empty: nothing yet."""
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
        # Once more: it may have been written to until it was.
        if self._file is not None and (piece := self._file.read(size)):
            return piece
        self._open_next()
        return self._file.read(size) if self._file is not None else b""

    def position(self, behind: int = 0) -> str:
        """Where somebody goes on who has all that was read but the last bytes."""
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

    # Where it begins.

    def _start(self) -> None:
        if self._has_begun:
            return
        self._has_begun = True
        if self._begin is None:
            self._file = _opened(self._path)
            self._rest = b"" if self._file is None else _tail(self._file, self._lines, self._since)
        elif not self._go_to(self._begin):
            self._file = self._oldest()
            # Nothing is missing where nothing was received before.
            self._note = MISSING if self._begin != BEGINNING else b""

    def _go_to(self, place: Place) -> bool:
        """Go on at a place, if what is there is what it was."""
        for path, number in self._files():
            file = _opened(path) if number == place.file else None
            if file is None:
                continue
            size, floor = os.fstat(file.fileno()).st_size, self._floor(number)
            # Whether somebody knows what is before the floor is not told: checksums of guesses would be read by that.
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

    # From one file to the next.

    def _was_put_aside(self) -> bool:
        """Whether there is another file under the name by now."""
        try:
            now = self._path.stat().st_ino
        except FileNotFoundError:
            return False
        return self._file is None or os.fstat(self._file.fileno()).st_ino != now

    def _open_next(self) -> None:
        """The file that was begun after this one; if this one is gone, the oldest that there is."""
        own = os.fstat(self._file.fileno()).st_ino if self._file is not None else 0
        files = self._files()
        after = next((at + 1 for at, (_, number) in enumerate(files) if number == own), 0)
        file = _opened(files[after][0]) if after < len(files) else None
        if file is not None:
            self.close()
            self._file = file

    def _files(self) -> list[tuple[Path, int]]:
        """All that there are and may be read, with their numbers, the oldest first."""
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
    """The checksum of what is before a byte, and not before the floor."""
    begin = max(floor, offset - MARK_BYTES)
    return crc32(os.pread(file.fileno(), offset - begin, begin))


def _opened(path: Path) -> BinaryIO | None:
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None


def _tail(file: BinaryIO, lines: int, since: tuple[int, int]) -> bytes:
    """The last lines of a file, which is left at its end."""
    size = file.seek(0, os.SEEK_END)
    floor = since[1] if os.fstat(file.fileno()).st_ino == since[0] else 0
    file.seek(max(floor, size - TAIL_BYTES_MAX))
    return last_lines(file.read(TAIL_BYTES_MAX), lines)


def last_lines(text: bytes, count: int) -> bytes:
    """The last lines of a text; one that is not complete yet is one.

    Found by counting: to look for one line after the other takes seconds where a log has millions of them.
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
    """Count them. Ten times as fast as `count`, where there are many."""
    return len(text) - len(text.translate(None, b"\n"))
