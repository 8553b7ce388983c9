"""Objects that have not been written for a while, packed.

Objects of one kind are much alike. Beside a sample of them, each takes a tenth of its room or less, and is had back in
a few microseconds, which is less than it takes to decode it. What was written lately stays as it is: in the rings it
is there anyway, and most of it is written again soon. So does a bucket of which there is little: it is listed faster.
"""

from __future__ import annotations

import zlib

from msgspec import Struct

from rota.store.model import Entry

BUCKET_BYTES_MIN = 16 * 1024 * 1024
"""A bucket with less than this in it stays as it is."""
PACKED_BYTES_MIN = 400
"""What is smaller is not worth it."""
PACKED_SHARE_MAX = 2
"""What does not shrink to one part in so many stays as it is."""
GOOD_SHARE_MAX = 4
SAMPLE_POOR_MAX = 32
"""So many that did not shrink to one part in `GOOD_SHARE_MAX` are followed by another sample: each serves a while."""
LEVEL = 3
WINDOW_BITS = 13
"""A bigger window takes longer to set up, and finds little more in objects of a few KiB."""
SAMPLE_BYTES_MAX = 1 << WINDOW_BITS


class Packed(Struct, frozen=True, gc=False):
    """An `Entry` that takes little room. The sample is shared."""

    key: str
    packed: bytes
    rev: int
    sample: bytes

    def entry(self) -> Entry:
        return Entry(self.key, zlib.decompressobj(-WINDOW_BITS, self.sample).decompress(self.packed), self.rev)


class Packer:
    """Packs the entries of one bucket."""

    __slots__ = ("_poor", "_sample", "used")

    def __init__(self) -> None:
        self._sample = b""
        self._poor = 0
        self.used = False
        """Whether there may be something packed."""

    def pack(self, entry: Entry) -> Entry | Packed:
        """The same entry, smaller if it can be."""
        value, sample = entry.value, self._sample
        if len(value) < PACKED_BYTES_MIN:
            return entry
        if not sample:
            self._sample = value[:SAMPLE_BYTES_MAX]
            return entry
        press = zlib.compressobj(LEVEL, zlib.DEFLATED, -WINDOW_BITS, zdict=sample)
        packed = press.compress(value) + press.flush()
        if len(packed) * GOOD_SHARE_MAX > len(value):
            self._poor += 1
            if self._poor == SAMPLE_POOR_MAX:
                self._sample, self._poor = value[:SAMPLE_BYTES_MAX], 0
        if len(packed) * PACKED_SHARE_MAX > len(value):
            return entry
        self.used = True
        return Packed(entry.key, packed, entry.rev, sample)


def unpacked(entry: Entry | Packed) -> Entry:
    return entry if type(entry) is Entry else entry.entry()  # type: ignore[union-attr]
