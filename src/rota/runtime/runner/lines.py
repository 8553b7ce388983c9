"""Finds lines with given beginnings in a stream of any length, in little memory."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence


@functools.cache
def _pattern(beginnings: tuple[bytes, ...]) -> re.Pattern[bytes]:
    return re.compile(b"\n(?:%s)" % b"|".join(map(re.escape, beginnings)))


class Lines:
    """Yields the lines that begin with one of some words, without their newlines.

    A line longer than the bound is left out. Other lines cost no more than the search for the words: a task that writes
    fifty million lines does not wait for its runner.
    """

    def __init__(self, beginnings: Sequence[bytes], bytes_max: int) -> None:
        self._beginnings = tuple(beginnings)
        self._bytes_max = bytes_max
        self._pattern = _pattern(self._beginnings)
        self._longest = max(map(len, beginnings))
        self._held: bytearray | None = bytearray()
        """The beginning of the line that is still incomplete; None if it begins with no word or is too long."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the lines that end in this piece of the stream."""
        end = data.find(b"\n")
        if end < 0:
            self._hold(data)
            return
        self._hold(data[:end])
        yield from self._held_line()
        last = data.rfind(b"\n")
        for found in self._pattern.finditer(data, end, last):
            begin = found.start() + 1
            line = data[begin : data.index(b"\n", begin)]
            if len(line) <= self._bytes_max:
                yield line
        self._held = bytearray()
        self._hold(data[last + 1 :])

    def close(self) -> Iterator[bytes]:
        """Yield the last line if it has no newline."""
        yield from self._held_line()
        self._held = None

    def _hold(self, piece: bytes) -> None:
        if self._held is None:
            return
        self._held += piece
        begun = bytes(self._held[: self._longest])
        can_be = any(begun.startswith(word) or word.startswith(begun) for word in self._beginnings)
        if not can_be or len(self._held) > self._bytes_max:
            self._held = None

    def _held_line(self) -> Iterator[bytes]:
        if self._held is not None and self._held.startswith(self._beginnings):
            yield bytes(self._held)
